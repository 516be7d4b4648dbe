-- |
-- Description : Losses of a race, which a select does not have
--
-- The same program in two ways: a race of two receives loses a value in some
-- schedule, and the exploration finds one; a select loses none in any.
module Test.Select (tests) where

import Data.List (sort)
import Data.Maybe (isJust)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Channel
import Weft.Concurrently (race)
import Weft.Select
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "The first of several"
    [ testCase "a race of two receives loses a value" $ do
        explored <- exploring (\a b -> either id id <$> race (receive a) (receive b))
        assertBool "no schedule loses a value" (isJust (exploredFound explored)),
      testCase "a select over the same channels loses none, in any schedule" $ do
        explored <- exploring (\a b -> select [onReceive a, onReceive b])
        (exploredFailures explored, exploredAll explored) @?= (0, True)
    ]

-- | Two values are sent, one is received: is the other one left?
exploring :: (Channel Char -> Channel Char -> Thread (Maybe Char)) -> IO (Exploration String)
exploring first = exploreWith (Bounds 2 20_000 False) defaultConfig {configWorkers = 2} 0 id program verdict
  where
    program = do
      a <- newChannel 1
      b <- newChannel 1
      _ <- forkWith defaultForkOptions {forkWorker = Just 0} (send a 'a')
      _ <- forkWith defaultForkOptions {forkWorker = Just 1} (send b 'b')
      taken <- first a b
      sleep (seconds 1)
      left <- mapM tryReceive [a, b]
      pure (sort (maybe id (:) taken [c | Received c <- left]))
    verdict = flawlessAnd (\got -> if got == "ab" then Nothing else Just ("only " <> got))
