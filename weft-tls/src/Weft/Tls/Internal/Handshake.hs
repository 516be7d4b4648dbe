{-# OPTIONS_HADDOCK not-home #-}

-- | Runs the library's handshake on a GHC thread, in turns with the Weft thread that waits for I/O.
module Weft.Tls.Internal.Handshake (Gate, newGate, establish) where

import Control.Concurrent (forkIOWithUnmask)
import Control.Concurrent.MVar
import Control.Exception (SomeException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.IORef
import Network.TLS (TLSParams)
import Weft
import Weft.Semaphore
import Weft.Tls.Internal.Library
import Weft.Tls.Internal.Records

-- Note [Handshakes in turns]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The library's handshake receives in the middle, so it must be suspended there. A direct thread cannot
-- run it: to catch exceptions the library starts another GHC thread (`withAsync`); and its milliseconds
-- of computation would block the worker. So it runs on a GHC thread, in turns with the Weft thread:
--
--     Weft                                  GHC
--     blocking: go on, and wait  -------->  computes, until it has to receive
--     flush, fill                <--------  Wants
--     blocking: go on, and wait  -------->  ...
--                                <--------  Ended
--
-- Only one of the two runs at a time, so shared state needs no lock. GHC threads hold the library's
-- locks, and no Weft thread wants them before `Ended`. Both wait for each other on OS threads of the
-- pool (`blocking`) and only during computation. The gate admits as many computations as there are
-- workers: a flood of handshakes takes neither all processors nor the whole pool.
--
-- A cancelled Weft thread sets `cancelled`, and the GHC thread ends at its next receive. The garbage
-- collector ends one that waits for ever (`BlockedIndefinitelyOnMVar`).

type Gate = Semaphore

newGate :: Thread Gate
newGate = workerCount >>= newSemaphoreNamed "TLS: handshakes" . max 1

data Turns = Turns
  { events :: !(MVar Event),
    answers :: !(MVar ()),
    cancelled :: !(IORef Bool)
  }

data Event
  = Wants
  | Ended (Either SomeException ())

-- | On the GHC thread: let the Weft thread fill the records.
waitForMore :: Turns -> IO ()
waitForMore turns = do
  putMVar (events turns) Wants
  takeMVar (answers turns)
  given <- readIORef (cancelled turns)
  when given (throwIO (userError "the Weft thread of the handshake was cancelled"))

-- | Run a handshake over the records, which the engine then receives whole. The action gets the alert
-- that is sent. What the handshake has written last is not yet flushed. Throws what the handshake does.
establish :: (TLSParams params) => Gate -> Records -> params -> (ByteString -> IO ()) -> (Engine -> IO ()) -> Thread Engine
establish gate records parameters sent handshake = do
  turns <- liftIO (Turns <$> newEmptyMVar <*> newEmptyMVar <*> newIORef False)
  engine <- liftIO (newEngine records (takeRecords records (waitForMore turns)) parameters)
  shake gate turns records (noteAlerts sent engine (handshake engine))
  engine <$ liftIO (receiveBy engine (takeComplete records))

-- | Run a handshake whose context receives by 'waitForMore'.
shake :: Gate -> Turns -> Records -> IO () -> Thread ()
shake gate turns records handshake = go start `onException` liftIO abandon
  where
    go turn =
      withPermit gate (blocking (turn >> takeMVar (events turns))) >>= \case
        Wants -> do
          void (flush records)
          ended <- liftIO (hasEnded records)
          unless ended (void (fill records))
          go (putMVar (answers turns) ())
        Ended (Right ()) -> pure ()
        Ended (Left e) -> throwM e
    start = void (forkIOWithUnmask (\unmask -> E.try (unmask handshake) >>= putMVar (events turns) . Ended))
    -- In this order: the GHC thread reads the flag after it takes an answer.
    abandon = do
      writeIORef (cancelled turns) True
      void (tryPutMVar (answers turns) ())
