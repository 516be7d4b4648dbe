{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Nothing stops the others
--
-- A thread that does not come back (it computes, it blocks in a GHC variable, it
-- waits for a thunk that another evaluates, it is in a foreign call) loses its
-- worker, not its work. No test here measures time: in each, the stuck thread can
-- only go on when another thread of the same run has done something, so that the
-- test ends if the others run, and hangs if they do not.
module Test.Takeover (tests) where

import Control.Concurrent (getNumCapabilities, setNumCapabilities)
import Control.Concurrent.MVar
import Control.Exception (evaluate)
import Control.Monad
import Data.IORef
import Data.Maybe (isJust)
import Foreign.C.Types (CInt (..), CSize (..))
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr)
import System.IO.Unsafe (unsafePerformIO)
import System.Posix.IO qualified as Posix
import System.Posix.Types (CSsize (..), Fd (..))
import Test.Support
import Test.Takeover.Carriers (carriers)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File (OpenMode (..))
import Weft.Pipe
import Weft.Signal (closeSignals, openSignals)
import Weft.Socket

foreign import ccall safe "read" c_read :: CInt -> Ptr CInt -> CSize -> IO CSsize

tests :: TestTree
tests =
  testGroup
    "Nothing stops the others"
    [ testGroup
        (describeConfig config <> ", " <> show capabilities <> " capabilities")
        [ testCase "a thread blocks in a GHC variable" (within capabilities (blocksInVariable config)),
          testCase "a thread computes" (within capabilities (computes config)),
          testCase "a thread is in a foreign call" (within capabilities (inForeignCall config)),
          testCase "a thread waits for a thunk that another evaluates" (within capabilities (blackHole config)),
          testCase "connections are served meanwhile" (within capabilities (servesMeanwhile config)),
          testCase "what waited before is answered after" (within capabilities (waitsSurvive config)),
          testCase "its exception is its own" (within capabilities (exceptionIsItsOwn config)),
          testCase "it is cancelled when it comes back" (within capabilities (cancelledAfterwards config))
        ]
      | config <- configurations,
        capabilities <- [1, 2]
    ]
    `seqGroup` carriers
    `seqGroup` testGroup
      "Code of the user, wherever it is"
      [testCase name (runWith (takenOver (Config Epoll 1)) (withLazy thread)) | (name, thread) <- userCode]
    `seqGroup` testGroup
      "Code of the user, in what reports an exception"
      [testCase "that blocks" uncaughtBlocks]
  where
    seqGroup a b = testGroup "Takeover" [a, b]

-- | With the given number of capabilities.
within :: Int -> IO a -> IO a
within n action = do
  before <- getNumCapabilities
  bracket_ (setNumCapabilities n) (setNumCapabilities before) action

-- | The stuck thread needs three turns of another thread of its own worker.
blocksInVariable :: Config -> IO ()
blocksInVariable config = do
  box <- newEmptyMVar
  got <- runningWith (takenOver config) $ do
    done <- spawn (liftIO (takeMVar box))
    yield
    replicateM_ 3 (sleep (milliseconds 1))
    liftIO (putMVar box 'x')
    done
  got @?= 'x'

