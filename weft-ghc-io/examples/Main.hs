-- |
-- Description : One service, on GHC's threads or inside Weft's
--
-- > weft-ghc-io-session weft 5000
-- > weft-ghc-io-session ghc 5000
--
-- The clients are in the same process, and connected at once. What serves them is the same code
-- ("Session"); it is forked here, which is all that the two differ in.
module Main (main) where

import Control.Concurrent (forkIO, threadDelay)
import Control.Monad (forever, replicateM_, unless, void)
import Data.IORef
import GHC.Clock (getMonotonicTime)
import Network.Socket (accept)
import Session
import System.Directory (listDirectory)
import System.Environment (getArgs)
import System.Exit (die)
import Weft.GhcIO qualified as GhcIO
import Weft.IO qualified as IO

main :: IO ()
main =
  getArgs >>= \case
    ["weft", clients] -> GhcIO.install >> IO.run (IO.withScope (\scope -> serve (void . IO.forkDaemonIn scope) (read clients)))
    ["ghc", clients] -> serve (void . forkIO) (read clients)
    _ -> die "usage: weft-ghc-io-session (weft|ghc) CLIENTS"

-- | Serve this number of clients, all there at the same time.
serve :: (IO () -> IO ()) -> Int -> IO ()
serve fork clients = do
  begin <- getMonotonicTime
  (listener, address) <- open
  fork . forever $ accept listener >>= fork . session . fst
  connected <- newIORef 0
  served <- newIORef 0
  let count ref = atomicModifyIORef' ref (\n -> (n + 1, ()))
      allIn ref = readIORef ref >>= \n -> unless (n == clients) (threadDelay 1000 >> allIn ref)
  replicateM_ clients . fork $ client address (count connected >> threadDelay 1_000_000) 10 >> count served
  allIn connected
  threadDelay 1000
  osThreads <- length <$> listDirectory "/proc/self/task"
  allIn served
  end <- getMonotonicTime
  putStrLn $
    unwords [show clients, "clients at once,", show (10 * clients), "answers in", show (round ((end - begin) * 1000) :: Int), "ms, on", show osThreads, "OS threads"]
