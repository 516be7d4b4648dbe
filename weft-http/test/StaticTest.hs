-- | The cache of files, against a model and by its promises.
module StaticTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.List (sort)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes)
import Test.QuickCheck.Monadic
import Test.Tasty
import Test.Tasty.HUnit hiding (assert)
import Test.Tasty.QuickCheck
import Weft.Http.Internal.Hash
import Weft.Http.Static.Cache

tests :: TestTree
tests =
  testGroup
    "cache of files"
    [ testProperty "never holds more than its bound, and only what was put last" model,
      testProperty "with room for all it forgets nothing" roomForAll,
      testCase "what was used since it was last considered is spared once" secondChance,
      testCase "an entry that has left the cache is not used any more" left,
      testCase "a value larger than the cache is not kept, nor the one it replaces" tooLarge,
      testCase "a cache of no bytes keeps nothing" noBytes,
      testCase "without room, what is asked for the second time is worth keeping" secondTime,
      testCase "a sweep lets go of the descriptors that were not used since the last one" sweep,
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

-- | A lookup finds the value that was put there last; it may have been thrown out, but a value that
-- was deleted does not come back.
-- The cache hands each value that it lets go back, once: so that values with descriptors are closed.
model :: [Step] -> Property
model steps = monadicIO $ do
  let limit = 3000
  cache <- run (newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) limit 3)
  (_, lost, back) <- foldM (step limit cache) (Map.empty, 0 :: Int, []) (zip steps [0 :: Int ..])
  halved <- run (reduceFiles cache (`div` 2))
  rest <- run (catMaybes <$> mapM (lookupCache cache . name) [0 .. 11])
  monitor (cover 20 (lost > 0) "something was thrown out")
  monitor (cover 20 (not (null halved)) "descriptors were given up")
  assert (sort (rest <> halved <> back) == [stamp | (Insert _ _, stamp) <- zip steps [0 ..]])
  where
    step limit cache (known, lost, back) (s, stamp) = do
      (known', lost', gone) <- case s of
        Insert k size -> do
          gone <- run (insertCache cache (name k) (share size) stamp)
          pure (Map.insert k stamp known, lost, gone)
        Delete k -> do
          gone <- run (deleteCache cache (name k))
          pure (Map.delete k known, lost, gone)
        Look k ->
          run (lookupCache cache (name k)) >>= \case
            Nothing -> pure (known, if Map.member k known then lost + 1 else lost, [])
            found -> assert (found == Map.lookup k known) >> pure (known, lost, [])
      held <- run (cacheBytes cache)
      files <- run (cacheFiles cache)
      count <- run (cacheCount cache)
      assert (held >= 0 && held <= limit)
      assert (files >= 0 && files <= 3 && files <= count)
      assert ((held == 0) == (count == files))
      pure (known', lost', gone <> back)

-- | Some keep a descriptor.
share :: Int -> Share
share size = if even size then InMemory size else OpenFile

roomForAll :: [Step] -> Property
roomForAll steps = monadicIO $ do
  cache <- run (newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 1_000_000 100)
  known <- foldM (step cache) Map.empty (zip steps [0 :: Int ..])
  count <- run (cacheCount cache)
  assert (count == Map.size known)
  forM_ (Map.toList known) $ \(k, v) -> run (lookupCache cache (name k)) >>= assert . (== Just v)
  where
    step cache known (s, stamp) = case s of
      Insert k size -> Map.insert k stamp known <$ run (insertCache cache (name k) (share size) stamp)
      Delete k -> Map.delete k known <$ run (deleteCache cache (name k))
      Look k -> known <$ run (lookupCache cache (name k))

-- | Room for three: of three, the used one is spared, the oldest unused one goes.
secondChance :: Assertion
secondChance = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 3700 0
  forM_ [1, 2, 3] $ \k -> insertCache cache (name k) (InMemory 1000) k
  _ <- lookupCache cache (name 1)
  _ <- insertCache cache (name 4) (InMemory 1000) 4
  present cache >>= (@?= [1, 3, 4])
  where
    present cache = filterM (fmap (/= Nothing) . lookupCache cache . name) [1, 2, 3, 4 :: Int]

-- | Each entry is found while it is there, and leaves in another way.
left :: Assertion
left = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 2400 2
  let put k kind = insertCache cache (name k) kind k >> findCache cache (name k)
      inMemory k = put k (InMemory 1000)
  entries <-
    sequence
      [ inMemory 1 <* deleteCache cache (name 1),
        inMemory 2 <* inMemory 2,
        -- Now the second one that was put is evicted.
        findCache cache (name 2) <* inMemory 3 <* inMemory 4,
        put 5 OpenFile <* reduceFiles cache (const 0),
        put 6 OpenFile <* sweepFiles cache,
        findCache cache (name 4)
      ]
  mapM (maybe (assertFailure "not found") spare) entries >>= (@?= [False, False, False, False, False, True])

tooLarge :: Assertion
tooLarge = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 2000 0
  insertCache cache "/a" (InMemory 10) 'x' >>= (@?= "")
  insertCache cache "/a" (InMemory 5000) 'y' >>= (@?= "xy")
  lookupCache cache "/a" >>= (@?= Nothing)
  cacheBytes cache >>= (@?= 0)

noBytes :: Assertion
noBytes = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 0 0
  insertCache cache "/a" (InMemory 0) 'x' >>= (@?= "x")
  lookupCache cache "/a" >>= (@?= Nothing)

-- | Each kind has room of its own.
secondTime :: Assertion
secondTime = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 2500 1
  let worth kind k = worthKeeping cache kind (name k)
      small = InMemory 1000
  worth small 1 >>= (@?= True)
  worth small 1 >>= (@?= True)
  forM_ [1, 2] $ \k -> insertCache cache (name k) small k
  mapM (worth small) [3, 4, 3, 4 :: Int] >>= (@?= [False, False, True, True])
  worth OpenFile 5 >>= (@?= True)
  _ <- insertCache cache (name 5) OpenFile 5
  mapM (worth OpenFile) [6, 6] >>= (@?= [False, True])
  mapM (worth (InMemory 5000)) [7, 7] >>= (@?= [False, False])

sweep :: Assertion
sweep = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 100_000 10
  forM_ [1, 2, 3] $ \k -> insertCache cache (name k) OpenFile k
  _ <- insertCache cache (name 4) (InMemory 10) 4
  _ <- deleteCache cache (name 3) >> insertCache cache (name 3) OpenFile 5
  mapM_ (lookupCache cache . name) [1, 3]
  sweepFiles cache >>= (@?= [2])
  _ <- lookupCache cache (name 3)
  sweepFiles cache >>= (@?= [1])
  cacheFiles cache >>= (@?= 1)
  sweepFiles cache >>= (@?= [5])
  sweepFiles cache >>= (@?= [])
  lookupCache cache (name 4) >>= (@?= Just 4)

churn :: Assertion
churn = do
  cache <- newCache (Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9) 100_000 0
  forM_ [1 .. 20_000 :: Int] $ \n -> insertCache cache (name (n `mod` 7)) (InMemory 10) n
  cacheCount cache >>= (@?= 7)
  gone <- concat <$> forM [0 .. 6] (deleteCache cache . name)
  length gone @?= 7
  cacheBytes cache >>= (@?= 0)
