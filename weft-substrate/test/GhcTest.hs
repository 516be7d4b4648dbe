{-# LANGUAGE RecordWildCards #-}

-- |
-- Description : GHC's own tests of concurrency, for the concurrency libraries
--
-- The questions of @testsuite\/tests\/concurrent\/should_run@ in GHC's repository, by their names
-- there, asked in other words: no test waits for a time to pass. docs/substrate.md lists them all, with
-- those that do not apply and why.
module GhcTest (tests) where

import Control.Concurrent qualified as GHC
import Control.Exception hiding (throwTo)
import Control.Monad
import Data.List (sort)
import Library
import System.IO.Unsafe (unsafePerformIO)
import System.Mem (performMajorGC)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.MP (newChan, newEmptyMVar, newMVar, putMVar, readChan, readMVar, takeMVar, threadDelay, tryPutMVar, tryReadMVar, tryTakeMVar, writeChan, writeList2Chan)
import Weft.ConcLib.MP qualified as MP
import Weft.ConcLib.STM

tests :: TestTree
tests = testGroup "GHC's tests" (onLibraries every)

every :: Library t -> [TestTree]
every library =
  [ testCase name (limited (with library (test library)))
    | (name, test) <-
        [ ("conc001: a value from a child", fromChild),
          ("conc002: a channel", throughChannel),
          ("conc003: a relay of many threads", relay),
          ("conc006: a value that two evaluate", evaluated),
          ("conc008: a thread catches its own death", killsItself),
          ("conc010: an exception for a thread that waits", thrownAtWaiting),
          ("conc014: handlers are masked", handlerMasks),
          ("conc018, 019, 024, 033, T7970: a thread that waits for ever is told", told),
          ("conc015, conc017: what is restored, and what is masked again", restoring),
          ("conc022, conc028, tryReadMVar: what does not wait", tries),
          ("conc025: both channels have what is written", duplicated),
          ("conc026: a full variable makes wait", fullWaits),
          ("conc030: a killed taker takes nothing", killedTaker),
          ("conc032: many put and take, some are killed", manyAndSome),
          ("conc035: a handler that goes on handles again", handlesAgain),
          ("conc058: a delay is interrupted, masked or not", delayed),
          ("conc064: one exception from each of three", threeThrow),
          ("conc065, conc066: a thread that is masked most of the time is killed", mostlyMasked),
          ("conc069: masking is inherited", inherited),
          ("conc073: a thread that waits in a handler is killed", killedInHandler),
          ("mask001: nested masks", nested),
          ("mask002: masks and forks", masksAndForks),
          ("readMVar1, readMVar2: a reader takes nothing", readsOnly),
          ("readMVar3: a reader and a writer that waits", readerAndWriter),
          ("T3279: a lazy value that throws at its own thread", lazyThrow),
          ("T5238: a caught exception of a transaction changes no mask", transactionMask),
          ("T5558: a variable made in a lazy value", lazyVariable),
          ("T5611: an exception that comes during a call that blocks", blockedCall)
        ]
          -- Where throwTo waits for its target.
          <> [("conc016: a thread that waits to throw is killed", killsThrower) | not (isStack library)]
  ]

fromChild :: Library t -> Assertion
fromChild Library {..} = do
  v <- newEmptyMVar
  _ <- forkIO (putMVar v "hello")
  takeMVar v >>= (@?= "hello")

throughChannel :: Library t -> Assertion
throughChannel Library {..} = do
  c <- newChan
  _ <- forkIO (writeList2Chan c text)
  mapM (const (readChan c)) text >>= (@?= text)
  where
    text = "of no great length"

-- The main thread does not wait meanwhile: only the other could wake it.
told :: Library t -> Assertion
told Library {..} = do
  out <- newEmptyMVar
  late <- newEmptyMVar
  -- This one waits, too, but for what will come.
  _ <- forkIO (threadDelay 20_000 >> putMVar late 'x')
  _ <- forkIO ((newEmptyMVar >>= takeMVar) `catch` \BlockedIndefinitelyOnMVar -> putMVar out "empty")
  _ <- forkIO ((newMVar () >>= (`putMVar` ())) `catch` \BlockedIndefinitelyOnMVar -> putMVar out "full")
  _ <- forkIO (atomically retry `catch` \BlockedIndefinitelyOnMVar -> putMVar out "retry")
  _ <- forkIO (replicateM_ 2 ((newEmptyMVar >>= takeMVar) `catch` \BlockedIndefinitelyOnMVar -> putMVar out "again"))
  got <- replicateM 5 (collected out)
  sort got @?= ["again", "again", "empty", "full", "retry"]
  takeMVar late >>= (@?= 'x')
  where
    collected out = performMajorGC >> yield >> tryTakeMVar out >>= maybe (collected out) pure

relay :: Library t -> Assertion
relay Library {..} = do
  first <- newEmptyMVar
  end <- foldM (\from _ -> newEmptyMVar >>= \to -> to <$ forkIO (takeMVar from >>= putMVar to . (+ 1))) first [1 .. 100 :: Int]
  putMVar first 0
  takeMVar end >>= (@?= (100 :: Int))

evaluated :: Library t -> Assertion
evaluated Library {..} = do
  v <- newEmptyMVar
  let x = sum [1 .. 20_000 :: Int]
  _ <- forkIO (evaluate x >>= putMVar v)
  y <- evaluate x
  takeMVar v >>= (@?= y)

killsItself :: Library t -> Assertion
killsItself Library {..} = do
  me <- myThreadId
  r <- try (throwTo me ThreadKilled)
  r @?= Left ThreadKilled

thrownAtWaiting :: Library t -> Assertion
thrownAtWaiting Library {..} = do
  never <- newEmptyMVar
  ready <- newEmptyMVar
  out <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> takeMVar never) `catch` \(ErrorCall e) -> putMVar out e)
  takeMVar ready
  throwTo t (ErrorCall "wake")
  takeMVar out >>= (@?= "wake")

