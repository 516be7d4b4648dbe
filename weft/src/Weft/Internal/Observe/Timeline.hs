{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | How a worker runs while a timeline is recorded. Slices and polls with the clock read around each.
-- A worker chooses between these and the plain ones when it starts, so that a run without a timeline
-- pays nothing. On the worker's carrier.
module Weft.Internal.Observe.Timeline (recordedSlice, recordedPolls) where

import Weft.Internal.Core.Scheduler
import Weft.Internal.Kernel
import Weft.Internal.Observe.Timeline.Recorder

-- | As 'runSlice', one dispatch at a time. The clock is read once for each: the end of
-- one is the beginning of the next.
recordedSlice :: Recorder -> Scheduler -> Int -> IO Bool
recordedSlice recorder s dispatches = do
  on <- recording recorder
  ready <- readyCount s
  if on && ready > 0
    then do
      now <- timelineNow recorder
      openSlice recorder now ready
      go dispatches now
    else runSlice s dispatches
  where
    go left began = do
      beginDispatch recorder began
      ours <- runSlice s 1
      if ours
        then do
          now <- timelineNow recorder
          currentThread s >>= endDispatch recorder began now
          ready <- readyCount s
          cut <- wasCut s
          if left <= 1 || cut || ready == 0
            then True <$ closeSlice recorder now ready
            else go (left - 1) now
        else -- The recorder is the next carrier's now.
          pure False

-- | The part of a kernel on one worker, with its polls recorded.
recordedPolls :: Recorder -> Instance -> Instance
recordedPolls recorder kernel = kernel {instancePoll = poll}
  where
    poll mayBlock = do
      on <- recording recorder
      if on
        then do
          began <- timelineNow recorder
          found <- instancePoll kernel mayBlock
          now <- timelineNow recorder
          found <$ recordPoll recorder mayBlock began now found
        else instancePoll kernel mayBlock
