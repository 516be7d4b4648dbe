{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The end of a stack's sockets
--
-- By their user, with the device, and with the run. Everything here runs in the turn of the socket's shard.
module Weft.Tcp.Stack.Closing
  ( closeSock,
    lingerConn,
    loseDevice,
    resetSome,

    -- * For those that leave
    forgetSock,
    disown,
    enterOrphan,
    feedStarved,
    isUnfinished,
  )
where

import Control.Applicative ((<|>))
import Control.Exception (displayException, toException)
import Control.Monad (forM, forM_, join, mfilter, unless, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.Tuple (swap)
import Foreign.C.Error
import Network.Socket (SocketOption (Linger))
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.Trace (Trace (Throw))
import Weft.Internal.Os.Descriptor (markClosed)
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Tcp.Connection
import Weft.Tcp.Options (valueOf)
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.Held (size)
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Options
import Weft.Tcp.Stack.Orphans
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.Shards (allShards)
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams (waitToWrite)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait

-- | Close it. Threads that wait on it fail with @ECANCELED@. With the option 'Network.Socket.Linger' and a time the caller
-- waits for this connection, until then ('lingerConn').
closeSock :: Stack -> Socket -> Maybe Home -> Instant -> IO (Verdict (Maybe (Conn, Instant)))
closeSock st s here now = do
  _ <- markClosed (socketDescriptor s)
  found <- lookupSock st s
  lingers <- forM found $ \sock -> do
    forgetSock st sock
    let linger = valueOf (numbered Linger) (optValues (sockOptions sock))
    lingers <- case sockRole sock of
      Listening l -> Nothing <$ closeListener st l here now canceled
      Connected c -> do
        disown here c (Orphan 0)
        advanceConn st here now c (if linger == Just 0 then Abort else Close) B.empty
        enterOrphan st here now c
        pure ((\n -> (c, now + fromIntegral n * 1000000)) <$> mfilter (> 0) linger)
      Datagrams ref -> do
        u <- readIORef ref
        writeIORef ref u {udpReaders = []}
        Nothing <$ mapM_ (wake here . canceled) (udpReaders u)
      _ -> pure Nothing
    lingers <$ feedStarved st here
  pure (Answer (join lingers))

-- | A connection without an owner goes on, unless it has ended. If there are too many of those, the oldest is reset.
enterOrphan :: Stack -> Maybe Home -> Instant -> Conn -> IO ()
enterOrphan st here now c = do
  b <- readBody c
  when (tcbState (bodyTcb b) /= Closed) $ do
    number <- atomicModifyIORef' (stackOrphans st) (swap . enter (size (bodyOut b)) c)
    writeBody c b {bodyOwner = Orphan number}
    resetOldest
  where
    resetOldest = do
      orphans <- readIORef (stackOrphans st)
      forM_ (oldestBeyond (share tcpMostOrphans) (share tcpOrphanBytes) orphans) $ \(oldest, others') -> do
        writeIORef (stackOrphans st) others'
        count st OrphansReset
        advanceConn st here now oldest Abort B.empty
        resetOldest
    share what = what (stackSettings st) `div` length (allShards st)

-- | Wait until the peer has acknowledged all that a closed connection sends, or until this time, as Linux's @close@ does. It goes
-- on sending after that, also if the thread is cancelled.
lingerConn :: Conn -> Instant -> Maybe Home -> Instant -> IO (Verdict ())
lingerConn c limit _ now = do
  b <- readBody c
  pure (if now < limit && isUnfinished b then Again (waitToWrite c) (Just limit) else Answer ())

-- | Has a connection that was closed something that the peer has not acknowledged?
isUnfinished :: Body -> Bool
isUnfinished b = tcbState (bodyTcb b) `elem` [SynReceived, FinWait1, Closing, LastAck]

-- | A socket is there no more, and its port is free.
forgetSock :: Stack -> Sock -> IO ()
forgetSock st sock = do
  Table.delete (stackSocks st) (fromIntegral (sockNumber sock))
  unbind st sock

-- | A connection gets another owner than its socket. Threads that wait on it fail.
disown :: Maybe Home -> Conn -> Owner -> IO ()
disown here c owner = do
  b <- readBody c
  writeBody c b {bodyOwner = owner, bodyReaders = [], bodyWriters = []}
  mapM_ (wake here . canceled) (bodyReaders b <> bodyWriters b)

-- The thread fails with @ECANCELED@.
canceled :: Wake -> Wake
canceled = goingOn (\_ -> Throw (toException (errnoToIOError "wait" (Errno (fromIntegral (negate Sys.canceled))) Nothing Nothing)))

-- | Accepts that wait for a socket to be closed look again.
feedStarved :: Stack -> Maybe Home -> IO ()
feedStarved st here = do
  starved <- readIORef (stackStarved st)
  when starved $ do
    writeIORef (stackStarved st) False
    wakeListeners st here

-- | The device is gone, because of this: no thread waits for further connections. Those over it are for the
-- caller to reset ('resetSome').
loseDevice :: Stack -> Maybe Home -> IOError -> IO ()
loseDevice st here why = do
  was <- atomicModifyIORef' (stackLost st) (True,)
  unless was $ do
    report <- readIORef (stackReport st)
    report (displayException why <> "; connections over it have ended")
    wakeListeners st here

-- | Reset some connections, by whether both of their ends belong to this stack, and tell their users this if
-- there is something to tell. False if there are none left. Very many at once would keep the worker from all of
-- its threads for seconds.
resetSome :: Stack -> (Bool -> Bool) -> Maybe Failure -> Maybe Home -> Instant -> IO Bool
resetSome st isOne why here now = do
  conns <- some stackConns connFlow
  forM_ conns $ \c -> do
    b <- readBody c
    writeBody c b {bodyFailure = why <|> bodyFailure b}
    advanceConn st here now c Abort B.empty
  halves <- some stackHalves halfFlow
  forM_ halves $ \c -> advanceHalf st here now c Abort B.empty
  waits <- some stackWaits waitFlow
  mapM_ (endWait st) waits
  pure (not (null conns && null halves && null waits))
  where
    some table flow = take 256 . filter (isOne . loops st . flowPeer . flow) <$> Table.toList (table st)
