-- |
-- Description : Exceptions that come from outside, or at a bad moment
module ExceptionsTest (tests) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import CoreTest (onHEC)
import Data.IORef
import Data.Maybe (isJust)
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import Library (limited)
import System.IO.Unsafe (unsafeInterleaveIO, unsafePerformIO)
import System.Mem (performMajorGC)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)
import Weft.Substrate.Internal.Types (HEC (..))

tests :: TestTree
tests =
  testGroup
    "exceptions and HECs"
    [ testCase "raiseAsync freezes what is being evaluated" freezes,
      testCase "an exception from outside freezes a lazy value, inside a transaction that handles another" freezesInside,
      testCase "an exception from outside is raised though the transaction conflicts" killedInConflict,
      testCase "an exception from outside freezes a lazy value in which a HEC sleeps" freezesAsleep,
      testCase "a lazy value that is left in a switch sleeps on the HEC that evaluates it" (limited sleepsElsewhere),
      testCase "an exception from outside waits until all that follows a commit is done" afterAll,
      testCase "an exception from outside is raised in the stack" fromOutside,
      testCase "an exception from outside ends a sleep" endsSleep,
      testCase "an exception from outside ends a sleep at the base, in the stack that switches" endsSleepAtBase,
      testCase "an exception from outside between a commit and its sleep" beforeSleep,
      testCase "a HEC that nothing can wake is told" toldAsleep,
      testCase "a HEC that is begun masked does not get a pending exception" begunMasked
    ]

