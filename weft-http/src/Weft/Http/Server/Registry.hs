{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The open connections, their deadlines, and the server's clock
-- Stability   : not home
--
-- Knows which connections are open, bounds their number, and cuts off those whose
-- deadline has passed. A thread of the server, the ticker, does the last once a
-- second, and renders the @Date@ of that second while it is there.
--
-- Setting a deadline is one store to memory that belongs to the connection: no
-- timer is set or cancelled for a request (Note [Deadlines]).
module Weft.Http.Server.Registry
  ( -- * Servers
    Server (..),
    newServer,
    startTicker,

    -- * Connections
    Connection (..),
    Phase (..),
    register,
    unregister,
    awaitRoom,
    connectionCount,

    -- * Deadlines
    enter,
    enterHead,
    revive,
    isNew,
    expiredIn,

    -- * Draining
    isDraining,
    startDraining,
    hold,
    letGo,
    awaitNone,
    cutOffAll,
  )
where

import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Date
import Weft.Http.Server.Types
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Mask (interruptible, mask_)
import Weft.Socket
import Weft.Time
import Weft.Timeout (timeout)

-- Note [Deadlines]
-- ~~~~~~~~~~~~~~~~
-- A connection is in a phase, and its deadline belongs to the phase. The thread of
-- the connection writes both when it enters a phase; the ticker reads them once a
-- second. When the deadline has passed the ticker swaps the phase for `Expired` and
-- shuts the socket down, so that whatever system call the thread waits in ends:
-- receiving only while a request is awaited (the thread can still send a 408, or answer
-- the request if it has come meanwhile), both directions while a response is sent. The
-- thread then finds `Expired` and closes.
--
-- The swap is a compare-and-swap against the phase that was read, and a phase word
-- carries the count of phases entered: a deadline can only end the phase that it
-- was set for. A thread that enters a new phase between the ticker's look and its
-- swap wins.

-- | A running server.
data Server = Server
  { serverSettings :: !ServerSettings,
    serverHandler :: Handler,
    serverClock :: !Clock,
    serverConnections :: !(IORef Open),
    serverDraining :: !(IORef Bool)
  }

-- | The open connections by number, the next number, and who waits for what. The server is
-- in use while there are connections or somebody may make one.
data Open = Open
  { openConnections :: !(IntMap Connection),
    openNext :: !Int,
    -- | Kept beside the map, whose size is not constant to compute.
    openCount :: !Int,
    -- | How many may make a connection yet: acceptors, and 'Weft.Http.Server.drain'.
    openHeld :: !Int,
    -- | Is there a ticker?
    openTicking :: !Bool,
    -- | Acceptors that wait for room.
    openRoom :: [Waiter ()],
    -- | Those that wait until the server is not in use.
    openNone :: [Waiter ()]
  }

-- | One connection.
data Connection = Connection
  { connectionSocket :: !Socket,
    connectionPeer :: !SockAddr,
    connectionNumber :: !Int,
    -- | The phase (3 bits) and how many phases were entered (the rest).
    connectionPhase :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | Monotonic nanoseconds; maxBound for none.
    connectionDeadline :: {-# UNPACK #-} !(PrimVar RealWorld Int64)
  }

-- | What a connection is doing.
data Phase
  = -- | Between two requests.
    Idle
  | -- | Some of a head has come, or the connection is new.
    ReceivingHead
  | ReceivingBody
  | -- | The handler works; it may take as long as it likes.
    Handling
  | Sending
  | -- | The response was sent; what the client still sends is thrown away.
    Lingering
  | -- | A deadline has passed.
    Expired
  deriving stock (Eq, Show, Enum, Bounded)

-- | A server that has no connections yet. Its handler may read the server's clock.
newServer :: ServerSettings -> (Clock -> Handler) -> Thread Server
newServer settings handler = do
  tick <- nextTick
  liftIO $ do
    clock <- newIORef tick
    Server settings (handler clock) clock <$> newIORef (Open IntMap.empty 0 0 0 False [] []) <*> newIORef False

nextTick :: Thread Tick
nextTick = do
  wall <- wallClock
  start <- now
  let second = wall `div` 1_000_000_000
  pure (Tick second (formatDate (HttpTime second)) (instantNanoseconds start))

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
  for_ open $ \c -> do
    cut <- liftIO (expire (tickMonotonic tick) c)
    for_ cut (shutdownQuietly c)
  needed <- liftIO . atomicModifyIORef' (serverConnections server) $ \o -> (o {openTicking = isInUse o}, isInUse o)
  when needed $ do
    -- At the turn of the wall clock's second, so that the date is right.
    wall <- wallClock
    sleep (nanoseconds (fromIntegral (1_000_000_000 - wall `mod` 1_000_000_000)))
    ticker server

isInUse :: Open -> Bool
isInUse open = openCount open + openHeld open > 0

shutdownQuietly :: Connection -> ShutdownHow -> Thread ()
shutdownQuietly c how = void (try @_ @IOError (shutdown (connectionSocket c) how))

-- | Which way to shut a connection down, if its deadline has passed.
expire :: Int64 -> Connection -> IO (Maybe ShutdownHow)
expire time c = do
  deadline <- readPrimVar (connectionDeadline c)
  if time < deadline
    then pure Nothing
    else do
      word <- readPrimVar (connectionPhase c)
      -- Read again: the deadline must be of the phase that was read.
      deadline' <- readPrimVar (connectionDeadline c)
      before <- if deadline' /= deadline then pure (word + 1) else casInt (connectionPhase c) word (withPhase word Expired)
      pure $
        if before /= word
          then Nothing
          else case phaseOf word of
            -- A request may be on its way to the thread; then it is answered.
            Idle -> Just ShutdownReceive
            ReceivingHead -> Just ShutdownReceive
            ReceivingBody -> Just ShutdownReceive
            Handling -> Nothing
            Sending -> Just ShutdownBoth
            Lingering -> Just ShutdownBoth
            Expired -> Nothing

phaseOf :: Int -> Phase
phaseOf word = toEnum (word `mod` 8)

withPhase :: Int -> Phase -> Int
withPhase word phase = word - word `mod` 8 + fromEnum phase

-- | Enter a phase. A connection that has expired stays so: 'expiredIn' tells. Only where a
-- whole request has come in that moment is it revived, because that is answered yet.
enter :: Server -> Connection -> Phase -> IO ()
enter server c phase = do
  word <- readPrimVar (connectionPhase c)
  if phaseOf word == Expired
    then when (phase == Handling) (revive server c phase)
    else do
      tick <- readClock (serverClock server)
      -- Later than the old deadline or earlier: in either case first the deadline,
      -- then the phase it belongs to.
      writePrimVar (connectionDeadline c) (limitOf tick)
      -- Fails if the ticker has expired the old phase meanwhile; then it stays so.
      void (casInt (connectionPhase c) word (word + 8 - word `mod` 8 + fromEnum phase))
  where
    limits = serverTimeouts (serverSettings server)
    limitOf tick = case phase of
      Handling -> maxBound
      Expired -> maxBound
      Idle -> from tick (timeoutIdle limits)
      ReceivingHead -> from tick (timeoutHead limits)
      ReceivingBody -> from tick (timeoutBody limits)
      Sending -> from tick (timeoutWrite limits)
      Lingering -> from tick (seconds 2)
    -- The tick may be almost a second old, and a limit must not be cut short.
    from tick limit = durationNanoseconds (nanoseconds (fromIntegral (tickMonotonic tick)) <> limit <> seconds 1)
-- A function of its own: it is called from many places of the session, each of
-- which would be several times as large with it.
{-# NOINLINE enter #-}

-- | Some of a head is there and the rest is awaited. What trickles in does not begin
-- the phase, and its deadline, anew.
enterHead :: Server -> Connection -> IO ()
enterHead server c = do
  word <- readPrimVar (connectionPhase c)
  unless (phaseOf word == ReceivingHead) (enter server c ReceivingHead)

-- | Enter a phase even where the connection has expired, to say so to the client:
-- that, too, must have a deadline.
revive :: Server -> Connection -> Phase -> IO ()
revive server c phase = do
  word <- readPrimVar (connectionPhase c)
  -- The ticker leaves an expired connection alone, so nobody else writes here.
  when (phaseOf word == Expired) (writePrimVar (connectionPhase c) (withPhase (word + 8) Handling))
  enter server c phase

-- | Has no request come on it yet?
isNew :: Connection -> IO Bool
isNew c = (< 16) <$> readPrimVar (connectionPhase c)

-- | Has a deadline cut this connection off?
expiredIn :: Connection -> IO Bool
expiredIn c = (== Expired) . phaseOf <$> readPrimVar (connectionPhase c)

-- | Add a connection.
register :: Server -> Socket -> SockAddr -> IO Connection
register server socket peer = do
  phase <- newPrimVar (fromEnum ReceivingHead)
  deadline <- newPrimVar maxBound
  c <- atomicModifyIORef' (serverConnections server) $ \open ->
    let n = openNext open
        c = Connection socket peer n phase deadline
     in (open {openConnections = IntMap.insert n c (openConnections open), openNext = n + 1, openCount = openCount open + 1}, c)
  c <$ enter server c ReceivingHead

-- | Remove a connection, whose socket is closed.
unregister :: Server -> Connection -> IO ()
unregister server c = changed server $ \open ->
  open {openConnections = IntMap.delete (connectionNumber c) (openConnections open), openCount = openCount open - 1}

-- | Somebody may make connections, and 'awaitNone' waits for them.
hold :: Server -> IO ()
hold server = changed server (\open -> open {openHeld = openHeld open + 1})

-- | Undo 'hold'.
letGo :: Server -> IO ()
letGo server = changed server (\open -> open {openHeld = openHeld open - 1})

-- | Wake those for whom there may be something new.
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

-- | Wait until there is room for one more connection, or the server drains.
awaitRoom :: Server -> Thread ()
awaitRoom server = do
  count <- liftIO (connectionCount server)
  when (count >= limit) $ do
    suspend "room for another connection" $ \waiter -> do
      full <- atomicModifyIORef' (serverConnections server) $ \open ->
        if openCount open >= limit then (open {openRoom = waiter : openRoom open}, True) else (open, False)
      unless full (void (deliver waiter (Answered ())))
    draining <- liftIO (isDraining server)
    unless draining (awaitRoom server)
  where
    limit = max 1 (serverMaxConnections (serverSettings server))

-- | Is the server on its way out?
isDraining :: Server -> IO Bool
isDraining = readIORef . serverDraining

-- | From now on no connection is kept for another request; those that are idle are
-- cut off at once, and acceptors that wait for room go on (to see that they are not
-- wanted).
startDraining :: Server -> Thread ()
startDraining server = do
  liftIO (writeIORef (serverDraining server) True)
  open <- liftIO $ atomicModifyIORef' (serverConnections server) (\o -> (o {openRoom = []}, o))
  liftIO (for_ (openRoom open) (\w -> deliver w (Answered ())))
  for_ (openConnections open) $ \c -> do
    word <- liftIO (readPrimVar (connectionPhase c))
    when (phaseOf word == Idle) $ do
      before <- liftIO (casInt (connectionPhase c) word (withPhase word Expired))
      -- As in 'expire'.
      when (before == word) (shutdownQuietly c ShutdownReceive)

-- | Wait until the server is not in use, or for so long; says whether it is not.
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

-- | Cut every connection off where it is.
cutOffAll :: Server -> Thread ()
cutOffAll server = do
  open <- liftIO (readIORef (serverConnections server))
  for_ (openConnections open) (`shutdownQuietly` ShutdownBoth)
