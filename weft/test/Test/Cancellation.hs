{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Cancelling threads, wherever they are
--
-- Every system call that waits is cancelled under every masking state, by a thread of
-- the same worker and of another. Races between a cancellation and what it interrupts
-- are litmus programs with every outcome that is allowed. And a hundred thousand
-- random cancellations on each event source count what they could lose: bytes,
-- connections, descriptors, finalizers.
module Test.Cancellation (tests) where

import Control.Concurrent.MVar
import Control.Exception (ErrorCall (..), SomeException, fromException)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, forever, replicateM, replicateM_, unless, void, when)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Maybe (isJust)
import Data.Primitive.MutVar (readMutVar)
import Foreign.C.Error (Errno (..), eCONNRESET)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Array (withArrayLen)
import Foreign.Ptr (Ptr)
import GHC.IO.Exception (ioe_errno)
import Network.Socket qualified as Network
import System.Directory (removeDirectoryRecursive)
import System.IO.Temp (createTempDirectory, getCanonicalTemporaryDirectory, withSystemTempDirectory)
import System.Posix.Files (createNamedPipe)
import System.Posix.IO qualified as Posix
import System.Posix.Resource qualified as Posix
import System.Posix.Signals (sigUSR2)
import System.Posix.Types (Fd (..))
import System.Random (StdGen, mkStdGen, uniformR)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Internal.Backend (Descriptor (..))
import Weft.Internal.SystemCall (Socket (..))
import Weft.Internal.Trace (Fate (..), Identity (..), ThreadId (..))
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Mask (allowInterrupt, mask_, uninterruptibleMask_)
import Weft.Pipe
import Weft.Signal
import Weft.Socket
import Weft.Time (minutes)

tests :: TestTree
tests =
  testGroup
    "Cancellation"
    [ testGroup "every call that waits, under every mask" [testCase (waitName w) (mapM_ (waits w) configurations) | w <- everyWait],
      testCase "an accept that waits for a free descriptor" (mapM_ starved configurations),
      testGroup "litmus" litmus,
      testGroup "a cancellation that comes too late loses nothing" [testCase name (mapM_ test configurations) | (name, test) <- late],
      testGroup
        "a hundred thousand random cancellations lose nothing"
        [ testCase (describeConfig c <> ": " <> name) (test c)
          | c <- configurations,
            (name, test) <- [("bytes", bytesStorm 25_000), ("connections", connectionStorm 5_000), ("all kinds of calls", mixedStorm 20_000)]
        ]
    ]

is :: (Eq a, Show a) => a -> a -> Thread ()
is got wanted = liftIO (got @?= wanted)

-- | Does this thread wait in a call that may be interrupted, or has it ended? Looked
-- at from outside, so the answer may be old; but a wait that nobody ends stays.
waitsOrEnded :: ThreadId -> IO Bool
waitsOrEnded (ThreadId identity) = case identity of
  Nobody -> pure False
  Identity _ fate ->
    readMutVar fate >>= \case
      Waiting _ _ -> pure True
      Ended -> pure True
      _ -> pure False

-- * Every wait

-- | A call that waits for ever.
data Wait' = Wait'
  { waitName :: String,
    -- | Make what it needs; the call, something that makes it return or fail, and
    -- the release of what it needed.
    waitMake :: Thread (Thread (), Thread (), Thread ())
  }

