-- |
-- Description : Several things at once, and time limits
--
-- What 'race', 'concurrently', the traversals and 'timeout' do in every way their
-- parts can end, and nests of time limits against a model. No test waits for time to
-- pass: a limit is either long past or far away.
module Test.Concurrently (tests) where

import Control.Exception (ErrorCall (..), SomeException, fromException)
import Control.Monad (forM_, forever, replicateM_, void, when)
import Data.IORef
import Data.List (sort)
import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft
import Weft.Concurrently
import Weft.Dump (dumpThreads)
import Weft.Mask
import Weft.Time (Instant, durationNanoseconds, minutes, nanoseconds, now, since)
import Weft.Time qualified as Time
import Weft.Timeout

tests :: TestTree
tests =
  testGroup
    "Concurrently"
    [ testGroup "race" races,
      testGroup "concurrently" both,
      testGroup "traversals" traversals,
      testGroup "timeout" timeouts,
      testProperty "nests of time limits end as the model says" nests
    ]

everywhere :: TestName -> (Config -> Assertion) -> TestTree
everywhere name test = testCase name (mapM_ test [Config Epoll 1, Config Uring 1, Config Epoll 2])

is :: (Eq a, Show a) => a -> a -> Thread ()
is got wanted = liftIO (got @?= wanted)

block :: Thread a
block = newGate >>= waitGate