freezes :: Assertion
freezes = onHEC $ do
  parts <- newIORef (0 :: Int)
  let slow = unsafePerformIO $ do
        modifyIORef' parts (+ 1)
        raiseAsync (ErrorCall "async")
        modifyIORef' parts (+ 10)
        pure 'x'
      {-# NOINLINE slow #-}
  r <- try (evaluate slow)
  either (\(ErrorCall e) -> e @?= "async") (const (assertFailure "no exception")) r
  readIORef parts >>= (@?= 1)
  x <- evaluate slow
  x @?= 'x'
  -- It went on where it was.
  readIORef parts >>= (@?= 11)

-- | The value is evaluated again, and the part of the transaction begins again.
freezesInside :: Assertion
freezesInside = do
  begun <- newEmptyMVar
  answer <- newEmptyMVar
  let x = unsafePerformIO . atomicPTM $ unsafeIOToPTM (putMVar begun () >> takeMVar answer) `catchPTM` \(ErrorCall _) -> pure 'e'
  first <- newEmptyMVar
  t <- forkIO (try (evaluate x) >>= putMVar first)
  takeMVar begun
  throwTo t ThreadKilled
  takeMVar first >>= (@?= Left ThreadKilled)
  putMVar answer 'a'
  r <- try (evaluate x)
  r @?= (Right 'a' :: Either AsyncException Char)
  takeMVar begun

-- | What a part that handles another exception has read does not hold any more when it is killed.
killedInConflict :: Assertion
killedInConflict = do
  v <- newPVarIO 'a'
  begun <- newEmptyMVar
  end <- newEmptyMVar
  t <- forkIO $ try (atomicPTM ((readPVar v <* unsafeIOToPTM (putMVar begun () >> newEmptyMVar >>= takeMVar)) `catchPTM` \(ErrorCall _) -> pure 'e')) >>= putMVar end
  takeMVar begun
  atomicPTM (writePVar v 'b')
  _ <- forkIO (takeMVar begun >> putMVar end (Right 'b'))
  throwTo t ThreadKilled
  takeMVar end >>= (@?= Left ThreadKilled)

-- | The value is evaluated again on another HEC, which sleeps there.
freezesAsleep :: Assertion
freezesAsleep = do
  v <- newPVarIO Nothing
  sleeps <- newEmptyMVar
  end <- newEmptyMVar
  x <- unsafeInterleaveIO . atomicPTM $ do
    h <- getHEC
    readPVar v >>= \case
      Just a -> pure a
      Nothing -> afterCommit (putMVar sleeps h) >> sleepHEC
  let onAnother = forkOS (void (inCall (try (evaluate x) >>= putMVar end)))
  t <- onAnother
  _ <- takeMVar sleeps
  throwTo t ThreadKilled
  takeMVar end >>= (@?= Left ThreadKilled)
  _ <- onAnother
  h <- takeMVar sleeps
  atomicPTM (writePVar v (Just 'x') >> wakeupHEC h)
  takeMVar end >>= (@?= Right 'x')

-- | The value is left in the middle of the transaction, which knows its HEC by then, and evaluated on another.
sleepsElsewhere :: Assertion
sleepsElsewhere = do
  v <- newPVarIO Nothing
  begun <- newEmptyMVar
  go <- newEmptyMVar
  sleeps <- newEmptyMVar
  end <- newEmptyMVar
  let choosing = do
        unsafeIOToPTM (tryPutMVar begun () >> readMVar go)
        readPVar v >>= \case
          Just () -> getStackId
          Nothing -> getHEC >>= \h -> afterCommit (putMVar sleeps h) >> sleepHEC
  x <- unsafeInterleaveIO (switch choosing)
  let onAnother = forkOS (void (inCall (try (evaluate x) >>= putMVar end)))
  t <- onAnother
  takeMVar begun
  throwTo t ThreadKilled
  takeMVar end >>= (@?= Left ThreadKilled)
  _ <- onAnother
  putMVar go ()
  h <- takeMVar sleeps
  atomicPTM (writePVar v (Just ()) >> wakeupHEC h)
  takeMVar end >>= (@?= Right ())

-- | The first action has an exception thrown at its own thread by another, and knows that it is pending.
afterAll :: Assertion
afterAll = do
  done <- newIORef False
  end <- newEmptyMVar
  _ <- forkIO $ do
    me <- myThreadId
    let pending t = threadStatus t >>= \s -> unless (s == ThreadBlocked BlockedOnException) (yield >> pending t)
    r <- try (atomicPTM (afterCommit (forkIO (throwTo me ThreadKilled) >>= pending) >> afterCommit (writeIORef done True)) >> forever yield)
    putMVar end (r :: Either AsyncException ())
  takeMVar end >>= (@?= Left ThreadKilled)
  readIORef done >>= (@?= True)

fromOutside :: Assertion
fromOutside = do
  started <- newEmptyMVar
  r <- newEmptyMVar
  t <- forkOS $ do
    x <- try . onHEC $ do
      home <- atomicPTM getStackId
      other <- newPVarIO Nothing
      let back = switch (readPVar other >>= maybe getStackId pure)
      s <- newStack (forever (atomicPTM (getStackId >>= writePVar other . Just) >> switch (pure home)))
      switch (pure s)
      putMVar started ()
      forever back
    putMVar r (either (\(ErrorCall e) -> e) (\() -> "ended") x)
  takeMVar started
  throwTo t (ErrorCall "from outside")
  takeMVar r >>= (@?= "from outside")

-- The thrower waits in its throwTo until the target unmasks, which is after the in-call.
begunMasked :: Assertion
begunMasked = do
  r <- newEmptyMVar
  _ <- forkOS . uninterruptibleMask_ $ do
    me <- myThreadId
    thrower <- forkIO (throwTo me ThreadKilled)
    let thrown = threadStatus thrower >>= \s -> unless (s == ThreadBlocked BlockedOnException) (yield >> thrown)
    thrown
    try (inCall getMaskingState) >>= putMVar r
  takeMVar r >>= either (\e -> assertFailure (show (e :: AsyncException))) (@?= Just MaskedUninterruptible)

endsSleep :: Assertion
endsSleep = do
  hec <- newEmptyMVar
  r <- newEmptyMVar
  t <- forkOS . void . inCall $ do
    h <- atomicPTM getHEC
    -- Masked, so that the exception comes in the sleep and not before the handler is there.
    x <- mask_ (try (putMVar hec h >> atomicPTM sleepHEC))
    putMVar r (either (\(ErrorCall e) -> e) (\() -> "woken") x)
    -- The HEC sleeps again, and is woken.
    n <- newPVarIO (0 :: Int)
    putMVar hec h
    y <- atomicPTM (readPVar n >>= \i -> writePVar n (i + 1) >> if i == 0 then sleepHEC else pure "woken")
    putMVar r y
  h <- takeMVar hec
  throwTo t (ErrorCall "interrupted")
  takeMVar r >>= (@?= "interrupted")
  _ <- takeMVar hec
  -- Whether it sleeps already does not matter: this goes on until it has been woken.
  let wake = atomicPTM (wakeupHEC h) >> tryTakeMVar r >>= maybe (yield >> wake) pure
  wake >>= (@?= "woken")

-- The exception is pending once the transaction is committed, and before the HEC lies down.
beforeSleep :: Assertion
beforeSleep = do
  r <- newEmptyMVar
  _ <- forkOS . void . inCall $ do
    me <- myThreadId
    h <- atomicPTM getHEC
    let thrown t = threadStatus t >>= \s -> unless (s == ThreadBlocked BlockedOnException) (yield >> thrown t)
    x <- try (atomicPTM (afterCommit (forkIO (throwTo me (ErrorCall "interrupted")) >>= thrown) >> sleepHEC))
    asleep <- readPVarIO (hecAsleep h)
    putMVar r (either (\(ErrorCall e) -> e) (\() -> "woken") x, isJust asleep)
  takeMVar r >>= (@?= ("interrupted", False))

toldAsleep :: Assertion
toldAsleep = do
  r <- newEmptyMVar
  _ <- forkOS . void . inCall $ try (atomicPTM sleepHEC) >>= putMVar r
  let collected = tryTakeMVar r >>= maybe (performMajorGC >> yield >> collected) pure
  collected >>= either (\BlockedIndefinitelyOnMVar -> pure ()) (\() -> assertFailure "woken")

-- The value that the first attempt has read is changed before the base commits it, so the second is made at the base.
endsSleepAtBase :: Assertion
endsSleepAtBase = do
  v <- newPVarIO (0 :: Int)
  attempts <- newIORef (0 :: Int)
  sleeps <- newEmptyMVar
  r <- newEmptyMVar
  t <- forkOS $ do
    x <- try . onHEC $ do
      other <- newStack (pure ())
      mask_ . try . switch $ do
        _ <- readPVar v
        n <- unsafeIOToPTM (atomicModifyIORef' attempts (\k -> (k + 1, k)))
        if n == 0
          then other <$ unsafeIOToPTM (atomicPTM (writePVar v 1))
          else unsafeIOToPTM (putMVar sleeps ()) >> sleepHEC
    putMVar r $ case x of
      Right (Left (ErrorCall e)) -> e <> ", in the stack"
      Right (Right ()) -> "switched"
      Left (ErrorCall e) -> e <> ", out of the HEC"
  takeMVar sleeps
  throwTo t (ErrorCall "interrupted")
  takeMVar r >>= (@?= "interrupted, in the stack")
  readIORef attempts >>= (@?= 2)
