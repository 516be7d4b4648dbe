-- | The cache of small files, against a model and by its promises.
module StaticTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Map.Strict qualified as Map
import Test.QuickCheck.Monadic
import Test.Tasty
import Test.Tasty.HUnit hiding (assert)
import Test.Tasty.QuickCheck
import Weft.Http.Static.Cache

tests :: TestTree
tests =
  testGroup
    "cache of files"
    [ testProperty "never holds more than its bound, and only what was put last" model,
      testProperty "with room for all it forgets nothing" roomForAll,
      testCase "what was used since it was last considered is spared once" secondChance,
      testCase "a value larger than the cache is not kept, nor the one it replaces" tooLarge,
      testCase "a cache of no bytes keeps nothing" noBytes,
      testCase "replacing and deleting for ever does not gather keys" churn
    ]

data Step = Insert Int Int | Delete Int | Look Int
  deriving stock (Show)

instance Arbitrary Step where
  arbitrary = frequency [(5, Insert <$> key <*> chooseInt (0, 1500)), (1, Delete <$> key), (4, Look <$> key)]
    where
      key = chooseInt (0, 11)

name :: Int -> ByteString
name n = C.pack ("/" <> show n)

-- | What is found is what was put there last; it may have been thrown out, but what
-- was deleted does not come back.
model :: [Step] -> Property
model steps = monadicIO $ do
  let limit = 3000
  cache <- run (newCache limit)
  (_, lost) <- foldM (step limit cache) (Map.empty, 0 :: Int) (zip steps [0 :: Int ..])
  monitor (cover 20 (lost > 0) "something was thrown out")
  where
    step limit cache (known, lost) (s, stamp) = do
      result <- case s of
        Insert k size -> do
          run (insertCache cache (name k) size stamp)
          pure (Map.insert k stamp known, lost)
        Delete k -> do
          run (deleteCache cache (name k))
          pure (Map.delete k known, lost)
        Look k ->
          run (lookupCache cache (name k)) >>= \case
            Nothing -> pure (known, if Map.member k known then lost + 1 else lost)
            found -> assert (found == Map.lookup k known) >> pure (known, lost)
      held <- run (cacheBytes cache)
      count <- run (cacheCount cache)
      assert (held >= 0 && held <= limit)
      assert ((held == 0) == (count == 0))
      pure result

roomForAll :: [Step] -> Property
roomForAll steps = monadicIO $ do
  cache <- run (newCache 1_000_000)
  known <- foldM (step cache) Map.empty (zip steps [0 :: Int ..])
  count <- run (cacheCount cache)
  assert (count == Map.size known)
  forM_ (Map.toList known) $ \(k, v) -> run (lookupCache cache (name k)) >>= assert . (== Just v)
  where
    step cache known (s, stamp) = case s of
      Insert k size -> Map.insert k stamp known <$ run (insertCache cache (name k) size stamp)
      Delete k -> Map.delete k known <$ run (deleteCache cache (name k))
      Look k -> known <$ run (lookupCache cache (name k))

-- | Room for three: of three, the used one is spared, the oldest unused one goes.
secondChance :: Assertion
secondChance = do
  cache <- newCache 3700
  forM_ [1, 2, 3] $ \k -> insertCache cache (name k) 1000 k
  _ <- lookupCache cache (name 1)
  insertCache cache (name 4) 1000 4
  present cache >>= (@?= [1, 3, 4])
  where
    present cache = filterM (fmap (/= Nothing) . lookupCache cache . name) [1, 2, 3, 4 :: Int]

tooLarge :: Assertion
tooLarge = do
  cache <- newCache 2000
  insertCache cache "/a" 10 'x'
  insertCache cache "/a" 5000 'y'
  lookupCache cache "/a" >>= (@?= Nothing)
  cacheBytes cache >>= (@?= 0)

noBytes :: Assertion
noBytes = do
  cache <- newCache 0
  insertCache cache "/a" 0 'x'
  lookupCache cache "/a" >>= (@?= Nothing)

churn :: Assertion
churn = do
  cache <- newCache 100_000
  forM_ [1 .. 20_000 :: Int] $ \n -> insertCache cache (name (n `mod` 7)) 10 n
  cacheCount cache >>= (@?= 7)
  forM_ [0 .. 6] $ \k -> deleteCache cache (name k)
  cacheBytes cache >>= (@?= 0)
