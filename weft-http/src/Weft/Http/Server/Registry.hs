{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The open connections, how many there may be, and draining
--
-- Knows which connections are open, and bounds their number: in total, by peer, and that of
-- the handlers at work.
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
    stopHandingOver,
    takerOf,
    hold,
    letGo,
    awaitNone,
    awaitProgress,
    cutOffAll,
    cutOffTaking,
  )
where

import Control.Monad (filterM, unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Internal.Address (Address (..), addressOf, peerOf, unmapped)
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Kernel (Outcome (..), deliver, suspend)
import Weft.Socket
import Weft.Timeout (timeout)

-- | Add a connection of this client, which may have been served before by another server. If not, the time for its first
-- head begins.
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

-- | Remove a connection, whose socket is closed.
unregister :: Server -> Member -> IO ()
unregister server m = do
  number <- memberNumber m
  changed server $ \open ->
    open {openConnections = IntMap.delete number (openConnections open), openCount = openCount open - 1}
  observe server ConnectionClosed

-- | One more connection of this peer, if it may have one; where their number is limited. The
-- action undoes it.
admit :: Server -> SockAddr -> IO (Maybe (IO ()))
admit server address
  | limit <= 0 = pure (Just (pure ()))
  | otherwise = case peerKey address of
      Nothing -> pure (Just (pure ()))
      Just key -> do
        admitted <- atomicModifyIORef' (serverConnections server) $ \open ->
          let count = Map.findWithDefault 0 key (openPeers open)
           in if count >= limit
                then (open, False)
                else (open {openPeers = Map.insert key (count + 1) (openPeers open)}, True)
        pure (if admitted then Just (leave key) else Nothing)
  where
    limit = serverMaxPerPeer (serverSettings server)
    leave key = atomicModifyIORef' (serverConnections server) $ \open ->
      (open {openPeers = Map.update (\n -> if n <= 1 then Nothing else Just (n - 1)) key (openPeers open)}, ())

-- | The address that counts as one peer: an IPv4 address, or an IPv6 network of 64 bits, which is what one
-- customer is given at least.
peerKey :: SockAddr -> Maybe Address
peerKey = fmap (customer . unmapped) . addressOf
  where
    customer = \case
      IPv6 a b _ _ -> IPv6 a b 0 0
      address -> address

-- | Is a connection that was accepted one too many, which is to be refused? Then it counts as
-- being refused, and this says when its client may come again. That is decided when it is
-- there: since its acceptor began to wait for it, others may have ended.
beginRefusal :: Server -> IO (Maybe Int)
beginRefusal server = case serverOverload (serverSettings server) of
  WaitInBacklog -> pure Nothing
  RefuseQuickly after -> atomicModifyIORef' (serverConnections server) $ \open ->
    if openCount open < mostConnections server
      then (open, Nothing)
      else (open {openRefusing = openRefusing open + 1}, Just after)

endRefusal :: Server -> IO ()
endRefusal server = changed server (\open -> open {openRefusing = openRefusing open - 1})

-- | Connections that are being refused at a time.
mostRefusals :: Int
mostRefusals = 250

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

-- | Undo 'hold'.
letGo :: Server -> IO ()
letGo server = changed server (\open -> open {openHeld = openHeld open - 1})

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

-- | Wait until a connection may be accepted, to be served or refused; false when the server
-- drains.
awaitRoom :: Server -> Thread Bool
awaitRoom server = do
  draining <- liftIO (isDraining server)
  full <- liftIO (isFull <$> readIORef (serverConnections server))
  if
    | draining -> pure False
    | not full -> pure True
    | otherwise -> do
        suspend "room for another connection" $ \waiter -> do
          waits <- atomicModifyIORef' (serverConnections server) $ \open ->
            if isFull open then (open {openRoom = waiter : openRoom open}, True) else (open, False)
          unless waits (void (deliver waiter (Answered ())))
        awaitRoom server
  where
    isFull open =
      openCount open >= mostConnections server
        && case serverOverload (serverSettings server) of
          WaitInBacklog -> True
          RefuseQuickly _ -> openRefusing open >= mostRefusals

mostConnections :: Server -> Int
mostConnections = max 1 . serverMaxConnections . serverSettings

-- | Is the server on its way out?
isDraining :: Server -> IO Bool
isDraining server =
  readIORef (serverStage server) >>= \case
    Draining -> pure True
    _ -> pure False

-- | Does a connection wait for another request?
isKeeping :: Server -> IO Bool
isKeeping server =
  readIORef (serverStage server) >>= \case
    Serving -> pure True
    _ -> pure False

-- | From now on connections between two requests are given to this, those that wait for one at once. A
-- layer has a state that would be lost: connections with one end instead.
startHandingOver :: Server -> (Socket -> Thread Bool) -> Thread ()
startHandingOver server taker = do
  liftIO (writeIORef (serverStage server) (HandingOver taker))
  open <- liftIO (readIORef (serverConnections server))
  for_ (openConnections open) $ if hasLayers (serverSettings server) then expireIdle else releaseIdle

-- | Connections are kept again.
stopHandingOver :: Server -> IO ()
stopHandingOver server = writeIORef (serverStage server) Serving

-- | What takes connections, if they are handed over.
takerOf :: Server -> IO (Maybe (Socket -> Thread Bool))
takerOf server =
  readIORef (serverStage server) >>= \case
    HandingOver taker | not (hasLayers (serverSettings server)) -> pure (Just taker)
    _ -> pure Nothing

hasLayers :: ServerSettings -> Bool
hasLayers settings = not (null (serverLayers settings)) || isJust (serverProxy settings)

-- | From now on no connection is kept for another request; those that are idle are
-- cut off at once, and acceptors that wait for room go on (to see that they are not
-- wanted).
startDraining :: Server -> Thread ()
startDraining server = do
  liftIO (writeIORef (serverStage server) Draining)
  open <- liftIO $ atomicModifyIORef' (serverConnections server) (\o -> (o {openRoom = []}, o))
  liftIO (for_ (openRoom open) (\w -> deliver w (Answered ())))
  for_ (openConnections open) expireIdle

-- | Wait until the server is not in use, at most for this time. Returns whether it is not.
awaitNone :: Server -> Duration -> Thread Bool
awaitNone server limit = timeout limit waiting >>= maybe (not <$> liftIO inUse) (const (pure True))
  where
    inUse = isInUse <$> readIORef (serverConnections server)
    waiting = do
      suspend "the last connection to end" $ \waiter -> do
        wait <- atomicModifyIORef' (serverConnections server) $ \open ->
          if isInUse open then (open {openNone = waiter : openNone open}, True) else (open, False)
        unless wait (void (deliver waiter (Answered ())))
      again <- liftIO inUse
      when again waiting

-- | Cut every connection off where it is, handlers included.
cutOffAll :: Server -> Thread ()
cutOffAll server = do
  open <- liftIO (readIORef (serverConnections server))
  for_ (openConnections open) cutOffOne

-- | Cut off those of which only the client is waited for, until it takes something of a response. Answers whether there are any.
cutOffTaking :: Server -> Thread Bool
cutOffTaking server = do
  open <- liftIO (readIORef (serverConnections server))
  taking <- liftIO (filterM (fmap (\(phase, _, _) -> phase `elem` [Sending, SendingAtPace, Lingering]) . currentPhase) (IntMap.elems (openConnections open)))
  not (null taking) <$ for_ taking cutOffOne

cutOffOne :: Member -> Thread ()
cutOffOne m = do
  shutdownQuietly m ShutdownBoth
  (phase, word, deadline) <- liftIO (currentPhase m)
  if
    | phase `elem` [Handling, Streaming, Finishing] -> liftIO (void (interrupt m word Cut ClientGone))
    -- It may wait for its deadline, and not for the socket.
    | phase == Lingering -> liftIO (void (expire m word deadline))
    | otherwise -> pure ()

-- | Wait until each connection that is not at rest now has gone on, at most for this time; the others are cut off. Answers
-- whether there were none of those.
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
