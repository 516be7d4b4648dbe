-- |
-- Description : Connections over bad links, and mistakes that are found
module WorldTest (tests) where

import Data.Either (isLeft, rights)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase)
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Sequence
import World

tests :: TestTree
tests =
  testGroup
    "worlds"
    [ testCase "two hundred end well" $
        assertBool (unlines (take 10 wrong)) (null wrong),
      testCase "losses are repaired in them" $ do
        let ended = rights (map (runWorld noMistake) [0 .. 39])
        assertBool "none lost" (sum (map outcomeLost ended) > 50)
        assertBool "none again" (sum (map outcomeAgain ended) > 50),
      testGroup "mistakes are found" [testCase name (assertBool "not found" (any (isLeft . runWorld m) [0 .. 150])) | m@(Mistake name _) <- mistakes]
    ]
  where
    wrong = [show seed ++ ": " ++ m | seed <- [0 .. 199], Left m <- [runWorld noMistake seed]]

mistakes :: [Mistake]
mistakes =
  [ Mistake "no timer" (\t -> t {timerAt = never}),
    Mistake "a window that is withdrawn" (\t -> if distance (rcvRead t) (rcvNxt t) > 300 then t {rcvAdv = rcvNxt t} else t),
    Mistake "the peer's window ignored" (\t -> t {sndWnd = max 100000 (sndWnd t)}),
    Mistake "acknowledges a byte too many" (\t -> if distance (rcvRead t) (rcvNxt t) > 50 then t {rcvNxt = rcvNxt t `advance` 1} else t),
    Mistake "a FIN that is never sent" (\t -> if t `is` FinQueued then put FinSent True t else t),
    Mistake "counts a loss twice" (\t -> t {tcbScoreboard = (tcbScoreboard t) {boardLost = 2 * boardLost (tcbScoreboard t)}}),
    Mistake "forgets what was sent" (\t -> if boardLost (tcbScoreboard t) > 0 then t {tcbScoreboard = emptyScoreboard} else t),
    Mistake "takes all for arrived" (\t -> if flight t > 3000 then t {tcbScoreboard = fst (mark 0 0 1 (Range (sndUna t `advance` 1) (sndNxt t)) (tcbScoreboard t, nothingHeard))} else t),
    Mistake "no delayed acknowledgement" (\t -> t {ackAt = never}),
    Mistake "a timer that stands still" (\t -> if timerAt t == never then t else t {timerAt = 1000000})
  ]