handlerMasks :: Library t -> Assertion
handlerMasks Library {..} = do
  me <- myThreadId
  go <- newEmptyMVar
  thrown <- newEmptyMVar
  done <- newMVar False
  _ <- forkIO (takeMVar go >> throwing (throwTo me (ErrorCall "late")) thrown)
  r <- try $ do
    throwIO (ErrorCall "first") `catch` \(ErrorCall _) -> uninterruptibleMask_ $ do
      putMVar go ()
      replicateM_ 3 yield
      _ <- takeMVar done
      putMVar done True
    takeMVar thrown >> forever yield
  either (\(ErrorCall e) -> e @?= "late") (\() -> assertFailure "no exception") r
  takeMVar done >>= assertBool "the handler was left early"
  where
    -- Where to throw waits for the target, another thread says that it is on its way.
    throwing act v = forkIO act >> putMVar v ()

restoring :: Library t -> Assertion
restoring Library {..} = do
  me <- myThreadId
  never <- newEmptyMVar
  first <- newEmptyMVar
  second <- newEmptyMVar
  thrown <- newEmptyMVar
  out <- newMVar []
  let say x = uninterruptibleMask_ (takeMVar out >>= putMVar out . (x :))
  getMaskingState >>= (@?= Unmasked)
  _ <- forkIO $ do
    takeMVar first
    throwTo me (ErrorCall "foo")
    takeMVar second
    _ <- forkIO (throwTo me (ErrorCall "bar"))
    putMVar thrown ()
  r <- try $ do
    mask $ \restore -> do
      getMaskingState >>= (@?= MaskedInterruptible)
      uninterruptibleMask_ (putMVar first ())
      restore (takeMVar never) `catch` \(ErrorCall e) -> say e
      uninterruptibleMask_ (putMVar second () >> takeMVar thrown >> replicateM_ 3 yield)
      say "masked"
    -- Not masked any more: it comes here.
    takeMVar never
  either (\(ErrorCall e) -> say e) (\() -> assertFailure "no exception") r
  takeMVar out >>= (@?= ["bar", "masked", "foo"])

killsThrower :: Library t -> Assertion
killsThrower Library {..} = do
  me <- myThreadId
  end <- newEmptyMVar
  uninterruptibleMask_ $ do
    t <- forkIOWithUnmask (\unmask -> try (unmask (throwTo me (ErrorCall "foo"))) >>= putMVar end)
    throwTo t ThreadKilled
    takeMVar end >>= (@?= Left ThreadKilled)

tries :: Library t -> Assertion
tries _ = do
  v <- newEmptyMVar
  tryTakeMVar v >>= (@?= Nothing)
  tryReadMVar v >>= (@?= Nothing)
  tryPutMVar v 'x' >>= (@?= True)
  tryPutMVar v 'y' >>= (@?= False)
  tryReadMVar v >>= (@?= Just 'x')
  tryTakeMVar v >>= (@?= Just 'x')
  tryTakeMVar v >>= (@?= Nothing)

