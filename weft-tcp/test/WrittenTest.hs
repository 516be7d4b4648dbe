-- |
-- Description : Connections that are written and read again
--
-- A connection does the same after it was written and read. Bytes that no connection is written as are refused, and
-- those that one could be written as make one that behaves.
module WrittenTest (tests) where

import Data.Bits (shiftL, xor)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Data.List qualified as List
import Data.Maybe (isNothing, mapMaybe)
import Data.Word (Word64)
import HostileTest (Move (..), Run (..), begin, move, opening)
import Properties (atLeast)
import SmallTest (opened, waiting)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Form
import Weft.Tcp.Internal.Reassembly
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Small
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.Written
import Weft.Tcp.Sequence
import World
import World.Mistakes
import World.Plan

tests :: TestTree
tests =
  testGroup
    "connections as bytes"
    [ testCase "written and read after each step, worlds go as before" $
        [seed | seed <- [0 .. 399 :: Word64], told (runWorld rewritten (drawPlan seed)) /= told (runWorld noMistake (drawPlan seed))] @?= [],
      testCase "one that is read wrongly is noticed" $
        assertBool "not noticed" (or [told (runWorld m (drawPlan seed)) /= told (runWorld noMistake (drawPlan seed)) | seed <- [0 .. 40 :: Word64]]),
      atLeast 300 . testProperty "moved in time it does the same, later" $ \state (Positive ms) (moves :: [Move]) ->
        flip onStates state $ \r ->
          let d = 1000 * fromIntegral (ms :: Int) :: Int64
              one = List.foldl' move r moves
              two = List.foldl' move r {runNow = runNow r + d, runTcb = moved d (reread (runTcb r))} moves
           in runSteps one === runSteps two,
      atLeast 300 . testProperty "no part of one is one" $ \state (Large n) -> flip onStates state $ \r ->
        let whole = written tcbForm (runTcb r)
         in isNothing (readWith tcbForm (B.take (n `mod` B.length whole) whole)) && isNothing (readWith tcbForm (whole <> B.singleton 0)),
      atLeast 2000 . testProperty "with a bit changed it is refused, or behaves" $ \state (Large place) (moves :: [Move]) -> flip onStates state $ \r ->
        let whole = written tcbForm (runTcb r)
            n = place `mod` (8 * B.length whole)
            (front, back) = B.splitAt (n `div` 8) whole
            changed = front <> B.singleton (B.head back `xor` (1 `shiftL` (n `mod` 8))) <> B.tail back
            -- As a stack does: the bytes to send come with it.
            accepts t = timely (runNow r) t && bytesToSend t == bytesToSend (runTcb r)
         in case readWith tcbForm changed of
              Just t | accepts t -> label "read" (conjoin [written tcbForm t === changed, behaves r {runTcb = readFor (tcbSettings (runTcb r)) 0 t} moves])
              _ -> label "refused" (property True),
      testCase "twenty thousand segments of a byte are outstanding" $ do
        let Run {runTcb = t, runNow = at} = move (begin True True) (opening True)
            pieces = List.foldl' (\b (n, sent) -> sentNew sent (Range (sndUna t `advance` (n - 1)) (sndUna t `advance` n)) b) emptyScoreboard (zip [1 .. 20000] [at ..])
            busy = t {sndNxt = sndUna t `advance` 20000, sndEnd = sndUna t `advance` 20000, tcbScoreboard = pieces, timerAt = at + 1000000}
        (tcbState t, length (boardPieces pieces)) @?= (Established, 20000)
        fmap (written tcbForm) (readWith tcbForm (written tcbForm busy)) @?= Just (written tcbForm busy)
        -- As many as there are bytes, and not more.
        assertBool "a piece beyond the last byte" (isNothing (readWith tcbForm (written tcbForm busy {sndNxt = sndUna t `advance` 19999})))
        assertBool "fewer bytes than it says" (bytesToSend busy == 20000),
      testCase "half-open and in TIME-WAIT" $ do
        let halves = mapMaybe halfOpenOf opened
            waits = mapMaybe waitingOf waiting
        (length halves, length waits) @?= (16, 32)
        sequence_ [fmap (written tcbForm . fromHalfOpen) (readWith halfOpenForm (written halfOpenForm h)) @?= Just (written tcbForm (fromHalfOpen h)) | h <- halves]
        -- Some of what 'fromWaiting' makes comes from the settings.
        sequence_ [fmap (written waitingForm) (readWith waitingForm (written waitingForm w)) @?= Just (written waitingForm w) | w <- waits]
        sequence_ [assertBool "part" (isNothing (readWith waitingForm (B.init (written waitingForm w)))) | w <- take 20 waits]
        sequence_ [laterBy 5000 (fromHalfOpen h) (fromHalfOpen (movedHalfOpen (tcbSettings (fromHalfOpen h)) 5000 h)) | h <- halves]
        sequence_ [laterBy 5000 (fromWaiting w) (fromWaiting (movedWaiting (tcbSettings (fromWaiting w)) 5000 w)) | w <- waits]
    ]
  where
    m = head' [x | (x@(Mistake "no delayed acknowledgement" _), _) <- mistakes]
    head' = \case
      x : _ -> x
      [] -> noMistake