newCounter :: Thread (Thread (), Thread Int)
newCounter = do
  ref <- liftIO (newIORef 0)
  pure (liftIO (atomicModifyIORef' ref (\n -> (n + 1, ()))), liftIO (readIORef ref))

races :: [TestTree]
races =
  [ everywhere "the first decides, and the other is gone with its finalizers" $ \c -> running c $ do
      (bump, count) <- newCounter
      r <- race (block `finally` (yield >> bump)) (replicateM_ 3 yield >> pure 'b')
      r `is` (Right 'b' :: Either () Char)
      r' <- race (replicateM_ 3 yield >> pure 'a') (block `finally` (yield >> bump))
      r' `is` (Left 'a' :: Either Char ())
      count >>= (`is` 2),
    everywhere "an exception is a decision, raised as it was" $ \c -> running c $ do
      (bump, count) <- newCounter
      r <- try (race (block `finally` bump) (yield >> throwM (ErrorCall "x") :: Thread ()))
      r `is` (Left (ErrorCall "x") :: Either ErrorCall (Either () ()))
      count >>= (`is` 1),
    everywhere "cancelling a race cancels both" $ \c -> running c $ do
      (bump, count) <- newCounter
      ready <- newGate
      ended <- newGate
      t <- fork ((race_ (block `finally` bump) ((openGate ready () >> block) `finally` bump) `finally` bump) `finally` openGate ended ())
      waitGate ready
      cancel t
      waitGate ended
      count >>= (`is` 3),
    everywhere "races in races" $ \c -> running c $ do
      (bump, count) <- newCounter
      let tower :: Int -> Thread Int
          tower 0 = pure 0
          tower n = either id id <$> race (tower (n - 1)) (block `finally` bump)
      tower 50 >>= (`is` 0)
      -- Those that lost before they began have nothing to finalize.
      n <- count
      liftIO (assertBool (show n) (n <= 50))
  ]

both :: [TestTree]
both =
  [ everywhere "both results" $ \c -> running c $ concurrently (yield >> pure 'a') (pure 'b') >>= (`is` ('a', 'b')),
    everywhere "a failure of either cancels the other and is raised as it was" $ \c -> running c $ do
      (bump, count) <- newCounter
      l <- try (concurrently_ (yield >> throwM (ErrorCall "l") :: Thread ()) (block `finally` bump))
      l `is` Left (ErrorCall "l")
      r <- try (concurrently (block `finally` bump :: Thread ()) (yield >> throwM (ErrorCall "r") :: Thread ()))
      void r `is` Left (ErrorCall "r")
      n <- count
      liftIO (assertBool (show n) (n <= 2)),
    everywhere "a part that somebody else cancelled is no cancellation of this thread" $ \c -> running c $ do
      gate <- newGate
      _ <- fork (waitGate gate >>= cancel)
      r <- try (concurrently (myThreadId >>= openGate gate >> block :: Thread ()) (pure ()))
      case r of
        Left (e :: SomeException) | Just Cancelled <- fromException e -> liftIO (assertFailure "raised as a cancellation")
        Left _ -> pure ()
        Right _ -> liftIO (assertFailure "it has a result")
  ]

traversals :: [TestTree]
traversals =
  [ everywhere "results in the order of the elements" $ \c -> running c $ do
      r <- forConcurrently [1 .. 100 :: Int] (\i -> replicateM_ (100 - i) yield >> pure (i * i))
      r `is` map (^ (2 :: Int)) [1 .. 100]
      m <- mapConcurrentlyN 7 (\i -> replicateM_ (i `mod` 13) yield >> pure (i + 1)) [1 .. 1000 :: Int]
      m `is` [2 .. 1001]
      e <- mapConcurrentlyN 7 pure ([] :: [Int])
      e `is` []
      j <- forConcurrentlyN 3 (Just 'x') pure
      j `is` Just 'x',
    everywhere "never more at a time than allowed, and all of them" $ \c -> running c . forM_ [-1, 1, 2, 5] $ \limit -> do
      active <- liftIO (newIORef (0 :: Int))
      most <- liftIO (newIORef 0)
      seen <- liftIO (newIORef [])
      forConcurrentlyN_ limit [1 .. 200 :: Int] $ \i -> do
        n <- liftIO (atomicModifyIORef' active (\n -> (n + 1, n + 1)))
        liftIO (atomicModifyIORef' most (\m -> (max m n, ())))
        replicateM_ (i `mod` 5) yield
        liftIO (atomicModifyIORef' seen (\is' -> (i : is', ())))
        liftIO (atomicModifyIORef' active (\k -> (k - 1, ())))
      top <- liftIO (readIORef most)
      liftIO (assertBool (show top) (top <= max 1 limit && top >= min 1 limit))
      liftIO (readIORef seen) >>= (`is` [1 .. 200]) . sort,
    everywhere "elements are taken one by one: an endless list ends with its failure" $ \c -> running c $ do
      (bump, count) <- newCounter
      r <- try (forConcurrentlyN_ 4 [1 ..] (\i -> bump >> yield >> when (i == (1000 :: Int)) (throwM (ErrorCall "enough"))))
      r `is` Left (ErrorCall "enough")
      n <- count
      liftIO (assertBool (show n) (n >= 1000 && n < 1100)),
    everywhere "a failure cancels the rest, and is raised as it was" $ \c -> running c $ do
      r <- try (forConcurrently_ [1 .. 50 :: Int] (\i -> if i == 25 then throwM (ErrorCall "25") else block))
      r `is` (Left (ErrorCall "25") :: Either ErrorCall ())
  ]

far :: Duration
far = minutes 60

timeouts :: [TestTree]
timeouts =
  [ everywhere "in time, and out of it" $ \c -> running c $ do
      timeout far (yield >> pure 'x') >>= (`is` Just 'x')
      timeout (nanoseconds 1) (block :: Thread ()) >>= (`is` Nothing)
      timeout (milliseconds 1) (sleep far) >>= (`is` Nothing),
    testCase "in an uninterruptible part it leaves no thread behind" . running (Config Epoll 1) $ do
      uninterruptibleMask_ (timeout far (pure 'x')) >>= (`is` Just 'x')
      replicateM_ 20 yield
      left <- dumpThreads
      Text.takeWhile (/= ':') left `is` Text.pack "1 thread",
    everywhere "zero and less: the part does not begin" $ \c -> running c $ do
      (bump, count) <- newCounter
      timeout mempty bump >>= (`is` Nothing)
      timeout (seconds (-5)) bump >>= (`is` Nothing)
      t <- now
      timeoutAt t bump >>= (`is` Nothing)
      count >>= (`is` 0),
    everywhere "finalizers run, and an exception of the part is raised as it was" $ \c -> running c $ do
      (bump, count) <- newCounter
      timeout (nanoseconds 1) (block `finally` (yield >> bump) :: Thread ()) >>= (`is` Nothing)
      count >>= (`is` 1)
      r <- try (timeout far (throwM (ErrorCall "x") :: Thread ()))
      r `is` Left (ErrorCall "x"),
    everywhere "an inner limit does not swallow an outer one" $ \c -> running c $ do
      timeout (nanoseconds 1) (timeout far (block :: Thread ())) >>= (`is` Nothing)
      timeout far (timeout (nanoseconds 1) (block :: Thread ())) >>= (`is` Just Nothing)
      timeout (nanoseconds 1) (forever (timeout far (block :: Thread ()))) >>= (`is` (Nothing :: Maybe ())),
    everywhere "equal deadlines: the outer ends it, or the inner and then perhaps the outer" $ \c -> running c . replicateM_ 50 $ do
      t <- deadline (nanoseconds 20_000)
      r <- timeoutAt t (timeoutAt t (block :: Thread ()))
      liftIO (assertBool (show r) (r `elem` [Nothing, Just Nothing]))
      -- Nothing of either is left.
      replicateM_ 5 yield,
    everywhere "a limit of a part that has ended hits nothing later" $ \c -> running c $ do
      -- The limits come while the parts end: before, in and after.
      forM_ [0 .. 300 :: Int] $ \i -> do
        r <- timeout (nanoseconds (1 + i * 100)) (replicateM_ (i `mod` 7) yield >> pure i)
        liftIO (assertBool (show r) (r `elem` [Nothing, Just i]))
        mask_ (replicateM_ 2 yield)
        yield,
    everywhere "masked: interrupted only where it waits; uninterruptible: not" $ \c -> running c $ do
      (bump, count) <- newCounter
      let spin t = now >>= \n -> when (n < t) (yield >> spin t)
      r <- timeout (nanoseconds 1) (mask_ (afterNow (milliseconds 2) >>= spin >> bump >> (block :: Thread ())))
      r `is` Nothing
      count >>= (`is` 1)
      u <- timeout (nanoseconds 1) (uninterruptibleMask_ (sleep (milliseconds 2) >> bump >> pure 'u'))
      u `is` Just 'u'
      count >>= (`is` 2)
      i <- timeout (nanoseconds 1) (mask_ (interruptible (block :: Thread ())))
      i `is` Nothing,
    everywhere "allowInterrupt raises in a masked region and not in an uninterruptible one" $ \c -> running c $ do
      me <- myThreadId
      let hit = cancel me >> yield
      r <- try (mask_ (hit >> liftIO (pure ()) >> allowInterrupt))
      r `is` Left Cancelled
      r' <- try (uninterruptibleMask_ (hit >> allowInterrupt >> getMaskingState) >>= \s -> s <$ liftIO (pure ()))
      r' `is` (Right MaskedUninterruptible :: Either Cancelled MaskingState)
      late <- try yield
      late `is` Left Cancelled,
    testCase "a timer that is not needed any more is gone, and so is its thread" $ do
      -- If limits of an hour were kept, a million of them would be.
      spent <- running (Config Epoll 1) $ do
        start <- now
        replicateM_ 20_000 (timeout far (pure ()))
        since start <$> now
      assertBool (show spent) (durationNanoseconds spent < 10_000_000_000),
    everywhere "one deadline for several steps" $ \c -> running c $ do
      t <- deadline (milliseconds 1)
      rs <- mapM (\_ -> timeoutAt t (block :: Thread ())) [1 .. 5 :: Int]
      rs `is` replicate 5 Nothing
  ]
  where
    afterNow :: Duration -> Thread Instant
    afterNow d = Time.after d <$> now

-- | A nest of time limits around something that ends by itself, or never, or fails.
data Nest
  = Ends Int
  | Never
  | Throws
  | -- | True: far away; false: past, or so near that what blocks is interrupted.
    Within Bool Nest
  | -- | The left part, and if it gave a value the right.
    Then Nest Nest
  | -- | All exceptions but interruptions are caught here.
    Catching Nest
  deriving stock (Show)

instance Arbitrary Nest where
  arbitrary = sized nest
    where
      nest 0 = oneof [Ends <$> choose (0, 9), pure Never, pure Throws]
      nest n =
        frequency
          [ (1, nest 0),
            (4, Within <$> arbitrary <*> nest (n - 1)),
            (2, Then <$> nest (n `div` 2) <*> nest (n `div` 2)),
            (1, Catching <$> nest (n - 1))
          ]
  shrink = \case
    Within f n -> n : (Within f <$> shrink n)
    Then a b -> [a, b] <> [Then x y | (x, y) <- shrink (a, b)]
    Catching n -> n : (Catching <$> shrink n)
    _ -> []

-- | How it ends: a value, an exception, or never (unless somebody interrupts it).
data End = Value [Int] | Raised | Hangs
  deriving stock (Eq, Show)

-- | A limit that is past ends its part before it begins, whatever it is.
model :: Nest -> End
model = \case
  Ends n -> Value [n]
  Never -> Hangs
  Throws -> Raised
  Within True n -> model n
  Within False _ -> Value [-1]
  Then a b -> case model a of
    Value x -> case model b of
      Value y -> Value (x <> y)
      other -> other
    other -> other
  Catching n -> case model n of
    Raised -> Value [-2]
    other -> other

-- | Every nest is run within a limit that is already due when the nest hangs: the
-- nest is told to begin, and when the model says that it hangs the outermost limit
-- must end it.
nests :: Property
nests = property $ \nest -> monadicIO $ do
  let wanted = model nest
  got <- Q.run . running (Config Epoll 1) $ case wanted of
    Hangs -> maybe Hangs (either (\(_ :: ErrorCall) -> Raised) Value) <$> timeout (nanoseconds 1) (try (perform nest))
    _ -> maybe Hangs (either (\(_ :: ErrorCall) -> Raised) Value) <$> timeout far (try (perform nest))
  Q.monitor (counterexample (show got))
  Q.monitor (classify (wanted == Hangs) "hangs")
  Q.assert (got == wanted)
  where
    perform :: Nest -> Thread [Int]
    perform = \case
      Ends n -> replicateM_ n yield >> pure [n]
      Never -> block
      Throws -> yield >> throwM (ErrorCall "nest")
      Within True n -> fromMaybe [-9] <$> timeout far (perform n)
      Within False n -> fromMaybe [-1] <$> timeout mempty (perform n)
      Then a b -> (<>) <$> perform a <*> perform b
      Catching n -> perform n `catch` \(_ :: ErrorCall) -> void yield >> pure [-2]
