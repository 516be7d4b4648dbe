-- |
-- Description : Handshakes, off the worker
-- Stability   : not home
--
-- Runs the library's handshake on a thread of GHC, in turns with the thread of Weft that
-- waits for the socket.
module Weft.Tls.Internal.Handshake
  ( Gate,
    newGate,
    Turns,
    newTurns,
    waitForMore,
    shake,
  )
where

import Control.Concurrent (forkIOWithUnmask)
import Control.Concurrent.MVar
import Control.Exception (Exception, SomeException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.IORef
import Weft
import Weft.Semaphore
import Weft.Tls.Internal.Records

-- Note [Handshakes in turns]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A handshake is code of the library that receives in the middle, so it has to be suspended
-- there. A direct thread (`Weft.IO`) cannot run it: the library runs it, to catch its
-- exceptions, on a further thread of GHC (`withAsync`), from where no thread of Weft can be
-- suspended; and its computation, milliseconds, would hold up all threads of a worker.
--
-- So it runs on a thread of GHC, in strict turns with the thread of Weft:
--
--     Weft                                  GHC
--     blocking: go on, and wait  -------->  computes, until it has to receive
--     flush, fill                <--------  Wants
--     blocking: go on, and wait  -------->  ...
--     flush                      <--------  Ended
--
-- One of the two runs at a time, so nothing they share needs a lock. The locks of the
-- library are held by GHC's threads, and no thread of Weft wants them before `Ended`. Both
-- waits for the other are on OS threads of the pool (`blocking`) and last for as long as the
-- computation does: the waiting for a peer is the Weft thread's, in `fill`. The gate lets
-- as many compute at a time as there are workers, so that a flood of handshakes neither
-- takes all processors nor the pool, which files are read in as well.
--
-- If the thread of Weft is cancelled, it says so (`cancelled`), and the other one ends at its
-- next receive. A thread of GHC that nobody can answer any more, because the run has
-- ended, is ended by the garbage collector (`BlockedIndefinitelyOnMVar`).

-- | How many handshakes compute at a time.
newtype Gate = Gate Semaphore

-- | For handshakes of this run.
newGate :: Thread Gate
newGate = workerCount >>= fmap Gate . newSemaphoreNamed "TLS: handshakes" . max 1

-- | What passes between the two threads.
data Turns = Turns
  { events :: !(MVar Event),
    answers :: !(MVar ()),
    cancelled :: !(IORef Bool)
  }

data Event
  = Wants
  | Ended (Either SomeException ())

-- | For one handshake.
newTurns :: IO Turns
newTurns = Turns <$> newEmptyMVar <*> newEmptyMVar <*> newIORef False

-- | On the thread of GHC: have the other one fill the records.
waitForMore :: Turns -> IO ()
waitForMore turns = do
  putMVar (events turns) Wants
  takeMVar (answers turns)
  given <- readIORef (cancelled turns)
  when given (throwIO Abandoned)

-- | The thread that the handshake was for is gone.
data Abandoned = Abandoned
  deriving stock (Show)

instance Exception Abandoned

-- | Run a handshake, whose context receives by 'waitForMore'. Raises what it raises.
shake :: Gate -> Turns -> Records -> IO () -> Thread ()
shake (Gate gate) turns records handshake = go start `onException` liftIO abandon
  where
    go turn =
      withPermit gate (blocking (turn >> takeMVar (events turns))) >>= \case
        Wants -> do
          void (flush records)
          ended <- liftIO (hasEnded records)
          unless ended (void (fill records))
          go (putMVar (answers turns) ())
        Ended (Right ()) -> void (flush records)
        Ended (Left e) -> throwM e
    start = void (forkIOWithUnmask (\unmask -> E.try (unmask handshake) >>= putMVar (events turns) . Ended))
    -- In this order: whoever takes an answer looks at the flag then.
    abandon = do
      writeIORef (cancelled turns) True
      void (tryPutMVar (answers turns) ())
