{-# LANGUAGE PatternSynonyms #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections of a stack
--
-- A connection with its bytes, the threads that wait for it and its owner, whole or in few words; and the
-- listener that it came to. Touched by the holder of the turn of its shard only ("Weft.Tcp.Stack.Turn"), but for what is
-- marked.
module Weft.Tcp.Stack.Conn
  ( -- * Connections
    Conn (..),
    connLocal,
    connPeer,
    connLocalPort,
    connPeerPort,
    Body (Body, bodyTcb, bodyOut, bodyIn, bodyReaders, bodyWriters, bodyOwner, bodyFailure, bodyTold, bodyRetransmitted, bodyBeyond, bodyOwed, bodyOptions, bodyAlarm),
    Stage (..),
    newBody,
    Alarmed (..),
    readBody,
    writeBody,
    waitToRead,
    restIfIdle,
    Owner (..),
    isOrphan,
    HalfConn (..),
    WaitConn (..),

    -- * What is around them
    Listener (..),
    SocketOptions (..),
    defaultOptions,
  )
where

import Data.IORef
import Data.Maybe (isNothing)
import Data.Word (Word16, Word32)
import Network.Socket (Family)
import Weft.Internal.Data.Timers (TimerKey)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Small (HalfOpen, Resting, Waiting, fromResting, restingOf)
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack.Backlog (Backlog)
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Held (Held, heldNothing, isEmpty)
import Weft.Tcp.Stack.Options (SocketOptions (..), defaultOptions)
import Weft.Tcp.Stack.Wake

-- | A connection. Its addresses do not change, so that a look-up needs no more.
data Conn = Conn
  { connFlow :: !Flow,
    connStage :: {-# UNPACK #-} !(IORef Stage)
  }

connLocal, connPeer :: Conn -> Address
connLocal = flowLocal . connFlow
connPeer = flowPeer . connFlow

connLocalPort, connPeerPort :: Conn -> Word16
connLocalPort = flowLocalPort . connFlow
connPeerPort = flowPeerPort . connFlow

-- | The part of a connection that changes, one immutable record: whole, or in few words.
data Stage
  = Active !Body
  | -- | Nothing happens: its control block, threads that wait to read, and of its 'Body' what else may differ from
    -- connection to connection.
    AtRest {-# UNPACK #-} !Resting ![Wake] !SocketOptions !Alarmed {-# UNPACK #-} !Word32

-- | The present state of a connection. From any OS thread.
readBody :: Conn -> IO Body
readBody c =
  readIORef (connStage c) >>= \case
    Active b -> pure b
    AtRest resting readers options alarm again ->
      pure $!
        (newBody (fromResting resting) Owned options)
          { bodyReaders = readers,
            bodyAlarm = alarm,
            bodyTold = True,
            bodyRetransmitted = again
          }

-- | Its next state.
writeBody :: Conn -> Body -> IO ()
writeBody c b = writeIORef (connStage c) $! Active b

-- | Keep a connection in few words if nothing happens with it. It is tried when a timer has fired: a connection in
-- use would be taken apart and put together again for each segment.
restIfIdle :: Conn -> IO ()
restIfIdle c =
  readIORef (connStage c) >>= \case
    Active b
      | Just resting <- restingOf (bodyTcb b),
        isEmpty (bodyOut b) && isEmpty (bodyIn b),
        null (bodyWriters b),
        bodyOwner b == Owned && bodyTold b,
        isNothing (bodyFailure b) ->
          writeIORef (connStage c) $! AtRest resting (bodyReaders b) (bodyOptions b) (bodyAlarm b) (bodyRetransmitted b)
    _ -> pure ()

-- | Leave a thread that waits to read. A connection at rest stays so.
waitToRead :: Conn -> Wake -> IO ()
waitToRead c w =
  readIORef (connStage c) >>= \case
    Active b -> do
      left <- stillThere (bodyReaders b)
      writeBody c b {bodyReaders = w : left}
    AtRest resting readers options alarm again -> do
      left <- stillThere readers
      writeIORef (connStage c) $! AtRest resting (w : left) options alarm again

-- | What changes of a connection, in two parts (Note [Parts of a connection] in "Weft.Tcp.Internal.Tcb").
data Body = Parts !Tcb !Held !Held ![Wake] !Alarmed !Seldom

-- What seldom changes.
data Seldom = Seldom ![Wake] !Owner !(Maybe Failure) !Bool !Word32 !Int !Int !SocketOptions

{-# COMPLETE Body #-}

-- | All fields of it.
pattern Body :: Tcb -> Held -> Held -> [Wake] -> [Wake] -> Owner -> Maybe Failure -> Bool -> Word32 -> Int -> Int -> SocketOptions -> Alarmed -> Body
pattern Body
  { bodyTcb,
    -- Bytes that the user wrote and the peer has not acknowledged.
    bodyOut,
    -- Received bytes that the user has not read.
    bodyIn,
    -- Threads that wait to read, and to write or for the connection to be there.
    bodyReaders,
    bodyWriters,
    bodyOwner,
    -- Why it failed, until the user is told.
    bodyFailure,
    -- The user was told that the connection is there.
    bodyTold,
    -- How many segments were sent again.
    bodyRetransmitted,
    -- How many bytes were counted for its reader and for its peer ("Weft.Tcp.Stack.Memory").
    bodyBeyond,
    bodyOwed,
    bodyOptions,
    bodyAlarm
  } =
  Parts bodyTcb bodyOut bodyIn bodyReaders bodyAlarm (Seldom bodyWriters bodyOwner bodyFailure bodyTold bodyRetransmitted bodyBeyond bodyOwed bodyOptions)

-- | A connection that begins, or to which nothing has happened.
newBody :: Tcb -> Owner -> SocketOptions -> Body
newBody t owner options =
  Body
    { bodyTcb = t,
      bodyOut = heldNothing,
      bodyIn = heldNothing,
      bodyReaders = [],
      bodyWriters = [],
      bodyOwner = owner,
      bodyFailure = Nothing,
      bodyTold = False,
      bodyRetransmitted = 0,
      bodyBeyond = 0,
      bodyOwed = 0,
      bodyOptions = options,
      bodyAlarm = NoAlarm
    }

-- | The timer of a connection.
data Alarmed
  = NoAlarm
  | -- | When it fires, which is not after the connection's deadline.
    Alarmed {-# UNPACK #-} !Instant {-# UNPACK #-} !TimerKey

-- | The owner of a connection.
data Owner
  = -- | The listener that it came to; it was not accepted yet.
    Unaccepted !Listener
  | -- | A socket.
    Owned
  | -- | No owner any more: its number among the stack's orphans, or 0.
    Orphan {-# UNPACK #-} !Int
  deriving stock (Eq)

-- | Has a connection no owner any more?
isOrphan :: Body -> Bool
isOrphan b = case bodyOwner b of
  Orphan _ -> True
  _ -> False

-- | A connection that a listener has answered, and no socket has.
data HalfConn = HalfConn
  { halfFlow :: !Flow,
    halfTcb :: {-# UNPACK #-} !HalfOpen,
    halfListener :: !Listener,
    halfTimer :: {-# UNPACK #-} !TimerKey
  }

-- | A connection in TIME-WAIT. For the socket that it had, if that is still open, it has ended.
data WaitConn = WaitConn
  { waitFlow :: !Flow,
    waitTcb :: {-# UNPACK #-} !Waiting,
    waitTimer :: {-# UNPACK #-} !TimerKey
  }

-- | A socket that connections come to, one for all shards.
data Listener = Listener
  { listenerAddress :: !Address,
    listenerPort :: !Word16,
    listenerFamily :: !Family,
    -- | May connections come over IPv4 too?
    listenerBoth :: !Bool,
    -- | How many connections may wait to be accepted.
    listenerRoom :: !(IORef Int),
    -- | Established and not accepted, and the threads that wait for them. Of any thread.
    listenerBacklog :: !(Backlog Conn Wake),
    -- | Of all shards; written atomically.
    listenerHalfOpen :: !(IORef Int),
    listenerOptions :: !(IORef SocketOptions)
  }

instance Eq Listener where
  a == b = listenerBacklog a == listenerBacklog b
