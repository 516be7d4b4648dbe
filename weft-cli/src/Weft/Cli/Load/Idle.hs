{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections that do nothing
--
-- Opens connections beside those of the load, and keeps them open: most clients of a real server
-- are idle, and must not slow it down (O'Sullivan & Tibell 2010, figure 2). A connection that the
-- server closes is opened again.
module Weft.Cli.Load.Idle (Idlers, openIdlers, idlersOpen, idlersReopened, idlersFailed) where

import Control.Exception (IOException)
import Control.Monad (forM_, void, when)
import Weft
import Weft.Buffer (newBuffer)
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Dial
import Weft.Event
import Weft.Http.Transport
import Weft.Scope
import Weft.Semaphore
import Weft.Socket
import Weft.Timeout (timeout)

-- | Counters: 0 open, 1 reopened, 2 failed attempts, 3 connections that have opened or failed once.
newtype Idlers = Idlers Cells

-- | Open this number of connections, on all workers, and wait until each has opened or failed once,
-- at most for this time. They end with the scope.
openIdlers :: Scope -> Dialer -> Int -> Duration -> Thread Idlers
openIdlers scope dialer count limit = do
  cells <- liftIO (newCells 4)
  workers <- workerCount
  ready <- newEvent
  -- More at a time would overflow the server's listen queue.
  few <- newSemaphore 128
  let settledOnce = do
        before <- liftIO (addCell cells 3 1)
        when (before + 1 == count) (set ready)
      idler first pause =
        try (withPermit few (dial dialer)) >>= \case
          Left (_ :: IOException) -> do
            void (liftIO (addCell cells 2 1))
            when first settledOnce
            sleep pause
            idler False (min (seconds 1) (pause <> pause))
          Right (socket, transport) -> do
            let open = liftIO (addCell cells 0 1)
                closed = liftIO (addCell cells 0 (-1)) >> closeSocket socket
            (open >> when first settledOnce >> unasked transport `catch` gone) `finally` closed
            void (liftIO (addCell cells 1 1))
            -- A server may be closing all of them at once.
            sleep (milliseconds 10)
            idler False (milliseconds 10)
      -- Until the connection ends, or bytes arrive.
      unasked transport = liftIO (newBuffer 1) >>= \byte -> void (transportReceive transport byte 0 1)
      gone :: IOException -> Thread ()
      gone _ = pure ()
  forM_ [0 .. count - 1] $ \i ->
    forkDaemonInWith scope defaultForkOptions {forkLabel = "idle connection", forkWorker = Just (i `mod` workers)} (idler True (milliseconds 10))
  when (count > 0) (void (timeout limit (wait ready)))
  pure (Idlers cells)

idlersOpen :: Idlers -> IO Int
idlersOpen (Idlers cells) = peekCell cells 0

-- | How often a connection that the server closed was opened again.
idlersReopened :: Idlers -> IO Int
idlersReopened (Idlers cells) = peekCell cells 1

idlersFailed :: Idlers -> IO Int
idlersFailed (Idlers cells) = peekCell cells 2
