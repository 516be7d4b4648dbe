{-# LANGUAGE UnliftedDatatypes #-}

-- |
-- Description : The registry of waiters, against a set
--
-- Random sequences of beginnings and ends, in which those that begin together end together
-- or not, compared after every step with what should last; and that what is over is
-- forgotten.
module Test.Registry (tests) where

import Control.Monad (foldM, forM_, replicateM, unless)
import Data.List (sort)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import GHC.Exts (UnliftedType)
import System.Mem (performMinorGC)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Test.Tasty.QuickCheck
import Weft.Internal.Data.Cell
import Weft.Internal.Data.Registry

tests :: TestTree
tests =
  testGroup
    "Registry"
    [ testProperty "lists what lasts, each once, and little else" propModel,
      testCase "a burst is forgotten when it is over" unitBurst
    ]

data Command
  = -- | The number that begin.
    Begin Int
  | -- | Of those that last, these end: every n-th, beginning with this one.
    End Int Int
  | -- | The number that begin and end at once.
    Pass Int
  | Collect
  deriving stock (Show)

instance Arbitrary Command where
  arbitrary =
    frequency
      [ (4, Begin <$> choose (1, 200)),
        (4, End <$> choose (0, 10) <*> choose (1, 10)),
        (2, Pass <$> choose (1, 200)),
        (1, pure Collect)
      ]
  shrink = \case
    Begin n -> Begin <$> filter (> 0) (shrink n)
    Pass n -> Pass <$> filter (> 0) (shrink n)
    _ -> []

-- | A number, or nothing any more.
type Content :: UnliftedType
data Content = Lasts Int | Over

lasts :: Content -> Bool
lasts = \case
  Lasts _ -> True
  Over -> False

-- | The entries that last, and the next number.
data State = State !(Map Int (Cell Content)) !Int

begin :: LiveRegistry Content -> State -> IO State
begin registry (State live n) = do
  var <- newCell (Lasts n)
  enter registry var (makeRoom lasts registry)
  pure (State (Map.insert n var live) (n + 1))

end :: LiveRegistry Content -> State -> Int -> IO State
end registry (State live n) k = do
  forM_ (Map.lookup k live) $ \var -> writeCell var Over >> leave registry (tidy lasts registry)
  pure (State (Map.delete k live) n)

perform :: LiveRegistry Content -> State -> Command -> IO State
perform registry state = \case
  Begin n -> foldM (\s _ -> begin registry s) state (replicate n ())
  End from by -> let State live _ = state in foldM (end registry) state [k | (i, k) <- zip [0 ..] (Map.keys live), i >= from, (i - from) `mod` by == 0]
  Pass n -> foldM (\s _ -> begin registry s >>= \s'@(State _ next) -> end registry s' (next - 1)) state (replicate n ())
  Collect -> state <$ performMinorGC

-- | The entries of the registry in its order, and their number.
contents :: LiveRegistry Content -> IO ([Int], Int)
contents = foldRegistry visit ([], 0)
  where
    visit (found, n) = \case
      Lasts k -> pure (k : found, n + 1)
      Over -> pure (found, n + 1)

propModel :: [Command] -> Property
propModel commands = ioProperty $ do
  registry <- newRegistry
  let check state@(State live next) = do
        (found, n) <- contents registry
        counted <- living registry
        changed <- changes registry
        pure $
          counterexample (show (Map.size live, n, counted)) $
            sort found === Map.keys live
              .&&. changed === 2 * next - Map.size live
              .&&. counted === Map.size live
              .&&. property (n <= 4 * Map.size live + 6 * 64)
              .&&. seq state True
      go (state, ok) command = do
        state' <- perform registry state command
        result <- check state'
        pure (state', ok .&&. result)
  (State live _, result) <- foldM go (State Map.empty 0, property True) commands
  pure (cover 20 (Map.size live > 200) "many last at the end" result)

unitBurst :: IO ()
unitBurst = do
  registry <- newRegistry
  vars <- replicateM 10_000 $ do
    var <- newCell (Lasts 0)
    var <$ enter registry var (makeRoom lasts registry)
  forM_ vars $ \var -> writeCell var Over >> leave registry (tidy lasts registry)
  (found, n) <- contents registry
  unless (n < 512) (n @?= 0)
  found @?= []
