{-# OPTIONS_HADDOCK not-home #-}

-- | From the command line to a load: the options, what they name, whether it fits together, and the
-- rendered requests. An error is one line.
module Weft.Cli.Load.Plan (Plan (..), makePlan, LoadOptions (..), Amount (..), loadOptions) where

import Control.Exception (IOException, try)
import Control.Monad (forM, unless, when)
import Control.Monad.IO.Class (liftIO)
import Control.Monad.Trans.Except (ExceptT (..), except, runExceptT, throwE)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List.NonEmpty (NonEmpty (..))
import Data.List.NonEmpty qualified as NonEmpty
import Data.Maybe (fromMaybe, isJust, isNothing)
import GHC.IO.Exception (ioe_description)
import Options.Applicative
import Weft (BackendChoice (Auto), Duration, seconds)
import Weft.Cli.Load.Source
import Weft.Cli.Options
import Weft.Cli.Tcp
import Weft.Http.Client.Types (Target (..), Url (..), authority)
import Weft.Http.Client.Url (parseUrl, renderUrl)
import Weft.Http.Internal.Ascii (lowered)
import Weft.Http.Internal.Types (Field (..), Method (..), lookupField)
import Weft.Http.Response (BadField (..), checkField)
import Weft.Kernel (parseBackend)

data Plan = Plan
  { planTarget :: !Target,
    planMethod :: !Method,
    planRequests :: ![Weighted Pattern],
    -- | The first URL, for the report.
    planName :: !String
  }

type Check = ExceptT String IO

makePlan :: LoadOptions -> IO (Either String Plan)
makePlan o = runExceptT $ do
  fromList <- maybe (pure []) listed (loadList o)
  arguments <- mapM (fmap (Weighted 1) . liftIO . argumentBytes) (loadUrls o)
  urls <- maybe (throwE "something is missing: URL... or --urls FILE (see --help)") pure (NonEmpty.nonEmpty (arguments <> fromList))
  when (isJust (loadRate o) && loadPipeline o > 1) (throwE "--pipeline does not go with --rate")
  resolved <- forM urls $ \(Weighted w text) -> Weighted w <$> except (urlPattern text)
  let Weighted _ (target, _) :| others = resolved
  case [other | Weighted _ (other, _) <- others, other /= target] of
    other : _ -> throwE ("all URLs must lead to one server: " <> origin target <> " and " <> origin other <> " are two")
    [] -> pure ()
  fields <- mapM (\text -> liftIO (argumentBytes text) >>= except . fieldOf) (loadFields o)
  body <- mapM readBody (loadBody o)
  method <- maybe (pure (if isJust body then "POST" else "GET")) (liftIO . argumentBytes) (loadMethod o)
  unless (isMethod method) (throwE (show method <> " is not a method"))
  let rendered (Pattern start ranges) =
        let before = method <> " "
            behind = " HTTP/1.1\r\n" <> B.concat [n <> ": " <> v <> "\r\n" | Field n v <- standard target fields body] <> "\r\n" <> fromMaybe "" body
         in Pattern (before <> start) ranges `followedBy` behind
      Weighted _ first :| _ = urls
  pure
    Plan
      { planTarget = target,
        planMethod = if method == "HEAD" then Head else Get,
        planRequests = NonEmpty.toList (fmap (\(Weighted w (_, path)) -> Weighted w (rendered path)) resolved),
        planName = C.unpack first <> (if null others then "" else " and " <> show (length others) <> " more")
      }
  where
    origin server = C.unpack (renderUrl (Url server ""))
    listed :: FilePath -> Check [Weighted ByteString]
    listed path = do
      content <- contentOf path (if path == "-" then B.getContents else B.readFile path)
      list <- either (\e -> throwE (path <> ": " <> e)) pure (parseList content)
      if null list then throwE (path <> ": there is no URL in it") else pure list
    readBody = \case
      '@' : path -> contentOf path (B.readFile path)
      text -> liftIO (argumentBytes text)
    contentOf path act = liftIO (try act) >>= either (\e -> throwE (path <> ": " <> ioe_description (e :: IOException))) pure

-- | The target of a URL, and its path with ranges. A URL without a scheme is an http URL.
urlPattern :: ByteString -> Either String (Target, Pattern)
urlPattern given = named $ do
  Pattern start ranges <- parsePattern text
  -- It must be a URL with the largest numbers inserted; the ranges must be in its path.
  url <- parseUrl (B.concat (start : [C.pack (show high) <> behind | (_, high, behind) <- ranges]))
  base <- parseUrl start
  when (urlTarget base /= urlTarget url) (Left "a range may only be in the path")
  pure (urlTarget url, Pattern (urlPath base) [(low, high, C.takeWhile (/= '#') behind) | (low, high, behind) <- ranges])
  where
    text = if "://" `B.isInfixOf` given then given else "http://" <> given
    named = either (\e -> Left (show' given <> " is no URL: " <> e)) Right
    show' = show . C.unpack

fieldOf :: ByteString -> Either String Field
fieldOf text = case C.break (== ':') text of
  (_, "") -> Left (show (C.unpack text) <> " is not a header field (NAME: VALUE)")
  (name, rest) ->
    let field = Field name (C.dropWhileEnd (== ' ') (C.dropWhile (== ' ') (B.drop 1 rest)))
     in case checkField field of
          Nothing
            | lowered name `elem` ["content-length", "transfer-encoding", "connection", "expect"] -> Left ("the header field " <> C.unpack name <> " cannot be set")
            | otherwise -> Right field
          Just (BadName _) -> Left (show (C.unpack name) <> " is not the name of a header field")
          Just (BadValue _) -> Left ("the value of the header field " <> C.unpack name <> " cannot be sent")

isMethod :: ByteString -> Bool
isMethod m = isNothing (checkField (Field m "")) && m /= "CONNECT"

standard :: Target -> [Field] -> Maybe ByteString -> [Field]
standard target fields body =
  [Field "Host" (authority target) | absent "host"]
    <> [Field "User-Agent" "weft-load" | absent "user-agent"]
    <> fields
    <> [Field "Content-Length" (C.pack (show (B.length b))) | Just b <- [body]]
  where
    absent name = isNothing (lookupField name fields)

followedBy :: Pattern -> ByteString -> Pattern
followedBy (Pattern start ranges) end = case reverse ranges of
  [] -> Pattern (start <> end) []
  (low, high, behind) : before -> Pattern start (reverse ((low, high, behind <> end) : before))

data LoadOptions = LoadOptions
  { loadUrls :: ![String],
    loadList :: !(Maybe FilePath),
    loadConnections :: !Int,
    loadWorkers :: !(Maybe Int),
    loadAmount :: !Amount,
    loadWarmup :: !Duration,
    loadRate :: !(Maybe Double),
    loadPipeline :: !Int,
    loadIdle :: !Int,
    loadMethod :: !(Maybe String),
    loadFields :: ![String],
    loadBody :: !(Maybe String),
    loadInsecure :: !Bool,
    loadCa :: !(Maybe FilePath),
    loadTimeout :: !Duration,
    loadSeed :: !Int,
    loadBackend :: !BackendChoice,
    loadTcp :: !(Maybe OwnTcp),
    loadJson :: !Bool,
    loadProgress :: !Bool,
    loadReport :: !(Maybe FilePath)
  }

data Amount
  = -- | After this time.
    For !Duration
  | -- | After this number of requests.
    Count !Int

loadOptions :: Parser LoadOptions
loadOptions =
  LoadOptions
    <$> many (strArgument (metavar "URL..." <> help "What to ask for: http://HOST[:PORT]/PATH, or https, in which {0..99} is a number chosen at random; of several one is chosen at random, all of one server"))
    <*> optional (strOption (long "urls" <> metavar "FILE" <> help "A list of URLs, one on a line, each followed by its weight if wanted; - for standard input" <> action "file"))
    <*> option (number 1 1_000_000) (long "connections" <> short 'c' <> metavar "N" <> value 64 <> help "Connections that carry requests (default: 64)")
    <*> optional (option (number 1 256) (long "workers" <> short 't' <> metavar "N" <> help "Workers, each on an OS thread (default: one for each processor)"))
    <*> amount
    <*> option secondsOf (long "warmup" <> metavar "SECONDS" <> value mempty <> help "Load that comes before and does not count (default: 0)")
    <*> optional (option (real 0.001 100_000_000) (long "rate" <> short 'r' <> metavar "R" <> help "Send R requests a second at their times, whatever the responses (open loop); default: each connection sends when it has its response (closed loop)"))
    <*> option (number 1 1024) (long "pipeline" <> metavar "N" <> value 1 <> help "Requests under way on a connection at a time (default: 1)")
    <*> option (number 0 1_000_000) (long "idle" <> metavar "N" <> value 0 <> help "Connections that are opened besides, and do nothing (default: 0)")
    <*> optional (strOption (long "method" <> short 'X' <> metavar "METHOD" <> help "Request method (default: GET, or POST with a body)"))
    <*> many (strOption (long "header" <> short 'H' <> metavar "NAME: VALUE" <> help "A header field of each request; may be repeated"))
    <*> optional (strOption (long "body" <> short 'b' <> metavar "TEXT" <> help "The body of each request; @FILE takes it from a file"))
    <*> switch (long "insecure" <> help "With https: accept any server; without it its certificate is verified")
    <*> optional (strOption (long "ca" <> metavar "FILE" <> help "With https: trust the authorities in FILE (PEM) instead of the system's" <> action "file"))
    <*> option secondsOf (long "timeout" <> metavar "SECONDS" <> value (seconds 10) <> help "Time for a connection, and for a response to be complete (default: 10)")
    <*> option (number 0 1_000_000_000) (long "seed" <> metavar "N" <> value 1 <> help "What the choices at random begin with (default: 1)")
    <*> option (eitherReader parseBackend) (long "backend" <> metavar "NAME" <> value Auto <> help "Event source: auto, epoll, io_uring or poll (default: auto, or what WEFT_BACKEND says)")
    <*> optional (option ownTcp (long "tcp" <> metavar "DEVICE,ADDRESS/PREFIX[@ROUTER][,ADDRESS/PREFIX[@ROUTER]][,FILE]" <> help "Use a TCP of its own with this address on a TUN device or an interface of Ethernet, not the system's"))
    <*> switch (long "json" <> help "Print the report as one JSON object")
    <*> switch (long "progress" <> help "Say on standard error how it goes, also if that is no terminal")
    <*> optional (strOption (long "report" <> metavar "FILE" <> help "Write a report with pictures to FILE.html, or the pictures alone to FILE.svg" <> action "file"))
  where
    amount =
      (Count <$> option (number 1 1_000_000_000_000) (long "requests" <> short 'n' <> metavar "N" <> help "End after N requests"))
        <|> (For <$> option secondsOf (long "duration" <> short 'd' <> metavar "SECONDS" <> value (seconds 10) <> help "End after this time (default: 10)"))
    real :: Double -> Double -> ReadM Double
    real low high = eitherReader $ \text -> case reads text of
      [(x, "")] | x >= low && x <= high -> Right x
      _ -> Left (show text <> " is not a number of requests a second")
