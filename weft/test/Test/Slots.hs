-- |
-- Description : The slot table against a map
--
-- Random sequences of insertions, removals, replacements and bursts, with keys
-- that went stale long ago, compared with "Data.Map" after every step.
module Test.Slots (tests) where

import Control.Monad (foldM, forM, forM_, replicateM_, unless, when)
import Data.IORef (IORef, modifyIORef', newIORef, readIORef)
import Data.List (sort)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Set qualified as Set
import System.Mem (performMinorGC)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck
import Weft.Internal.Data.Slots (SlotKey (..), Slots)
import Weft.Internal.Data.Slots qualified as Slots

tests :: TestTree
tests =
  testGroup
    "Slots"
    [ testProperty "behaves as a map from keys" propModel,
      testProperty "never gives a key twice, and orders them by age" propFresh,
      testCase "the slot freed last is used first" unitLifo,
      testCase "values survive collections between writes" unitCollections,
      testCase "memory is given back after a burst" unitShrinks
    ]

data Command
  = Insert Int
  | -- | These three choose among all keys ever given.
    Take Int
  | Replace Int Int
  | Lookup Int
  | -- | The number of insertions, then removal of all live keys but every n-th.
    Burst Int Int
  | Collect
  deriving stock (Show)

instance Arbitrary Command where
  arbitrary =
    frequency
      [ (8, Insert <$> arbitrary),
        (8, Take <$> choose (0, 10000)),
        (3, Replace <$> choose (0, 10000) <*> arbitrary),
        (3, Lookup <$> choose (0, 10000)),
        (1, Burst <$> choose (1, 3000) <*> choose (1, 100)),
        (1, pure Collect)
      ]
  shrink = \case
    Burst n k -> Insert 0 : [Burst n' k | n' <- shrink n, n' > 0]
    _ -> []

-- | The live entries, and all keys ever given.
data State = State !(Map Int Int) ![Int]

propModel :: [Command] -> Property
propModel commands = ioProperty $ do
  s <- Slots.new
  stale <- newIORef (0 :: Int)
  State live _ <- foldM (step stale s) (State Map.empty []) commands
  everything <- contents s
  n <- Slots.size s
  staleUses <- readIORef stale
  pure $
    cover 30 (staleUses > 0) "uses stale keys" $
      cover 20 (or [True | Burst {} <- commands]) "has a burst" $
        everything === Map.toList live .&&. n === Map.size live

contents :: Slots Int -> IO [(Int, Int)]
contents = fmap sort . Slots.foldM (\acc (SlotKey k) a -> pure ((k, a) : acc)) []

step :: IORef Int -> Slots Int -> State -> Command -> IO State
step stale s st@(State m keys) = \case
  Insert a -> insertOne st a
  Take i -> pick i st $ \k -> do
    when (k `Map.notMember` m) (modifyIORef' stale (+ 1))
    got <- Slots.take s (SlotKey k)
    check (got == Map.lookup k m) "take"
    pure (State (Map.delete k m) keys)
  Replace i a -> pick i st $ \k -> do
    ok <- Slots.replace s (SlotKey k) a
    check (ok == Map.member k m) "replace"
    pure (State (Map.adjust (const a) k m) keys)
  Lookup i -> pick i st $ \k -> do
    got <- Slots.lookup s (SlotKey k)
    live <- Slots.member s (SlotKey k)
    check (got == Map.lookup k m && live == Map.member k m) "lookup"
    pure st
  Burst n keep -> do
    State m' keys' <- foldM insertOne st [1 .. n]
    let doomed = [k | (i, k) <- zip [0 :: Int ..] (Map.keys m'), i `mod` keep /= 0]
    forM_ doomed $ \k -> do
      got <- Slots.take s (SlotKey k)
      check (got == Map.lookup k m') "take in a burst"
    pure (State (Map.withoutKeys m' (Set.fromList doomed)) keys')
  Collect -> st <$ performMinorGC
  where
    insertOne (State live ks) a = do
      SlotKey k <- Slots.insert s a
      check (k >= 0 && k `Map.notMember` live) "a live key given again"
      pure (State (Map.insert k a live) (k : ks))
    pick i st' act
      | null keys = pure st'
      | otherwise = act (keys !! (i `mod` length keys))
    check ok what = unless ok (fail ("Slots disagrees with the model: " <> what))

propFresh :: [Bool] -> Property
propFresh choices = ioProperty $ do
  s <- Slots.new
  let go keys [] = pure keys
      go keys (c : cs) = do
        k <- Slots.insert s ()
        _ <- if c then Slots.take s k else pure Nothing
        go (k : keys) cs
  keys <- reverse <$> go [] choices
  pure $
    conjoin (zipWith (\a b -> property (a `Slots.before` b && not (b `Slots.before` a))) keys (drop 1 keys))
      .&&. Set.size (Set.fromList (map keyNumber keys))
        === length keys

unitLifo :: IO ()
unitLifo = do
  s <- Slots.new
  keys <- forM [1 .. 5 :: Int] (Slots.insert s)
  let slotOf (SlotKey k) = k `mod` (2 ^ Slots.slotBits)
      freed = [keys !! i | i <- [1, 3, 0]]
  forM_ freed (Slots.take s)
  reused <- forM freed (const (Slots.insert s 0))
  map slotOf reused @?= reverse (map slotOf freed)

-- A frozen chunk that is written to must be scanned by the next collection:
-- fresh values in chunks that are old would dangle otherwise.
unitCollections :: IO ()
unitCollections = do
  s <- Slots.new
  let n = 5000 :: Int
  keys <- forM [1 .. n] (Slots.insert s . show)
  performMinorGC
  performMinorGC
  forM_ (zip [1 :: Int ..] keys) $ \(i, k) -> do
    _ <- Slots.replace s k (show (i * 7))
    when (i `mod` 500 == 0) performMinorGC
  performMinorGC
  forM_ (zip [1 :: Int ..] keys) $ \(i, k) -> do
    a <- Slots.lookup s k
    a @?= Just (show (i * 7))

unitShrinks :: IO ()
unitShrinks = do
  s <- Slots.new
  keys <- forM [1 .. 100000 :: Int] (Slots.insert s)
  full <- Slots.capacity s
  assertBool "room for what is in it, and a quarter" (full >= 100000 && full <= 126000)
  forM_ (drop 100 keys) (Slots.take s)
  -- The last to go was the highest, and after the last scan: later traffic has
  -- to bring the next one.
  replicateM_ 100000 (Slots.insert s 0 >>= Slots.take s)
  left <- Slots.capacity s
  assertBool ("still room for " <> show left) (left <= 2048)
  n <- Slots.size s
  n @?= 100
  kept <- forM (take 100 keys) (Slots.lookup s)
  kept @?= map Just [1 .. 100]
