{-# LANGUAGE BlockArguments #-}

-- |
-- Description : Steps that the conformance tests of backends share
module Test.BackendConformance.Support
  ( rigged,
    randomR,

    -- * Bytes
    sendAll,
    receiveBytes,
    poke',
    sendThrough,

    -- * Listeners
    listenerOf,
    forgotten,

    -- * Files
    openAt,
    withPath,
    atCwd,
    flagWrite,
    flagReadWrite,
    flagCreate,
    flagAppend,
    resolveBeneath,
  )
where

import Control.Monad hiding (forever)
import Data.Bits (shiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as BC
import Data.IORef
import Data.Word (Word64)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr, castPtr)
import Network.Socket qualified as N
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber, newDescriptor)
import Weft.Internal.Os.Sys qualified as Sys

rigged :: String -> MakeBackend -> (Rig -> IO ()) -> TestTree
rigged name make body = testCase name (withRig make body)

-- | Send bytes, all of them.
sendAll :: (HasCallStack) => Rig -> Descriptor -> ByteString -> IO ()
sendAll rig d bytes = unless (B.null bytes) do
  n <- withBytes bytes \p n -> perform rig (Send d p n)
  assertBool ("send answered " <> show n) (n > 0)
  sendAll rig d (B.drop n bytes)

-- | Write to a link's far end without the backend.
poke' :: (HasCallStack) => Descriptor -> ByteString -> IO ()
poke' d bytes = do
  n <- withBytes bytes (Sys.writeStream (descriptorNumber d))
  n @?= B.length bytes

receiveBytes :: (HasCallStack) => Rig -> Descriptor -> Int -> IO (Either Int ByteString)
receiveBytes rig d size = withRoom size \p -> do
  r <- perform rig (Receive d p size)
  if r < 0 then pure (Left r) else Right <$> contents p r

-- | Send the given number of bytes to the far end, by operations for what is left after the number
-- already sent, and receive them meanwhile.
sendThrough :: (HasCallStack) => Rig -> Link -> Int -> (Int -> Operation) -> IO ByteString
sendThrough rig l total sending = withRoom room \p -> do
  got <- newIORef []
  let keep n = when (n > 0) $ contents p n >>= \piece -> modifyIORef' got (piece :)
      receiveUntilSent s = do
        results <- readIORef (pendingResults s)
        when (null results) do
          r <- start rig (Receive (far l) p room)
          turnUntil rig "progress" do
            sent <- readIORef (pendingResults s)
            came <- readIORef (pendingResults r)
            pure (not (null sent && null came))
          -- After the last send nothing more comes.
          abandon rig r
          finish rig "receive" r >>= keep
          receiveUntilSent s
      send done = when (done < total) do
        s <- start rig (sending done)
        receiveUntilSent s
        n <- finish rig "send" s
        assertBool ("send answered " <> show n) (n > 0)
        send (done + n)
      rest = do
        have <- sum . map B.length <$> readIORef got
        when (have < total) $ perform rig (Receive (far l) p room) >>= keep >> rest
  send 0
  rest
  B.concat . reverse <$> readIORef got
  where
    room = 200_000

-- The listener's number stays its own: it is only forgotten here.
listenerOf :: N.Socket -> IO Descriptor
listenerOf s = N.withFdSocket s newDescriptor

forgotten :: (HasCallStack) => Rig -> Descriptor -> IO ()
forgotten rig d = do
  gone <- newIORef False
  forget (rigBackend rig) d (writeIORef gone True)
  turnUntil rig "the end of forget" (readIORef gone)

openAt :: (HasCallStack) => Rig -> FilePath -> Int -> Int -> IO Descriptor
openAt rig path flags mode = do
  r <- withPath path \p -> perform rig (OpenAt atCwd p flags mode 0)
  assertBool ("open answered " <> show r) (r >= 0)
  newDescriptor (fromIntegral r)

withPath :: FilePath -> (Ptr () -> IO a) -> IO a
withPath path use = B.useAsCString (BC.pack path) (use . castPtr)

-- | The next number of a fixed sequence, within bounds, and the state after it.
randomR :: (Int, Int) -> Word64 -> (Int, Word64)
randomR (low, high) state = (low + fromIntegral (next `shiftR` 33) `mod` (high - low + 1), next)
  where
    next = state * 6364136223846793005 + 1442695040888963407

atCwd :: CInt
atCwd = -100

flagWrite, flagReadWrite, flagCreate, flagAppend, resolveBeneath :: Int
flagWrite = 1
flagReadWrite = 2
flagCreate = 0o100
flagAppend = 0o2000
resolveBeneath = 8
