{-# OPTIONS_HADDOCK not-home #-}

-- | The connections of a client, leased within bounds and in order ("Weft.Http.Client.Places" decides).
-- A thread watches each idle connection and closes it in time, so that no request meets a dead one. One
-- thread at a time receives or watches, and one sends; both can be cancelled.
module Weft.Http.Client.Pool
  ( Client (poolSettings),
    withClient,
    withConnection,
    Lease (..),
    Verdict (..),
    openConnections,
    idleConnections,
    ClientConnection (connectionTransport),
    connectPlain,
    receiveSome,
    sendPieces,
    closeConnection,
  )
where

import Control.Exception (IOException)
import Control.Monad (unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Weft
import Weft.Event
import Weft.Http.Client.Places (Bounds (..), Grant (..), Orders (..), Places)
import Weft.Http.Client.Places qualified as Places
import Weft.Http.Client.Types
import Weft.Http.Transport
import Weft.MVar
import Weft.Mask (interruptible, uninterruptibleMask_)
import Weft.Ref
import Weft.Scope
import Weft.Socket hiding (Stream)
import Weft.Timeout (timeout)

data ClientConnection = ClientConnection
  { connectionSocket :: !Socket,
    connectionTransport :: !Transport
  }

-- | Connect, and secure the connection for @https@. Throws an 'IOError'. Sets no time limit.
connectTo :: ClientSettings -> Target -> Thread ClientConnection
connectTo settings target = case (targetScheme target, clientSecure settings) of
  (Http, _) -> around (\_ -> pure)
  (Https, Just secure) -> around secure
  (Https, Nothing) -> throwM (userError "https needs clientSecure (the package weft-tls has it)")
  where
    around secure = mask $ \restore -> do
      socket <- restore (clientConnect settings target)
      restore (ClientConnection socket <$> secure target (socketTransport socket)) `onException` closeSocket socket

-- | Connect by TCP.
connectPlain :: Target -> Thread Socket
connectPlain target = mask $ \restore -> do
  -- The caller limits the time.
  socket <- restore (connectTcp (seconds 3600) (C.unpack (targetHost target)) (show (targetPort target)))
  setOption socket NoDelay 1 `onException` closeSocket socket
  pure socket

-- | Wait for bytes; empty at the end of the stream.
receiveSome :: ClientConnection -> Thread ByteString
receiveSome c = receiveBytes (connectionTransport c) 16_384

sendPieces :: ClientConnection -> [ByteString] -> Thread ()
sendPieces c = go . filter (not . B.null)
  where
    go pieces = unless (null pieces) (transportSend (connectionTransport c) pieces >>= \n -> go (dropBytes n pieces))

-- | Wait until the idle connection is useless: the server closed it, or sent something unasked.
watchIdle :: ClientConnection -> Thread ()
watchIdle c = void (receiveBytes (connectionTransport c) 1)

-- | End the stream in order (waiting at most a second) and close an idle connection.
endConnection :: ClientConnection -> Thread ()
endConnection c = void (try @_ @IOException (timeout (seconds 1) (transportEnd (connectionTransport c)))) `finally` closeConnection c

-- | Close the connection without waiting; idempotent. Pending operations fail with an 'IOError'.
closeConnection :: ClientConnection -> Thread ()
closeConnection = closeSocket . connectionSocket

-- | A pool of connections with its settings.
data Client = Client
  { poolBounds :: !Bounds,
    poolSettings :: !ClientSettings,
    poolScope :: !Scope,
    poolPlaces :: !(Ref (Places Idle Waiter))
  }

data Idle = Idle !ClientConnection !(Child ())

type Waiter = MVar (Grant Idle)

data Lease = Lease
  { leaseConnection :: !ClientConnection,
    -- | It has served a request, so the server may have closed it since.
    leaseUsed :: !Bool
  }

data Verdict = Keep | Discard
  deriving stock (Eq, Show)

-- | A client for the duration of the body, whose idle connections are closed afterwards.
withClient :: ClientSettings -> (Client -> Thread a) -> Thread a
withClient settings body = withScope $ \scope -> do
  places <- newRefNamed "connections of a client" Places.noPlaces
  let pool = Client (Bounds (max 1 (clientConnections settings)) (max 1 (clientConnectionsPerTarget settings))) settings scope places
  body pool `finally` do
    idle <- map (\(Idle connection _) -> connection) <$> atomicModifyRef places Places.close
    -- To end one waits for its other end, and may be interrupted.
    mapM_ endConnection idle `onException` uninterruptibleMask_ (mapM_ closeConnection idle)

-- | Connections open or being opened, idle ones included.
openConnections :: Client -> Thread Int
openConnections pool = Places.placesOpen <$> atomicReadRef (poolPlaces pool)

-- | Idle connections.
idleConnections :: Client -> Thread Int
idleConnections pool = Places.idleCount <$> atomicReadRef (poolPlaces pool)

-- | Lease a connection, a new one if the flag is set. The verdict decides whether it is kept; an
-- exception closes it. The function limits the time of each phase.
withConnection :: Client -> Bool -> (forall x. ClientPhase -> Thread x -> Thread x) -> Target -> (Lease -> Thread (a, Verdict)) -> Thread a
withConnection pool new limited target body = mask $ \restore -> do
  lease <- obtain pool new limited target
  let gone = lose pool target (leaseConnection lease)
  (a, verdict) <- restore (body lease) `onException` gone
  case verdict of
    Keep | clientIdle (poolSettings pool) > mempty -> a <$ keep pool target (leaseConnection lease)
    _ -> a <$ gone

-- | Wait for a place and a connection. Called masked; waiting is interruptible.
obtain :: Client -> Bool -> (forall x. ClientPhase -> Thread x -> Thread x) -> Target -> Thread Lease
obtain pool new limited target = do
  unlessOver pool waitForPlace >>= use
  where
    waitForPlace = do
      waiter <- newEmptyMVarNamed "a connection"
      (turn, orders) <- atomicModifyRef (poolPlaces pool) (Places.ask (poolBounds pool) target waiter)
      carryOut orders
      limited Waiting (takeMVar waiter) `onException` takeBack waiter turn
    takeBack waiter turn = do
      mine <- atomicModifyRef (poolPlaces pool) (Places.withdraw target turn)
      -- The grant is in the variable or about to be.
      unless mine $
        uninterruptibleMask_ (takeMVar waiter) >>= \case
          Open -> leave pool target
          Reuse (Idle connection watch) -> cancel (childThread watch) >> lose pool target connection
    use = \case
      Open -> open
      Reuse (Idle connection watch) -> do
        cancel (childThread watch)
        -- Only one thread may wait for input. A watch that has ended by itself saw the connection end.
        alive <- either (const True) (const False) <$> resultOf watch `onException` lose pool target connection
        if
          | alive && not new -> pure (Lease connection True)
          | new -> closeConnection connection `onException` leave pool target >> open
          | otherwise -> lose pool target connection >> waitForPlace >>= use
    open = flip onException (leave pool target) . unlessOver pool $ (`Lease` False) <$> (limited Connecting (connectTo (poolSettings pool) target) `catch` failed)
    failed e = throwM (ConnectFailed target (e :: IOException))

-- | Throws 'ClientOver' if the pool is closed.
unlessOver :: Client -> Thread a -> Thread a
unlessOver pool act = do
  over <- Places.placesClosed <$> atomicReadRef (poolPlaces pool)
  if over then throwM ClientOver else act

lose :: Client -> Target -> ClientConnection -> Thread ()
lose pool target connection = closeConnection connection `finally` leave pool target

-- | Release the place of a connection that is closed or was never opened.
leave :: Client -> Target -> Thread ()
leave pool target = atomicModifyRef (poolPlaces pool) (Places.giveUp (poolBounds pool) target) >>= carryOut

-- | Make a connection idle. Called masked.
keep :: Client -> Target -> ClientConnection -> Thread ()
keep pool target connection = do
  entered <- newEvent
  number <- newRef (0 :: Int)
  -- The watch inherits the mask and is interruptible only where it waits.
  try (forkDaemonIn (poolScope pool) (interruptible (wait entered) >> watching number)) >>= \case
    -- The client ended before its last user.
    Left (_ :: ScopeEnded) -> lose pool target connection
    Right watch -> do
      (turn, orders) <- atomicModifyRef (poolPlaces pool) (Places.giveBack (poolBounds pool) target (Idle connection watch))
      writeRef number turn
      carryOut orders
      set entered
  where
    watching number = do
      void (try @_ @IOException (interruptible (timeout (clientIdle (poolSettings pool)) (watchIdle connection))))
      n <- readRef number
      removed <- atomicModifyRef (poolPlaces pool) (Places.removeIdle (poolBounds pool) target n)
      for_ removed $ \orders -> interruptible (endConnection connection) `finally` carryOut orders

-- | Carry out all orders, uninterruptibly: the waiters depend on it.
carryOut :: Orders Idle Waiter -> Thread ()
carryOut orders = uninterruptibleMask_ $ do
  for_ (ordersGranted orders) (uncurry putMVar)
  for_ (ordersClosing orders) $ \(Idle connection watch) -> cancel (childThread watch) >> closeConnection connection
