{-# LANGUAGE CApiFFI #-}
{-# LANGUAGE RecordWildCards #-}
{-# OPTIONS_GHC -optc-D_GNU_SOURCE #-}

-- |
-- Description : Descriptors and files in the concurrency libraries
module InputOutputTest (tests) where

import Control.Exception hiding (throwTo)
import Control.Monad
import Data.Word (Word8)
import Foreign.C.Error (Errno (..), eBADF)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (alloca, allocaBytes, allocaBytesAligned)
import Foreign.Marshal.Utils (fillBytes)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek, peekByteOff, poke)
import GHC.IO.Exception (IOException (..))
import Library
import Network.Socket qualified as Network
import Network.Socket.Address qualified as Network (pokeSocketAddress, sizeOfSocketAddress)
import System.Posix.Files (removeLink)
import System.Posix.IO (closeFd, createPipe, handleToFd)
import System.Posix.Temp (mkstemp)
import System.Posix.Types (Fd (..))
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.IO hiding (closeFd)
import Weft.ConcLib.IO qualified as IO (closeFd)
import Weft.ConcLib.MP (newEmptyMVar, putMVar, takeMVar, threadWaitRead, threadWaitWrite)
import Weft.Test.Skipping (skipped)

tests :: TestTree
tests = testGroup "descriptors and files" (onLibraries every)

every :: Library t -> [TestTree]
every library =
  [ testCase name (limited (with library (test library)))
    | (name, test) <-
        [ ("tokens through pipes, beside threads that wait for nothing", tokens),
          ("more than a pipe holds", more),
          ("a connection of sockets", sockets),
          ("a connection is refused", refused),
          ("a file is written and read", file),
          ("a number that is none of a descriptor", noDescriptor)
        ]
          <> [("one that waits is told when its descriptor is closed", closing) | isStack library]
          <> [("one that waits for a descriptor is interrupted", interrupting) | isStack library]
  ]

pipe :: IO (Fd, Fd)
pipe = createPipe >>= \(r, w) -> (,) <$> adopt r <*> adopt w

give, get :: Fd -> Word8 -> IO ()
give fd byte = alloca (\p -> poke p byte >> writeFd fd p 1 >>= (@?= 1))
get fd byte = alloca (\p -> readFd fd p 1 >>= (@?= 1) >> peek p >>= (@?= byte))

tokens :: Library t -> Assertion
tokens Library {..} = do
  (never, nothing) <- pipe
  idle <- newEmptyMVar
  _ <- forkIO (alloca (\p -> readFd never (p :: Ptr Word8) 1) >>= putMVar idle)
  done <- newEmptyMVar
  forM_ [1 .. 8] $ \n -> do
    (r1, w1) <- pipe
    (r2, w2) <- pipe
    _ <- forkIO (replicateM_ 40 (get r1 n >> give w2 n))
    forkIO (replicateM_ 40 (give w1 n >> get r2 n) >> mapM_ IO.closeFd [r1, w1, r2, w2] >> putMVar done ())
  replicateM_ 8 (takeMVar done)
  IO.closeFd nothing
  takeMVar idle >>= (@?= 0)
  IO.closeFd never

more :: Library t -> Assertion
more Library {..} = do
  (r, w) <- pipe
  _ <- forkIO (allocaBytes size (\p -> fillBytes p 7 size >> whole (writeFd w) p size) >> IO.closeFd w)
  let count got = allocaBytes 1000 (\p -> readFd r (p :: Ptr Word8) 1000) >>= \n -> if n == 0 then pure got else count (got + n)
  count 0 >>= (@?= size)
  IO.closeFd r
  where
    size = 300_000
    whole :: (Ptr Word8 -> Int -> IO Int) -> Ptr Word8 -> Int -> IO ()
    whole _ _ 0 = pure ()
    whole write p n = write p n >>= whole write p . (n -)

socket :: IO Network.Socket
socket = Network.socket Network.AF_INET Network.Stream Network.defaultProtocol

descriptor :: Network.Socket -> IO Fd
descriptor s = Network.socketToFd s >>= adopt . Fd

local :: Network.PortNumber -> Network.SockAddr
local port = Network.SockAddrInet port (Network.tupleToHostAddress (127, 0, 0, 1))

connectTo :: Fd -> Network.SockAddr -> IO ()
connectTo fd address = allocaBytes n (\p -> Network.pokeSocketAddress p address >> connect fd p n)
  where
    n = Network.sizeOfSocketAddress address

sockets :: Library t -> Assertion
sockets Library {..} = do
  listener <- socket
  Network.bind listener (local 0)
  Network.listen listener 8
  port <- Network.socketPort listener
  l <- descriptor listener
  done <- newEmptyMVar
  forM_ [1 .. 3] $ \n -> forkIO $ do
    s <- socket
    fd <- descriptor s
    connectTo fd (local port)
    give fd n
    get fd (n + 1)
    IO.closeFd fd
    putMVar done ()
  replicateM_ 3 $ do
    c <- accept l
    forkIO $ do
      n <- alloca (\p -> readFd c p 1 >> peek p)
      give c (n + 1)
      IO.closeFd c
  replicateM_ 3 (takeMVar done)
  IO.closeFd l

refused :: Library t -> Assertion
refused _ = do
  s <- socket
  Network.bind s (local 0)
  port <- Network.socketPort s
  other <- socket
  fd <- descriptor other
  r <- try (connectTo fd (local port))
  either (\(_ :: IOException) -> pure ()) (\() -> assertFailure "connected to nobody") r
  IO.closeFd fd
  Network.close s

-- Through the page cache and, where the file system has that, past it.
file :: Library t -> Assertion
file Library {..} = bracket (mkstemp "/var/tmp/weft-substrate") (removeLink . fst) $ \(path, h) -> do
  fd <- handleToFd h
  done <- newEmptyMVar
  forM_ [0 .. 3] (\i -> forkIO (block writeAt fd i (fromIntegral i + 1) >> putMVar done ()))
  replicateM_ 4 (takeMVar done)
  block readAt fd 2 3
  closeFd fd
  direct <- withCString path (`c_open` (c_direct + 2))
  if direct < 0
    then skipped "/var/tmp has no O_DIRECT"
    else do
      forM_ [0 .. 3] (\i -> forkIO (block readAt (Fd direct) i (fromIntegral i + 1) >> block writeAt (Fd direct) i 9 >> block readAt (Fd direct) i 9 >> putMVar done ()))
      replicateM_ 4 (takeMVar done)
      r <- try (allocaBytesAligned 4096 4096 (\p -> readAt (Fd direct) (p :: Ptr Word8) 4096 1))
      either (\(_ :: IOException) -> pure ()) (\_ -> assertFailure "at an odd place past the page cache") r
      closeFd (Fd direct)
  where
    block :: (Fd -> Ptr Word8 -> Int -> Int -> IO Int) -> Fd -> Int -> Word8 -> IO ()
    block act fd i byte = allocaBytesAligned 4096 4096 $ \p -> do
      fillBytes p byte 4096
      act fd p 4096 (4096 * i) >>= (@?= 4096)
      peekByteOff p 4095 >>= (@?= byte)

noDescriptor :: Library t -> Assertion
noDescriptor _ = do
  IO.closeFd (-1)
  forM_ [threadWaitRead, threadWaitWrite] $ \wait ->
    try (wait (-1)) >>= either (\e -> ioe_errno e @?= Just closed) (\() -> assertFailure "it is ready")
  where
    Errno closed = eBADF

closing :: Library t -> Assertion
closing Library {..} = do
  (r, w) <- pipe
  out <- newEmptyMVar
  _ <- forkIO (try (get r 1) >>= putMVar out . either (\(_ :: IOException) -> "told") (const "read"))
  replicateM_ 3 yield
  IO.closeFd r
  takeMVar out >>= (@?= "told")
  IO.closeFd w

interrupting :: Library t -> Assertion
interrupting Library {..} = do
  (r, w) <- pipe
  out <- newEmptyMVar
  ready <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> get r 1) `catch` \e -> putMVar out (e :: AsyncException))
  takeMVar ready
  throwTo t UserInterrupt
  takeMVar out >>= (@?= UserInterrupt)
  -- Later bytes are for the next reader.
  _ <- forkIO (get r 2 >> putMVar out ThreadKilled)
  give w 2
  takeMVar out >>= (@?= ThreadKilled)
  mapM_ IO.closeFd [r, w]

foreign import capi unsafe "fcntl.h open" c_open :: CString -> CInt -> IO CInt

foreign import capi unsafe "fcntl.h value O_DIRECT" c_direct :: CInt
