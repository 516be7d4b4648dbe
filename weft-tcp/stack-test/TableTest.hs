-- |
-- Description : Tables against maps
module TableTest (tests) where

import Control.Concurrent (forkOn, getNumCapabilities, newEmptyMVar, putMVar, setNumCapabilities, takeMVar, tryReadMVar)
import Control.Exception (bracket_)
import Control.Monad (foldM_, forM, forM_, join, replicateM_, unless)
import Data.IORef
import Data.List (sort)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Tcp.Stack.Table (newTable)
import Weft.Tcp.Stack.Table qualified as Table

tests :: TestTree
tests =
  testGroup
    "tables"
    [ testProperty "a table holds what a map holds" likeMap,
      testCase "a look-up misses nothing while the table grows" divided,
      testCase "nor does a list" beside
    ]

-- | Of few keys, so that many are there, or of many, so that the table grows.
data Change = Insert Int Int | Delete Int
  deriving stock (Show)

changes :: Gen [Change]
changes = do
  keys <- elements [8, 1000]
  let key = choose (0, keys)
  resize 1000 (listOf (frequency [(3, Insert <$> key <*> arbitrary), (1, Delete <$> key)]))

keyOf :: Change -> Int
keyOf = \case
  Insert k _ -> k
  Delete k -> k

likeMap :: Property
likeMap = forAll ((,) <$> elements [1, 7, 0x9e3779b97f4a7c1] <*> changes) $ \(factor, made) -> ioProperty $ do
  -- The factor 7 leaves the lowest bits as they are; many keys have one hash if each is divided first.
  t <- newTable (\k -> pure (k `div` (if factor == 1 then 50 else 1) * factor `mod` 0x7fffffffffffffff)) fst
  wrong <- newIORef []
  let change m c = do
        m' <- case c of
          Insert k v -> Map.insert k v m <$ Table.insert t (k, v)
          Delete k -> Map.delete k m <$ Table.delete t k
        let k = keyOf c
        found <- Table.lookup t k
        n <- Table.size t
        if fmap snd found == Map.lookup k m' && n == Map.size m' then pure () else modifyIORef' wrong ((k, n) :)
        pure m'
  foldM_ change Map.empty made
  let final = foldl (\m -> \case Insert k v -> Map.insert k v m; Delete k -> Map.delete k m) Map.empty made
  there <- Table.toList t
  looked <- mapM (Table.lookup t) [0 .. 1000]
  bad <- readIORef wrong
  pure . counterexample (show bad) . checkCoverage . cover 20 (Map.size final > 64) "grows" $
    null bad && sort there == Map.toList final && catMaybes looked == Map.toList final

-- | The table grows between the moments when a look-up reads the number of buckets and a bucket: the hash is taken in
-- between.
divided :: Assertion
divided = do
  missed <- forM [(n, k) | n <- [1 .. 50], k <- [1 .. n]] $ \(n, k) -> do
    meanwhile <- newIORef (pure ())
    t <- newTable (\key -> key <$ join (atomicModifyIORef' meanwhile (pure (),))) id
    forM_ [1 .. n] (Table.insert t)
    writeIORef meanwhile (forM_ [n + 1 .. n + 30] (Table.insert t))
    found <- Table.lookup t k
    pure [(n, k) | found /= Just k]
  concat missed @?= []

-- | A list has all records that were entered before, while another OS thread enters more.
beside :: Assertion
beside = do
  before <- getNumCapabilities
  missed <- newIORef []
  bracket_ (setNumCapabilities 2) (setNumCapabilities before) . replicateM_ 30 $ do
    t <- newTable (\k -> pure (k * 0x9e3779b97f4a7c1 `mod` 0x7fffffffffffffff)) id
    entered <- newIORef (0 :: Int)
    written <- newEmptyMVar
    done <- newEmptyMVar
    _ <- forkOn 1 $ do
      forM_ [1 .. 5000] $ \k -> Table.insert t k >> atomicWriteIORef entered k
      putMVar written ()
    let look = do
          n <- readIORef entered
          there <- length . filter (<= n) <$> Table.toList t
          unless (there >= n) (modifyIORef' missed (n - there :))
          over <- tryReadMVar written
          maybe look (putMVar done) over
    _ <- forkOn 0 look
    takeMVar done
  readIORef missed >>= (@?= [])
