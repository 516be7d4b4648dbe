{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Operations that are cancelled or forgotten, on every backend
module Test.BackendConformance.Cancellation (cancellation) where

import Control.Monad hiding (forever)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Foreign.Ptr (nullPtr)
import Network.Socket qualified as N
import Test.BackendConformance.Support
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys

cancellation :: MakeBackend -> [TestTree]
cancellation make =
  [ rigged "a cancelled operation completes once, not inside cancel" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      r <- start rig (Receive (near l) p 10)
      abandon rig r
      abandon rig r
      readIORef (pendingResults r) >>= (@?= [])
      finish rig "receive" r >>= (@?= Sys.canceled)
      abandon rig r
      _ <- turn rig noWait
      poke' (far l) "x"
      receiveBytes rig (near l) 10 >>= (@?= Right "x")
      readIORef (pendingResults r) >>= (@?= [Sys.canceled]),
    rigged "no byte is lost to a race" make \rig -> withLink rig unixPair \l -> withRoom 64 \p -> do
      written <- newIORef 0
      read' <- newIORef 0
      let step gen i = when (i < (3_000 :: Int)) do
            let (order, g1) = randomR (0, 5 :: Int) gen
                (size, g2) = randomR (1, 20 :: Int) g1
            r <- start rig (Receive (near l) p 64)
            let write = poke' (far l) (B.replicate size 7) >> modifyIORef' written (+ size)
            case order of
              0 -> write
              1 -> write >> abandon rig r
              2 -> abandon rig r >> write
              3 -> write >> turn rig noWait >> abandon rig r
              4 -> abandon rig r >> turn rig noWait >> write
              _ -> abandon rig r
            n <- finish rig "receive" r
            if n > 0
              then modifyIORef' read' (+ n)
              else n @?= Sys.canceled
            step g2 (i + 1)
      step 42 0
      closeNow (far l)
      let drain = do
            n <- perform rig (Receive (near l) p 64)
            when (n > 0) $ modifyIORef' read' (+ n) >> drain
      drain
      a <- readIORef written
      b <- readIORef read'
      (a :: Int) @?= (b :: Int),
    rigged "no connection is lost to a race" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      made <- newIORef (0 :: Int)
      taken <- newIORef (0 :: Int)
      let connectOne = do
            s <- N.socket N.AF_INET N.Stream 0
            N.connect s address
            N.close s
            modifyIORef' made (+ 1)
          count n
            | n >= 0 = modifyIORef' taken (+ 1) >> void (Sys.close (fromIntegral n))
            | otherwise = n @?= Sys.canceled
          step gen i = when (i < (400 :: Int)) do
            let (order, g1) = randomR (0, 3 :: Int) gen
            r <- start rig (Accept door nullPtr nullPtr)
            case order of
              0 -> connectOne
              1 -> connectOne >> abandon rig r
              2 -> abandon rig r >> connectOne
              _ -> abandon rig r
            finish rig "accept" r >>= count
            step g1 (i + 1)
      step 7 0
      let rest = do
            enough <- (<=) <$> readIORef made <*> readIORef taken
            unless enough $ perform rig (Accept door nullPtr nullPtr) >>= count >> rest
      rest
      (,) <$> readIORef made <*> readIORef taken >>= uncurry (@?=)
      forgotten rig door,
    rigged "a cancelled file operation completes once" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
      withBytes "x" \q n -> for_ [1 .. 200 :: Int] \i -> do
        w <- start rig (WriteAt d q n 0)
        when (even i) $ void (turn rig noWait)
        abandon rig w
        r <- finish rig "write" w
        assertBool (show r) (r == 1 || r == Sys.canceled)
      release rig d,
    rigged "forget ends what waits, then runs its action" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      order <- newIORef []
      let note x = modifyIORef' order (x :)
      _ <- submit (rigBackend rig) (Receive (near l) p 10) (quietly (note . Just))
      _ <- turn rig noWait
      forget (rigBackend rig) (near l) (note Nothing)
      turnUntil rig "both" ((== 2) . length <$> readIORef order)
      readIORef order >>= (@?= [Nothing, Just Sys.canceled]),
    rigged "forget ends both of two that wait, of which one has its bytes" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      -- io_uring tries both when it is handed over all of this: the cancellation comes before.
      rs <- replicateM 2 (start rig (Receive (near l) p 10))
      poke' (far l) "x"
      gone <- newIORef False
      forget (rigBackend rig) (near l) (writeIORef gone True)
      turnUntil rig "the end of forget" (readIORef gone)
      results <- mapM (finish rig "receive") rs
      assertBool (show results) (all (`elem` [1, Sys.canceled]) results),
    rigged "a file is not closed under the operation on it" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
      results <- newIORef []
      isClosed <- newIORef False
      withBytes (B.replicate 100_000 1) \p n -> do
        for_ [0 .. 49 :: Int] \i ->
          submit (rigBackend rig) (WriteAt d p n (fromIntegral (i * n))) . quietly $ \r -> do
            early <- readIORef isClosed
            assertBool "completed after the close" (not early)
            modifyIORef' results (r :)
        forget (rigBackend rig) d (closeNow d >> writeIORef isClosed True)
        turnUntil rig "the close" (readIORef isClosed)
        rs <- readIORef results
        length rs @?= 50
        assertBool (show rs) (all (\r -> r == n || r == Sys.canceled) rs),
    rigged "a reused number starts afresh" make \rig -> withRoom 10 \p -> do
      -- Over and over: the kernel gives the same numbers again.
      seen <- newIORef []
      for_ [1 .. 50 :: Int] \i -> do
        l <- unixPair
        modifyIORef' seen (descriptorNumber (near l) :)
        r <- start rig (Receive (near l) p 10)
        _ <- turn rig noWait
        -- Some go with an event on the way.
        when (even i) $ poke' (far l) "old"
        release rig (near l)
        n <- finish rig "receive" r
        assertBool (show n) (n == Sys.canceled || n == 3)
        next <- unixPair
        s <- start rig (Receive (near next) p 10)
        abandon rig r
        _ <- turn rig noWait
        readIORef (pendingResults s) >>= (@?= [])
        poke' (far next) "new"
        finish rig "receive" s >>= (@?= 3)
        contents p 3 >>= (@?= "new")
        mapM_ (release rig) [far l, near next, far next]
      numbers <- readIORef seen
      assertBool "numbers were reused" (length (filter (== foldr const 0 numbers) numbers) > 1),
    testCase "shutdown completes what is pending, once" do
      results <- newIORef []
      withRoom 10 \p -> do
        l <- unixPair
        withScratch \dir -> do
          withRig make \rig -> do
            d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
            let note r = modifyIORef' results (r :)
            _ <- submit (rigBackend rig) (Receive (near l) p 10) (quietly note)
            _ <- submit (rigBackend rig) (Await Reading (near l)) (quietly note)
            for_ [1 .. 20 :: Int] \_ -> submit (rigBackend rig) (WriteAt d p 10 0) (quietly note)
          rs <- readIORef results
          length rs @?= 22
          assertBool (show rs) (all (`elem` [10, Sys.canceled]) rs)
        mapM_ closeNow [near l, far l]
  ]
