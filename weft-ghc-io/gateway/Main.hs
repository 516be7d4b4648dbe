-- |
-- Description : The gateway and its store, on GHC's threads or inside Weft's
--
-- > weft-ghc-io-gateway weft 3000 &
-- > curl http://127.0.0.1:3000/cost/bread/3
--
-- The store is at the next port. The applications are the same; what serves them is chosen here.
module Main (main) where

import Control.Concurrent (forkIO)
import Control.Monad (void)
import Gateway
import Network.Wai.Handler.Warp qualified as Warp
import System.Environment (getArgs)
import System.Exit (die)
import Weft.GhcIO qualified as GhcIO
import Weft.Wai qualified as Weft

main :: IO ()
main =
  getArgs >>= \case
    ["weft", port] -> GhcIO.install >> both weft (read port)
    ["warp", port] -> both Warp.run (read port)
    _ -> die "usage: weft-ghc-io-gateway (weft|warp) PORT"
  where
    both run port = do
      prices <- store (pure ())
      void (forkIO (run (port + 1) prices))
      gateway (port + 1) >>= run port
    -- A connection's thread runs the application; whatever that waits for suspends it.
    weft port = Weft.runSettings (Weft.setPort port (Weft.setApplicationStyle Weft.Direct Weft.defaultSettings))