-- | The second does what the first does, and not before it is due.
laterBy :: Int64 -> Tcb -> Tcb -> IO ()
laterBy d t delayed = do
  assertBool "it waits for something" (deadline t /= never)
  deadline delayed @?= deadline t + d
  said (step (deadline t + d - 1) Due delayed) @?= ([], [])
  said (step (deadline t + d) Due delayed) @?= said (step (deadline t) Due t)
  where
    said s = (stepSegments s, stepAnswers s)

-- | It keeps what all connections keep, during these moves and while time passes afterwards until nothing is left to
-- do. It says no more than it has bytes and moves to say it for.
behaves :: Run -> [Move] -> Property
behaves r moves = counterexample (show (map (length . fst) (runSteps done))) (conjoin [runWrong done === [], counterexample "a flood" (all (\(segments, _) -> length segments <= most) (runSteps done))])
  where
    done = passing (400 :: Int) (List.foldl' move r moves)
    most = 20 + fromIntegral (bytesToSend (runTcb r) + flight (runTcb r) + 30000 * fromIntegral (length moves)) `div` 16
    passing n x
      | n == 0 || at == never = x
      | otherwise = passing (n - 1) (move x (Passes (fromIntegral (max 0 (at - runNow x)))))
      where
        at = deadline (runTcb x)

-- | After each step the connection is what is read of what is written of it.
rewritten :: Mistake
rewritten = Mistake "rewritten" (\_ s -> s {stepTcb = reread (stepTcb s)})

reread :: Tcb -> Tcb
reread t
  | tcbState t == Closed = t
  | otherwise = maybe (error "a connection that was written is refused") (readFor (tcbSettings t) 0) (readWith tcbForm (written tcbForm t))

told :: Either Wrong Outcome -> String
told = either (\w -> wrongWhat w <> show (length (wrongLog w))) show

-- | A connection and the time there, with what led to it.
data Past = Past Bool Bool [Move]
  deriving stock (Show)

instance Arbitrary Past where
  arbitrary = Past <$> arbitrary <*> arbitrary <*> arbitrary
  shrink (Past a o moves) = [Past a o moves' | moves' <- shrink moves]

-- | Those that have ended are not written.
alive :: Past -> Maybe Run
alive (Past active options moves)
  | tcbState (runTcb r) == Closed = Nothing
  | otherwise = Just r {runSteps = [], runWrong = []}
  where
    r = List.foldl' move (begin active options) (opening active : moves)

onStates :: (Testable p) => (Run -> p) -> Past -> Property
onStates use state = case alive state of
  Nothing -> label "ended" True
  Just r ->
    let t = runTcb r
     in cover 5 (not (null (boardPieces (tcbScoreboard t)))) "with outstanding bytes"
          . cover 2 (not (isComplete (tcbReassembly t))) "with a gap"
          . cover 2 (tcbRecovery t /= Open) "while a loss is repaired"
          $ use r
