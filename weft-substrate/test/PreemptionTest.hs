-- |
-- Description : ConcLib_MP with preemption, and the end of its runs
module PreemptionTest (tests) where

import Control.Concurrent qualified as GHC
import Control.Exception
import Control.Monad
import Data.IORef
import Data.List (sort)
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import GHC.IO (unsafeUnmask)
import Library (limited)
import System.IO.Error (isUserError)
import System.IO.Unsafe (unsafeInterleaveIO, unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.Internal.Poller (requestBegins, requestEnds)
import Weft.ConcLib.Internal.Threads (eventsHere)
import Weft.ConcLib.MP (defaultSettings, isEmptyMVar, newEmptyMVar, putMVar, settingHECs, settingPreempts, takeMVar, tryPutMVar, withConcLib, withConcLibSettings)
import Weft.ConcLib.MP qualified as MP
import Weft.ConcLib.STM
import Weft.Substrate (Reason (..), atomicPTM, getHEC, outCall)
import Weft.Substrate.Internal.Takeover (displace)

tests :: TestTree
tests =
  testGroup
    "ConcLib_MP"
    [ testGroup
        "with preemption"
        [ testCase (name <> ", " <> show n <> " HECs") (limited (withConcLibSettings defaultSettings {settingHECs = n, settingPreempts = True} test))
          | (name, test) <- each,
            n <- [1, 2]
        ],
      testCase "a run that is interrupted leaves no HEC" (limited interruptedRun),
      testGroup "the end of a run waits for what the disk was given" [testCase name (limited (finishing stop)) | (name, stop) <- stops]
    ]
  where
    stops =
      [ ("and returns", const id),
        ("and throws", \_ begins -> begins >> throwIO (ErrorCall "stop")),
        ("and is interrupted", \caller begins -> GHC.forkIO (sleeps caller >> GHC.throwTo caller (ErrorCall "stop") >> begins) >> newEmptyMVar >>= takeMVar)
      ]
    sleeps t = threadStatus t >>= \s -> unless (s == ThreadBlocked BlockedOnMVar) (GHC.yield >> sleeps t)

each :: [(String, IO ())]
each =
  [ ("exceptions for threads that are displaced come once, in their order", exceptionsWhileDisplaced),
    ("a thread that is masked and away has what was thrown at it when it comes back", maskedAway),
    ("a thread waits in a lazy value, and others for the value", lazyWait),
    ("a lazy value is left before its thread has switched, and another waits in it", leftBeforeSwitch),
    ("a lazy value that makes an out-call is left, and makes it again", leftCalling outCall),
    ("a lazy value that blocks outside is left, and blocks again", leftCalling MP.outside)
  ]

data Numbered = Numbered Int Int
  deriving stock (Eq, Show)

instance Exception Numbered

-- | Their HECs are taken from threads over and over while an action is performed.
displacing :: IO a -> IO a
displacing act = do
  over <- newIORef False
  end <- GHC.newEmptyMVar
  hecs <- newIORef []
  let register = atomicPTM getHEC >>= \h -> atomicModifyIORef' hecs (\hs -> (if h `elem` hs then hs else h : hs, ()))
      take' = do
        readIORef hecs >>= mapM_ (`displace` Computes)
        GHC.yield
        done <- readIORef over
        if done then GHC.putMVar end () else take'
  register
  _ <- MP.forkIO register
  _ <- GHC.forkIO take'
  act <* (writeIORef over True >> MP.outside (GHC.takeMVar end))

exceptionsWhileDisplaced :: Assertion
exceptionsWhileDisplaced = displacing $ do
  ends <- newEmptyMVar
  ts <- forM [1 .. 6 :: Int] $ \i -> do
    let go k
          | k > times = putMVar ends (i, k)
          | otherwise =
              try (unsafeUnmask (forever (if even i then MP.yield else void (newIORef i >>= readIORef >>= evaluate)))) >>= \case
                Left (Numbered j n) | (j, n) == (i, k) -> go (k + 1)
                Left (Numbered j n) -> putMVar ends (j, n)
                Right () -> putMVar ends (i, 0)
    mask_ (MP.forkIO (go 1))
  forM_ [1 .. times] $ \k -> forM_ (zip [1 ..] ts) $ \(i, t) -> MP.throwTo t (Numbered i k) >> MP.yield
  got <- replicateM 6 (takeMVar ends)
  sort got @?= [(i, times + 1) | i <- [1 .. 6]]
  where
    times = 10

maskedAway :: Assertion
maskedAway = do
  away <- GHC.newEmptyMVar
  go <- GHC.newEmptyMVar
  end <- newEmptyMVar
  t <- mask_ . MP.forkIO $ do
    h <- atomicPTM getHEC
    r <- try (uninterruptibleMask_ (displace h Blocks >> GHC.putMVar away () >> GHC.takeMVar go))
    s <- try (newEmptyMVar >>= takeMVar)
    putMVar end (r :: Either AsyncException (), s :: Either AsyncException ())
  MP.outside (GHC.takeMVar away)
  MP.throwTo t ThreadKilled
  replicateM_ 3 MP.yield
  GHC.putMVar go ()
  takeMVar end >>= (@?= (Right (), Left ThreadKilled))

lazyWait :: Assertion
lazyWait = do
  m <- newEmptyMVar
  begun <- newEmptyMVar
  end <- newEmptyMVar
  -- In a variable, so that GHC does not move it into what is forked, and it is a value for each thread.
  shared <- newIORef (unsafePerformIO (putMVar begun () >> MP.yield >> takeMVar m) :: Int)
  replicateM_ 3 (MP.forkIO (readIORef shared >>= evaluate >>= putMVar end))
  takeMVar begun
  putMVar m 7
  replicateM 3 (takeMVar end) >>= (@?= [7, 7, 7])

-- | The transaction is run once before the thread is about to wait, and then in its switch. The thread is killed in that one.
leftBeforeSwitch :: Assertion
leftBeforeSwitch = do
  looks <- newIORef (0 :: Int)
  second <- GHC.newEmptyMVar
  never <- GHC.newEmptyMVar
  third <- newEmptyMVar
  end <- newEmptyMVar
  var <- newTVarIO Nothing
  let look now = unsafePerformIO $ do
        k <- atomicModifyIORef' looks (\n -> (n + 1, n + 1))
        when (k == 2) (GHC.putMVar second () >> GHC.takeMVar never)
        now <$ when (k == 3) (void (tryPutMVar third ()))
      {-# NOINLINE look #-}
  x <- unsafeInterleaveIO (atomically (readTVar var >>= \now -> maybe retry pure (look now)))
  t <- MP.forkIO (try (evaluate x) >>= putMVar end)
  MP.outside (GHC.takeMVar second)
  MP.throwTo t ThreadKilled
  takeMVar end >>= (@?= Left ThreadKilled)
  _ <- MP.forkIO (try (evaluate x) >>= putMVar end)
  takeMVar third
  atomically (writeTVar var (Just 'x'))
  takeMVar end >>= (@?= Right 'x')
  GHC.putMVar never ()

leftCalling :: (forall a. IO a -> IO a) -> Assertion
leftCalling calls = do
  begun <- GHC.newEmptyMVar
  answer <- GHC.newEmptyMVar
  end <- newEmptyMVar
  x <- unsafeInterleaveIO (calls (GHC.putMVar begun () >> GHC.takeMVar answer))
  let waits = MP.outside (GHC.takeMVar begun)
  t <- MP.forkIO (try (evaluate x) >>= putMVar end)
  waits
  MP.throwTo t ThreadKilled
  takeMVar end >>= (@?= Left ThreadKilled)
  _ <- MP.forkIO (try (evaluate x) >>= putMVar end)
  waits
  GHC.putMVar answer 'x'
  takeMVar end >>= (@?= Right 'x')

-- A request of a thread of the run is under way when the main thread ends so; it ends later.
finishing :: (GHC.ThreadId -> IO () -> IO ()) -> Assertion
finishing stop = do
  said <- newIORef []
  begun <- GHC.newEmptyMVar
  ended <- GHC.newEmptyMVar
  let say x = atomicModifyIORef' said (\xs -> (x : xs, ()))
  _ <- GHC.forkOS $ do
    me <- GHC.myThreadId
    r <- try . withConcLib 1 $ do
      Just (poller, _) <- eventsHere
      requestBegins poller
      stop me (GHC.putMVar begun poller)
    say (either (\(ErrorCall e) -> e) (const "returned") r)
    GHC.putMVar ended ()
  poller <- GHC.takeMVar begun
  replicateM_ 100 GHC.yield
  say "the request"
  requestEnds poller
  GHC.takeMVar ended
  order <- readIORef said
  drop 1 order @?= ["the request"]
  -- None begins after that.
  r <- try (requestBegins poller)
  either (\e -> isUserError e @?= True) (const (assertFailure "it begins")) r

-- Of two threads, each on a HEC, the one on the caller's waits, so that this HEC sleeps.
interruptedRun :: Assertion
interruptedRun = do
  never <- newEmptyMVar
  a <- GHC.newEmptyMVar
  b <- GHC.newEmptyMVar
  other <- GHC.newEmptyMVar
  there <- GHC.newEmptyMVar
  go <- GHC.newEmptyMVar
  ended <- GHC.newEmptyMVar
  let part caller mine its = do
        _ <- GHC.putMVar mine () >> GHC.takeMVar its
        here <- GHC.myThreadId
        if here == caller then GHC.putMVar there () >> takeMVar never else GHC.putMVar other here >> GHC.takeMVar go >> forever MP.yield
  caller <- GHC.forkOS $ do
    me <- GHC.myThreadId
    r <- try (withConcLib 2 (MP.forkIO (part me a b) >> MP.forkIO (part me b a) >> takeMVar never))
    GHC.putMVar ended (either (\(ErrorCall e) -> e) (\() -> "ended") r)
  hec <- GHC.takeMVar other
  -- Not the wait before.
  GHC.takeMVar there
  becomes caller (ThreadBlocked BlockedOnMVar)
  GHC.throwTo caller (ErrorCall "enough")
  GHC.takeMVar ended >>= (@?= "enough")
  GHC.putMVar go ()
  becomes hec ThreadFinished
  -- Reachable until now, so that no thread was told that it waits for ever.
  isEmptyMVar never >>= (@?= True)
  where
    becomes t status = threadStatus t >>= \s -> unless (s == status) (GHC.yield >> becomes t status)
