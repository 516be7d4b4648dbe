-- |
-- Description : The connections of a client
-- Stability   : not home
--
-- Gives out connections and takes them back, within bounds, fairly ("Weft.Http.Client.Places"
-- decides). An idle connection has a thread that watches it: when its other end is closed,
-- or its time is up, it is closed here too, so that it is not found out by the request that
-- wanted to use it. Called by the threads that make requests.
module Weft.Http.Client.Pool
  ( Pool,
    withPool,
    withConnection,
    Lease (..),
    Verdict (..),
    openConnections,
    idleConnections,
  )
where

import Control.Exception (IOException)
import Control.Monad (unless, void)
import Data.Foldable (for_)
import Weft
import Weft.Event
import Weft.Http.Client.Connection
import Weft.Http.Client.Places (Bounds (..), Grant (..), Orders (..), Places)
import Weft.Http.Client.Places qualified as Places
import Weft.Http.Client.Types
import Weft.MVar
import Weft.Mask (interruptible, uninterruptibleMask_)
import Weft.Ref
import Weft.Scope
import Weft.Timeout (timeout)

-- | The connections of a client.
data Pool = Pool
  { poolBounds :: !Bounds,
    poolSettings :: !ClientSettings,
    poolScope :: !Scope,
    poolPlaces :: !(Ref (Places Idle Waiter))
  }

-- | An idle connection and the thread that watches it.
data Idle = Idle !Connection !(Child ())

-- | Who waits finds here what was granted.
type Waiter = MVar (Grant Idle)

-- | A connection in use.
data Lease = Lease
  { leaseConnection :: !Connection,
    -- | It has served a request before, and may have been closed since.
    leaseUsed :: !Bool
  }

-- | What becomes of a connection when its user is done with it.
data Verdict = Keep | Discard
  deriving stock (Eq, Show)

-- | A pool for as long as the body runs.
withPool :: ClientSettings -> (Pool -> Thread a) -> Thread a
withPool settings body = withScope $ \scope -> do
  places <- newRefNamed "connections of a client" Places.noPlaces
  let pool = Pool (Bounds (max 1 (clientConnections settings)) (max 1 (clientConnectionsPerTarget settings))) settings scope places
  body pool `finally` (atomicModifyRef places Places.close >>= mapM_ (\(Idle connection _) -> endConnection connection))

-- | Connections that are open or being opened.
openConnections :: Pool -> Thread Int
openConnections pool = Places.openCount <$> atomicReadRef (poolPlaces pool)

-- | Those of them that nobody uses.
idleConnections :: Pool -> Thread Int
idleConnections pool = Places.idleCount <$> atomicReadRef (poolPlaces pool)

-- | Use a connection to a target; a new one if the flag says so. It is kept if the body says
-- so, and closed if the body is left in any other way. The two actions limit the time of
-- waiting and of connecting.
withConnection :: Pool -> Bool -> (forall x. Phase -> Thread x -> Thread x) -> Target -> (Lease -> Thread (a, Verdict)) -> Thread a
withConnection pool new limited target body = mask $ \restore -> do
  lease <- obtain pool new limited target
  let gone = closeConnection (leaseConnection lease) `finally` leave pool target
  (a, verdict) <- restore (body lease) `onException` gone
  case verdict of
    Keep | clientIdle (poolSettings pool) > mempty -> a <$ keep pool target (leaseConnection lease)
    _ -> a <$ gone

-- | Wait for a place, and a connection in it. Masked; waiting is interruptible.
obtain :: Pool -> Bool -> (forall x. Phase -> Thread x -> Thread x) -> Target -> Thread Lease
obtain pool new limited target = do
  over <- Places.isClosed <$> atomicReadRef (poolPlaces pool)
  if over then throwM ClientOver else waitForPlace >>= use
  where
    waitForPlace = do
      waiter <- newEmptyMVarNamed "a connection"
      (turn, orders) <- atomicModifyRef (poolPlaces pool) (Places.ask (poolBounds pool) target waiter)
      carryOut orders
      limited Waiting (takeMVar waiter) `onException` takeBack waiter turn
    takeBack waiter turn = do
      mine <- atomicModifyRef (poolPlaces pool) (Places.withdraw target turn)
      -- Something was granted, and is there or about to be.
      unless mine $
        uninterruptibleMask_ (takeMVar waiter) >>= \case
          Open -> leave pool target
          Reuse (Idle connection watch) -> do
            cancel (childThread watch)
            closeConnection connection `finally` leave pool target
    use = \case
      Open -> open
      Reuse (Idle connection watch) -> do
        cancel (childThread watch)
        -- Two threads must not wait for its input. When the watch has ended by itself,
        -- something has happened to the connection.
        alive <- either (const True) (const False) <$> resultOf watch `onException` lose connection
        if alive && not new
          then pure (Lease connection True)
          else do
            closeConnection connection `onException` leave pool target
            if new then open else leave pool target >> waitForPlace >>= use
    open = flip onException (leave pool target) $ do
      over <- Places.isClosed <$> atomicReadRef (poolPlaces pool)
      if over
        then throwM ClientOver
        else (`Lease` False) <$> (limited Connecting (connectTo (poolSettings pool) target) `catch` failed)
    failed e = throwM (ConnectFailed target (e :: IOException))
    lose connection = closeConnection connection `finally` leave pool target

-- | A connection is closed, or was never opened.
leave :: Pool -> Target -> Thread ()
leave pool target = atomicModifyRef (poolPlaces pool) (Places.giveUp (poolBounds pool) target) >>= carryOut

-- | A connection is idle from now on. Masked.
keep :: Pool -> Target -> Connection -> Thread ()
keep pool target connection = do
  entered <- newEvent
  number <- newRef (0 :: Int)
  -- The watch inherits the mask, and may be interrupted only where it waits.
  try (forkDaemonIn (poolScope pool) (interruptible (wait entered) >> watching number)) >>= \case
    -- The client has ended before its last user.
    Left (_ :: ScopeEnded) -> closeConnection connection `finally` leave pool target
    Right watch -> do
      (turn, orders) <- atomicModifyRef (poolPlaces pool) (Places.giveBack (poolBounds pool) target (Idle connection watch))
      writeRef number turn
      carryOut orders
      set entered
  where
    watching number = do
      void (interruptible (timeout (clientIdle (poolSettings pool)) (watchIdle connection)) `catch` \e -> pure (Just (ignored e)))
      n <- readRef number
      removed <- atomicModifyRef (poolPlaces pool) (Places.removeIdle (poolBounds pool) target n)
      for_ removed $ \orders -> interruptible (endConnection connection) `finally` carryOut orders
    ignored :: IOException -> ()
    ignored _ = ()

-- | Do what a change has brought about. All of it: who was granted something waits for it.
carryOut :: Orders Idle Waiter -> Thread ()
carryOut orders = uninterruptibleMask_ $ do
  for_ (ordersGranted orders) (uncurry putMVar)
  for_ (ordersClosing orders) $ \(Idle connection watch) -> cancel (childThread watch) >> closeConnection connection