killedTaker :: Library t -> Assertion
killedTaker Library {..} = do
  v <- newEmptyMVar
  ready <- newEmptyMVar
  end <- newEmptyMVar
  t <- forkFinally (putMVar ready () >> takeMVar v) (putMVar end)
  takeMVar ready
  throwTo t ThreadKilled
  takeMVar end >>= either ((@?= Just ThreadKilled) . fromException) (assertFailure . show)
  putMVar v 'x'
  takeMVar v >>= (@?= 'x')

manyAndSome :: Library t -> Assertion
manyAndSome Library {..} = replicateM_ 10 $ do
  v <- newEmptyMVar
  ended <- newChan
  ts <- forM [1 .. 6 :: Int] (\i -> forkFinally (putMVar v i) (const (uninterruptibleMask_ (writeChan ended ()))))
  got <- replicateM 3 (takeMVar v)
  assertBool (show got) (all (`elem` [1 .. 6]) got)
  mapM_ (`throwTo` ThreadKilled) ts
  replicateM_ 6 (readChan ended)

fullWaits :: Library t -> Assertion
fullWaits Library {..} = do
  v <- newMVar 'a'
  ready <- newEmptyMVar
  _ <- forkIO (takeMVar ready >> void (takeMVar v))
  putMVar ready ()
  putMVar v 'b'
  takeMVar v >>= (@?= 'b')

duplicated :: Library t -> Assertion
duplicated _ = do
  c <- newChan
  d <- MP.dupChan c
  writeChan c 'x'
  mapM readChan [c, d] >>= (@?= "xx")

handlesAgain :: Library t -> Assertion
handlesAgain Library {..} = do
  input <- newEmptyMVar
  caught <- newEmptyMVar
  got <- newChan
  let loop = (mask_ (takeMVar input >>= writeChan got) >> loop) `catch` handler
      handler e
        | Just ThreadKilled <- fromException e = pure ()
        | otherwise = putMVar caught (show (e :: SomeException)) >> loop
  end <- newEmptyMVar
  t <- forkIO (loop >> putMVar end ())
  forM_ [(1 :: Int, "1st"), (2, "2nd")] $ \(i, e) -> do
    putMVar input i
    readChan got >>= (@?= i)
    throwTo t (ErrorCall e)
    takeMVar caught >>= (@?= e)
  throwTo t ThreadKilled
  takeMVar end

delayed :: Library t -> Assertion
delayed Library {..} = forM_ [id, mask_] $ \masked -> do
  ready <- newEmptyMVar
  end <- newEmptyMVar
  t <- masked (forkIO ((putMVar ready () >> threadDelay 60_000_000) `catch` \(ErrorCall e) -> putMVar end e))
  takeMVar ready
  throwTo t (ErrorCall "interrupted")
  takeMVar end >>= (@?= "interrupted")

threeThrow :: Library t -> Assertion
threeThrow Library {..} = do
  me <- myThreadId
  never <- newEmptyMVar
  mask $ \restore -> do
    uninterruptibleMask_ (replicateM_ 3 (forkIO (throwTo me NonTermination)))
    replicateM_ 3 (try (restore (takeMVar never)) >>= either (\NonTermination -> pure ()) (\() -> assertFailure "no exception"))

mostlyMasked :: Library t -> Assertion
mostlyMasked Library {..} = do
  ready <- newEmptyMVar
  end <- newEmptyMVar
  let run loop = do
        t <- forkIO ((putMVar ready () >> loop) `catch` \e -> putMVar end (e :: AsyncException))
        takeMVar ready
        throwTo t ThreadKilled
        takeMVar end >>= (@?= ThreadKilled)
  run (forever (mask_ yield >> yield))
  run (mask (\restore -> forever (restore yield)))

inherited :: Library t -> Assertion
inherited Library {..} = do
  v <- newEmptyMVar
  let stat = uninterruptibleMask (\restore -> restore getMaskingState >>= putMVar v)
      seen fork expected = fork (void (forkIO stat)) >> takeMVar v >>= (@?= expected)
  seen id Unmasked
  seen mask_ MaskedInterruptible
  seen uninterruptibleMask_ MaskedUninterruptible

