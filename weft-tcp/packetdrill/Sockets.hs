{-# LANGUAGE MultiWayIf #-}

-- |
-- Description : The calls of sockets
--
-- Each is a thread of the run that makes the call of "Weft.Socket", or an attempt ("Weft.Attempt") where the descriptor does not
-- block. Failures are error numbers, negated. What Weft has no call for (@poll@, lengths of queues, @TCP_INFO@) is
-- read from the stack between two steps.
module Sockets
  ( Blocks (..),
    socketCall,
    bindCall,
    listenCall,
    acceptCall,
    peerOf,
    connectCall,
    receiveCall,
    sendCall,
    shutdownCall,
    closeCall,
    getOptionCall,
    setOptionCall,
    inQueue,
    pollMask,
    tcpInfo,
  )
where

import Control.Exception (SomeException, fromException, try)
import Control.Monad ((>=>))
import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Either (fromLeft)
import Data.Functor (($>))
import Data.IORef
import Data.IntMap.Strict qualified as I
import Data.Maybe (isJust)
import Data.Word (Word16, Word32, Word8)
import Foreign.C.Error
import Foreign.ForeignPtr (newForeignPtr_)
import Foreign.Ptr (Ptr, plusPtr)
import GHC.IO.Exception (IOException (..))
import Machine
import Options
import Weft (Thread, liftIO)
import Weft qualified
import Weft.Attempt (Attempts)
import Weft.Internal.Core.SystemCall (Attempts (..), Buffer (..), More (..), Socket (socketFamily), SystemCall (Accept, Connect))
import Weft.Internal.Core.Trace (call)
import Weft.Socket hiding (Socket)
import Weft.Tcp.Connection (readable)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Engine (ended)
import Weft.Tcp.Stack.Held (size)
import Weft.Tcp.Stack.Names (fromSockAddr, toSockAddr)
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams (awaitReadableSock, awaitWritableSock)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Time (now)

-- | May a call wait?
data Blocks = Blocks | BlocksNot
  deriving stock (Eq)

-- The number of an error, negated.
failed :: SomeException -> Int
failed e = case fromException e >>= ioe_errno of
  Just n -> negate (fromIntegral n)
  Nothing -> refused eIO

refused :: Errno -> Int
refused (Errno e) = negate (fromIntegral e)

-- A call of a socket, as a thread: its result, or its number if it is blocked.
calling :: Machine -> Int -> (Socket -> Thread Int) -> IO (Either Int Int)
calling m fd use = socketOf m fd >>= maybe (pure (Right (refused eBADF))) (\s -> perform m (either failed id <$> Weft.try (use s)))

-- One that is never blocked.
callingNow :: Machine -> Int -> (Socket -> Thread a) -> IO (Either Int a)
callingNow m fd use = socketOf m fd >>= maybe (pure (Left (refused eBADF))) (\s -> either (Left . failed) Right <$> performNow m (Weft.try (use s)))

done :: IO (Either Int ()) -> IO Int
done = fmap (fromLeft 0)

-- An attempt on a socket.
trying :: Machine -> Int -> (Attempts -> Socket -> IO Int) -> IO (Either Int Int)
trying m fd use = Right <$> (socketOf m fd >>= maybe (pure (refused eBADF)) (step m . use (machineAttempts m)))

socketOf :: Machine -> Int -> IO (Maybe Socket)
socketOf m fd = I.lookup fd <$> readIORef (machineSockets m)

enter :: Machine -> Int -> Socket -> IO ()
enter m fd s = modifyIORef' (machineSockets m) (I.insert fd s)

-- | A socket for streams of this family, with this descriptor.
socketCall :: Machine -> Int -> Family -> IO Int
socketCall m fd family = try (performNow m (openSocket family Stream)) >>= either (pure . failed) (\s -> enter m fd s $> fd)

-- | Take an address and port.
bindCall :: Machine -> Int -> Address -> Word16 -> IO Int
bindCall m fd a port = done (callingNow m fd (\s -> bind s (toSockAddr (socketFamily s) a port)))

-- | Wait for connections.
listenCall :: Machine -> Int -> Int -> IO Int
listenCall m fd backlog = done (callingNow m fd (`listen` backlog))

-- | Take a connection, for the second descriptor.
acceptCall :: Machine -> Blocks -> Int -> Int -> IO (Either Int Int)
acceptCall m blocks fd new = calling m fd $ \s -> do
  limit <- if blocks == Blocks then pure Nothing else Just <$> now
  Weft.try (call (Accept s limit)) >>= \case
    Right (taken, _) -> liftIO (enter m new taken) $> new
    Left e
      | isJust limit && failed e == refused eTIMEDOUT -> pure (refused eAGAIN)
      | otherwise -> pure (failed e)

-- | The address and port of the peer.
peerOf :: Machine -> Int -> IO (Maybe (Address, Word16))
peerOf m fd = either (const Nothing) fromSockAddr <$> callingNow m fd peerAddress

-- | Ask for a connection. Where the descriptor does not block, EINPROGRESS says that this has begun.
connectCall :: Machine -> Blocks -> Int -> Address -> Word16 -> IO (Either Int Int)
connectCall m blocks fd a port = do
  before <- opening
  r <- calling m fd $ \s -> do
    limit <- if blocks == Blocks then pure Nothing else Just <$> now
    call (Connect s (toSockAddr (socketFamily s) a port) limit) $> 0
  going <- opening
  pure (if blocks == BlocksNot && r == Right (refused eTIMEDOUT) && going then Right (refused (if before then eALREADY else eINPROGRESS)) else r)
  where
    opening = maybe False (\(_, b) -> tcbState (bodyTcb b) `elem` [SynSent, SynReceived]) <$> connectionOf m fd

-- | Receive at most the given number of bytes; all of them, but at the end, if the flag says so.
receiveCall :: Machine -> Blocks -> Int -> Ptr Word8 -> Int -> Bool -> IO (Either Int Int)
receiveCall m blocks fd to n whole
  | n <= 0 = pure (Right 0)
  | blocks == BlocksNot = newForeignPtr_ to >>= \p -> trying m fd (\tries s -> attemptReceive tries s (Buffer p n) 0 n)
  | otherwise = calling m fd (go 0)
  where
    go got s = do
      p <- liftIO (newForeignPtr_ (to `plusPtr` got))
      k <- receiveInto s (Buffer p (n - got)) 0 (n - got)
      if whole && k > 0 && got + k < n then go (got + k) s else pure (got + k)

-- | Send: all bytes, or as many as there is room for where the descriptor does not block.
sendCall :: Machine -> Blocks -> Int -> ByteString -> More -> IO (Either Int Int)
sendCall m blocks fd bytes more
  | blocks == BlocksNot = trying m fd (\tries s -> attemptSend tries s more bytes)
  | otherwise = calling m fd (go 0)
  where
    go sent s = do
      let rest = B.drop sent bytes
      -- There is no call that says that more follows.
      k <- if more == NothingMore then either failed id <$> Weft.try (send s rest) else liftIO (attemptSend (machineAttempts m) s more rest)
      if
        | k == refused eAGAIN -> awaitWritable s >> go sent s
        | k < 0 -> pure (if sent > 0 then sent else k)
        | k > 0 && sent + k < B.length bytes -> go (sent + k) s
        | otherwise -> pure (sent + k)

-- | Shut down reading (0), writing (1) or both (2).
shutdownCall :: Machine -> Int -> Int -> IO Int
shutdownCall m fd = \case
  0 -> ending ShutdownReceive
  1 -> ending ShutdownSend
  2 -> ending ShutdownBoth
  _ -> pure (refused eINVAL)
  where
    ending how = done (callingNow m fd (`shutdown` how))

-- | Close the descriptor.
closeCall :: Machine -> Int -> IO (Either Int Int)
closeCall m fd = calling m fd (\s -> closeSocket s $> 0) <* modifyIORef' (machineSockets m) (I.delete fd)

-- | The value of an option of level and number.
getOptionCall :: Machine -> Int -> Int -> Int -> IO (Either Int Int)
getOptionCall m fd level name = callingNow m fd (`getOption` SockOpt (fromIntegral level) (fromIntegral name))

-- | Set an option; of SO_LINGER the value is the time, or negative.
setOptionCall :: Machine -> Int -> Int -> Int -> Int -> IO Int
setOptionCall m fd level name value = done (callingNow m fd (\s -> setOption s (SockOpt (fromIntegral level) (fromIntegral name)) value))

-- What can be seen -----------------------------------------------------------------------------

sockOf :: Machine -> Int -> IO (Maybe Sock)
sockOf m fd = socketOf m fd >>= maybe (pure Nothing) (lookupSock (machineStack m))

connectionOf :: Machine -> Int -> IO (Maybe (Conn, Body))
connectionOf m fd =
  sockOf m fd >>= \case
    Just sock | Connected c <- sockRole sock -> Just . (c,) <$> readBody c
    _ -> pure Nothing

-- | How many bytes may be read, how many were not acknowledged, and how many not sent.
inQueue :: Machine -> Int -> IO (Maybe (Int, Int, Int))
inQueue m fd = fmap (\(_, b) -> (fromIntegral (readable (bodyTcb b)), size (bodyOut b), fromIntegral (unsent (bodyTcb b)))) <$> connectionOf m fd

-- | The answer of poll for a descriptor.
pollMask :: Machine -> Int -> IO Int
pollMask m fd =
  sockOf m fd >>= \case
    Nothing -> pure 0x20
    Just sock -> case sockRole sock of
      Listening _ -> reading
      Connected c -> do
        b <- readBody c
        let t = bodyTcb b
            closed = tcbState t == Closed
            quiet = t `is` ReadShut || ended t
            more = [(0x8, isJust (bodyFailure b)), (0x10, closed || quiet && t `is` FinQueued), (0x2000, quiet)]
        (foldr (.|.) 0 [flag | (flag, True) <- more] .|.) <$> readiness
      _ -> (0x10 .|.) <$> readiness
  where
    readiness = (.|.) <$> reading <*> ready 0x104 awaitWritableSock
    reading = ready 0x41 awaitReadableSock
    ready flags wait =
      socketOf m fd >>= maybe (pure 0) (wait (machineStack m) >=> \case Answer () -> pure flags; _ -> pure 0)

-- | The numbers of TCP_INFO that scripts look at, in the order that the C part expects.
tcpInfo :: Machine -> Int -> IO [Word32]
tcpInfo m fd =
  connectionOf m fd >>= \case
    Nothing -> pure []
    Just (c, b) -> do
      waits <- isJust <$> Table.lookup (stackWaits (machineStack m)) (connFlow c)
      pure (information (if waits then (bodyTcb b) {tcbState = TimeWait} else bodyTcb b))
