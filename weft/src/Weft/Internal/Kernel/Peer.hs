{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The peer of a waiting thread, for dumps: the address of the peer of a system call's socket, or the
-- socket's own if it has no peer. Sockets with negative numbers are those of kernels that have sockets of
-- their own, which say it themselves ('describesSockets').
module Weft.Internal.Kernel.Peer (withPeer, socketOf, describesSockets) where

import Control.Exception (IOException, try)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (catMaybes, listToMaybe)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (Ptr, castPtr)
import Network.Socket (SockAddr)
import Network.Socket.Address (peekSocketAddress)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Descriptor (descriptorNumber, isClosed)
import Weft.Internal.Os.Net (c_getpeername, c_getsockname)

withPeer :: SystemCall a -> String -> IO String
withPeer request text = case socketOf request of
  Nothing -> pure text
  Just s -> do
    closed <- isClosed (socketDescriptor s)
    if
      | closed -> pure text
      | descriptorNumber (socketDescriptor s) < 0 -> maybe text ((text <> ", ") <>) <$> described s
      | otherwise ->
          address c_getpeername s >>= \case
            Just a -> pure (text <> ", peer " <> showAddress a)
            Nothing -> maybe text (\a -> text <> ", " <> showAddress a) <$> address c_getsockname s

-- | From now on until the answer is run, this function says what is at the other end of sockets
-- with negative numbers, if they are its own. Any OS thread calls it, for a dump; it must not block.
describesSockets :: (Socket -> IO (Maybe String)) -> IO (IO ())
describesSockets f = do
  key <- atomicModifyIORef' describers (\(n, m) -> ((n + 1, IntMap.insert n f m), n))
  pure (atomicModifyIORef' describers (\(n, m) -> ((n, IntMap.delete key m), ())))

described :: Socket -> IO (Maybe String)
described s = do
  (_, m) <- readIORef describers
  listToMaybe . catMaybes <$> mapM ($ s) (IntMap.elems m)

-- | The describers of sockets, by numbers that are not given twice.
describers :: IORef (Int, IntMap (Socket -> IO (Maybe String)))
describers = unsafePerformIO (newIORef (0, IntMap.empty))
{-# NOINLINE describers #-}

address :: (CInt -> Ptr () -> CInt -> IO CInt) -> Socket -> IO (Maybe SockAddr)
address get s = allocaBytes room $ \p -> do
  r <- get (descriptorNumber (socketDescriptor s)) p (fromIntegral room)
  if r < 0
    then pure Nothing
    else either (\(_ :: IOException) -> Nothing) Just <$> try (peekSocketAddress (castPtr p))
  where
    room = 128 :: Int

-- | The socket that a call sends on, receives from, waits for or accepts from.
socketOf :: SystemCall a -> Maybe Socket
socketOf = \case
  Accept s _ -> Just s
  Receive s _ _ _ -> Just s
  ReceiveStanding i -> Just (intakeSocket i)
  Send s _ -> Just s
  SendVector s _ -> Just s
  ReceiveFrom s _ -> Just s
  SendTo s _ _ -> Just s
  SendFile s _ _ _ -> Just s
  AwaitReadable s -> Just s
  AwaitWritable s -> Just s
  _ -> Nothing
