{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connections that do nothing
-- Stability   : not home
--
-- Opens connections beside those that carry the load, and keeps them open: most clients of a
-- real server are idle most of the time, and a server must not be slower for that (O'Sullivan &
-- Tibell 2010, figure 2). One that the server closes is opened again.
module Weft.Cli.Load.Idle
  ( Idlers,
    openIdlers,
    idlersOpen,
    idlersReopened,
    idlersFailed,
  )
where

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

-- | Their numbers: 0 open, 1 opened again, 2 attempts that failed, 3 those that have been open or
-- failed once.
newtype Idlers = Idlers Cells

-- | Open so many, on all workers, and wait until each has been open once or could not be
-- opened, or for so long. They end with the scope.
openIdlers :: Scope -> Dialer -> Int -> Duration -> Thread Idlers
openIdlers scope dialer count limit = do
  cells <- liftIO (newCells 4)
  workers <- workerCount
  ready <- newEvent
  -- More at a time would overflow the listen queue of the server, which is not what an idle
  -- connection is to measure.
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
      -- Until it ends, or something comes.
      unasked transport = liftIO (newBuffer 1) >>= \byte -> void (transportReceive transport byte 0 1)
      gone :: IOException -> Thread ()
      gone _ = pure ()
  forM_ [0 .. count - 1] $ \i ->
    forkDaemonInWith scope defaultForkOptions {forkLabel = "idle connection", forkWorker = Just (i `mod` workers)} (idler True (milliseconds 10))
  when (count > 0) (void (timeout limit (wait ready)))
  pure (Idlers cells)

-- | How many are open.
idlersOpen :: Idlers -> IO Int
idlersOpen (Idlers cells) = peekCell cells 0

-- | How often the server has closed one, which was opened again.
idlersReopened :: Idlers -> IO Int
idlersReopened (Idlers cells) = peekCell cells 1

-- | Attempts that have failed.
idlersFailed :: Idlers -> IO Int
idlersFailed (Idlers cells) = peekCell cells 2