-- | Goes round until another thread has made the given number of turns.
computes :: Config -> IO ()
computes config = do
  turns <- newIORef (0 :: Int)
  got <- runningWith (takenOver config) $ do
    done <- spawn (liftIO (spin turns 0))
    yield
    replicateM_ 5 (sleep (milliseconds 1) >> liftIO (atomicModifyIORef' turns (\n -> (n + 1, ()))))
    done
  assertBool "it went round" (got > 0)
  where
    -- The list makes it allocate, as all code does that GHC can interrupt.
    spin :: IORef Int -> Integer -> IO Integer
    spin turns n = do
      seen <- readIORef turns
      if seen >= 5 then pure (n + 1) else evaluate (sum [n .. n + 10] `mod` 1000) >>= spin turns

inForeignCall :: Config -> IO ()
inForeignCall config = do
  (from, to) <- Posix.createPipe
  got <- runningWith (takenOver config) $ do
    done <- spawn (liftIO (alloca (\p -> c_read (fd from) p 1)))
    yield
    replicateM_ 3 (sleep (milliseconds 1))
    _ <- liftIO (Posix.fdWrite to "x")
    done
  mapM_ Posix.closeFd [from, to]
  got @?= 1
  where
    fd (Fd n) = n

-- | One thread evaluates a thunk and cannot end before the third runs; the second
-- asks for the same thunk.
blackHole :: Config -> IO ()
blackHole config = do
  box <- newEmptyMVar
  let thunk = unsafePerformIO (takeMVar box) :: Int
      {-# NOINLINE thunk #-}
  got <- runningWith (takenOver config) $ do
    first <- spawn (liftIO (evaluate thunk))
    second <- spawnOn (Just 1) (liftIO (evaluate thunk))
    yield
    replicateM_ 3 (sleep (milliseconds 1))
    liftIO (putMVar box 42)
    (,) <$> first <*> second
  got @?= (42, 42)

servesMeanwhile :: Config -> IO ()
servesMeanwhile config = do
  box <- newEmptyMVar
  got <- runningWith (takenOver config) $ do
    listener <- listenTcp (Just "127.0.0.1") "0" 16
    port <- boundPort listener
    fork_ . forever $ do
      (client, _) <- accept listener
      fork_ (receive client 100 >>= sendAll client >> closeSocket client)
    stuck <- spawn (liftIO (takeMVar box))
    yield
    answers <- replicateM 20 $ do
      s <- connectTcp (seconds 5) "127.0.0.1" (show port)
      sendAll s "hello"
      receive s 100 <* closeSocket s
    liftIO (putMVar box ())
    stuck
    pure answers
  got @?= replicate 20 "hello"

-- | The results of waits from before the worker changed hands (a receive, a pipe, a
-- timer, a pool action) reach their threads afterwards.
waitsSurvive :: Config -> IO ()
waitsSurvive config = do
  box <- newEmptyMVar
  release <- newEmptyMVar
  got <- runningWith (takenOver config) $ do
    (a, b) <- socketPair
    (r, w) <- openPipe
    one <- spawn (receive a 10)
    two <- spawn (readPipe r 10)
    three <- spawn (sleep (milliseconds 20) >> pure "slept")
    four <- spawn (blocking (takeMVar release))
    -- All of them wait when the next thread blocks its carrier.
    replicateM_ 3 yield
    stuck <- spawn (liftIO (takeMVar box))
    yield
    sleep (milliseconds 1)
    sendAll b "socket"
    writePipe w "pipe"
    liftIO (putMVar release "pool")
    answers <- sequence [one, two, three, four]
    liftIO (putMVar box ())
    stuck
    mapM_ closeSocket [a, b]
    mapM_ closePipe [r, w]
    pure answers
  got @?= ["socket", "pipe", "slept", "pool"]

exceptionIsItsOwn :: Config -> IO ()
exceptionIsItsOwn config = do
  box <- newEmptyMVar
  got <- runningWith (takenOver config) $ do
    stuck <- spawn (try (liftIO (takeMVar box >>= \() -> ioError (userError "mine"))))
    yield
    other <- spawn (try (sleep (milliseconds 1) >> pure "fine"))
    fine <- other
    liftIO (putMVar box ())
    mine <- stuck
    pure (fine :: Either IOError String, mine :: Either IOError ())
  fst got @?= Right "fine"
  snd got @?= Left (userError "mine")

cancelledAfterwards :: Config -> IO ()
cancelledAfterwards config = do
  box <- newEmptyMVar
  reached <- newIORef False
  got <- runningWith (takenOver config) $ do
    who <- liftIO (newIORef Nothing)
    stuck <- spawn $ do
      me <- myThreadId
      liftIO (writeIORef who (Just me))
      outcome <- try (liftIO (takeMVar box) >> yield >> liftIO (writeIORef reached True))
      pure (outcome :: Either Cancelled ())
    yield
    sleep (milliseconds 1)
    eventually "it to have begun" (isJust <$> readIORef who)
    liftIO (readIORef who) >>= mapM_ cancel
    sleep (milliseconds 1)
    liftIO (putMVar box ())
    stuck
  got @?= Left Cancelled
  readIORef reached >>= (@?= False)

-- | A value whose evaluation ends only when another thread of the same worker has run.
newtype Lazy = Lazy (forall a. a -> a)

withLazy :: (Lazy -> Thread ()) -> Thread ()
withLazy thread = do
  box <- liftIO newEmptyMVar
  fork_ (sleep (milliseconds 1) >> liftIO (putMVar box ()))
  thread (Lazy (\a -> unsafePerformIO (a <$ takeMVar box)))

-- | Each makes the scheduler or the kernel the first to need such a value.
userCode :: [(String, Lazy -> Thread ())]
userCode =
  [ ("what follows a yield", \l -> yield >> next l),
    ("what follows an effect", \l -> liftIO (pure ()) >> next l),
    ("an effect", \(Lazy l) -> l (liftIO (pure ()))),
    ("a body that is masked", \l -> mask (\_ -> next l)),
    ("what follows a mask", \l -> mask (\_ -> yield) >> next l),
    ("a body with a handler", \l -> next l `catch` \e -> throwM (e :: IOError)),
    ("a handler", \l -> throwM (userError "x") `catch` \(_ :: IOError) -> next l),
    ("what follows a handler", \l -> (throwM (userError "x") `catch` \(_ :: IOError) -> pure ()) >> next l),
    ("a child", join . spawn . next),
    ("what follows a fork", \l -> fork (pure ()) >> next l),
    ("what follows the question who it is", \l -> myThreadId >> next l),
    ("a label", \(Lazy l) -> label (l "name")),
    ("a priority", \(Lazy l) -> setPriority (l 1)),
    ("the priority of a child", \(Lazy l) -> void (forkWith defaultForkOptions {forkPriority = Just (l 1)} (pure ()))),
    ("the worker of a child", \(Lazy l) -> void (forkWith defaultForkOptions {forkWorker = Just (l 0)} (pure ()))),
    ("what follows a sleep", \l -> sleep (milliseconds 0) >> next l),
    ("what follows a pool action", \l -> blocking (pure ()) >> next l),
    ("what follows an answer that came at once", \l -> workerCount >> next l),
    ("what follows a send", \l -> pairOf (\a _ -> sendAll a "x" >> next l)),
    ("what follows a shutdown", \l -> pairOf (\a _ -> shutdown a ShutdownBoth >> next l)),
    ("what follows the closing of a socket", \l -> pairOf (\a _ -> closeSocket a >> next l)),
    ("pieces to send", \(Lazy l) -> pairOf (\a _ -> void (sendVector a (l ["x"])))),
    ("signals to subscribe to", \(Lazy l) -> openSignals (l []) >>= closeSignals),
    ("the path of a FIFO", \(Lazy l) -> void (openFifo (l "/nonexistent/fifo") ReadOnly) `catch` \(_ :: IOError) -> pure ())
  ]
  where
    next (Lazy l) = l (pure ())
    pairOf use = do
      (a, b) <- socketPair
      use a b <* mapM_ closeSocket [a, b]

-- | The others go on while it blocks.
uncaughtBlocks :: IO ()
uncaughtBlocks = do
  box <- newEmptyMVar
  heard <- newEmptyMVar
  runWith (takenOver (Config Epoll 1)) {settingUncaught = \_ _ e -> takeMVar box >> putMVar heard (show e)} $ do
    fork_ (throwM (userError "x"))
    yield
    sleep (milliseconds 1)
    liftIO (putMVar box ())
    -- Over when it is heard.
    liftIO (readMVar heard >>= (@?= "user error (x)"))
