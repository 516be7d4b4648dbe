{-# OPTIONS_HADDOCK not-home #-}

-- | A poller without a kernel: readiness by script and a virtual clock, for deterministic tests of programs
-- on "Weft.EventManager"; and an example of a poller that is not made of a system call.
module Weft.Internal.Backend.Readiness.Script
  ( Script,
    scripted,
    setReady,
    scriptAt,
    scriptNow,
  )
where

import Control.Monad (join)
import Data.Bits (complement, (.&.), (.|.))
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Word (Word64)
import Foreign.C.Error (eDEADLK)
import Foreign.Ptr (Ptr)
import System.Posix.Types (Fd)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Data.Time (Duration (..))
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | The reports of a scripted poller, and its clock.
newtype Script = Script (IORef State)

data State = State
  { stateNow :: !Int64,
    stateReady :: !(IntMap Events),
    stateWatched :: !(IntMap (Key, Trigger, Interest)),
    -- | By time, and then by a count.
    stateAgenda :: !(Map (Int64, Int) (IO ())),
    stateCount :: !Int
  }

-- | A poller that reports what its script says, in the order of the descriptors, which can be any
-- numbers. Its clock begins at 0 and moves only by a wait in which nothing is ready: on to the next
-- point of the script, or to the wait's own end. A wait without a limit and without a script to end it
-- fails with @EDEADLK@.
scripted :: IO (Script, Poller)
scripted = do
  ref <- newIORef (State 0 IntMap.empty IntMap.empty Map.empty 0)
  pure
    ( Script ref,
      Poller
        { pollerName = "script",
          pollerTrigger = Level,
          pollerHasOnce = True,
          pollerIsShared = True,
          pollerClock = stateNow <$> readIORef ref,
          pollerWatch = \number key trigger interest ->
            0 <$ change ref \s -> s {stateWatched = IntMap.insert (fromIntegral number) (key, trigger, interest) (stateWatched s)},
          pollerRemove = \number -> change ref \s -> s {stateWatched = IntMap.delete (fromIntegral number) (stateWatched s)},
          pollerLook = look ref,
          pollerWait = wait ref,
          pollerFree = pure ()
        }
    )

-- | Say what a descriptor is ready for from now on: 'mempty' for nothing.
setReady :: Script -> Fd -> Events -> IO ()
setReady (Script ref) fd events =
  change ref \s -> s {stateReady = IntMap.insert (fromIntegral fd) events (stateReady s)}

-- | Have an action run, in the middle of a wait, when the clock has come this far from now: 'setReady', or
-- what another thread would do with the event manager. Those of one point in time run in their order.
scriptAt :: Script -> Duration -> IO () -> IO ()
scriptAt (Script ref) (Duration d) action = change ref \s ->
  s
    { stateAgenda = Map.insert (stateNow s + max 0 d, stateCount s) action (stateAgenda s),
      stateCount = stateCount s + 1
    }

-- | How far the clock has come.
scriptNow :: Script -> IO Duration
scriptNow (Script ref) = Duration . stateNow <$> readIORef ref

change :: IORef State -> (State -> State) -> IO ()
change ref f = atomicModifyIORef' ref \s -> (f s, ())

look :: IORef State -> Ptr Word64 -> Int -> IO Result
look ref buffer capacity = do
  found <- atomicModifyIORef' ref \s ->
    let events = take capacity (reported s)
        disarmed = [n | (n, _, Once, _) <- events]
     in (s {stateWatched = foldr IntMap.delete (stateWatched s) disarmed}, events)
  putEvents buffer capacity [(key, e) | (_, key, _, e) <- found]

reported :: State -> [(Int, Key, Trigger, Events)]
reported s =
  [ (n, key, trigger, Events bits)
    | (n, (key, trigger, Interest interest)) <- IntMap.toList (stateWatched s),
      Just (Events ready) <- [IntMap.lookup n (stateReady s)],
      let bits = ready .&. (interest .|. always),
      bits .&. complement (eventBits peerClosed) .|. (bits .&. interest) /= 0
  ]
  where
    always = eventBits (peerClosed <> failed <> invalid)

wait :: IORef State -> Ptr Word64 -> Int -> Int64 -> IO Result
wait ref buffer capacity limit = do
  n <- look ref buffer capacity
  if n /= 0 then pure n else join $ atomicModifyIORef' ref advance
  where
    -- In one step: another thread may add to the agenda.
    advance s = case (Map.minViewWithKey (stateAgenda s), if limit < 0 then Nothing else Just (stateNow s + limit)) of
      (Just (((time, _), action), rest), end)
        | maybe True (time <=) end ->
            -- Without going on: the action may have woken the event manager.
            (s {stateNow = max time (stateNow s), stateAgenda = rest}, action >> look ref buffer capacity)
      (_, Just end) -> (s {stateNow = end}, pure 0)
      (_, Nothing) -> (s, pure (Sys.failureCode eDEADLK))
