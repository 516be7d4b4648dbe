{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The server's clock, and what is done once a second
-- Stability   : not home
--
-- A thread of the server, the ticker, renders the @Date@ of each second, and attends to
-- every connection: cuts off those whose deadline has passed, sees that the clients of
-- working handlers are there, and lets those rest that have nothing to do.
module Weft.Http.Server.Ticker
  ( newServer,
    newServerWith,
    newServerDirect,
    startTicker,
  )
where

import Control.Monad (void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Date
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Mask (interruptible, mask_)
import Weft.Socket
import Weft.Time

-- | A server that has no connections yet. Its handler may read the server's clock.
newServer :: ServerSettings -> (Clock -> Handler) -> Thread Server
newServer settings handler = newServerOf settings (ByHandler . handler)

-- | The same with an 'Application'.
newServerWith :: ServerSettings -> (Clock -> Application) -> Thread Server
newServerWith settings application = newServerOf settings (ByApplication . application)

-- | The same with a 'DirectApplication'.
newServerDirect :: ServerSettings -> (Clock -> DirectApplication) -> Thread Server
newServerDirect settings application = newServerOf settings (ByDirect . application)

newServerOf :: ServerSettings -> (Clock -> Answers) -> Thread Server
newServerOf settings answers = do
  tick <- nextTick
  liftIO $ do
    clock <- newIORef tick
    Server settings (answers clock) clock
      <$> newIORef (Open IntMap.empty Map.empty 0 0 0 0 False [] [])
      <*> newIORef False
      <*> newPrimVar 0

-- | Fork the ticker, if there is none, and see that the clock is right when this returns: a
-- deadline that is counted from an old tick may have passed already.
startTicker :: Server -> Thread ()
startTicker server = mask_ $ do
  none <- liftIO $ atomicModifyIORef' (serverConnections server) (\open -> (open {openTicking = True}, not (openTicking open)))
  when none $ do
    nextTick >>= liftIO . writeIORef (serverClock server)
    void $ forkWith defaultForkOptions {forkLabel = "ticker"} (interruptible (ticker server))

-- | Once a second, while the server is in use: the date, and the deadlines.
ticker :: Server -> Thread ()
ticker server = do
  tick <- nextTick
  liftIO (writeIORef (serverClock server) tick)
  open <- liftIO (openConnections <$> readIORef (serverConnections server))
  for_ open (attend server tick)
  needed <- liftIO . atomicModifyIORef' (serverConnections server) $ \o -> (o {openTicking = isInUse o}, isInUse o)
  when needed $ do
    -- At the turn of the wall clock's second, so that the date is right.
    wall <- wallClock
    sleep (nanoseconds (fromIntegral (1_000_000_000 - wall `mod` 1_000_000_000)))
    ticker server

-- | What the ticker does about a connection: see that a client is there while its handler
-- works, end what has taken too long, and let those rest that have nothing to do.
attend :: Server -> Tick -> Connection -> Thread ()
attend server tick c = do
  (phase, word, deadline) <- liftIO (currentPhase c)
  let working = phase == Handling || phase == Streaming
  gone <- if working then isGone else pure False
  if
    | gone -> liftIO (interrupt c word Cut ClientGone >>= \did -> when did (observe server ClientLost))
    | tickMonotonic tick >= deadline -> do
        cut <- liftIO (expire c word deadline)
        for_ cut $ \expiry -> do
          liftIO (observe server (TimedOut expiry))
          for_ (shutdownFor phase) (shutdownQuietly c)
    | phase == Idle,
      tickMonotonic tick >= deadline - durationNanoseconds (timeoutIdle limits) + 1_000_000_000 ->
        liftIO (void (interrupt c word Resting BufferUnused))
    | otherwise -> pure ()
  where
    limits = serverTimeouts (serverSettings server)
    -- A reset leaves an error behind at the socket; the end of the stream does not.
    isGone = either (\(_ :: IOError) -> False) (/= 0) <$> try (getOption (connectionSocket c) SoError)

nextTick :: Thread Tick
nextTick = do
  wall <- wallClock
  start <- now
  let second = wall `div` 1_000_000_000
  pure (Tick second (formatDate (HttpTime second)) (instantNanoseconds start))
