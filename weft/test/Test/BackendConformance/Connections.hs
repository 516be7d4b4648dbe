{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connecting and accepting on every backend
module Test.BackendConformance.Connections (connections) where

import Control.Exception (bracket_)
import Control.Monad hiding (forever)
import Data.Foldable (for_)
import Data.List (sort)
import Data.Traversable (for)
import Foreign.C.Error
import Foreign.Ptr (nullPtr)
import Network.Socket qualified as N
import System.Posix.Resource
import Test.BackendConformance.Support
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Internal.Os.Sys qualified as Sys

connections :: MakeBackend -> [TestTree]
connections make =
  [ rigged "connect and accept" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      a <- start rig (Accept door nullPtr nullPtr)
      _ <- turn rig noWait
      c <- N.socket N.AF_INET N.Stream 0 >>= toDescriptor
      connected <- withSocketAddress address \p n -> perform rig (Connect c p n)
      connected @?= 0
      number <- finish rig "accept" a
      assertBool ("accept answered " <> show number) (number >= 0)
      s <- newDescriptor (fromIntegral number)
      sendAll rig c "hello"
      receiveBytes rig s 10 >>= (@?= Right "hello")
      mapM_ (release rig) [c, s]
      forgotten rig door,
    rigged "a refused connection says so" make \rig -> do
      address <- withListener \_ address -> pure address
      c <- N.socket N.AF_INET N.Stream 0 >>= toDescriptor
      connected <- withSocketAddress address \p n -> perform rig (Connect c p n)
      connected @?= code eCONNREFUSED
      release rig c,
    rigged "many connections at once" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      accepts <- replicateM 3 (start rig (Accept door nullPtr nullPtr))
      clients <- replicateM 20 (N.socket N.AF_INET N.Stream 0 >>= toDescriptor)
      withSocketAddress address \p n -> do
        cs <- for clients \c -> start rig (Connect c p n)
        for_ cs (finish rig "connect" >=> (@?= 0))
      first <- for accepts (finish rig "accept")
      rest <- replicateM 17 (perform rig (Accept door nullPtr nullPtr))
      let numbers = sort (first <> rest)
      assertBool (show numbers) (all (>= 0) numbers && and (zipWith (/=) numbers (drop 1 numbers)))
      for_ numbers (Sys.close . fromIntegral)
      mapM_ (release rig) clients
      forgotten rig door,
    rigged "without a free descriptor accept fails, and works again" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      clients <- replicateM 2 (N.socket N.AF_INET N.Stream 0)
      N.connect (head' clients) address
      withFewDescriptors do
        r <- perform rig (Accept door nullPtr nullPtr)
        r @?= code eMFILE
      number <- perform rig (Accept door nullPtr nullPtr)
      assertBool ("accept answered " <> show number) (number >= 0)
      -- And it waits as before.
      a <- start rig (Accept door nullPtr nullPtr)
      _ <- turn rig noWait
      N.connect (last clients) address
      another <- finish rig "accept" a
      assertBool ("accept answered " <> show another) (another >= 0)
      mapM_ (Sys.close . fromIntegral) [number, another]
      mapM_ N.close clients
      forgotten rig door,
    rigged "without a free descriptor a waiting accept fails, and works again" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      client <- N.socket N.AF_INET N.Stream 0
      r <- withFewDescriptors do
        -- io_uring looks at the limit when the accept is submitted.
        a <- start rig (Accept door nullPtr nullPtr)
        _ <- turn rig noWait
        N.connect client address
        finish rig "accept" a
      r @?= code eMFILE
      number <- perform rig (Accept door nullPtr nullPtr)
      assertBool ("accept answered " <> show number) (number >= 0)
      _ <- Sys.close (fromIntegral number)
      N.close client
      forgotten rig door,
    rigged "operations on what is not a stream fail" make \rig -> withListener \listener _ -> do
      door <- listenerOf listener
      receiveBytes rig door 10 >>= (@?= Left (code eNOTCONN))
      forgotten rig door
  ]
  where
    head' = foldr const (error "empty")

-- | Lower the limit on descriptors to what is open.
withFewDescriptors :: IO a -> IO a
withFewDescriptors action = do
  limits <- getResourceLimit ResourceOpenFiles
  next <- openNull
  let full = limits {softLimit = ResourceLimit (fromIntegral next)}
  _ <- Sys.close (fromIntegral next)
  bracket_ (setResourceLimit ResourceOpenFiles full) (setResourceLimit ResourceOpenFiles limits) action

-- | The number that is opened next.
openNull :: IO Int
openNull = withPath "/dev/null" \p -> Sys.openAt atCwd p 0 0 0
