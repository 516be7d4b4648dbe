{-# OPTIONS_HADDOCK not-home #-}

-- | A program's operations on a connection or a pipe: to receive, to send, to end a direction, to
-- close. Each is an 'Attempt' at an 'End', for TCP, for stream sockets of the Unix domain, and for
-- pipes.
module Weft.Sim.Internal.Network.Streams
  ( receiveFromEnd,
    sendToEnd,
    sendFileToEnd,
    endReadable,
    endWritable,
    shutEnd,
    closeEnd,
    newPipe,
    writeToEnd,
    capacityOf,
  )
where

import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (isJust)
import Foreign.C.Error
import Network.Socket (SockAddr (..))
import Weft.Internal.Core.SystemCall (Buffer, ShutdownHow (..))
import Weft.Sim.Internal.Network.Bytes
import Weft.Sim.Internal.Network.Segments
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket (canceled)
import Weft.Sim.Internal.World (Machine)

-- | Take bytes that have arrived. What came before an error or the end comes before it; an
-- error is told once, and then the stream is at its end.
receiveFromEnd :: Network -> End -> String -> Buffer -> Int -> Int -> Attempt Int
receiveFromEnd net end what buffer offset count = do
  there <- sizeOf (flowUnread (endIn end))
  if there > 0 then takeArrived net end buffer offset count else receiveEnding end what

takeArrived :: Network -> End -> Buffer -> Int -> Int -> Attempt Int
takeArrived net end buffer offset count = do
  let (from, room) = roomOf buffer offset count
  n <- takeInto (flowUnread (endIn end)) buffer from room
  when (n > 0) (roomFreed net end n)
  success n

receiveEnding :: End -> String -> Attempt Int
receiveEnding end what = do
  -- An end that has come is not taken back by an error.
  ended <- isSet (flowWords (endIn end)) Ended
  failed <- if ended then pure Nothing else takeError (endError end)
  case failed of
    Just e -> refusal what e
    Nothing -> do
      over <- isOver end
      if over then success 0 else blocked

-- Will nothing more come?
isOver :: End -> IO Bool
isOver end = do
  ended <- isSet (flowWords (endIn end)) Ended
  shut <- isSet (endFlags end) InShut
  phase <- readIORef (endPhase end)
  pure (isGone phase || ended || shut)

-- | How many bytes an end can send, in a call of this name.
roomToSend :: End -> String -> Attempt Int
roomToSend end what =
  takeError (endError end) >>= \case
    Just e -> refusal what e
    Nothing -> do
      shut <- isSet (endFlags end) OutShut
      phase <- readIORef (endPhase end)
      case phase of
        _ | isGone phase || shut -> refusal what ePIPE
        Connecting -> blocked
        _ -> do
          unread <- peerWillNotRead
          if unread
            then refusal what ePIPE
            else do
              limit <- wordOf (flowWords (endOut end)) Capacity
              held <- wordOf (flowWords (endOut end)) Held
              success $! limit - held
  where
    -- On one machine that is known at once.
    peerWillNotRead = case flowPath (endOut end) of
      Through ->
        readIORef (endPeer end) >>= \case
          Nothing -> pure True
          Just peer -> (||) <$> isSet (endFlags peer) Closed <*> isSet (endFlags peer) InShut
      _ -> pure False

-- | Send as many of the bytes as there is room for, or as it pleases the world.
sendToEnd :: Network -> End -> String -> [ByteString] -> Attempt Int
sendToEnd net end what pieces = roomToSend end what `andThen` send
  where
    !total = sum (map ByteString.length pieces)
    send room
      | total == 0 = success 0
      | room <= 0 = blocked
      | otherwise = do
          let !most = min room total
          !n <- shortened net most
          -- A copy: the caller may write to this memory as soon as it is answered.
          pushBytes net end $ case pieces of
            [bytes] -> ByteString.copy (ByteString.take n bytes)
            _ -> ByteString.copy (ByteString.take n (ByteString.concat pieces))
          success n

-- | Send bytes of a file, given how to get at most a number of them from an offset.
sendFileToEnd :: Network -> End -> (Int64 -> Int -> IO (Either Errno ByteString)) -> Int64 -> Int -> Attempt Int
sendFileToEnd net end contents offset count =
  roomToSend end "send file" `andThen` \room ->
    -- The file is asked even if there is no room: its end is known then.
    contents offset (min count (max 1 room)) >>= \case
      Left e -> refusal "send file" e
      Right bytes
        | ByteString.null bytes -> success 0
        | room <= 0 -> blocked
        | otherwise -> do
            n <- shortened net (ByteString.length bytes)
            pushBytes net end (ByteString.take n bytes)
            success n

-- | Would receiving not have to wait?
endReadable :: End -> Attempt ()
endReadable end = do
  there <- sizeOf (flowUnread (endIn end))
  failed <- readIORef (endError end)
  over <- isOver end
  if there > 0 || over || isJust failed then pure (Just (Right ())) else blocked

-- | Would sending not have to wait?
endWritable :: End -> Attempt ()
endWritable end = do
  failed <- readIORef (endError end)
  case failed of
    Just _ -> success ()
    Nothing ->
      roomToSend end "wait" >>= \case
        Nothing -> blocked
        Just (Right room) | room <= 0 -> blocked
        _ -> success ()

-- | End one direction, or both. A connection of TCP whose ends have both heard that the other one has ended is there no more.
shutEnd :: Network -> End -> ShutdownHow -> IO (Either Errno ())
shutEnd net end how = do
  heard <- (&&) <$> isSet (flowWords (endIn end)) Ended <*> isSet (flowWords (endOut end)) Ended
  readIORef (endPhase end) >>= \case
    Established | heard && flowPath (endIn end) /= Through -> pure (Left eNOTCONN)
    Established -> do
      when (how /= ShutdownSend) $ do
        setFlag (endFlags end) InShut True
        serve (endReaders end)
        when (flowPath (endIn end) == Through) $ readIORef (endPeer end) >>= mapM_ (serve . endWriters)
      when (how /= ShutdownReceive) $ do
        before <- isSet (endFlags end) OutShut
        unless before $ do
          setFlag (endFlags end) OutShut True
          push net end Finished
          serve (endWriters end)
      pure (Right ())
    _ -> pure (Left eNOTCONN)

-- | Its socket is closed. With unread bytes, or if it is to be so, the
-- connection is reset; otherwise what was sent arrives, and then the end.
closeEnd :: Network -> End -> Bool -> IO ()
closeEnd net end abruptly = do
  phase <- readIORef (endPhase end)
  unread <- sizeOf (flowUnread (endIn end))
  shut <- isSet (endFlags end) OutShut
  setFlag (endFlags end) Closed True
  cancelAlarm net end
  clear (flowUnread (endIn end))
  addTo (flowWords (endIn end)) Held (negate unread)
  case phase of
    Connecting -> pure ()
    _
      | isGone phase -> pure ()
      | abruptly || unread > 0 -> do
          -- Bytes that could not be delivered yet are given up.
          stalled <- readIORef (flowStalled (endOut end))
          for_ stalled $ \_ -> writeIORef (flowFlight (endOut end)) emptyFifo
          push net end Reset
      | shut -> pure ()
      | otherwise -> push net end Finished
  dismiss (endReaders end) canceled
  dismiss (endWriters end) canceled
  -- A thread that waits for room there learns that the peer is gone.
  when (flowPath (endOut end) == Through) $ readIORef (endPeer end) >>= mapM_ (serve . endWriters)

-- | The ends of a pipe to read from and to write to: a connection through memory, of which one
-- direction has ended. It holds 65,536 bytes unless it is told otherwise.
newPipe :: Machine -> IO (End, End)
newPipe machine = do
  there <- newFlow Through 65_536
  back <- newFlow Through 0
  setFlag (flowWords back) Ended True
  reader <- newEnd machine name name there back Nothing Established
  writer <- newEnd machine name name back there (Just reader) Established
  setFlag (endFlags reader) OutShut True
  (reader, writer) <$ writeIORef (endPeer reader) (Just writer)
  where
    name = SockAddrUnix "pipe"

-- | Send to a pipe: at most 4,096 bytes (@PIPE_BUF@) together, more as on a connection.
writeToEnd :: Network -> End -> ByteString -> Attempt Int
writeToEnd net end bytes
  | size > 4_096 = sendToEnd net end "write" [bytes]
  | otherwise =
      roomToSend end "write" `andThen` \room ->
        if size <= max 0 room then success size <* when (size > 0) (pushBytes net end (ByteString.copy bytes)) else blocked
  where
    size = ByteString.length bytes

-- | How many bytes a pipe holds, given the end to write to, after it was told to hold others. As Linux
-- has it: whole pages, a power of two of them, and at most 1 MiB for processes that are not privileged.
capacityOf :: End -> Maybe Int -> IO (Either Errno Int)
capacityOf end = \case
  Nothing -> Right <$> wordOf flow Capacity
  Just n
    | n < 1 || n > 2_147_483_647 -> pure (Left eINVAL)
    | n > 1_048_576 -> pure (Left ePERM)
    | otherwise -> do
        there <- wordOf flow Held
        let size = until (>= n) (* 2) 4_096
        if there > size
          then pure (Left eBUSY)
          else Right size <$ (setWord flow Capacity size >> serve (endWriters end))
  where
    flow = flowWords (endOut end)
