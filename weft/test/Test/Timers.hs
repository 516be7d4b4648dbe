-- |
-- Description : The timer queue against a map
module Test.Timers (tests) where

import Control.Monad (foldM, forM, forM_, replicateM_, unless)
import Data.IORef (modifyIORef', newIORef, readIORef, writeIORef)
import Data.Int (Int64)
import Data.List (sort)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import System.Mem (getAllocationCounter)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck
import Weft.Internal.Data.Timers (TimerKey, Timers)
import Weft.Internal.Data.Timers qualified as Timers

tests :: TestTree
tests =
  testGroup
    "Timers"
    [ testProperty "behaves as a map from deadline and age" propModel,
      testProperty "fires in order, and equals in the order they were set" propOrder,
      testProperty "no more fire than are asked for" propAtMost,
      testProperty "an action may set timers that are due, and is not called for ever" propReentrant,
      testCase "cancelled timers take no memory for long" unitCancelled,
      testCase "a million timers: order, memory, and memory given back" unitMillion,
      testCase "setting and cancelling allocates little" unitAllocation
    ]

data Command
  = -- | Deadlines come from few values, so that many are equal.
    Insert Int64
  | -- | Among all keys ever given.
    Cancel Int
  | PopUntil Int64
  | Next
  | -- | Insert this number and cancel all but every n-th of all pending.
    Burst Int Int
  deriving stock (Show)

instance Arbitrary Command where
  arbitrary =
    frequency
      [ (10, Insert <$> deadline),
        (6, Cancel <$> choose (0, 10000)),
        (2, PopUntil <$> deadline),
        (2, pure Next),
        (1, Burst <$> choose (1, 1500) <*> choose (1, 20))
      ]
    where
      deadline = frequency [(4, choose (-3, 20)), (1, choose (0, 1000000)), (1, elements [minBound, maxBound])]
  shrink = \case
    Burst n k -> Insert 0 : [Burst n' k | n' <- shrink n, n' > 0]
    _ -> []

-- | Pending timers by deadline and number, and all keys ever given with theirs.
data State = State
  { model :: !(Map (Int64, Int) ()),
    given :: !(Map Int (Int64, TimerKey))
  }

propModel :: [Command] -> Property
propModel commands = ioProperty $ do
  t <- Timers.new
  final <- foldM (step t) (State Map.empty Map.empty) commands
  n <- Timers.size t
  dump <- Timers.foldM (\acc d i -> pure ((d, i) : acc)) [] t
  rest <- newIORef []
  fired <- Timers.popExpired t maxBound (\i -> modifyIORef' rest (i :))
  order <- reverse <$> readIORef rest
  let expected = Map.keys (model final)
  pure $
    cover 30 (length [() | Cancel _ <- commands] > 5) "cancels" $
      cover 20 (or [True | Burst {} <- commands]) "has a burst" $
        n
          === length expected
          .&&. sort dump
            === expected
          .&&. order
            === map snd expected
          .&&. fired
            === length expected

step :: Timers Int -> State -> Command -> IO State
step t st = \case
  Insert d -> insertOne st d
  Cancel i
    | Map.null (given st) -> pure st
    | otherwise -> cancelOne st (i `mod` Map.size (given st))
  PopUntil now -> do
    fired <- newIORef []
    n <- Timers.popExpired t now (\i -> modifyIORef' fired (i :))
    order <- reverse <$> readIORef fired
    let (due, later) = Map.spanAntitone ((<= now) . fst) (model st)
    check (order == map snd (Map.keys due) && n == length order) "popExpired"
    pure st {model = later}
  Next -> do
    d <- Timers.nextDeadline t
    check (d == maybe Timers.never (fst . fst) (Map.lookupMin (model st))) "nextDeadline"
    pure st
  Burst n keep -> do
    st' <- foldM insertOne st [fromIntegral (i * 7919 `mod` 1000) | i <- [1 .. n]]
    let doomed = [i | (j, (_, i)) <- zip [0 :: Int ..] (Map.keys (model st')), j `mod` keep /= 0]
    foldM cancelOne st' doomed
  where
    insertOne (State m ks) d = do
      let i = Map.size ks
      key <- Timers.insert t d i
      pure (State (Map.insert (d, i) () m) (Map.insert i (d, key) ks))
    cancelOne s i = case Map.lookup i (given s) of
      Nothing -> pure s
      Just (d, key) -> do
        ok <- Timers.cancel t key
        check (ok == isJust (Map.lookup (d, i) (model s))) "cancel"
        pure s {model = Map.delete (d, i) (model s)}
    check ok what = unless ok (fail ("Timers disagrees with the model: " <> what))

propOrder :: [Small Int] -> Property
propOrder ds = ioProperty $ do
  t <- Timers.new
  forM_ (zip [0 :: Int ..] ds) $ \(i, Small d) -> Timers.insert t (fromIntegral d) (d, i)
  fired <- newIORef []
  _ <- Timers.popExpired t maxBound (\x -> modifyIORef' fired (x :))
  order <- reverse <$> readIORef fired
  pure (order === sort [(d, i) | (i, Small d) <- zip [0 ..] ds])

-- No more fire than are asked for, and those that are due first.
propAtMost :: NonNegative Int -> [Small Int] -> Property
propAtMost (NonNegative most) ds = ioProperty $ do
  t <- Timers.new
  forM_ ds $ \(Small d) -> Timers.insert t (fromIntegral d) d
  fired <- newIORef []
  n <- Timers.popAtMost most t 0 (\d -> modifyIORef' fired (d :))
  order <- reverse <$> readIORef fired
  left <- Timers.size t
  let due = sort [d | Small d <- ds, d <= 0]
  pure (cover 10 (length due > most) "more are due" (order === take most due .&&. n === length order .&&. left === length ds - n))

-- Each timer sets another that is due at once: one call fires as many as were
-- pending when it began, the earliest first.
propReentrant :: NonEmptyList Int64 -> Property
propReentrant (NonEmpty ds) = ioProperty $ do
  t <- Timers.new
  forM_ ds $ \d -> Timers.insert t (d `div` 2) ()
  calls <- newIORef (0 :: Int)
  let act () = modifyIORef' calls (+ 1) <* Timers.insert t 0 ()
  n <- Timers.popExpired t maxBound act
  left <- Timers.size t
  count <- readIORef calls
  pure (n === length ds .&&. count === length ds .&&. left === length ds)

-- The common life of a time limit: set, and cancelled long before it is due.
unitCancelled :: IO ()
unitCancelled = do
  t <- Timers.new
  forM_ [1 .. 100000] $ \d -> do
    k <- Timers.insert t (1000000 + d) ()
    Timers.cancel t k
  bytes <- Timers.heapBytes t
  assertBool ("an empty queue of " <> show bytes <> " bytes") (bytes < 20000)
  Timers.nextDeadline t >>= (@?= Timers.never)

unitMillion :: IO ()
unitMillion = do
  t <- Timers.new
  -- A permutation of the numbers below a million.
  forM_ [0 .. n - 1] $ \i -> Timers.insert t (i * 7919 `mod` n) ()
  bytes <- Timers.heapBytes t
  assertBool (show bytes <> " bytes for a million") (bytes <= 45 * fromIntegral n)
  clock <- newIORef 0
  forM_ [99999, 199999 .. n - 1] $ \now -> do
    fired <- Timers.popExpired t now pure
    modifyIORef' clock (+ fired)
    next <- Timers.nextDeadline t
    next @?= if now == n - 1 then Timers.never else now + 1
  readIORef clock >>= (@?= fromIntegral n)
  left <- Timers.heapBytes t
  assertBool (show left <> " bytes when empty") (left < 100000)
  where
    n = 1000000 :: Int64

unitAllocation :: IO ()
unitAllocation = do
  t <- Timers.new
  keys <- forM [1 .. 1000] $ \d -> Timers.insert t d ()
  keep <- newIORef keys
  before <- getAllocationCounter
  replicateM_ 10000 $ do
    k <- Timers.insert t 2000 ()
    Timers.cancel t k
  after <- getAllocationCounter
  writeIORef keep []
  let each = (before - after) `div` 10000
  assertBool (show each <> " bytes for a timer that is set and cancelled") (each <= 200)
