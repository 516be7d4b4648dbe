{-# OPTIONS_HADDOCK not-home #-}

-- | The open connections, and the bounds of their number: in total, by peer, and of handlers at work.
module Weft.Http.Server.Registry
  ( register,
    unregister,
    admit,
    connectionCount,

    -- * Limits
    mostConnections,
    awaitRoom,
    beginRefusal,
    endRefusal,
    beginHandler,
    endHandler,

    -- * Draining and handing over
    isDraining,
    isKeeping,
    startDraining,
    startHandingOver,
    resume,
    takerOf,
    hold,
    letGo,
    holding,
    awaitNone,
    awaitProgress,
    cutOff,
    awaitedNow,
    endStill,
    hasLayers,
  )
where

import Control.Monad (filterM, guard, unless, void, when, (<$!>))
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes, isJust)
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Internal.Address (Address (..), addressOf, peerOf, unmapped)
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Socket
import Weft.Timeout (timeout)

-- | Add a connection. If no other server has served it before, the time of its first head begins.
register :: Server -> Bool -> Socket -> SockAddr -> IO Member
register server before socket address = do
  let !peer = peerOf address
  pulse <- firstPhase server before
  m <- Member socket peer pulse <$> newIORef Unserved
  (number, count) <- atomicModifyIORef' (serverConnections server) $ \open ->
    let n = openNext open
        !count = openCount open + 1
     in (open {openConnections = IntMap.insert n m (openConnections open), openNext = n + 1, openCount = count}, (n, count))
  setNumber m number
  observe server ConnectionOpened
  m <$ when (count == mostConnections server) (limitReached server)

-- | The last connection that there may be is there. Operators are told once a minute at most.
limitReached :: Server -> IO ()
limitReached server = do
  observe server LimitReached
  time <- fromIntegral <$> readPrimVar (serverSince server)
  before <- readPrimVar (serverFullSaid server)
  when (time >= before) $ do
    mine <- (== before) <$> casInt (serverFullSaid server) before (time + 60_000_000_000)
    when mine (serverReport (serverSettings server) text)
  where
    text = "the limit of " <> show (mostConnections server) <> " connections is reached; more " <> treatment
    treatment = case serverOverload (serverSettings server) of
      WaitInBacklog -> "wait in the listen queue"
      RefuseQuickly _ -> "are answered with 503"

unregister :: Server -> Member -> IO ()
unregister server m = do
  number <- memberNumber m
  changed server $ \open ->
    open {openConnections = IntMap.delete number (openConnections open), openCount = openCount open - 1}
  observe server ConnectionClosed

-- | One more connection of this peer, if it may have one. The action undoes it.
admit :: Server -> SockAddr -> IO (Maybe (IO ()))
admit server address = case peerKey address of
  Just key | limit > 0 -> do
    admitted <- changePeers $ \peers ->
      let count = Map.findWithDefault 0 key peers
       in if count >= limit then (peers, False) else (Map.insert key (count + 1) peers, True)
    pure (changePeers (\peers -> (Map.update (\n -> if n <= 1 then Nothing else Just (n - 1)) key peers, ())) <$ guard admitted)
  _ -> pure (Just (pure ()))
  where
    limit = serverMaxPerPeer (serverSettings server)
    changePeers :: (Map.Map Address Int -> (Map.Map Address Int, a)) -> IO a
    changePeers change = atomicModifyIORef' (serverConnections server) $ \open ->
      let (!peers, a) = change (openPeers open) in (open {openPeers = peers}, a)

-- | What counts as one peer: an IPv4 address, or an IPv6 network of 64 bits, as customers have.
peerKey :: SockAddr -> Maybe Address
peerKey = fmap (customer . unmapped) . addressOf
  where
    customer = \case
      IPv6 a b _ _ -> IPv6 a b 0 0
      address -> address

