{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Files on every backend
module Test.BackendConformance.Files (files) where

import Control.Monad hiding (forever)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Foreign.C.Error
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (castPtr)
import Foreign.Storable
import Test.BackendConformance.Support
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys

files :: MakeBackend -> [TestTree]
files make =
  [ rigged "open, write, read, sync" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
      n <- withBytes "hello world" \p n -> perform rig (WriteAt d p n 0)
      n @?= 11
      perform rig (Sync d True) >>= (@?= 0)
      perform rig (Sync d False) >>= (@?= 0)
      got <- withRoom 100 \p -> perform rig (ReadAt d p 100 6) >>= contents p
      got @?= "world"
      past <- withRoom 100 \p -> perform rig (ReadAt d p 100 11)
      past @?= 0
      release rig d
      B.readFile (dir <> "/a") >>= (@?= "hello world"),
    rigged "append at the file's own position" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagWrite + flagCreate + flagAppend) 0o600
      for_ ["one", "two", "three"] \bytes -> withBytes bytes \p n -> perform rig (WriteAt d p n (-1)) >>= (@?= n)
      release rig d
      B.readFile (dir <> "/a") >>= (@?= "onetwothree"),
    rigged "failures have their errno" make \rig -> withScratch \dir -> do
      missing <- withPath (dir <> "/none") \p -> perform rig (OpenAt atCwd p 0 0 0)
      missing @?= code eNOENT
      d <- openAt rig dir 0 0
      r <- withRoom 10 \p -> perform rig (ReadAt d p 10 0)
      r @?= code eISDIR
      release rig d
      nothing <- withRoom 256 \buffer -> withPath (dir <> "/none") \p -> perform rig (StatAt atCwd p 0 0x7ff (castPtr buffer))
      nothing @?= code eNOENT,
    rigged "stat tells the size" make \rig -> withScratch \dir -> do
      B.writeFile (dir <> "/a") (B.replicate 1234 0)
      size <- withRoom 256 \buffer -> do
        r <- withPath (dir <> "/a") \p -> perform rig (StatAt atCwd p 0 0x7ff (castPtr buffer))
        r @?= 0
        peekByteOff buffer 40
      size @?= (1234 :: Int),
    rigged "a scoped open does not leave its directory" make \rig -> withScratch \dir -> do
      d <- openAt rig dir 0 0
      B.writeFile (dir <> "/a") "x"
      inside <- withPath "a" \p -> perform rig (OpenAt (descriptorNumber d) p 0 0 resolveBeneath)
      outside <- withPath "../../etc/passwd" \p -> perform rig (OpenAt (descriptorNumber d) p 0 0 resolveBeneath)
      outside @?= code eXDEV
      assertBool ("open answered " <> show inside) (inside >= 0)
      _ <- Sys.close (fromIntegral inside)
      release rig d,
    rigged "a file is sent whole" make \rig -> withScratch \dir -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l -> do
      let total = 3_000_000
          bytes = B.pack (take total (cycle [0 .. 250]))
      B.writeFile (dir <> "/a") bytes
      d <- openAt rig (dir <> "/a") 0 0
      evict d
      whole <- sendThrough rig l total (\sent -> SendFile (near l) d (fromIntegral sent) (total - sent))
      assertBool "what is sent is what was written" (whole == bytes)
      end <- perform rig (SendFile (near l) d (fromIntegral total) 100)
      end @?= 0
      release rig d
  ]

-- | Drop a file's pages from memory, if the kernel is so kind.
evict :: Descriptor -> IO ()
evict d = do
  _ <- Sys.sync (descriptorNumber d) 0
  void $ c_fadvise (descriptorNumber d) 0 0 4

foreign import ccall safe "posix_fadvise" c_fadvise :: CInt -> Int -> Int -> CInt -> IO CInt
