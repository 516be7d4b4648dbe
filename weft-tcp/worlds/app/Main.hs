-- |
-- Description : The program weft-tcp-worlds
--
-- Runs the worlds of a range of seeds, @FROM-TO@, on all processors: two connections each, and a bad
-- link between them. What goes wrong is made small and printed as a script for packetdrill. With @netsim@ it prints the tables of
-- "Netsim" and "Matrix", or compares the matrix with that of a page.
module Main (main) where

import Control.Concurrent
import Control.Monad (forM_, replicateM, unless)
import Data.Char (isDigit)
import Data.IORef
import Data.Int (Int64)
import Data.Map.Strict (Map)
import Data.Time.Clock (diffUTCTime, getCurrentTime)
import Data.Word (Word64)
import GHC.Conc (getNumProcessors)
import Matrix
import Netsim
import System.Environment (getArgs)
import System.Exit
import System.IO
import Text.Printf (printf)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import World
import World.Plan
import World.Shrink

main :: IO ()
main =
  getArgs >>= \case
    [text]
      | (from, '-' : to) <- break (== '-') text, all isDigit from, all isDigit to, not (null from), not (null to), read from <= (read to :: Integer) -> worlds (read from) (read to)
    ["netsim"] -> netsim
    ["netsim", page] -> readFile page >>= compared . committed
    _ -> hPutStrLn stderr "weft-tcp-worlds: usage: weft-tcp-worlds FROM-TO, or netsim [TABLE]" >> exitWith (ExitFailure 2)

-- | The tables of "Netsim".
netsim :: IO ()
netsim = do
  putStrLn "| control | flows | of the link | Jain | dropped |\n|---|---|---|---|---|"
  forM_ [cubic, newReno] $ \control -> forM_ [1, 2, 4, 8, 16, 32, 64] $ \flows -> do
    let (used, fair, dropped) = sharing 10 control flows
    putStrLn (printf "| %s | %d | %.0f %% | %.3f | %.2f %% |" (controlName control) flows (100 * used) fair (100 * dropped))
    hFlush stdout
  putStrLn ""
  mapM_ (\line -> putStrLn line >> hFlush stdout) (table delivered)
  putStrLn "\n| RTT, ms | 256 KB | growing | 6 MB |\n|---|---|---|---|"
  forM_ [10000, 50000, 100000, 200000] $ \trip -> do
    putStrLn (printf "| %d | %d | %d | %d |" (trip `div` 1000) (filling defaultSettings {settingReceiveLimit = 0} trip) (filling defaultSettings trip) (filling defaultSettings {settingReceiveBuffer = 6291456} trip))
    hFlush stdout

-- | Each cell of the matrix against the page with the table.
compared :: Map Cell Int64 -> IO ()
compared known = do
  let wrong = concatMap (worse known) cells
  mapM_ putStrLn wrong
  putStrLn (show (length cells) <> " cells, " <> show (length wrong) <> " wrong")
  unless (null wrong) exitFailure

worlds :: Word64 -> Word64 -> IO ()
worlds from to = do
  begun <- getCurrentTime
  next <- newIORef from
  bad <- newIORef (0 :: Int)
  segments <- newIORef (0 :: Int)
  jobs <- getNumProcessors
  setNumCapabilities jobs
  ends <- replicateM jobs $ do
    end <- newEmptyMVar
    end <$ forkFinally (job next bad segments) (putMVar end)
  outcomes <- mapM takeMVar ends
  forM_ outcomes (either (\e -> hPrint stderr e >> exitWith (ExitFailure 1)) pure)
  ended <- getCurrentTime
  wrong <- readIORef bad
  total <- readIORef segments
  let count = fromIntegral (to - from + 1) :: Double
      took = realToFrac (diffUTCTime ended begun) :: Double
  putStrLn (show (to - from + 1) <> " worlds, " <> show total <> " segments, " <> show wrong <> " wrong; " <> show (round (count / max 0.001 took) :: Int) <> " worlds a second")
  unless (wrong == 0) exitFailure
  where
    job next bad segments =
      atomicModifyIORef' next (\n -> (n + 1, n)) >>= \n ->
        if n > to
          then pure ()
          else do
            case runWorld noMistake (drawPlan n) of
              Right o -> atomicModifyIORef' segments (\k -> (k + outcomeSegments o, ()))
              Left w -> do
                seen <- atomicModifyIORef' bad (\k -> (k + 1, k))
                -- More of them are only counted.
                unless (seen >= 10) (putStrLn (report noMistake n w))
            job next bad segments
