{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : From a system call to its answer
--
-- A call is an attempt, made in the stack's turn. What cannot be done yet parks the thread, which
-- tries again when it is woken: so a thread that is cancelled while it waits has taken nothing, and
-- one that is woken in vain waits again. A standing receive need not try again ('serve' in
-- "Weft.Tcp.Stack.Engine"): it is answered in the turn in which bytes come, unless its wait is over.
module Weft.Tcp.Stack.Ask
  ( Verdict (..),
    ask,
    askThroughQueue,
    asking,
    inTurn,
  )
where

import Control.Exception (SomeException, toException, try)
import Control.Monad (unless, void)
import Foreign.C.Error (Errno, eTIMEDOUT, errnoToIOError)
import GHC.Exts (oneShot)
import Weft (Thread)
import Weft.Internal.Core.Home (Home (..), Why (Accepted))
import Weft.Internal.Core.Park (BlockedOn (..))
import Weft.Internal.Core.Park qualified as Park
import Weft.Internal.Core.SystemCall (SystemCall (..), because)
import Weft.Internal.Core.Tcb (Resume, Tcb)
import Weft.Internal.Core.Trace (Thread (..), Trace (..), internally)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Stack.Arrivals
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Turn

-- | How an attempt ends.
data Verdict a
  = Answer a
  | Refuse !Errno
  | -- | Wait: where to leave the waiter, and until when. An attempt that has to wait at that time fails with
    -- @ETIMEDOUT@.
    Again (Wake -> IO ()) !(Maybe Instant)
  | -- | An attempt in the turn of another shard.
    Elsewhere !Stack (Maybe Home -> Instant -> IO (Verdict a))
  deriving stock (Functor)

-- | Answer a call of this thread. The text is for errors. A thread that has waited makes the call again, by the
-- function: nothing but that is kept for it.
ask :: Stack -> String -> SystemCall r -> Resume -> (Maybe Home -> Instant -> IO (Verdict a)) -> Home -> Tcb -> (a -> Trace) -> IO Trace
ask st what request again attempt home tcb k = answering st what request again attempt (pure . k) home tcb

-- | 'ask' whose answer passes through the ready queue, so that the policy decides when the thread
-- goes on.
askThroughQueue :: Stack -> String -> SystemCall r -> Resume -> (Maybe Home -> Instant -> IO (Verdict a)) -> Home -> Tcb -> (a -> Trace) -> IO Trace
askThroughQueue st what request again attempt home tcb k =
  answering st what request again attempt (\a -> Parked <$ homeReady home Accepted tcb (\_ -> k a)) home tcb

answering :: Stack -> String -> SystemCall r -> Resume -> (Maybe Home -> Instant -> IO (Verdict a)) -> (a -> IO Trace) -> Home -> Tcb -> IO Trace
answering st what request again attempt continue home tcb = do
  mine <- tryTurn (stackTurn st)
  if mine
    then do
      now <- instantOf st home
      let done trace = trace <$ finish st (Just home) now
      try (attempt (Just home) now) >>= \case
        Left e -> done (Throw (e :: SomeException))
        Right (Answer a) -> continue a >>= done
        Right (Refuse e) -> done (failWith what e)
        Right (Elsewhere other next) -> finish st (Just home) now >> answering other what request again next continue home tcb
        Right (Again _ (Just limit)) | limit <= now -> done (failWith what eTIMEDOUT)
        Right (Again register Nothing) -> waiting (\place -> pure () <$ (register $! Wake (homeWorker home) place again)) >>= done
        Right (Again register (Just limit)) ->
          done
            =<< waiting
              ( \place -> do
                  -- The attempt that is made then fails, unless it does not have to wait any more.
                  timer <- at st limit (Expiry (Wake (homeWorker home) place again))
                  register (Wake (homeWorker home) place (oneShot (\_ -> internally (\there _ -> again () <$ forgetTimer st there timer))))
                  pure (forgetTimer st home timer)
              )
    else do
      -- The thread that has the turn wakes it. Not for long, and so not to be interrupted: a call such
      -- as a close is to be made.
      who <- Park.identified home tcb
      place <- Park.takePlace home who (BlockedOn 0 request) () Park.resumed
      let !w = Wake (homeWorker home) place again
      left <- leaveJob (stackTurn st) (`wake` w)
      if left then pure () else wake (Just home) w
      pure Parked
  where
    waiting leave = Parked <$ Park.waitFor home tcb (BlockedOn 0 request) () Park.resumed leave

-- The wait that was limited is over. Its timer goes now, or when the thread that has the turn ends it.
forgetTimer :: Stack -> Home -> Timers.TimerKey -> IO ()
forgetTimer st home key = do
  mine <- tryTurn (stackTurn st)
  if mine
    then cancel >> instantOf st home >>= finish st (Just home)
    else leaveJob (stackTurn st) (const cancel) >>= \left -> unless left (forgetTimer st home key)
  where
    cancel = void (Timers.cancel (stackTimers st) key)

-- | Perform an attempt, which is repeated by itself after a wait.
asking :: Stack -> String -> SystemCall r -> (Maybe Home -> Instant -> IO (Verdict a)) -> (a -> Trace) -> Trace
asking st what request attempt k = again ()
  where
    again = oneShot (\_ -> internally (\home tcb -> ask st what request again attempt home tcb k))

-- | The thread goes on with an error.
failWith :: String -> Errno -> Trace
failWith what e = Throw (toException (errnoToIOError what e Nothing Nothing))

-- | Have the turn, as one of the stack's own threads.
inTurn :: Stack -> (Maybe Home -> Instant -> IO a) -> Thread a
inTurn st act = Thread (asking st "tcp" (Suspend (because "its turn in the TCP stack") (\_ -> pure (pure ()))) (\here now -> Answer <$> act here now))
