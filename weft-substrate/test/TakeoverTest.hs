-- |
-- Description : Stacks that do not come back to their HEC
--
-- Each test has one HEC, and a stack on it that goes on only when another has run.
module TakeoverTest (tests) where

import Control.Concurrent hiding (yield)
import Control.Concurrent qualified as GHC
import Control.Exception
import Control.Monad
import Data.ByteString qualified as ByteString
import Data.IORef
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import Library (limited)
import Preemptive
import System.IO.Unsafe (unsafePerformIO)
import System.Mem (performMajorGC)
import System.Posix.IO.ByteString (closeFd, createPipe, fdRead, fdWrite)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Substrate
import Weft.Substrate.Internal.Hec (inCallEnding)
import Weft.Substrate.Internal.Takeover (displace, reasonOf)
import Weft.Substrate.Internal.Types (Successor (..))

tests :: TestTree
tests =
  testGroup
    "stacks that are displaced"
    [ testCase name (limited test)
      | (name, test) <-
          [ ("one that computes does not stop the others", computing),
            ("one in a foreign call does not stop the others", calling),
            ("one that waits for GHC's variable does not stop the others", waiting),
            ("one that waits for a lazy value does not stop the others", evaluating),
            ("an out-call does not stop the others, and the library is told", outCalling),
            ("one is killed while it is away", killed),
            ("all come back, once each time", comeBack),
            ("one comes back from inside a lazy value", lazily),
            ("one that is away when the HEC ends", awayAtTheEnd),
            ("what ends with an exception ends its HEC, after it has come back", throws),
            ("an exception for the in-caller is raised in the stack", forwarded),
            ("a HEC without handlers enters one that has returned", byAnother),
            ("an exception for an in-caller whose HEC has gone to another OS thread", forwardedOn),
            ("what ends a stack on another OS thread is raised in the in-caller", thrownBack),
            ("what a library does about the end of a stack, on another OS thread", endsElsewhere)
          ]
    ]

-- | Compute until a flag is set. Allocates, so that GHC can stop it.
spin :: IORef Bool -> IO ()
spin flag = readIORef flag >>= \set -> unless set (newIORef 'x' >>= readIORef >>= evaluate >> spin flag)

-- | A thread that does not go on before another has performed an action.
beside :: IO () -> IO () -> IO ()
beside blocks frees = do
  said <- newIORef []
  let say x = atomicModifyIORef' said (\xs -> (x : xs, ()))
  run $ \s -> do
    fork s (blocks >> yield s >> say "blocked")
    fork s (say "frees" >> frees)
  readIORef said >>= (@?= ["blocked", "frees"])

computing, calling, waiting, evaluating :: IO ()
computing = newIORef False >>= \flag -> beside (spin flag) (writeIORef flag True)
calling = do
  (r, w) <- createPipe
  beside (void (fdRead r 1)) (void (fdWrite w (ByteString.pack [1])))
  mapM_ closeFd [r, w]
