{-# OPTIONS_HADDOCK not-home #-}

-- | The file of a timeline. Runs the one thread of GHC that writes what the workers have recorded. Its calls
-- may block for as long as the disk does. When the file cannot be written any more the operator is told once.
module Weft.Internal.Observe.Timeline.Writer (Timeline (..), timelineTo, withTimeline) where

import Control.Concurrent (forkIO, forkIOWithUnmask, killThread)
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad (unless, void, when)
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (Builder, toLazyByteString)
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust, isNothing, listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import System.Environment (getProgName)
import System.IO
import System.Posix.Process (getProcessID)
import System.Timeout (timeout)
import Weft.Internal.Data.Counters
import Weft.Internal.Observe.Timeline.Event
import Weft.Internal.Observe.Timeline.Recorder
import Weft.Internal.Os.Report (exceptionText)
import Weft.Internal.Os.Sys qualified as Sys

-- | Where and how a timeline is recorded.
data Timeline = Timeline
  { -- | The file. It is replaced. It may be a FIFO that another process reads.
    timelineFile :: !FilePath,
    -- | Memory for what each worker has recorded and the file has not, in bytes, 40 for each event, whose
    -- number is rounded up to a power of two of at least 1,024. Default 4 MiB, some hundred thousand
    -- events. Without room events are dropped; the file says how many.
    timelineBuffer :: !Int,
    -- | How often the file is written, in microseconds; sooner when a buffer is half full. Default 50,000.
    timelineInterval :: !Int
  }
  deriving stock (Eq, Show)

-- | A timeline in this file, with the defaults.
timelineTo :: FilePath -> Timeline
timelineTo file = Timeline file 4_194_304 50_000

-- | Record a timeline, if one is wanted, of the given number of workers; the functions report what goes
-- wrong later, read the counters, and run with the recorder of each worker. A file that cannot be
-- opened is an 'IOError' here. At the end the rest is written, for five seconds at most.
withTimeline :: Maybe Timeline -> Int -> (String -> IO ()) -> IO Counters -> ((Int -> Maybe Recorder) -> IO a) -> IO a
withTimeline Nothing _ _ _ use = use (const Nothing)
withTimeline (Just timeline) workers report look use = bracket begin snd (use . recorderOf . fst)
  where
    begin = do
      process <- Process . fromIntegral <$> getProcessID
      name <- getProgName
      file <- openBinaryFile (timelineFile timeline) WriteMode
      flip onException (hClose file) $ do
        -- Each write is of whole events: nothing of one stays in a buffer.
        hSetBuffering file NoBuffering
        switch <- newIORef True
        origin <- fromIntegral <$> Sys.monotonicNow
        recorders <- mapM (newRecorder switch origin room) [0 .. workers - 1]
        stop <- newEmptyMVar
        finished <- newEmptyMVar
        let write unmask =
              try (unmask (writeTimeline process (Text.pack name) file (timelineInterval timeline) recorders look stop)) >>= \case
                Right () -> pure ()
                Left e -> do
                  writeIORef switch False
                  unless (fromException e == Just ThreadKilled) $
                    report ("timeline: " <> exceptionText e <> "; no more of it is written")
                  hClose file `catch` \(_ :: IOException) -> pure ()
        thread <- forkIOWithUnmask $ \unmask -> write unmask `finally` putMVar finished ()
        pure (recorders, end switch stop finished thread)
    end switch stop finished thread = do
      putMVar stop ()
      whole <- timeout 5_000_000 (readMVar finished)
      when (isNothing whole) $ do
        writeIORef switch False
        report ("timeline: " <> timelineFile timeline <> ": writing it takes too long; its end is missing")
        -- It may be in a call that does not return: that is not waited for.
        void (forkIO (killThread thread))
    room = max 1024 (min (2 ^ (40 :: Int)) (timelineBuffer timeline) `div` 40)
    recorderOf recorders worker = listToMaybe (drop worker recorders)

-- | Write until it is time to stop, and then what is left, and the end.
writeTimeline :: Process -> Text -> Handle -> Int -> [Recorder] -> IO Counters -> MVar () -> IO ()
writeTimeline process name file interval recorders look stop = put (renderHead process name (length recorders)) >> go Map.empty False
  where
    go known stopping = do
      known' <- writeCounters known
      busy <- or <$> mapM (writeEvents 0) recorders
      if
        | stopping && not busy -> put renderEnd >> hClose file
        | stopping || busy -> tryReadMVar stop >>= go known' . isJust
        | otherwise -> timeout (max 1 interval) (readMVar stop) >>= go known' . isJust
    -- What a worker has published up to now. Is it time to look again already?
    writeEvents :: Int -> Recorder -> IO Bool
    writeEvents n recorder =
      takeEvents recorder batch >>= \case
        [] -> pure (n > recorderRoom recorder `div` 2)
        events -> do
          put (foldMap (\e -> separator <> renderEvent process (recorderWorker recorder) e) events)
          if n < enough then writeEvents (n + length events) recorder else pure True
    -- Events in one write, and in one turn before the other workers' come.
    batch = 512
    enough = 16_384
    -- The numbers that have changed, on a track of their own.
    writeCounters known = do
      c <- look
      dropped <- mapM droppedEvents recorders
      now <- maybe (pure 0) timelineNow (listToMaybe recorders)
      let sums = total c
          numbers =
            Map.unions
              [ Map.fromList
                  [ (Text.pack "threads", threadsAlive sums),
                    (Text.pack "threads away", countedAway sums),
                    (Text.pack "carriers", countersCarriers c)
                  ],
                Map.fromList [(Text.pack ("worker " <> show w <> " dropped events"), n) | (w, n) <- zip [0 :: Int ..] dropped, n > 0],
                countedKernel sums,
                countersKernel c
              ]
          changed = Map.differenceWith (\new old -> if new == old then Nothing else Just new) numbers known
      numbers <$ put (foldMap (\(what, n) -> separator <> renderCounter process 0 now what n) (Map.toList changed))
    -- Whole events, at once.
    put :: Builder -> IO ()
    put = ByteString.hPut file . Lazy.toStrict . toLazyByteString
