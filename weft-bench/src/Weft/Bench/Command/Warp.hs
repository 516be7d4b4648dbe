-- |
-- Module      : Weft.Bench.Command.Warp
-- Description : weft-bench warp
--
-- Runs the peer of "Weft.Bench.Warp". The comparison of servers starts it itself.
module Weft.Bench.Command.Warp
  ( warpCommand,
  )
where

import Options.Applicative
import Weft.Bench.Command.Options (positive)
import Weft.Bench.Warp (serveWithWarp)

-- | @warp@.
warpCommand :: Mod CommandFields (IO ())
warpCommand =
  command "warp" (info parser (progDesc "Serve the files of a directory with warp, from memory"))
  where
    parser =
      serveWithWarp
        <$> option positive (long "port" <> metavar "P" <> value 8080 <> showDefault <> help "on 127.0.0.1")
        <*> strOption (long "root" <> metavar "DIR" <> help "the directory")
