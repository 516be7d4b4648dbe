{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Bytes through a stack's sockets
--
-- Receiving, sending, and the end of either. Each function is an attempt ("Weft.Tcp.Stack.Ask"),
-- made in the stack's turn.
module Weft.Tcp.Stack.Streams
  ( -- * Bytes
    receiveSock,
    receiveFromSock,
    sendSock,
    sendToSock,
    appendSock,
    roomSock,
    awaitReadableSock,
    awaitWritableSock,
    shutdownSock,

    -- * For other calls
    onSock,
    waitToAccept,
    waitToWrite,
  )
where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Word (Word8)
import Foreign.C.Error
import Foreign.Ptr (Ptr)
import Network.Socket (SockAddr)
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (More (..), ShutdownHow (..), Socket (..))
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Backlog (dismiss, enroll, waiting)
import Weft.Tcp.Stack.Datagrams
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Held
import Weft.Tcp.Stack.Memory
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.State

-- | An attempt at an open socket; @EBADF@ for others.
onSock :: Stack -> Socket -> (Sock -> IO (Verdict a)) -> IO (Verdict a)
onSock st s use = lookupSock st s >>= maybe (pure (Refuse eBADF)) use

-- A socket for datagrams, or the connection of one that has, or had, one.
onConn :: Stack -> Socket -> Errno -> (Sock -> IORef Udp -> IO (Verdict a)) -> (Conn -> Body -> IO (Verdict a)) -> IO (Verdict a)
onConn st s otherwise' datagrams use = onSock st s $ \sock -> case sockRole sock of
  Connected c -> readBody c >>= use c
  Datagrams ref -> datagrams sock ref
  _ -> pure (Refuse otherwise')
{-# INLINE onConn #-}

-- | Leave a thread that waits for a connection, and forget those that were cancelled.
waitToAccept :: Stack -> Listener -> Wake -> IO ()
waitToAccept st l w = do
  enroll (listenerBacklog l) stillThere w >>= wakeAll Nothing
  -- Another shard may have lost the device meanwhile, and found no thread that waits.
  lost <- readIORef (stackLost st)
  when lost (dismiss (listenerBacklog l) >>= wakeAll Nothing)

-- | Leave a thread that waits to write to a connection, or for it to be there.
waitToWrite :: Conn -> Wake -> IO ()
waitToWrite c w = do
  b <- readBody c
  left <- stillThere (bodyWriters b)
  writeBody c b {bodyWriters = w : left}

-- | End directions.
shutdownSock :: Stack -> Socket -> ShutdownHow -> Maybe Home -> Instant -> IO (Verdict ())
shutdownSock st s how here now = onConn st s eNOTCONN (\_ ref -> shutDatagrams ref how here) $ \c b ->
  if tcbState (bodyTcb b) == Closed
    then pure (Refuse eNOTCONN)
    else do
      when (how /= ShutdownSend) $ do
        writeBody c b {bodyReaders = []}
        advanceConn st here now c ShutRead B.empty
        wakeAll here (bodyReaders b)
      when (how /= ShutdownReceive) (advanceConn st here now c Shutdown B.empty)
      pure (Answer ())

-- | Receive what has come, up to a number of bytes, at least one.
receiveSock :: Stack -> Socket -> Ptr Word8 -> Int -> Maybe Home -> Instant -> IO (Verdict Int)
receiveSock st s to most here now
  | most <= 0 = pure (Refuse eINVAL)
  | otherwise = onConn st s eNOTCONN (\sock ref -> fmap fst <$> receiveDatagram sock ref to most) $ \c b -> do
      n <- takeBytes st here now c b to most
      if n > 0
        then pure (Answer n)
        else case bodyFailure b of
          -- The end of the stream comes before what happened to the connection after it.
          _ | bodyTcb b `is` ReadShut || streamEnded (bodyTcb b) -> pure (Answer 0)
          Just why -> Refuse (failureErrno why) <$ writeBody c b {bodyFailure = Nothing}
          Nothing
            | ended (bodyTcb b) -> pure (Answer 0)
            | otherwise -> pure (Again (waitToRead c) Nothing)

-- | 'receiveSock', and where it comes from.
receiveFromSock :: Stack -> Socket -> Ptr Word8 -> Int -> Maybe Home -> Instant -> IO (Verdict (Int, SockAddr))
receiveFromSock st s to most here now
  | most <= 0 = pure (Refuse eINVAL)
  | otherwise = onSock st s $ \sock -> case sockRole sock of
      Datagrams ref -> receiveDatagram sock ref to most
      Connected c -> fmap (,toSockAddr (sockFamily sock) (connPeer c) (connPeerPort c)) <$> receiveSock st s to most here now
      _ -> pure (Refuse eNOTCONN)

-- | Take what there is room for of several pieces, by copying it: the caller may overwrite its
-- memory at once. If more follows, what fills no segment leaves with that, or after a while. Pieces of a
-- datagram are one.
sendSock :: Stack -> Socket -> More -> [ByteString] -> Maybe Home -> Instant -> IO (Verdict Int)
sendSock st s more pieces here now = onWritable st s (\sock ref -> sendDatagram st sock ref Nothing (B.concat pieces) now) $ \c b ->
  if all B.null pieces
    then pure (Answer 0)
    else
      roomOf st b >>= \case
        0 -> pure (Again (waitToWrite c) Nothing)
        room -> do
          let !(Filled n out) = fill (sndEnd (bodyTcb b)) room 0 (bodyOut b) pieces
          advanceFrom st here now c b {bodyOut = out} ((if more == NothingMore then Wrote else WroteMore) (fromIntegral n)) B.empty
          pure (Answer n)
  where
    fill !end !room !n !out = \case
      [] -> Filled n out
      p : rest
        | room <= 0 -> Filled n out
        | otherwise ->
            let piece = B.copy (B.take (min room largest) p)
                left = B.drop (B.length piece) p
             in fill end (room - B.length piece) (n + B.length piece) (append end piece out) (if B.null left then rest else left : rest)
    -- So that memory becomes free as the peer acknowledges.
    largest = 65536

-- This number of bytes was taken, and what there is to send then.
data Filled = Filled !Int !Held

-- | Send to an address, which the socket of a connection ignores.
sendToSock :: Stack -> Socket -> ByteString -> SockAddr -> Maybe Home -> Instant -> IO (Verdict Int)
sendToSock st s bytes address here now = onSock st s $ \sock -> case sockRole sock of
  Datagrams ref -> sendDatagram st sock ref (Just address) bytes now
  _ -> sendSock st s NothingMore [bytes] here now

-- | Take bytes whether or not there is room. No other code has their memory.
appendSock :: Stack -> Socket -> ByteString -> Maybe Home -> Instant -> IO (Verdict Int)
appendSock st s bytes here now = onWritable st s (\sock ref -> sendDatagram st sock ref Nothing bytes now) $ \c b -> do
  advanceFrom st here now c b {bodyOut = append (sndEnd (bodyTcb b)) bytes (bodyOut b)} (Wrote (fromIntegral (B.length bytes))) B.empty
  pure (Answer (B.length bytes))

-- A socket for datagrams, or a connection that bytes may be written to.
onWritable :: Stack -> Socket -> (Sock -> IORef Udp -> IO (Verdict a)) -> (Conn -> Body -> IO (Verdict a)) -> IO (Verdict a)
onWritable st s datagrams use = onConn st s ePIPE datagrams $ \c b -> case tcbState (bodyTcb b) of
  Closed
    | Just why <- bodyFailure b -> Refuse (failureOf (bodyTcb b) why) <$ writeBody c b {bodyFailure = Nothing}
    | otherwise -> pure (Refuse ePIPE)
  _ | bodyTcb b `is` FinQueued -> pure (Refuse ePIPE)
  SynSent -> pure (Again (waitToWrite c) Nothing)
  SynReceived -> pure (Again (waitToWrite c) Nothing)
  _ -> use c b
{-# INLINE onWritable #-}

-- | How many bytes it takes, at least one.
roomSock :: Stack -> Socket -> Instant -> IO (Verdict Int)
roomSock st s now = onWritable st s (\_ ref -> roomForDatagram st ref now) $ \c b ->
  roomOf st b >>= \case
    0 -> pure (Again (waitToWrite c) Nothing)
    room -> pure (Answer room)

-- | Wait until receiving, or accepting, does not wait.
awaitReadableSock :: Stack -> Socket -> IO (Verdict ())
awaitReadableSock st s = onSock st s $ \sock -> case sockRole sock of
  Listening l -> do
    there <- waiting (listenerBacklog l)
    -- Without a device accepting fails, at once.
    lost <- readIORef (stackLost st)
    pure (if there == 0 && not lost then Again (waitToAccept st l) Nothing else Answer ())
  Connected c -> do
    b <- readBody c
    pure $
      if isWorthReading b
        then Answer ()
        else Again (waitToRead c) Nothing
  Datagrams ref -> awaitDatagram ref
  _ -> pure (Answer ())

-- | Wait until sending does not wait.
awaitWritableSock :: Stack -> Socket -> IO (Verdict ())
awaitWritableSock st s = onSock st s $ \sock -> case sockRole sock of
  Connected c -> do
    b <- readBody c
    room <- roomOf st b
    case tcbState (bodyTcb b) of
      SynSent -> pure (Again (waitToWrite c) Nothing)
      SynReceived -> pure (Again (waitToWrite c) Nothing)
      x | maySend x && not (bodyTcb b `is` FinQueued) && room == 0 -> pure (Again (waitToWrite c) Nothing)
      _ -> pure (Answer ())
  _ -> pure (Answer ())
