-- |
-- Description : Connections over bad links, and mistakes that are found
module WorldTest (tests) where

import Data.Either (rights)
import Data.List (isInfixOf)
import Data.Word (Word64)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import World
import World.Mistakes
import World.Plan
import World.Shrink

tests :: TestTree
tests =
  testGroup
    "worlds"
    [ testCase "two thousand end well" $
        assertBool (unlines (take 10 wrong)) (null wrong),
      testCase "also one in which two timers come at one moment" $
        either wrongWhat (const "") (runSeed noMistake 548523) @?= "",
      testCase "losses are repaired in them, and buffers grow" $ do
        let ended = rights (map (runSeed noMistake) [0 .. 39])
        assertBool "none lost" (sum (map outcomeLost ended) > 50)
        assertBool "none again" (sum (map outcomeAgain ended) > 50)
        assertBool "no buffer grows" (sum (map outcomeGrown (rights (map (runSeed noMistake) [40 .. 239]))) > 10),
      -- Worlds compare each with the step that is made in full.
      testCase "one step in twenty is predicted" $ do
        let ended = rights (map (runSeed noMistake) [0 .. 99])
            predictions = sum (map outcomePredicted ended)
        assertBool (show predictions <> " of " <> show (sum (map outcomeSegments ended))) (20 * predictions > sum (map outcomeSegments ended)),
      testGroup "mistakes are found" [testCase name (assertBool "not found" (or [what `isInfixOf` wrongWhat w | Left w <- map (runSeed m) [0 .. 300]])) | (m@(Mistake name _), what) <- mistakes],
      testCase "a failing world is made small" $ do
        let (plan, small) = case [shrunk lazy (drawPlan n) w | n <- [0 .. 300], Left w <- [runSeed lazy n]] of
              x : _ -> x
              [] -> error "not found"
        -- One packet that is lost is enough for it.
        length [() | Sent _ _ _ _ what <- wrongLog small, not (null what)] @?= 1
        (sideBytes (planA plan) + sideBytes (planB plan) <= 1) @?= True,
      testCase "and printed as a script" $ do
        let text = firstReport lazy
        drop 2 (lines text)
          @?= [ "// A world of two ends, shrunk; this is the end that connects, with 65535 bytes to receive in and segments of 1460.",
                "// --so_flags=reno,nosack,notimestamps,noscale,noecn,notlp",
                "+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3",
                "+0 setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0",
                "+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0",
                "+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)",
                "+0 > S 0:0(0) win 65535 <mss 1460>",
                "+0 shutdown(3, SHUT_WR) = 0"
              ],
      testCase "a script has both directions" $ do
        let text = firstReport forgetful
        mapM_ (\part -> assertBool (part <> " in\n" <> text) (part `isInfixOf` text)) [" > S", " < ", " ack 1 win "]
    ]
  where
    wrong = [report noMistake seed w | seed <- [0 .. 1999], Left w <- [runSeed noMistake seed]]
    lazy = named "nothing is sent again"
    forgetful = named "what comes before its turn is forgotten"
    named what = case [m | (m@(Mistake name _), _) <- mistakes, name == what] of
      m : _ -> m
      [] -> noMistake
    firstReport m = case [report m n w | n <- [0 .. 300], Left w <- [runSeed m n]] of
      x : _ -> x
      [] -> error "not found"

runSeed :: Mistake -> Word64 -> Either Wrong Outcome
runSeed mistake = runWorld mistake . drawPlan