-- | Is an accepted connection one too many? Then it counts as being refused, and this says when its
-- client may come again. Decided now: since its acceptor began to wait, others may have ended.
beginRefusal :: Server -> IO (Maybe Int)
beginRefusal server = case serverOverload (serverSettings server) of
  WaitInBacklog -> pure Nothing
  RefuseQuickly after -> atomicModifyIORef' (serverConnections server) $ \open ->
    if openCount open < mostConnections server
      then (open, Nothing)
      else (open {openRefusing = openRefusing open + 1}, Just after)

endRefusal :: Server -> IO ()
endRefusal server = changed server (\open -> open {openRefusing = openRefusing open - 1})

-- | Begin to answer a request, unless too many are being answered.
beginHandler :: Server -> IO Bool
beginHandler server
  | limit <= 0 = pure True
  | otherwise = do
      before <- fetchAddInt (serverBusy server) 1
      if before < limit then pure True else False <$ endHandler server
  where
    limit = serverMaxHandlers (serverSettings server)

endHandler :: Server -> IO ()
endHandler server
  | serverMaxHandlers (serverSettings server) <= 0 = pure ()
  | otherwise = void (fetchSubInt (serverBusy server) 1)

-- | The caller may make connections, and 'awaitNone' waits for them.
hold :: Server -> IO ()
hold server = changed server (\open -> open {openHeld = openHeld open + 1})

letGo :: Server -> IO ()
letGo server = changed server (\open -> open {openHeld = openHeld open - 1})

holding :: Server -> Thread a -> Thread a
holding server = bracket_ (liftIO (hold server)) (liftIO (letGo server))

-- | Change the state, and wake the waiters that it may concern.
changed :: Server -> (Open -> Open) -> IO ()
changed server change = do
  wake <- atomicModifyIORef' (serverConnections server) $ \before ->
    let open = change before
        none = if isInUse open then [] else openNone open
     in (open {openRoom = [], openNone = if isInUse open then openNone open else []}, openRoom open <> none)
  for_ wake (\w -> deliver w (Answered ()))

-- | How many are open.
connectionCount :: Server -> IO Int
connectionCount server = openCount <$> readIORef (serverConnections server)

-- | Wait until a connection may be accepted, to be served or refused; false when the server drains.
awaitRoom :: Server -> Thread Bool
awaitRoom server = do
  draining <- liftIO (isDraining server)
  full <- liftIO (isFull <$> readIORef (serverConnections server))
  if
    | draining -> pure False
    | not full -> pure True
    | otherwise -> do
        waitWhile server isFull "room for another connection" $ \waiter open -> open {openRoom = waiter : openRoom open}
        awaitRoom server
  where
    isFull open =
      openCount open >= mostConnections server
        && case serverOverload (serverSettings server) of
          WaitInBacklog -> True
          RefuseQuickly _ -> openRefusing open >= 250

-- | Wait in the state, unless it has ceased to be such a one.
waitWhile :: Server -> (Open -> Bool) -> String -> (Waiter () -> Open -> Open) -> Thread ()
waitWhile server holds what enqueue = suspend what $ \waiter -> do
  waits <- atomicModifyIORef' (serverConnections server) $ \open ->
    if holds open then (enqueue waiter open, True) else (open, False)
  unless waits (void (deliver waiter (Answered ())))

mostConnections :: Server -> Int
mostConnections = max 1 . serverMaxConnections . serverSettings

-- | Is the server on its way out?
isDraining :: Server -> IO Bool
isDraining server = (\case Draining -> True; _ -> False) <$!> readIORef (serverStage server)

-- | Does a connection wait for another request?
isKeeping :: Server -> IO Bool
isKeeping server = (\case Serving -> True; _ -> False) <$!> readIORef (serverStage server)

-- | From now on connections between two requests are given to this. Those with a layer end.
startHandingOver :: Server -> (Socket -> Thread Bool) -> Thread ()
startHandingOver server taker = do
  liftIO (writeIORef (serverStage server) (HandingOver taker))
  open <- liftIO (readIORef (serverConnections server))
  for_ (openConnections open) $ if hasLayers (serverSettings server) then expireIdle else releaseIdle

