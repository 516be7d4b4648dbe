{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- The particular behaviour of the backends made of readiness: their order, their
-- tokens, their refusals, and what their hot path allocates.
module Test.Readiness
  ( tests,
  )
where

import Control.Concurrent (forkIO)
import Control.Concurrent.MVar
import Control.Exception (IOException, bracket, try)
import Control.Monad
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Maybe (isJust)
import Data.Primitive.PrimVar (writePrimVar)
import Data.Word (Word32, Word8)
import Foreign.C.Error (eINVAL)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (Ptr)
import GHC.Conc (getAllocationCounter, setAllocationCounter)
import Test.BackendConformance qualified as BackendConformance
import Test.QuickCheck
import Test.Rig
import Test.Support (openDescriptors)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Internal.Backend
import Weft.Internal.Backend.Pollers (epoll)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Readiness.Collector (freeCollector)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Script (scriptAt, scripted)
import Weft.Internal.Backend.Readiness.Source (JobPart (..), Source (..), isInPool, jobToken, newSource, nextSequence, startJob, streamToken, tokenDirection, tokenNumber, tokenSequence)
import Weft.Internal.Core.Standing (waitAgain)
import Weft.Internal.Data.Time (nanoseconds)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Pool
import Weft.Internal.Os.Sys qualified as Sys

-- | Everything about the readiness backends.
tests :: TestTree
tests =
  testGroup
    "readiness"
    [ testGroup "both" [particular name make | (name, make) <- readinessBackends],
      testGroup "conformance" ([BackendConformance.tests name make | (name, make) <- everyBackend] <> noRings),
      tokens,
      keys,
      testCase "one that cannot watch its wake-up leaves no descriptor" unwatched,
      testCase "a script that another thread adds to loses nothing" scriptedAtOnce,
      testCase "bytes that nothing waits for wake an edge-triggered poller some times, and a receive waits again" unread,
      testGroup
        "stays registered with an edge-triggered poller"
        [ testCase "a pipe whose writer waits" (writes pipePair WriteStream False),
          testCase "a connection whose writer waits while bytes lie unread" (writes tcpPair Send True),
          testCase "a connection whose receives are full" fullReceives
        ]
    ]

-- | As where the thread has moved to another worker.
unread :: Assertion
unread = do
  events <- newIORef (0 :: Int)
  let counted found = found <$ modifyIORef' events (+ max 0 found)
      counting p =
        p
          { pollerLook = \room capacity -> pollerLook p room capacity >>= counted,
            pollerWait = \room capacity limit -> pollerWait p room capacity limit >>= counted
          }
  withRig (newReadiness (counting <$> epoll)) \rig -> withLink rig tcpPair \l -> withRoom 200 \p -> do
    let say n = withBytes (B.replicate n 0x78) (Sys.send (descriptorNumber (far l)))
        receives n = do
          r <- start rig (Receive (near l) p 200)
          _ <- say n
          finish rig "receive" r >>= (@?= n)
        -- How many bytes are sent before one wakes nobody.
        heard :: Int -> IO Int
        heard n = do
          before <- readIORef events
          _ <- say 1
          _ <- turn rig 200_000_000
          after' <- readIORef events
          if after' == before || n == 50 then pure n else heard (n + 1)
        drain n = when (n > 0) $ start rig (Receive (near l) p 200) >>= finish rig "what was sent" >>= \got -> drain (n - got)
    receives 1
    n <- heard 1
    assertBool (show n <> " bytes") (n > 1 && n < 20)
    drain n
    receives 2
    receives 3

-- | A backend, and how often it has registered a descriptor.
withRegistrations :: (Rig -> IO Int -> IO a) -> IO a
withRegistrations act = do
  registrations <- newIORef 0
  let counting p = p {pollerWatch = \number key trigger interest -> modifyIORef' registrations (+ 1) >> pollerWatch p number key trigger interest}
  withRig (newReadiness (counting <$> epoll)) \rig -> act rig (readIORef registrations)

-- | A writer of the far end waits fifty times; something may be there to be read from it.
writes :: IO Link -> (Descriptor -> Ptr Word8 -> Int -> Operation) -> Bool -> Assertion
writes make write unread' = withRegistrations \rig registrations -> withLink rig make \l -> withRoom room \p -> do
  when unread' . void $ withBytes "x" (Sys.send (descriptorNumber (near l)))
  let fill = do
        w <- start rig (write (far l) p room)
        if isJust (pendingToken w) then pure w else fill
      empty = Sys.readStream (descriptorNumber (near l)) p room >>= \r -> when (r > 0) empty
      wait = fill >>= \w -> empty >> finish rig "write" w
  _ <- wait
  before <- registrations
  replicateM_ 50 wait
  registrations >>= (@?= before)
  where
    room = 65536

-- | Each receive finds more than it has room for, and an event comes before the next.
fullReceives :: Assertion
fullReceives = withRegistrations \rig registrations -> withLink rig tcpPair \l -> withRoom 1 \p -> do
  let say n = void $ withBytes (B.replicate n 0x78) (Sys.send (descriptorNumber (far l)))
  first <- start rig (Receive (near l) p 1)
  say 2
  finish rig "receive" first >>= (@?= 1)
  before <- registrations
  replicateM_ 50 do
    say 1
    _ <- turn rig 200_000_000
    perform rig (Receive (near l) p 1) >>= (@?= 1)
  perform rig (Receive (near l) p 1) >>= (@?= 1)
  last' <- start rig (Receive (near l) p 1)
  say 1
  finish rig "receive" last' >>= (@?= 1)
  registrations >>= (@?= before)

particular :: String -> MakeBackend -> TestTree
particular name make =
  testGroup
    name
    [ testCase "those who wait are served in order" $ withRig make \rig -> withLink rig unixPair \l -> withRoom 5 \p -> do
        order <- newIORef []
        for_ [0 .. 4 :: Int] \i -> submit (rigBackend rig) (Receive (near l) p 1) (quietly \_ -> modifyIORef' order (i :))
        _ <- turn rig noWait
        _ <- withBytes "abcde" (Sys.send (descriptorNumber (far l)))
        turnUntil rig "all five" ((== 5) . length <$> readIORef order)
        readIORef order >>= (@?= [4, 3, 2, 1, 0]),
      testCase "what is forgotten is refused" $ withRig make \rig -> withLink rig unixPair \l -> withRoom 1 \p -> do
        r <- start rig (Receive (near l) p 1)
        abandon rig r
        _ <- finish rig "receive" r
        done <- newIORef False
        forget (rigBackend rig) (near l) (writeIORef done True)
        readIORef done >>= assertBool "nothing waits: the action runs at once"
        perform rig (Receive (near l) p 1) >>= (@?= Sys.badDescriptor),
      testCase "a negative number is refused" $ withRig make \rig -> withRoom 1 \p -> do
        d <- newDescriptor (-1)
        perform rig (Receive d p 1) >>= (@?= Sys.badDescriptor),
      testCase "a foreign number of no file is refused, and has no slot" $ withRig make \rig -> do
        perform rig (AwaitFd Reading 0x7ffffff0) >>= (@?= Sys.badDescriptor)
        perform rig (AwaitFd Writing (-1)) >>= (@?= Sys.badDescriptor),
      testCase "a predecessor is refused, whatever asks" $ withRig make \rig -> withLink rig unixPair \l -> withRoom 1 \p -> do
        successor <- newDescriptor (descriptorNumber (near l))
        r <- start rig (Receive (near l) p 1)
        s <- start rig (Receive successor p 1)
        finish rig "the predecessor's receive" r >>= (@?= Sys.canceled)
        perform rig (Receive (near l) p 1) >>= (@?= Sys.badDescriptor)
        _ <- withBytes "x" (Sys.send (descriptorNumber (far l)))
        finish rig "the successor's receive" s >>= (@?= 1)
        forget (rigBackend rig) successor (pure ()),
      testCase "an operation that is answered at once allocates nothing to speak of" $ withRig make \rig -> withLink rig unixPair \l -> withRoom 8 \p -> do
        -- One byte is there for each receive; the completion is never called.
        let send' = Send (far l) p 1
            receive = Receive (near l) p 1
            done = quietly \_ -> pure ()
            backend = rigBackend rig
        -- The first makes the slots.
        repeated 10 1 (submit backend send' done)
        repeated 10 1 (submit backend receive done)
        for_ [send', receive] \op -> do
          bytes <- allocated (repeated 100 1 (submit backend op done))
          -- The boxed answer is 16 bytes; a closure or a tuple would show.
          assertBool (show bytes <> " bytes for 100 operations") (bytes < 100 * 24),
      testCase "an operation that waits allocates little" $ withRig make \rig -> withLink rig unixPair \l -> withRoom 8 \p -> do
        let receive = Receive (near l) p 8
            done = quietly \_ -> pure ()
            backend = rigBackend rig
            exchange = do
              _ <- submit backend receive done
              _ <- Sys.send (descriptorNumber (far l)) p 1
              poll backend noWait
        repeated 10 1 exchange
        bytes <- allocated (repeated 500 1 exchange)
        assertBool (show bytes <> " bytes for 500 operations") (bytes < 500 * 800),
      testCase "a receive that stands waits again and again" $ withRig make \rig -> withLink rig tcpPair \l -> withRoom 8 \p -> do
        let backend = rigBackend rig
            count = 50 :: Int
        ran <- newIORef (0 :: Int)
        answer <- submit backend (Receive (near l) p 8) (quietly \r -> when (r == 1) (modifyIORef' ran (+ 1)))
        stand backend (answerToken answer) >>= \case
          Nothing -> name @?= "poll"
          Just place -> do
            name @?= "epoll"
            -- No other operation takes the place, and it cannot wait twice.
            waitAgain place p 8 >>= (@?= False)
            later <- submit backend (Receive (near l) p 8) (quietly \_ -> pure ())
            stand backend (answerToken later) >>= assertBool "the place is taken" . null
            cancel backend (answerToken later)
            _ <- turn rig noWait
            let exchange = do
                  _ <- Sys.send (descriptorNumber (far l)) p 1
                  _ <- poll backend 5_000_000_000
                  waitAgain place p 8
            waitingAgain count exchange
            readIORef ran >>= (@?= count)
            -- It is visited, has the token of the first time, and ends before the descriptor does.
            visit backend (\op _ n -> (n + 1) <$ (fmap snd (streamOf op) @?= Just (near l))) 0 >>= (@?= (1 :: Int))
            cancelled <- newIORef (0 :: Int)
            tokens' <- pendingTokens backend (const True)
            tokens' @?= [answerToken answer]
            forget backend (near l) (modifyIORef' cancelled (+ 1))
            readIORef cancelled >>= (@?= 0),
      testCase "the standing waiter leaves when another waits, or its wait is cancelled" $ withRig make \rig -> withLink rig unixPair \l -> withRoom 8 \p -> do
        let backend = rigBackend rig
        results <- newIORef []
        let standing' = do
              answer <- submit backend (Receive (near l) p 8) (quietly \r -> modifyIORef' results (r :))
              (answerToken answer,) <$> stand backend (answerToken answer)
        standing' >>= \case
          (_, Nothing) -> name @?= "poll"
          (token, Just place) -> do
            cancel backend token
            _ <- turn rig noWait
            readIORef results >>= (@?= [Sys.canceled])
            waitAgain place p 8 >>= (@?= False)
            (_, taken) <- standing'
            place' <- maybe (assertFailure "it should stand") pure taken
            _ <- Sys.send (descriptorNumber (far l)) p 1
            turnUntil rig "the byte" ((== [1, Sys.canceled]) <$> readIORef results)
            r <- start rig (Receive (near l) p 1)
            waitAgain place' p 8 >>= (@?= False)
            _ <- Sys.send (descriptorNumber (far l)) p 1
            finish rig "another" r >>= (@?= 1)
            waitAgain place' p 8 >>= (@?= False),
      testCase "a closed pool cancels file operations" do
        pool <- newPool defaultPoolSettings
        bracket (make pool (const (pure ()))) shutdown \backend -> do
          shutdownPool pool
          d <- newDescriptor 0
          a <- submit backend (Sync d False) (quietly \_ -> pure ())
          a @?= Sys.canceled
          forget backend d (pure ()),
      testCase "a stopped pool thread does not stop the worker" $ withRig make \rig -> withLink rig unixPair \l -> do
        gate <- newEmptyMVar
        replicateM_ 4 (submitPool (rigPool rig) (readMVar gate))
        -- The file operation must wait, the socket must not.
        d <- newDescriptor 0
        s <- start rig (Sync d False)
        n <- withBytes "x" \p n -> perform rig (Send (near l) p n)
        n @?= 1
        readIORef (pendingResults s) >>= (@?= [])
        abandon rig s
        finish rig "sync" s >>= (@?= Sys.canceled)
        putMVar gate ()
        forget (rigBackend rig) d (pure ())
    ]

-- | The given number of times, with the same answer each time; allocates nothing itself.
repeated :: Int -> Int -> IO Int -> IO ()
repeated 0 _ _ = pure ()
repeated n expected action = do
  r <- action
  if r == expected then repeated (n - 1) expected action else r @?= expected
{-# NOINLINE repeated #-}

waitingAgain :: Int -> IO Bool -> IO ()
waitingAgain n action = replicateM_ n (action >>= assertBool "it waits again")
{-# NOINLINE waitingAgain #-}

allocated :: IO () -> IO Int
allocated action = do
  setAllocationCounter maxBound
  before <- getAllocationCounter
  action
  later <- getAllocationCounter
  pure (fromIntegral (before - later))

tokens :: TestTree
tokens =
  testGroup
    "tokens"
    [ testProperty "say what was put in" $
        forAll (choose (0, 0x1fffffff)) \key ->
          forAll (choose (0, maxBound)) \number ->
            forAll (elements [Reading, Writing]) \direction -> ioProperty do
              d <- newDescriptor number
              let token = streamToken key (descriptorNumber d) direction
              pure $
                (tokenSequence token, tokenNumber token, isInPool token, tokenDirection token) === (key, number, False, direction)
                  .&&. answerToken (pending token) === token
                  .&&. isPending (pending token) === True,
      testProperty "of jobs too" $ forAll (choose (0, 0x1fffffff)) \key ->
        let token = jobToken key
         in (tokenSequence token, isInPool token) === (key, True)
              .&&. answerToken (pending token) === token,
      testCase "that begin again pass over those of jobs" passedOver
    ]

unwatched :: Assertion
unwatched = withPool defaultPoolSettings \pool -> do
  (_, poller) <- scripted
  before <- openDescriptors
  r <- try (newReadiness (pure poller {pollerWatch = \_ _ _ _ -> pure (Sys.failureCode eINVAL)}) pool (\_ -> pure ()))
  either (\(_ :: IOException) -> pure ()) (\_ -> assertFailure "it is watched") r
  openDescriptors >>= (@?= before)

scriptedAtOnce :: Assertion
scriptedAtOnce = allocaBytes 16 \buffer -> do
  (script, poller) <- scripted
  count <- newIORef (0 :: Int)
  over <- newEmptyMVar
  _ <- forkIO do
    replicateM_ 20_000 (scriptAt script (nanoseconds 1) (modifyIORef' count (+ 1)))
    putMVar over ()
  let while = pollerWait poller buffer 1 1 >> isEmptyMVar over >>= (`when` while)
      rest = pollerWait poller buffer 1 (-1) >>= \r -> unless (Sys.isFailure r) rest
  while >> rest
  readIORef count >>= (@?= 20_000)

-- | A job with the first number is under way when the numbers begin again.
passedOver :: Assertion
passedOver = withPool defaultPoolSettings \pool -> bracket (newSource (snd <$> scripted) pool (\_ -> pure ())) (freeCollector . sourceCollector) \src -> do
  writePrimVar (sourceSequence src) 0x1fffffff
  gate <- newEmptyMVar
  key <- nextSequence src
  _ <- startJob src key Whole [] (AwaitFd Reading 0) (quietly \_ -> pure ()) (takeMVar gate) \_ _ -> pure ()
  after' <- nextSequence src
  writePrimVar (sourceSequence src) key
  reused <- nextSequence src
  putMVar gate 0
  (key, after', reused) @?= (0x1fffffff, 0, 0)

keys :: TestTree
keys = testProperty "a key holds number and serial" \number (serial :: Word32) ->
  let key = makeKey (fromIntegral (number :: Int)) serial
   in (keyNumber key, keySerial key) === (fromIntegral number, serial)
