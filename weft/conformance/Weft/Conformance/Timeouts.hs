{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Time limits
--
-- 'timeout' in every way its part can end, and nests of time limits against
-- a model. No test waits for time to pass: a limit is either long past or far away.
module Weft.Conformance.Timeouts (timeouts) where

import Control.Exception (ErrorCall (..))
import Control.Monad (forM_, forever, replicateM_, void, when)
import Data.Maybe (fromMaybe)
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Mask
import Weft.Time (Instant, minutes, nanoseconds, now)
import Weft.Time qualified as Time
import Weft.Timeout

-- | Limits of time.
timeouts :: World -> TestTree
timeouts world =
  testGroup "timeout" [testGroup "limits" (limits world), testProperty "nests of time limits end as the model says" (nests world)]

far :: Duration
far = minutes 60

limits :: World -> [TestTree]
limits world =
  [ testCase "in time, and out of it" . running world $ do
      timeout far (yield >> pure 'x') >>= (`is` Just 'x')
      timeout (nanoseconds 1) (block :: Thread ()) >>= (`is` Nothing)
      timeout (milliseconds 1) (sleep far) >>= (`is` Nothing),
    testCase "zero and less: the part does not begin" . running world $ do
      (bump, count) <- newCounter
      timeout mempty bump >>= (`is` Nothing)
      timeout (seconds (-5)) bump >>= (`is` Nothing)
      t <- now
      timeoutAt t bump >>= (`is` Nothing)
      count >>= (`is` 0),
    testCase "finalizers run, and an exception of the part is raised as it was" . running world $ do
      (bump, count) <- newCounter
      timeout (nanoseconds 1) (block `finally` (yield >> bump) :: Thread ()) >>= (`is` Nothing)
      count >>= (`is` 1)
      r <- try (timeout far (throwM (ErrorCall "x") :: Thread ()))
      r `is` Left (ErrorCall "x"),
    testCase "an inner limit does not swallow an outer one" . running world $ do
      timeout (nanoseconds 1) (timeout far (block :: Thread ())) >>= (`is` Nothing)
      timeout far (timeout (nanoseconds 1) (block :: Thread ())) >>= (`is` Just Nothing)
      timeout (nanoseconds 1) (forever (timeout far (block :: Thread ()))) >>= (`is` (Nothing :: Maybe ())),
    testCase "equal deadlines: the outer ends it, or the inner and then perhaps the outer" . running world . replicateM_ 50 $ do
      t <- deadline (nanoseconds 20_000)
      r <- timeoutAt t (timeoutAt t (block :: Thread ()))
      liftIO (assertBool (show r) (r `elem` [Nothing, Just Nothing]))
      -- Nothing of either is left.
      replicateM_ 5 yield,
    testCase "a limit of a part that has ended hits nothing later" . running world $ do
      -- The limits come while the parts end: before, in and after.
      forM_ [0 .. 300 :: Int] $ \i -> do
        r <- timeout (nanoseconds (1 + i * 100)) (replicateM_ (i `mod` 7) yield >> pure i)
        liftIO (assertBool (show r) (r `elem` [Nothing, Just i]))
        mask_ (replicateM_ 2 yield)
        yield,
    testCase "masked: interrupted only where it waits; uninterruptible: not" . running world $ do
      (bump, count) <- newCounter
      let spin t = now >>= \n -> when (n < t && worldTimePasses world) (yield >> spin t)
      r <- timeout (nanoseconds 1) (mask_ (afterNow (milliseconds 2) >>= spin >> bump >> (block :: Thread ())))
      r `is` Nothing
      count >>= (`is` 1)
      u <- timeout (nanoseconds 1) (uninterruptibleMask_ (sleep (milliseconds 2) >> bump >> pure 'u'))
      u `is` Just 'u'
      count >>= (`is` 2)
      i <- timeout (nanoseconds 1) (mask_ (interruptible (block :: Thread ())))
      i `is` Nothing,
    testCase "allowInterrupt raises in a masked region and not in an uninterruptible one" . running world $ do
      me <- myThreadId
      let hit = cancel me >> yield
      r <- try (mask_ (hit >> liftIO (pure ()) >> allowInterrupt))
      r `is` Left Cancelled
      r' <- try (uninterruptibleMask_ (hit >> allowInterrupt >> getMaskingState) >>= \s -> s <$ liftIO (pure ()))
      r' `is` (Right MaskedUninterruptible :: Either Cancelled MaskingState)
      late <- try yield
      late `is` Left Cancelled,
    testCase "one deadline for several steps" . running world $ do
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

-- | How it ends: a value, an exception, or never (unless it is interrupted).
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
nests :: World -> Property
nests world = property $ \nest -> monadicIO $ do
  let wanted = model nest
  got <- Q.run . running world $ case wanted of
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