waiting = newEmptyMVar >>= \m -> beside (takeMVar m) (putMVar m ())
-- The evaluation is begun by a thread of GHC's.
evaluating = do
  m <- newEmptyMVar
  let value = unsafePerformIO (takeMVar m >> pure 'x')
      {-# NOINLINE value #-}
  other <- forkIO (void (evaluate value))
  let begun = threadStatus other >>= \s -> unless (s == ThreadBlocked BlockedOnMVar) (GHC.yield >> begun)
  begun
  beside (void (evaluate value)) (putMVar m ())
  map reasonOf [ThreadRunning, ThreadBlocked BlockedOnBlackHole, ThreadBlocked BlockedOnForeignCall, ThreadBlocked BlockedOnMVar]
    @?= [Computes, EntersBlackHole, Blocks, Blocks]

-- | A HEC with these handlers, which nobody watches.
unwatched :: (Reason -> StackId -> PTM StackId) -> (StackId -> PTM ()) -> IO a -> IO (Maybe a)
unwatched away back = inCallWith False Handlers {displaced = away, returned = back}

-- | A variable with the stack that has returned, which the HEC waits for.
returning :: IO (PTM StackId, StackId -> PTM ())
returning = do
  place <- newPVarIO Nothing
  sleeper <- newPVarIO Nothing
  pure
    ( readPVar place >>= \case
        Just t -> t <$ writePVar place Nothing
        Nothing -> (getHEC >>= writePVar sleeper . Just) >> sleepHEC,
      \t -> writePVar place (Just t) >> readPVar sleeper >>= mapM_ wakeupHEC
    )

outCalling :: IO ()
outCalling = do
  (next, back) <- returning
  told <- newPVarIO []
  m <- newEmptyMVar
  -- The call is freed once the other stack has been chosen, or the HEC sleeps.
  r <- unwatched (\why _ -> writePVar told [why] >> afterCommit (void (tryPutMVar m 'a')) >> next) back $ do
    h <- atomicPTM getHEC
    x <- outCall (takeMVar m)
    e <- try (outCall (throwIO (ErrorCall "out")))
    again <- atomicPTM getHEC
    pure (x, h == again, either (\(ErrorCall t) -> t) id e)
  r @?= Just ('a', True, "out")
  readPVarIO told >>= (@?= [CallsOut])

killed :: IO ()
killed = do
  r <- newEmptyMVar
  never <- newIORef False
  ends <- newIORef []
  let say x = atomicModifyIORef' ends (\xs -> (x : xs, ()))
  run $ \s -> do
    fork s $ do
      me <- myThreadId
      (putMVar r me >> spin never) `catch` \e -> say (show (e :: AsyncException))
      say "goes on"
    fork s (outCall (takeMVar r) >>= (`throwTo` ThreadKilled) >> say "has killed")
  said <- readIORef ends
  filter (/= "has killed") said @?= ["goes on", "thread killed"]
  length said @?= 3

-- The threads yield until the HEC has been taken from them often. One that came back twice would be entered twice,
-- which is an error, and one that did not come back would not end.
comeBack :: IO ()
comeBack = do
  hec <- newEmptyMVar
  over <- newIORef False
  ends <- newIORef (0 :: Int)
  _ <- forkIO (takeMVar hec >>= \h -> replicateM_ 50 (displace h Computes) >> writeIORef over True)
  run $ \s -> do
    atomicPTM getHEC >>= putMVar hec
    let go = yield s >> readIORef over >>= \end -> unless end go
    replicateM_ 10 (fork s (go >> atomicModifyIORef' ends (\n -> (n + 1, ()))))
  readIORef ends >>= (@?= 10)

lazily :: IO ()
lazily = do
  (next, back) <- returning
  r <- unwatched (\_ _ -> next) back $ do
    h <- atomicPTM getHEC
    let value = unsafePerformIO (displace h Computes >> atomicPTM getHEC)
        {-# NOINLINE value #-}
    same <- (== h) <$> evaluate value
    again <- (== h) <$> atomicPTM getHEC
    pure (same, again)
  r @?= Just (True, True)

awayAtTheEnd :: IO ()
awayAtTheEnd = do
  flag <- newIORef False
  told <- newEmptyMVar
  other <- newPVarIO Nothing
  r <- unwatched (\_ _ -> readPVar other >>= maybe sleepHEC pure) (\_ -> pure ()) $ do
    home <- atomicPTM getStackId
    t <- newStack (switch (pure home))
    atomicPTM (writePVar other (Just t))
    s <- newStack $ do
      h <- atomicPTM getHEC
      displace h Computes
      spin flag
      switch (pure t) `catch` \e -> putMVar told (show (e :: BlockedIndefinitelyOnMVar))
    switch (pure s)
    pure 'x'
  r @?= Just 'x'
  -- It goes on without a HEC.
  writeIORef flag True
  let collected = tryTakeMVar told >>= maybe (performMajorGC >> GHC.yield >> collected) pure
  collected >>= (@?= show BlockedIndefinitelyOnMVar)

throws :: IO ()
throws = do
  (next, back) <- returning
  r <- try . unwatched (\_ _ -> next) back $ do
    h <- atomicPTM getHEC
    displace h Computes
    void (throwIO (ErrorCall "thrown"))
  either (\(ErrorCall e) -> e @?= "thrown") (const (assertFailure "no exception")) r

forwarded :: IO ()
forwarded = do
  started <- newEmptyMVar
  never <- newIORef False
  r <- newEmptyMVar
  t <- forkIO $ do
    x <- try (unwatched (\_ _ -> sleepHEC) (\_ -> pure ()) (putMVar started () >> spin never))
    putMVar r (either (\(ErrorCall e) -> e) (const "ended") x)
  takeMVar started
  throwTo t (ErrorCall "from outside")
  takeMVar r >>= (@?= "from outside")

-- | A HEC of this kind enters a stack that waits on an OS thread of its own, and that performs this then.
onItsOwnThread :: (IO () -> IO (Maybe ())) -> IO () -> IO (Maybe ())
onItsOwnThread makeHEC act = do
  place <- newPVarIO Nothing
  _ <- forkIO . void . unwatched (\_ _ -> sleepHEC) (writePVar place . Just) $ do
    home <- atomicPTM getHEC
    displace home Computes
    switch getStackId >> act
  let enter = do
        r <- makeHEC (switch (readPVar place >>= maybe getStackId (<$ writePVar place Nothing)))
        if null r then pure r else GHC.yield >> enter
  enter

forwardedOn, thrownBack, endsElsewhere :: IO ()
forwardedOn = do
  there <- newEmptyMVar
  never <- newEmptyMVar
  told <- newEmptyMVar
  end <- newEmptyMVar
  caller <- forkOS $ do
    r <- onItsOwnThread inCall ((putMVar there () >> takeMVar never) `catch` \(ErrorCall e) -> putMVar told e)
    putMVar end r
  takeMVar there
  throwTo caller (ErrorCall "for the stack")
  takeMVar told >>= (@?= "for the stack")
  takeMVar end >>= (@?= Nothing)
  tryPutMVar never () >>= (@?= True)
thrownBack = do
  r <- try (onItsOwnThread inCall (throwIO (ErrorCall "thrown")))
  either (\(ErrorCall e) -> e @?= "thrown") (const (assertFailure "no exception")) r
endsElsewhere = do
  told <- newEmptyMVar
  first <- newEmptyMVar
  let follow stack here = tryReadMVar first >>= \t -> pure (if t == Just here then Just (Successor (putMVar told . show) (pure stack)) else Nothing)
      ends how = do
        stack <- newStack (modifyMVar_ told (pure . (<> ", and followed")))
        r <- onItsOwnThread (inCallEnding (follow stack)) (atomicPTM getStackId >>= putMVar first >> how)
        r <$ takeMVar first
  ends (throwIO (ErrorCall "thrown")) >>= (@?= Nothing)
  takeMVar told >>= (@?= "thrown, and followed")
  ends (putMVar told "returned") >>= (@?= Nothing)
  takeMVar told >>= (@?= "returned, and followed")

-- The HEC from which it was displaced sleeps for ever.
byAnother :: IO ()
byAnother = do
  place <- newPVarIO Nothing
  done <- newEmptyMVar
  _ <- forkIO . void . unwatched (\_ _ -> sleepHEC) (writePVar place . Just) $ do
    home <- atomicPTM getHEC
    displace home Computes
    now <- atomicPTM getHEC
    putMVar done (now /= home)
  let enter = do
        r <- inCall (switch (readPVar place >>= maybe getStackId (<$ writePVar place Nothing)))
        unless (null r) (GHC.yield >> enter)
  -- That HEC ends in the other stack.
  enter
  takeMVar done >>= assertBool "another HEC"