everyWait :: [Wait']
everyWait =
  [ Wait' "accept" $ do
      (l, address) <- listening 16
      pure (void (accept l >>= closeSocket . fst), connectAndClose address, closeSocket l),
    Wait' "accept with a time limit" $ do
      (l, address) <- listening 16
      pure (void (acceptBefore (minutes 60) l >>= mapM_ (closeSocket . fst)), connectAndClose address, closeSocket l),
    Wait' "connect" $ do
      -- The backlog is full, so the peer does not answer.
      (l, address) <- listening 0
      first <- openSocket AF_INET Stream
      connectBefore (seconds 5) first address
      s <- openSocket AF_INET Stream
      pure (connect s address, closeSocket s, mapM_ closeSocket [l, first, s]),
    Wait' "receive" $ do
      (a, b) <- socketPair
      pure (void (receive a 10), sendAll b "x", mapM_ closeSocket [a, b]),
    Wait' "send" $ do
      (a, b) <- fullPair
      pure (void (send a "more"), closeSocket b, mapM_ closeSocket [a, b]),
    Wait' "send of several pieces" $ do
      (a, b) <- fullPair
      pure (void (sendVector a ["more", "and more"]), closeSocket b, mapM_ closeSocket [a, b]),
    Wait' "receive a datagram" $ do
      s <- openSocket AF_INET Datagram
      bind s (Network.SockAddrInet 0 (Network.tupleToHostAddress (127, 0, 0, 1)))
      address <- localAddress s
      pure (void (receiveFrom s 100), sendTo s "x" address, closeSocket s),
    Wait' "send a file" $ do
      (a, b) <- fullPair
      file <- openFile "/proc/self/exe" ReadOnly
      pure (void (sendFile a file 0 1_000_000), closeSocket b, mapM_ closeSocket [a, b] >> closeFile file),
    Wait' "wait until readable" $ do
      (a, b) <- socketPair
      pure (awaitReadable a, sendAll b "x", mapM_ closeSocket [a, b]),
    Wait' "wait until writable" $ do
      (a, b) <- fullPair
      pure (awaitWritable a, closeSocket b, mapM_ closeSocket [a, b]),
    Wait' "read a pipe" $ do
      (r, w) <- openPipe
      pure (void (readPipe r 10), writePipe w "x", mapM_ closePipe [r, w]),
    Wait' "write to a pipe" $ do
      (r, w) <- openPipe
      t <- fork (writePipe w (ByteString.replicate 1_000_000 0))
      eventually (waitsOrEnded t)
      cancelAndWait t
      pure (writePipe w "more", closePipe r, mapM_ closePipe [r, w]),
    Wait' "read a FIFO" $ do
      (path, gone) <- liftIO temporaryFifo
      r <- openFifo path ReadOnly
      w <- openFifo path WriteOnly
      pure (void (readPipe r 10), writePipe w "x", mapM_ closePipe [r, w] >> liftIO gone),
    Wait' "sleep" $ pure (sleep (milliseconds 50), pure (), pure ()),
    Wait' "a blocking action that runs" $ do
      box <- liftIO newEmptyMVar
      pure (blocking (takeMVar box), liftIO (putMVar box ()), pure ()),
    Wait' "the next signal" $ do
      s <- openSignals [sigUSR2]
      pure (void (nextSignal s), closeSignals s, closeSignals s),
    Wait' "suspend" $ do
      gate <- newGate
      pure (waitGate gate, openGate gate (), pure ())
  ]

listening :: Int -> Thread (Socket, SockAddr)
listening backlog = do
  l <- listenTcp (Just "127.0.0.1") "0" backlog
  (l,) <$> localAddress l

connectAndClose :: SockAddr -> Thread ()
connectAndClose address = withSocket (openSocket AF_INET Stream) (`connect` address)

-- | The first takes nothing more.
fullPair :: Thread (Socket, Socket)
fullPair = do
  (a, b) <- socketPair
  t <- fork (forever (sendAll a (ByteString.replicate 100_000 0)))
  eventually (waitsOrEnded t)
  cancelAndWait t
  pure (a, b)

cancelAndWait :: ThreadId -> Thread ()
cancelAndWait t@(ThreadId identity) = cancel t >> eventually ended
  where
    ended = case identity of
      Nobody -> pure False
      Identity _ fate -> (\case Ended -> True; _ -> False) <$> readMutVar fate

temporaryFifo :: IO (FilePath, IO ())
temporaryFifo = do
  dir <- getCanonicalTemporaryDirectory >>= (`createTempDirectory` "weft")
  let path = dir <> "/fifo"
  createNamedPipe path 0o600
  pure (path, removeDirectoryRecursive dir)

waits :: Wait' -> Config -> Assertion
waits w c = do
  before <- openDescriptors
  running c $ do
    -- The first wait may make what stays, such as a pool thread.
    forM_ [0 .. configWorkers c - 1] $ \there -> do
      forM_ [id, mask_] $ \masked -> do
        (act, _, release) <- waitMake w
        result <- newGate
        t <- forkWith defaultForkOptions {forkWorker = Just there} (try (masked act) >>= openGate result)
        eventually (waitsOrEnded t)
        cancel t
        r <- waitGate result
        outcome r `is` "Cancelled"
        release
      -- Uninterruptible: it goes on until it is answered, and the cancellation
      -- comes after it.
      (act, answer, release) <- waitMake w
      begun <- newGate
      result <- newGate
      afterwards <- newGate
      t <- forkWith defaultForkOptions {forkWorker = Just there} $ do
        uninterruptibleMask_ (openGate begun () >> try act >>= openGate result)
        -- It may still be on its way here.
        try (newGate >>= waitGate) >>= openGate afterwards
      waitGate begun
      replicateM_ 5 yield
      cancel t
      replicateM_ 5 yield
      answer
      r <- waitGate result
      liftIO (assertBool "cancelled although uninterruptible" (outcome r /= "Cancelled"))
      waitGate afterwards >>= (`is` "Cancelled") . outcome
      release
  after' <- openDescriptors
  after' @?= before
  where
    outcome :: Either SomeException () -> String
    outcome = \case
      Right () -> "answered"
      Left e | Just Cancelled <- fromException e -> "Cancelled"
      Left e -> show e

-- | No descriptor is left for the connection that is there.
starved :: Config -> Assertion
starved c = do
  used <- openDescriptors
  limits <- Posix.getResourceLimit Posix.ResourceOpenFiles
  told <- newIORef (0 :: Int)
  let lowered = limits {Posix.softLimit = Posix.ResourceLimit (fromIntegral used + 60)}
      settings = (settingsFor c) {settingReport = \_ -> atomicModifyIORef' told (\n -> (n + 1, ()))}
  flip Exception.finally (Posix.setResourceLimit Posix.ResourceOpenFiles limits) . runWith settings $ do
    (l, address) <- listening 16
    client <- openSocket AF_INET Stream
    connect client address
    -- Let every worker and the pool have started, with what they need.
    beside (blocking (pure ())) >>= snd
    liftIO (Posix.setResourceLimit Posix.ResourceOpenFiles lowered)
    hoard <- liftIO takeAll
    result <- newGate
    t <- forkWith defaultForkOptions {forkWorker = Just 1} (try (accept l) >>= openGate result . either (\e -> show (e :: SomeException)) (const "accepted"))
    eventually ((> 0) <$> readIORef told)
    cancel t
    waitGate result >>= (`is` "the thread was cancelled") . shown
    liftIO (mapM_ Posix.closeFd hoard)
    -- Nobody took the connection.
    (s, _) <- accept l
    mapM_ closeSocket [s, client, l]
  where
    shown e = if e == "Cancelled" then "the thread was cancelled" else e :: String
    takeAll = do
      r <- Exception.try (Posix.dup (Fd 0))
      case r of
        Left (_ :: IOError) -> pure []
        Right fd -> (fd :) <$> takeAll

-- * Litmus

newLog :: IO (String -> Thread (), IO [String])
newLog = do
  events <- newIORef []
  pure (\what -> liftIO (atomicModifyIORef' events (\es -> (what : es, ()))), reverse <$> readIORef events)

-- | Run many times on one worker and on two; every log must be one of these.
allowed :: TestName -> [[String]] -> ((String -> Thread ()) -> Thread ()) -> TestTree
allowed name outcomes program = testCase name . forM_ [Config Epoll 1, Config Uring 1, Config Epoll 2] $ \c -> do
  logs <- running c . replicateM 200 $ do
    (say, said) <- liftIO newLog
    () <- program say
    liftIO said
  forM_ logs $ \got -> unless (got `elem` outcomes) (assertFailure (describeConfig c <> ": " <> show got <> " is not one of " <> show outcomes))

-- | Fork on the other worker, if there is one; the result waits for its end.
beside :: Thread () -> Thread (ThreadId, Thread ())
beside body = do
  ended <- newGate
  t <- forkWith defaultForkOptions {forkWorker = Just 1} (mask (\restore -> restore body `finally` openGate ended ()))
  pure (t, waitGate ended)

-- | A place where the action of a 'suspend' leaves its waiter, and where another
-- thread waits for that.
handing :: Thread (Waiter () -> IO (), Thread (Waiter ()))
handing = liftIO $ do
  place <- newIORef Nothing
  let look = maybe (yield >> look') pure =<< liftIO (readIORef place)
      look' = eventually (isJust <$> readIORef place) >> look
  pure (writeIORef place . Just, look)

-- | What cancels itself is here, on one worker; then the outcome is certain.
litmus :: [TestTree]
litmus =
  [ allowed "a thread that is cancelled before it begins reaches its first system call" [["began", "finalizer"]] $ \say -> do
      ended <- newGate
      t <- fork (mask (\restore -> (say "began" >> restore (yield >> say "later")) `finally` say "finalizer") `finally` openGate ended ())
      cancel t
      waitGate ended,
    allowed "a thread that cancels itself gets no further than its next system call" [["here", "finalizer"]] $ \say -> do
      (_, wait) <- beside ((myThreadId >>= cancel >> say "here" >> yield >> say "there") `finally` say "finalizer")
      wait,
    allowed "several cancellations are raised in the order in which they came" [["1", "2", "Cancelled"]] $ \say -> do
      me <- myThreadId
      mask_ (cancelWith me (ErrorCall "1") >> cancelWith me (ErrorCall "2") >> cancel me)
      replicateM_ 3 (yield `catch` \e -> say (either (\(ErrorCall m) -> m) (const "Cancelled") (classify' e)))
      yield,
    allowed "a handler is not interrupted before it waits" [["caught", "in the handler", "interrupted", "after"]] $ \say -> do
      me <- myThreadId
      r <- try $ do
        (cancel me >> yield) `catch` \Cancelled -> do
          say "caught"
          cancel me
          yield
          say "in the handler"
          (newGate >>= waitGate) `catch` \Cancelled -> say "interrupted"
        say "after"
      r `is` (Right () :: Either Cancelled ()),
    allowed "cancelling a thread that has ended does nothing" [["ended"]] $ \say -> do
      (t, wait) <- beside (say "ended")
      wait
      replicateM_ 3 (cancel t)
      yield,
    allowed
      "an answer against a cancellation: the answer, and then the cancellation; or the cancellation alone, and the answer is refused"
      [["delivered True", "answered", "cancelled at the next call"], ["answered", "delivered True", "cancelled at the next call"], ["answered", "cancelled at the next call", "delivered True"], ["delivered False", "cancelled"], ["cancelled", "delivered False"]]
      $ \say -> do
        (handOver, taken) <- handing
        (t, wait) <- beside $ do
          r <- try (suspend "an answer" handOver)
          case r of
            Right () -> say "answered" >> ((newGate >>= waitGate) `catch` \Cancelled -> say "cancelled at the next call")
            Left Cancelled -> say "cancelled"
        waiter <- taken
        cancel t
        won <- liftIO (deliver waiter (Answered ()))
        say ("delivered " <> show won)
        wait,
    allowed "an answer before the cancellation is not lost" [["answered", "cancelled at the next call"]] $ \say -> do
      (handOver, taken) <- handing
      (t, wait) <- beside $ do
        r <- try (suspend "an answer" handOver)
        case r of
          Right () -> say "answered" >> ((newGate >>= waitGate) `catch` \Cancelled -> say "cancelled at the next call")
          Left Cancelled -> say "cancelled"
      waiter <- taken
      won <- liftIO (deliver waiter (Answered ()))
      won `is` True
      cancel t
      wait,
    allowed "bytes that are there against a cancellation: received whole, or still there" [["received"], ["still there"]] $ \say -> do
      (a, b) <- socketPair
      got <- liftIO (newIORef ByteString.empty)
      (t, wait) <- beside (mask_ (receive a 10 >>= liftIO . writeIORef got))
      yield
      sendAll b "bytes"
      cancel t
      wait
      liftIO (readIORef got) >>= \case
        "bytes" -> say "received"
        "" -> receive a 10 >>= \left -> say (if left == "bytes" then "still there" else "lost " <> show left)
        other -> say ("torn " <> show other)
      mapM_ closeSocket [a, b],
    allowed "two cancellers at once: both arrive" [["first", "second"]] $ \say -> do
      (t, wait) <- beside . mask_ $ do
        (newGate >>= waitGate) `catch` \Cancelled -> say "first"
        (newGate >>= waitGate) `catch` \Cancelled -> say "second"
      (_, other) <- beside (cancel t)
      cancel t
      other
      wait,
    testCase "threads that move between workers are found, each once" . forM_ [Epoll, Uring, Poll] $ \backend -> do
      hits <- newIORef (0 :: Int)
      running (Config backend 2) . replicateM_ 10 $ do
        -- All begin here; the surplus moves to the worker that sleeps, while they are
        -- cancelled.
        ts <- replicateM 500 (fork (forever yield `catch` \Cancelled -> liftIO (atomicModifyIORef' hits (\n -> (n + 1, ())))))
        replicateM_ 3 yield
        forM_ ts cancel
        forM_ ts (eventually . hasEnded)
      readIORef hits >>= (@?= 5000)
  ]
  where
    classify' :: SomeException -> Either ErrorCall ()
    classify' e = maybe (Right ()) Left (fromException e)
    hasEnded (ThreadId identity) = case identity of
      Nobody -> pure False
      Identity _ fate -> (\case Ended -> True; _ -> False) <$> readMutVar fate

-- * Too late

-- | Calls that end by themselves. A cancellation comes at any time: the call has its
-- result, or the thread was cancelled and what the call would have opened is not open.
late :: [(TestName, Config -> Assertion)]
late =
  [ ("opening files", races (\_ -> mask_ (openFile "/dev/null" ReadOnly >>= closeFile'))),
    ( "reading, writing and syncing files",
      \c -> withSystemTempDirectory "weft" $ \dir -> do
        let path = Char8.pack dir <> "/f"
        races (\i -> mask_ (bracket (openFile path ReadWrite) closeFile' (\f -> if odd i then writeAt f 0 "x" >> sync f else void (readAt f 0 10)))) c
    ),
    ("names", races (\_ -> void (resolve Nothing (Just "127.0.0.1") (Just "80")))),
    ("blocking actions that are queued or run", races (\_ -> blocking (pure ())))
  ]
  where
    closeFile' f = uninterruptibleMask_ (closeFile f)
    races act c = do
      before <- openDescriptors
      running c $ do
        forM_ [1 .. 200 :: Int] $ \i -> do
          result <- newGate
          t <- forkWith defaultForkOptions {forkWorker = Just i} (try (act i) >>= openGate result)
          replicateM_ (i `mod` 4) yield
          cancel t
          r <- waitGate result
          case r of
            Right () -> pure ()
            Left e | Just Cancelled <- fromException e -> pure ()
            Left e -> liftIO (assertFailure (show (e :: SomeException)))
      after' <- openDescriptors
      after' @?= before

-- * Storms

-- | Cancel these threads at random, so many times, from every worker. A cancellation
-- that finds the last one still on its way would only make the list longer, so it
-- goes elsewhere.
storm :: Config -> Int -> [ThreadId] -> Thread ()
storm c total targets = do
  waitsFor <- forM [0 .. workers - 1] $ \w -> spawnOn (Just w) (go (mkStdGen (17 + w)) (total `div` workers))
  sequence_ waitsFor
  where
    workers = configWorkers c
    n = length targets
    go :: StdGen -> Int -> Thread ()
    go _ 0 = pure ()
    go g left = do
      let (i, g') = uniformR (0, n - 1) g
          (pause, g'') = uniformR (0, 3 :: Int) g'
      condemned <- liftIO (isCondemned (targets !! i))
      if condemned
        then yield >> go g'' left
        else do
          cancel (targets !! i)
          when (pause == 0) yield
          go g'' (left - 1)
    isCondemned (ThreadId identity) = case identity of
      Nobody -> pure False
      Identity _ fate -> (\case Condemned _ _ -> True; _ -> False) <$> readMutVar fate

-- | Do this again and again; a cancellation ends one round. Masked: a call that has
-- succeeded is counted before the next can be interrupted. At the end of a round there
-- is a place to be interrupted in any case: calls that succeed at once never wait.
rounds :: IORef Bool -> IORef Int -> Thread () -> Thread ()
rounds over hits act = mask_ loop
  where
    loop = do
      stop <- liftIO (readIORef over)
      unless stop (((act >> allowInterrupt) `catch` \Cancelled -> liftIO (atomicModifyIORef' hits (\n -> (n + 1, ())))) >> loop)

-- | Writers and readers of socket pairs with small pieces and full buffers.
bytesStorm :: Int -> Config -> Assertion
bytesStorm total c = do
  before <- openDescriptors
  running c $ do
    over <- liftIO (newIORef False)
    hits <- liftIO (newIORef 0)
    pairs <- forM [1 .. 12 :: Int] $ \i -> do
      (a, b) <- socketPair
      setOption a Network.SendBuffer 4096
      sent <- liftIO (newIORef (0 :: Int))
      got <- liftIO (newIORef (0 :: Int))
      writerDone <- newGate
      readerDone <- newGate
      let piece = ByteString.replicate (500 * i) 7
          count ref n = liftIO (modifyIORef' ref (+ n))
      writer <- forkWith defaultForkOptions {forkWorker = Just i} $ do
        rounds over hits (if even i then send a piece >>= count sent else sendVector a [piece, piece] >>= count sent)
        uninterruptibleMask_ (closeSocket a >> openGate writerDone ())
      -- A reader goes on until the end of the stream, and only then minds no more.
      ended <- liftIO (newIORef False)
      reader <- forkWith defaultForkOptions {forkWorker = Just (i `div` 2)} $ do
        rounds ended hits $ do
          bytes <- receive b 3000
          if ByteString.null bytes then liftIO (writeIORef ended True) else count got (ByteString.length bytes)
        uninterruptibleMask_ (closeSocket b >> openGate readerDone ())
      pure ([writer, reader], writer, waitGate writerDone >> waitGate readerDone, (,) <$> readIORef sent <*> readIORef got)
    storm c total (concat [ts | (ts, _, _, _) <- pairs])
    liftIO (writeIORef over True)
    -- Those that wait with a full buffer need one more.
    forM_ pairs $ \(_, writer, _, _) -> cancel writer
    forM_ pairs $ \(_, _, wait, _) -> wait
    forM_ pairs $ \(_, _, _, counts) -> do
      (sent, got) <- liftIO counts
      got `is` sent
    n <- liftIO (readIORef hits)
    liftIO (assertBool ("few were interrupted: " <> show n) (n > total `div` 4))
  after' <- openDescriptors
  after' @?= before

-- | Close this one with a reset: ports are few, and must not stay in TIME_WAIT.
noWaiting :: Socket -> Thread ()
noWaiting s = liftIO . withArrayLen [1, 0] $ \n p -> do
  r <- c_setsockopt (descriptorNumber (socketDescriptor s)) solSocket soLinger p (fromIntegral (n * 4))
  r @?= 0
  where
    solSocket = 1
    soLinger = 13

foreign import ccall unsafe "setsockopt" c_setsockopt :: CInt -> CInt -> CInt -> Ptr CInt -> CInt -> IO CInt

-- | Accepting and connecting threads, both cancelled.
connectionStorm :: Int -> Config -> Assertion
connectionStorm total c = do
  before <- openDescriptors
  running c $ do
    over <- liftIO (newIORef False)
    hits <- liftIO (newIORef 0)
    (l, address) <- listening 64
    noWaiting l
    accepted <- liftIO (newIORef (0 :: Int))
    connected <- liftIO (newIORef (0 :: Int))
    failures <- liftIO (newIORef [])
    let count ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
        -- The other side may have closed it already.
        refused e = unless (ioe_errno e `elem` [Just n | Errno n <- [eCONNRESET]]) $ liftIO (atomicModifyIORef' failures (\es -> (show (e :: IOError) : es, ())))
        close = uninterruptibleMask_ . closeSocket
    done <- replicateM 8 newGate
    ts <- forM (zip [0 ..] done) $ \(i, gate) ->
      forkWith defaultForkOptions {forkWorker = Just i} $ do
        rounds over hits $
          if even i
            then accept l >>= \(s, _) -> count accepted >> noWaiting s >> close s
            else bracket (openSocket AF_INET Stream) close (\s -> noWaiting s >> try (connect s address) >>= either refused (\() -> count connected))
        uninterruptibleMask_ (openGate gate ())
    storm c total ts
    liftIO (writeIORef over True)
    forM_ (zip ts done) $ \(t, gate) -> cancel t >> waitGate gate
    -- What nobody accepted still waits.
    let drain n = acceptBefore (milliseconds 20) l >>= maybe (pure n) (\(s, _) -> close s >> drain (n + 1))
    left <- drain (0 :: Int)
    (a, k) <- liftIO ((,) <$> readIORef accepted <*> readIORef connected)
    liftIO (assertBool (show (a, left, k)) (a + left >= k))
    liftIO (readIORef failures) >>= (`is` [])
    closeSocket l
  after' <- openDescriptors
  after' @?= before

-- | Threads that choose among all kinds of calls; every round is a bracket.
mixedStorm :: Int -> Config -> Assertion
mixedStorm total c = withSystemTempDirectory "weft" $ \dir -> do
  before <- openDescriptors
  running c $ do
    over <- liftIO (newIORef False)
    hits <- liftIO (newIORef 0)
    entered <- liftIO (newIORef (0 :: Int))
    left <- liftIO (newIORef (0 :: Int))
    (silent, peer) <- socketPair
    (r, w) <- openPipe
    s <- openSocket AF_INET Datagram
    bind s (Network.SockAddrInet 0 (Network.tupleToHostAddress (127, 0, 0, 1)))
    let count ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
        path = Char8.pack dir <> "/f"
        calls :: [Thread ()]
        calls =
          [ sleep (minutes 60),
            void (receive silent 10),
            awaitReadable silent,
            void (readPipe r 1),
            void (receiveFrom s 10),
            newGate >>= waitGate,
            mask_ (bracket (openFile path ReadWrite) (uninterruptibleMask_ . closeFile) (\f -> writeAt f 0 "abc" >> void (readAt f 0 3))),
            blocking (pure ()),
            void (pathStatus (Char8.pack dir)),
            yield
          ]
    done <- replicateM 20 newGate
    ts <- forM (zip [0 ..] done) $ \(i, gate) -> do
      gen <- liftIO (newIORef (mkStdGen i))
      forkWith defaultForkOptions {forkWorker = Just i} $ do
        rounds over hits $ do
          k <- liftIO (atomicModifyIORef' gen (\g -> let (k, g') = uniformR (0, length calls - 1) g in (g', k)))
          bracket_ (count entered) (count left) (calls !! k)
        uninterruptibleMask_ (openGate gate ())
    storm c total ts
    liftIO (writeIORef over True)
    forM_ (zip ts done) $ \(t, gate) -> cancel t >> waitGate gate
    (e, l) <- liftIO ((,) <$> readIORef entered <*> readIORef left)
    l `is` e
    n <- liftIO (readIORef hits)
    liftIO (assertBool ("few were interrupted: " <> show n) (n > total `div` 4))
    mapM_ closeSocket [silent, peer, s]
    mapM_ closePipe [r, w]
  after' <- openDescriptors
  after' @?= before
