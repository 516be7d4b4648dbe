{-# OPTIONS_HADDOCK not-home #-}

-- | The thread that renders the @Date@ of each second, and attends to every connection: cuts off what
-- has taken too long, looks for the clients of working handlers, and lets idle ones rest.
module Weft.Http.Server.Ticker
  ( newServer,
    newServerAtHand,
    newServerWith,
    newServerPlain,
    startTicker,
  )
where

import Control.Exception qualified as Exception
import Control.Monad (void, when)
import Data.Char (isControl, showLitChar)
import Data.Foldable (foldlM)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Primitive.PrimVar
import System.Mem (performMajorGC)
import Weft
import Weft.Attempt (attempts)
import Weft.Http.Date
import Weft.Http.Internal.Hash (newSecret)
import Weft.Http.RequestHead (Parsed (..))
import Weft.Http.Server.Heads (newHeads)
import Weft.Http.Server.Layout (newLayout)
import Weft.Http.Server.Phase
import Weft.Http.Server.Render (ownFields)
import Weft.Http.Server.State
import Weft.Mask (mask_)
import Weft.Socket
import Weft.Time

-- | A server that has no connections yet. Its handler may read the server's clock.
newServer :: ServerSettings -> (Clock -> Handler) -> Thread Server
newServer settings handler = newServerOf settings (ByHandler Nothing . handler)

-- | 'newServer' with a function that answers some requests at once, before the handler is asked.
newServerAtHand :: ServerSettings -> (Clock -> (AtHand, Handler)) -> Thread Server
newServerAtHand settings both = newServerOf settings (uncurry (ByHandler . Just) . both)

-- | 'newServer' with an 'Application'.
newServerWith :: ServerSettings -> (Clock -> Application) -> Thread Server
newServerWith settings application = newServerOf settings (ByApplication . application)

-- | 'newServer' with a 'PlainApplication'.
newServerPlain :: ServerSettings -> (Clock -> PlainApplication) -> Thread Server
newServerPlain settings application = newServerOf settings (ByPlain . application)

newServerOf :: ServerSettings -> (Clock -> Answers) -> Thread Server
newServerOf settings answers = do
  tick <- nextTick
  tries <- attempts
  secret <- newSecret
  liftIO $ do
    clock <- newIORef tick
    let answers' = answers clock
        answerer came parsed =
          newLayout >>= \layout -> case (answers', parsed) of
            (ByHandler (Just _) _, _) -> (`AtHandBefore` layout) <$> newIORef (pure Nothing)
            (ByPlain application, Parsed h used) | used == came, isPlain settings h -> (`AnswersPlainly` layout) <$> application h
            _ -> pure (NoAnswerer layout)
    heads <- newHeads (serverLimits settings) secret answerer
    own <- newIORef $! ownFields (serverName settings) (tickDate tick)
    Server (unharmed settings) answers' clock own heads tries
      <$> newIORef (Open IntMap.empty Map.empty 0 0 0 0 False [] [])
      <*> newIORef Serving
      <*> newPrimVar (tickMonotonic tick)
      <*> pure (allowances (serverTimeouts settings))
      <*> newPrimVar 0
      <*> newPrimVar minBound

-- | An exception of the log or the observer must end nothing. And what a client can put into a report,
-- such as a path, must not look like the next one.
unharmed :: ServerSettings -> ServerSettings
unharmed settings =
  settings
    { serverAccessLog = quietly <$> serverAccessLog settings,
      serverObserver = quietly <$> serverObserver settings,
      serverReport = quietly (serverReport settings . oneLine)
    }
  where
    quietly act a = act a `Exception.catch` \(_ :: Exception.SomeException) -> pure ()
    oneLine = concatMap (\char -> if isControl char then showLitChar char "" else [char])

-- | Fork the ticker, if there is none, and set the clock: a deadline counted from an old tick may be over.
startTicker :: Server -> Thread ()
startTicker server = mask_ $ do
  none <- liftIO $ atomicModifyIORef' (serverConnections server) (\open -> (open {openTicking = True}, not (openTicking open)))
  when none $ do
    nextTick >>= liftIO . setClock server
    void $ forkWith defaultForkOptions {forkLabel = "ticker"} (ticker server (Waste 0 0 0))

-- | Once a second, while the server is in use: the date, the deadlines, and the memory. Masked: an
-- exception thrown at a worker must not end it (Note [Strays] in
-- "Weft.Internal.Core.Scheduler.Takeover").
ticker :: Server -> Waste -> Thread ()
ticker server before = do
  tick <- nextTick
  liftIO (setClock server tick)
  open <- liftIO (readIORef (serverConnections server))
  rested <- foldlM (attend server tick) 0 (openConnections open)
  waste <- collected rested (openNext open - openCount open) before
  needed <- liftIO . atomicModifyIORef' (serverConnections server) $ \o -> (o {openTicking = isInUse o}, isInUse o)
  when needed $ do
    -- At the turn of the wall clock's second, so that the date is right.
    wall <- wallClock
    sleep (nanoseconds (fromIntegral (1_000_000_000 - wall `mod` 1_000_000_000)))
    ticker server waste

-- | Since memory was last collected: connections asked to rest, and ended; and ended by a second ago.
data Waste = Waste !Int !Int !Int

-- | Collect memory, where connections have given much of it back and no collection may come for hours:
-- in a second in which none has done so. Twice, because after the first time what is alive lies among
-- what is free. Given the connections asked to rest in this second, and those ended since the start.
collected :: Int -> Int -> Waste -> Thread Waste
collected resting ended (Waste rested gone before)
  -- This number gives back at least a megabyte.
  | resting == 0 && ended == before && rested + gone >= 1000 = Waste 0 0 ended <$ blocking (performMajorGC >> performMajorGC)
  | otherwise = pure (Waste (rested + resting) (gone + ended - before) ended)

-- | Look at a connection: is a client there while its handler works, has something taken too long, may
-- it rest? Adds to the number of those that rest in this second.
attend :: Server -> Tick -> Int -> Member -> Thread Int
attend server tick rested m = do
  (phase, word, deadline) <- liftIO (currentPhase m)
  let working = phase == Handling || phase == Streaming
  gone <- if working then isGone else pure False
  if
    | gone -> do
        did <- liftIO (interrupt m word Cut ClientGone)
        rested <$ liftIO (when did (observe server ClientLost))
    | tickMonotonic tick >= deadline -> rested <$ endPhase m word deadline (observe server . TimedOut)
    | phase == Idle,
      -- In one second.
      rested < 2000,
      tickMonotonic tick >= deadline - durationNanoseconds (timeoutIdle limits) + restAfter -> do
        did <- liftIO (interrupt m word Resting BufferUnused)
        pure (if did then rested + 1 else rested)
    | otherwise -> pure rested
  where
    limits = serverTimeouts (serverSettings server)
    -- Deadlines are counted from the tick before: at the tick after next it was idle for a second.
    restAfter = 1_500_000_000
    -- A reset leaves an error at the socket; the end of the stream does not.
    isGone = either (\(_ :: IOError) -> False) (/= 0) <$> try (getOption (memberSocket m) SoError)

setClock :: Server -> Tick -> IO ()
setClock server tick = do
  writeIORef (serverClock server) tick
  writeIORef (serverOwnFields server) $! ownFields (serverName (serverSettings server)) (tickDate tick)
  writePrimVar (serverSince server) (tickMonotonic tick)

nextTick :: Thread Tick
nextTick = do
  wall <- wallClock
  start <- now
  let second = wall `div` 1_000_000_000
  pure (Tick second (formatDate (HttpTime second)) (instantNanoseconds start))
