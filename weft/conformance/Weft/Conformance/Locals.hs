-- |
-- Description : State of a thread
--
-- Keys, defaults, inheritance, restoring, and a random program of several threads
-- against a model that keeps a map for each.
module Weft.Conformance.Locals (locals) where

import Control.Exception (ErrorCall (..))
import Control.Monad (forM, replicateM_)
import Data.IORef
import Data.Map.Strict qualified as Map
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Local

-- | Values that belong to a thread.
locals :: World -> TestTree
locals world =
  testGroup
    "local state"
    [ testCase "a default, a value, and values of several types side by side" . running world $ do
        n <- newLocal (1 :: Int)
        s <- newInheritedLocal "default"
        setLocal n 2
        modifyLocal n (* 21)
        setLocal s "set"
        getLocal n >>= (`is` 42)
        getLocal s >>= (`is` "set"),
      testCase "children inherit where asked, as it was when they were forked" . running world $ do
        own <- newLocal 'd'
        inherited <- newInheritedLocal 'd'
        setLocal own 'p'
        setLocal inherited 'p'
        inChild <- spawnOn (Just 1) $ do
          before <- (,) <$> getLocal own <*> getLocal inherited
          setLocal inherited 'c'
          grandchild <- spawn (getLocal inherited)
          (before,) <$> grandchild
        setLocal inherited 'q'
        inChild >>= (`is` (('d', 'p'), 'c'))
        getLocal inherited >>= (`is` 'q')
        anonymous <- newGate
        fork_ ((,) <$> getLocal own <*> getLocal inherited >>= openGate anonymous)
        waitGate anonymous >>= (`is` ('d', 'q')),
      testCase "withLocal restores, also after an exception and a cancellation, and where there was none" . running world $ do
        k <- newInheritedLocal (0 :: Int)
        withLocal k 1 (withLocal k 2 (getLocal k) >>= (`is` 2) >> getLocal k >>= (`is` 1))
        getLocal k >>= (`is` 0)
        r <- try (withLocal k 3 (throwM (ErrorCall "x")))
        r `is` (Left (ErrorCall "x") :: Either ErrorCall ())
        getLocal k >>= (`is` 0)
        me <- myThreadId
        c <- try (withLocal k 4 (cancel me >> yield >> yield))
        c `is` Left Cancelled
        getLocal k >>= (`is` 0)
        fork' <- spawn (getLocal k)
        fork' >>= (`is` 0),
      testCase "a value is evaluated when it is set, as the thread's own code" . running world $ do
        k <- newLocal 'x'
        r <- try (setLocal k (error "bottom"))
        either (\(ErrorCall m) -> m `is` "bottom") (\() -> liftIO (assertFailure "not raised")) r
        getLocal k >>= (`is` 'x'),
      testCase "it goes along when the thread moves" . running world $ do
        k <- newLocal (0 :: Int)
        waits <- forM [1 .. 2000] $ \i -> spawn (setLocal k i >> replicateM_ 5 yield >> (== i) <$> getLocal k)
        ok <- sequence waits
        and ok `is` True,
      testProperty "random programs against a map for each thread" (programs world)
    ]

-- | Keys 0 to 2 are inherited, 3 to 5 are not.
data Step = Set Int Int | Get Int | With Int Int [Step] | Forks [Step] | Yields
  deriving stock (Show)

instance Arbitrary Step where
  arbitrary = sized step
    where
      step n = frequency $ [(3, Set <$> key <*> choose (1, 9)), (4, Get <$> key), (2, pure Yields)] <> [x | n > 1, x <- [(2, With <$> key <*> choose (1, 9) <*> some' n), (2, Forks <$> some' n)]]
      some' n = resize (n `div` 3) (listOf (step (n `div` 3)))
      key = choose (0, 5)
  shrink = \case
    With k v s -> s <> (With k v <$> shrink s)
    Forks s -> s <> (Forks <$> shrink s)
    _ -> []

-- | The values that each thread reads, in its order; threads are named by their path.
programs :: World -> Property
programs world = property $ \steps -> monadicIO $ do
  got <- Q.run $ do
    reads' <- newIORef Map.empty
    running world $ do
      inherited <- mapM (\_ -> newInheritedLocal (0 :: Int)) [0 .. 2 :: Int]
      own <- mapM (\_ -> newLocal 0) [3 .. 5 :: Int]
      perform reads' (inherited <> own) [] steps
    readIORef reads'
  Q.assert (got == reference steps)
  where
    -- A thread is named by the place of its fork in the program.
    perform :: IORef (Map.Map [Int] [Int]) -> [Local Int] -> [Int] -> [Step] -> Thread ()
    perform reads' keys me steps = go me (zip [0 ..] steps) >>= sequence_
      where
        go _ [] = pure []
        go place ((n, s) : rest) = case s of
          Set k v -> setLocal (keys !! k) v >> go place rest
          Get k -> do
            v <- getLocal (keys !! k)
            liftIO (atomicModifyIORef' reads' (\m -> (Map.insertWith (<>) me [v] m, ())))
            go place rest
          Yields -> yield >> go place rest
          With k v body -> (<>) <$> withLocal (keys !! k) v (go (n : place) (zip [0 ..] body)) <*> go place rest
          Forks body -> (:) <$> spawn (perform reads' keys (n : place) body) <*> go place rest

    -- The values read, newest first.
    reference :: [Step] -> Map.Map [Int] [Int]
    reference = thread [] (Map.fromList [(k, 0) | k <- [0 .. 5]])
    thread me start steps = snd (go me start Map.empty (zip [0 ..] steps))
      where
        go :: [Int] -> Map.Map Int Int -> Map.Map [Int] [Int] -> [(Int, Step)] -> (Map.Map Int Int, Map.Map [Int] [Int])
        go _ env seen [] = (env, seen)
        go place env seen ((n, s) : rest) = case s of
          Set k v -> go place (Map.insert k v env) seen rest
          Get k -> go place env (Map.insertWith (<>) me [env Map.! k] seen) rest
          Yields -> go place env seen rest
          With k v body ->
            let (inside, seen') = go (n : place) (Map.insert k v env) seen (zip [0 ..] body)
             in go place (Map.insert k (env Map.! k) inside) seen' rest
          Forks body -> go place env (Map.union seen (thread (n : place) (Map.mapWithKey (\k v -> if k < 3 then v else 0) env) body)) rest