-- | Keep connections again after a vain 'Weft.Http.Server.handOver'. 'Weft.Http.Server.serve' follows.
resume :: Server -> Thread ()
resume server = liftIO (writeIORef (serverStage server) Serving)

takerOf :: Server -> IO (Maybe (Socket -> Thread Bool))
takerOf server =
  readIORef (serverStage server) >>= \case
    HandingOver taker | not (hasLayers (serverSettings server)) -> pure (Just taker)
    _ -> pure Nothing

hasLayers :: ServerSettings -> Bool
hasLayers settings = not (null (serverLayers settings)) || isJust (serverProxy settings)

-- | From now on no connection is kept: idle ones are cut off, and acceptors that wait for room go on.
startDraining :: Server -> Thread ()
startDraining server = do
  open <- liftIO $ do
    writeIORef (serverStage server) Draining
    changed server id
    readIORef (serverConnections server)
  for_ (openConnections open) expireIdle

-- | Wait until the server is not in use, at most for this time. Returns whether it is not.
awaitNone :: Server -> Duration -> Thread Bool
awaitNone server limit = timeout limit waiting >>= maybe (not <$> liftIO inUse) (const (pure True))
  where
    inUse = isInUse <$> readIORef (serverConnections server)
    waiting = do
      waitWhile server isInUse "the last connection to end" $ \waiter open -> open {openNone = waiter : openNone open}
      again <- liftIO inUse
      when again waiting

-- | Abort every connection, handlers included, so that 'Weft.Http.Server.drain' ends now.
cutOff :: Server -> Thread ()
cutOff server = do
  open <- liftIO (readIORef (serverConnections server))
  mapM_ cutOffOne (openConnections open)

-- | The connections of which only the client is waited for, with what changes when it goes on.
awaitedNow :: Server -> IO [(Member, Int)]
awaitedNow server = do
  open <- readIORef (serverConnections server)
  catMaybes <$> mapM awaited (IntMap.elems (openConnections open))
  where
    awaited m = (\(phase, word, _) -> (m, word) <$ guard (phase `elem` [ReceivingHead, ReceivingBody, ReceivingAtPace, Sending, SendingAtPace])) <$> currentPhase m

-- | End the phases of those that have not gone on since, as if they were over. Is it any?
endStill :: [(Member, Int)] -> Thread Bool
endStill before = or <$> mapM still before
  where
    still (m, word) = do
      (_, now', deadline) <- liftIO (currentPhase m)
      if now' == word then endPhase m word deadline (\_ -> pure ()) else pure False

cutOffOne :: Member -> Thread ()
cutOffOne m = do
  shutdownQuietly m ShutdownBoth
  (phase, word, deadline) <- liftIO (currentPhase m)
  if
    | phase `elem` [Handling, Streaming, Finishing] -> liftIO (void (interrupt m word Cut ClientGone))
    -- It may wait for its deadline, and not for the socket.
    | phase == Lingering -> void (endPhase m word deadline (\_ -> pure ()))
    | otherwise -> pure ()

-- | Wait until each busy connection has gone on, at most for this time, and cut off the others: none?
awaitProgress :: Server -> Duration -> Thread Bool
awaitProgress server limit = do
  busy <- liftIO (readIORef (serverConnections server) >>= filterM (fmap not . isAtRest) . IntMap.elems . openConnections)
  words' <- liftIO (mapM wordOf busy)
  left <- liftIO (newIORef (zip busy words'))
  let waiting = do
        still <- liftIO (readIORef left >>= filterM (\(m, word) -> (== word) <$> wordOf m))
        liftIO (writeIORef left still)
        unless (null still) (sleep (milliseconds 10) >> waiting)
  _ <- timeout limit waiting
  stuck <- liftIO (readIORef left)
  null stuck <$ for_ stuck (cutOffOne . fst)
  where
    wordOf m = (\(_, word, _) -> word) <$> currentPhase m
