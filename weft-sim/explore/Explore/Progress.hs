-- |
-- Description : The explorer's progress, for people
--
-- Counts runs and failures of all jobs. On a terminal one line is rewritten every second;
-- elsewhere a line is written now and then.
module Explore.Progress
  ( Progress,
    newProgress,
    working,
    ran,
    failed,
    finished,
    failures,
    totalRuns,
    announce,
    showing,
  )
where

import Control.Concurrent
import Control.Exception (bracket)
import Control.Monad (forever, when)
import Data.IORef
import GHC.Clock (getMonotonicTime)
import Numeric (showFFloat)
import System.IO
import Weft.Internal.Os.Report (writeStderr)

data Progress = Progress
  { progressRuns, progressSeeds, progressFailures :: !(IORef Int),
    progressScenario :: !(IORef String),
    progressStart :: !Double,
    progressTerminal :: !Bool,
    -- | Held by the thread that writes.
    progressPen :: !(MVar ())
  }

-- | Nothing done.
newProgress :: IO Progress
newProgress = Progress <$> newIORef 0 <*> newIORef 0 <*> newIORef 0 <*> newIORef "" <*> getMonotonicTime <*> hIsTerminalDevice stderr <*> newMVar ()

-- | A job has begun with this scenario.
working :: Progress -> String -> IO ()
working = writeIORef . progressScenario

-- | Count the given number of runs.
ran :: Progress -> Int -> IO ()
ran = add . progressRuns

-- | One more failure.
failed :: Progress -> IO ()
failed p = add (progressFailures p) 1

-- | One more seed is done.
finished :: Progress -> IO ()
finished p = add (progressSeeds p) 1

add :: IORef Int -> Int -> IO ()
add ref n = atomicModifyIORef' ref (\m -> (m + n, ()))

failures, totalRuns :: Progress -> IO Int
failures = readIORef . progressFailures
totalRuns = readIORef . progressRuns

-- | Write something that stays, on standard output.
announce :: Progress -> String -> IO ()
announce p text = withMVar (progressPen p) $ \() -> do
  when (progressTerminal p) $ writeStderr "\r\ESC[K"
  putStrLn text
  hFlush stdout

-- | Show it while the action runs; the given number of seeds are to be done.
showing :: Progress -> Integer -> IO a -> IO a
showing p total body = bracket (forkIO (forever (threadDelay pause >> line))) (\t -> killThread t >> over) (const body)
  where
    pause = if progressTerminal p then 1_000_000 else 30_000_000
    over = when (progressTerminal p) (writeStderr "\r\ESC[K")
    line = withMVar (progressPen p) $ \() -> do
      runs <- readIORef (progressRuns p)
      seeds <- readIORef (progressSeeds p)
      bad <- readIORef (progressFailures p)
      scenario <- readIORef (progressScenario p)
      now <- getMonotonicTime
      let rate = fromIntegral runs / max 0.001 (now - progressStart p) :: Double
          text =
            concat
              [ show seeds,
                "/",
                show total,
                " seeds, ",
                show runs,
                " runs, ",
                showFFloat (Just 0) rate "/s, ",
                show bad,
                if bad == 1 then " failure, " else " failures, ",
                scenario
              ]
      writeStderr (if progressTerminal p then "\r\ESC[K" <> text else text <> "\n")
