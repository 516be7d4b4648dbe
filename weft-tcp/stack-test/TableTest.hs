-- |
-- Description : Tables against maps
module TableTest (tests) where

import Control.Monad (foldM_)
import Data.IORef
import Data.List (sort)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes)
import Test.Tasty
import Test.Tasty.QuickCheck
import Weft.Tcp.Stack.Table (newTable)
import Weft.Tcp.Stack.Table qualified as Table

tests :: TestTree
tests = testGroup "tables" [testProperty "a table holds what a map holds" likeMap]

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