killedInHandler :: Library t -> Assertion
killedInHandler Library {..} = do
  m1 <- newEmptyMVar
  m2 <- newEmptyMVar
  end <- newEmptyMVar
  t <- forkFinally (mask_ (pure ()) >> (throwIO (ErrorCall "test") `catch` \(ErrorCall _) -> getMaskingState >>= putMVar m1 >> takeMVar m2)) (putMVar end)
  takeMVar m1 >>= (@?= MaskedInterruptible)
  throwTo t ThreadKilled
  takeMVar end >>= either ((@?= Just ThreadKilled) . fromException) (\() -> assertFailure "no exception")

nested :: Library t -> Assertion
nested _ = do
  mask $ \restore -> do
    is MaskedInterruptible
    restore (restore (is Unmasked))
    uninterruptibleMask $ \restore' -> do
      is MaskedUninterruptible
      restore' (is MaskedInterruptible)
      restore (is Unmasked)
      restore' (restore (is Unmasked))
      mask (\restore'' -> restore'' (is MaskedUninterruptible))
    is MaskedInterruptible
  uninterruptibleMask (\restore -> restore (is Unmasked))
  is Unmasked
  where
    is state = getMaskingState >>= (@?= state)

masksAndForks :: Library t -> Assertion
masksAndForks Library {..} = do
  never <- newEmptyMVar
  ready <- newEmptyMVar
  out <- newEmptyMVar
  t <- mask_ (forkIO ((putMVar ready () >> takeMVar never) `catch` \e -> getMaskingState >>= \s -> putMVar out (e :: AsyncException, s)))
  takeMVar ready
  throwTo t ThreadKilled
  takeMVar out >>= (@?= (ThreadKilled, MaskedInterruptible))
  forM_ [mask_, uninterruptibleMask_] $ \masked -> do
    state <- newEmptyMVar
    _ <- masked (forkIOWithUnmask (\unmask -> unmask getMaskingState >>= putMVar state))
    takeMVar state >>= (@?= Unmasked)

readsOnly :: Library t -> Assertion
readsOnly Library {..} = do
  v <- newEmptyMVar
  out <- newChan
  replicateM_ 3 (forkIO (readMVar v >>= writeChan out))
  putMVar v 'x'
  replicateM 3 (readChan out) >>= (@?= "xxx")
  takeMVar v >>= (@?= 'x')

readerAndWriter :: Library t -> Assertion
readerAndWriter Library {..} = do
  v <- newMVar (0 :: Int)
  _ <- forkIO (putMVar v 1)
  yield
  readMVar v >>= (@?= 0)
  takeMVar v >>= (@?= 0)
  takeMVar v >>= (@?= 1)

transactionMask :: Library t -> Assertion
transactionMask _ = do
  atomically (throwSTM Overflow `catchSTM` \(_ :: SomeException) -> pure ())
  getMaskingState >>= (@?= Unmasked)

blockedCall :: Library t -> Assertion
blockedCall Library {..} = do
  begun <- GHC.newEmptyMVar
  go <- GHC.newEmptyMVar
  out <- newEmptyMVar
  t <- forkIO . flip finally (putMVar out ()) $ do
    outside (uninterruptibleMask_ (GHC.putMVar begun () >> GHC.takeMVar go))
    forever yield
  outside (GHC.takeMVar begun)
  _ <- forkIO (throwTo t ThreadKilled)
  replicateM_ 3 yield
  GHC.putMVar go ()
  takeMVar out

lazyVariable :: Library t -> Assertion
lazyVariable Library {..} = do
  let lock = unsafePerformIO (newMVar ())
      {-# NOINLINE lock #-}
  done <- newEmptyMVar
  replicateM_ 4 (forkIO (takeMVar lock >>= putMVar lock >> putMVar done ()))
  replicateM_ 4 (takeMVar done)

-- The second evaluation goes on where the first was left, not at its beginning.
lazyThrow :: Library t -> Assertion
lazyThrow Library {..} = do
  count <- GHC.newMVar (0 :: Int)
  let x = (1 +) . unsafePerformIO $ do
        GHC.modifyMVar_ count (pure . (+ 1))
        raise
        pure (1 :: Int)
      raise = myThreadId >>= (`throwTo` ErrorCall "foo")
  r <- try (evaluate x)
  either (\(ErrorCall e) -> e @?= "foo") (const (assertFailure "no exception")) r
  evaluate x >>= (@?= 2)
  GHC.readMVar count >>= (@?= 1)
