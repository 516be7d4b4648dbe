-- |
-- Description : A stack's connections for another process
--
-- A process that serves over a stack of its own can be replaced by another one on the same device without the
-- loss of a connection. The old process undoes its accepts, connection by connection, where a session is at rest
-- ('release'); then its stack stands still while the new one takes its state ('handingOver'). If
-- the new one fails, the old one goes on, and accepts its connections again.
--
-- A connection is a value, as in Li's stack (Li 2008, section 3.2.8): its state is written as it is, with the bytes of both
-- directions. To the connection the pause is no time.
--
-- How the two processes talk to each other is not said here.
module Weft.Tcp.Handover
  ( -- * A stack that can be handed over
    Handover,
    Secret,
    newHandover,
    movable,

    -- * The old process
    secret,
    takingMore,
    release,
    handingOver,

    -- * The new process
    Frozen,
    takeOver,

    -- ** The form of the state
    formatVersion,
    headerLength,
    frameLength,
    readFrame,
    gathered,
    Record,
    isLast,
  )
where

import Control.Exception (throwIO)
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.IORef
import Data.Word (Word64)
import Weft
import Weft.Kernel (Outcome (..), deliver, suspend)
import Weft.Mask (uninterruptibleMask_)
import Weft.Socket (Socket)
import Weft.Tcp.Device.Gate
import Weft.Tcp.Stack.Arrivals (finish)
import Weft.Tcp.Stack.Ask (inTurn)
import Weft.Tcp.Stack.Calls (resetAll)
import Weft.Tcp.Stack.Frozen
import Weft.Tcp.Stack.Moving qualified as Moving
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Turn
import Weft.Time (now)
import Weft.Time qualified as Time

-- | A stack whose connections can leave it, and come to it.
data Handover = Handover !Gate !(Maybe Secret) !(IORef (Maybe Stack))

-- | The secret by which a stack draws its numbers. A stack that takes over from another one has the same.
type Secret = (Word64, Word64)

-- | A handle for one stack. With a secret the stack is to take over from another one: it neither reads its device nor
-- sends before 'takeOver'.
newHandover :: Maybe Secret -> IO Handover
newHandover inherited = Handover <$> newGate (null inherited) <*> pure inherited <*> newIORef Nothing

-- | Settings of the stack that the handle is for. It has one shard: it stands still in one turn.
movable :: Handover -> TcpSettings -> TcpSettings
movable (Handover gate inherited stack) settings = settings {tcpDevice = gated gate <$> tcpDevice settings, tcpDivided = False, tcpOpened = opened}
  where
    opened st = do
      mapM_ (writeIORef (stackSecret st) . Just) inherited
      writeIORef stack (Just st)
      tcpOpened settings st

stackOf :: Handover -> Thread Stack
stackOf (Handover _ _ ref) = liftIO (readIORef ref >>= maybe (throwIO (userError "there is no TCP stack yet")) pure)

-- | The secret of a stack that has a socket.
secret :: Handover -> Thread Secret
secret h = stackOf h >>= liftIO . secretOf

-- | While the action runs, a connection takes up to 'tcpSendLimit' bytes from its user, whatever its peer has taken, and all of them together up to
-- half of 'tcpOrphanBytes' and 'tcpSpareMemory': what has been written goes along, and no connection has to wait for a peer that does not read.
takingMore :: Handover -> Thread a -> Thread a
takingMore h = bracket_ (more True) (more False)
  where
    more yes = stackOf h >>= \st -> inTurn st (Moving.takeMore st yes)

-- | Undo the accept of a connection: its socket is closed, and it waits for another accept on its listener as it is, with the bytes
-- that were not read. 'False', and nothing is done, if it cannot: one direction of it has been shut down, or it has
-- ended, or nobody listens at its port. Does not block.
release :: Handover -> Socket -> Thread Bool
release h s = stackOf h >>= \st -> inTurn st (Moving.release st s)

-- | Have the stack stand still while the action gives its state to another process: each connection that is not
-- accepted, or that its user has closed, in records for 'readFrame'. If the action answers that the other process has taken
-- it, the last action tells that process so, without being interrupted, and must not block for long; then the stack loses its device
-- and all its connections, without a word to any peer. Otherwise, or when one of the actions throws, it goes on as if nothing had been.
--
-- Calls about sockets of the stack wait meanwhile, also those of the actions.
handingOver :: Handover -> ([ByteString] -> Thread Bool) -> Thread () -> Thread Bool
handingOver h@(Handover gate _ _) act tell = do
  st <- stackOf h
  gone <- bracket (standStill st) (\_ -> liftIO (goOn st)) $ \records -> do
    taken <- act (map framed records)
    -- From the last word on nothing may bring it back to life.
    taken <$ when taken (uninterruptibleMask_ (tell >> liftIO (shutGate gate >> Moving.forgetQueues st)))
  when gone (uninterruptibleMask_ (resetAll st not Nothing))
  pure gone
  where
    goOn st = readIORef (stackNow st) >>= finish st Nothing

-- Keep the turn.
standStill :: Stack -> Thread [Record]
standStill st = do
  mine <- liftIO (tryTurn (stackTurn st))
  if mine
    then do
      seen <- now
      liftIO $ do
        modifyIORef' (stackNow st) (max (Time.instantNanoseconds seen `div` 1000))
        readIORef (stackNow st) >>= Moving.freeze st
    else do
      suspend "its turn in the TCP stack" $ \waiter -> do
        let go = void (deliver waiter (Answered ()))
        left <- leaveJob (stackTurn st) (const go)
        unless left go
      standStill st

-- | Take over the connections of another stack, and the device with them. The listeners of this stack have them to accept;
-- connections to ports at which nobody listens are reset. Answers how many can be accepted.
takeOver :: Handover -> Frozen -> Thread Int
takeOver h@(Handover gate _ _) frozen = do
  st <- stackOf h
  inTurn st $ \here t -> do
    openGate gate
    Moving.adopt st frozen here t
