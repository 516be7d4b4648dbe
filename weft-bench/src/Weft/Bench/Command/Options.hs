-- |
-- Description : Options that several commands have
--
-- Shared pieces of the command line, so that an option is called the same
-- everywhere and refuses the same nonsense.
module Weft.Bench.Command.Options
  ( formatOption,
    positive,
    numberFrom,
    roundsOption,
    threadsOption,
    switchesOption,
    peersOption,
    weftOption,
    commaSeparated,
    orDie,
  )
where

import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import System.Exit (die)
import Weft.Bench.Named (listOf)
import Weft.Bench.Report (Format (..))

-- | @--json@, or a table.
formatOption :: Parser Format
formatOption = flag Table Json (long "json" <> help "print one JSON object a line instead of a table")

-- | A number that is at least one. Underscores may group its digits.
positive :: ReadM Int
positive = eitherReader (numberFrom 1 . Text.pack)

-- | A number that is at least the first, which is not negative. Underscores may group its digits.
numberFrom :: Integer -> Text -> Either String Int
numberFrom least text = case reads (filter (/= '_') (Text.unpack text)) of
  [(n, "")] | n >= least, n <= toInteger (maxBound :: Int) -> Right (fromInteger n)
  _ -> Left ("not a number" ++ (if least == 0 then "" else " of at least " ++ show least) ++ ": " ++ Text.unpack text)

-- | @--rounds@, with its default.
roundsOption :: Int -> Parser Int
roundsOption preset = option positive (long "rounds" <> metavar "R" <> value preset <> showDefault <> help "interleaved rounds")

-- | @--threads@.
threadsOption :: Parser Int
threadsOption =
  option positive (long "threads" <> metavar "N" <> value 1000 <> showDefault <> help "threads alive at once")

-- | @--switches@.
switchesOption :: Parser Int
switchesOption =
  option positive (long "switches" <> metavar "M" <> value 10_000_000 <> showDefault <> help "switches in all, shared out among the threads")

-- | @--peers-dir@.
peersOption :: FilePath -> Parser FilePath
peersOption path =
  strOption (long "peers-dir" <> metavar "DIR" <> value path <> showDefault <> help "where `make -C weft-bench/peers` left the peers")

-- | @--weft@.
weftOption :: Parser FilePath
weftOption = strOption (long "weft" <> metavar "FILE" <> value "bin/weft" <> showDefault <> help "the program weft")

-- | A list of things separated by commas.
commaSeparated :: (Text -> Either String a) -> ReadM [a]
commaSeparated item = eitherReader (listOf item . Text.pack)

-- | The result, or the end of the program with what is wrong.
orDie :: Either String a -> IO a
orDie = either (die . ("weft-bench: " ++)) pure
