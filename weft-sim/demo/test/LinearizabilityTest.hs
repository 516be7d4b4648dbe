-- | The checker against a search through all orders, and histories that are known.
module LinearizabilityTest (tests) where

import Data.ByteString.Char8 qualified as Char8
import Data.Either (isRight)
import Data.List (isInfixOf, (\\))
import Data.Text qualified as Text
import Replicated.Client (Outcome (..))
import Replicated.Entry
import Replicated.History
import Replicated.Linearizability
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Internal.Data.Time (Instant (..))

tests :: TestTree
tests =
  testGroup
    "linearizability"
    [ testProperty "agrees with a search through all orders" (withMaxSuccess 20000 agrees),
      -- That ends as soon as it is certain, after fewer cases.
      testProperty "histories are of every kind" (checkCoverage agrees),
      testProperty "shows what cannot be ordered, and no more" . forAll (Some <$> history) $ \(Some ops) ->
        case check ops of
          Right () -> property True
          Left violation ->
            let shown = violationOperations violation
             in counterexample (explain violation) $ not (bySearch shown) && null (shown \\ ops) && length shown <= 6,
      known
        "a get that finds what was there before the put" -- as long as the put lasts
        Linearizable
        [put' "a" "1" 0 1, put' "a" "2" 2 9, get' "b" (Just "1") 3 4, get' "b" (Just "2") 5 6],
      known
        "two readers, the new value and then the old one"
        (Crosses ["b's \"get: 2\" had ended when c's \"get: 1\" began; so 2 came before 1."])
        [put' "a" "1" 0 1, put' "a" "2" 2 9, get' "b" (Just "2") 3 4, get' "c" (Just "1") 5 6],
      known
        "a put that is lost"
        (Crosses ["a's \"put 1\" had ended when b's \"get: nothing\" began; so 1 came before nothing."])
        [put' "a" "1" 0 1, get' "b" Nothing 2 3],
      known
        "a put that loses against an older one"
        (Crosses ["a's \"put 1\" had ended when b's \"put 2\" began; so 1 came before 2.", "so 2 came before 1."])
        [put' "a" "1" 0 1, put' "b" "2" 2 3, get' "c" (Just "1") 4 5],
      known
        "a value that nobody has put"
        (Crosses ["nobody has put that"])
        [get' "a" (Just "1") 0 1],
      known
        "a value that had failed"
        (Crosses ["nobody has put that, or its put had failed for certain"])
        [op "a" (Put "1" (Failed "no")) 0 1, get' "b" (Just "1") 2 3],
      known
        "a value from the future"
        (Crosses ["had ended before the put of that began"])
        [get' "a" (Just "1") 0 1, put' "b" "1" 2 3],
      known
        "an unknown outcome that shows much later"
        Linearizable
        [op "a" (Put "1" (Unknown "?")) 0 1, get' "b" Nothing 2 3, put' "b" "2" 4 5, get' "b" (Just "2") 6 7, get' "b" (Just "1") 8 9],
      known
        "an unknown outcome that shows and goes away again"
        (Crosses ["b's \"get: 1\" had ended when b's \"get: nothing\" began"])
        [op "a" (Put "1" (Unknown "?")) 0 1, get' "b" (Just "1") 2 3, get' "b" Nothing 4 5],
      testCase "registers have nothing to do with each other" $
        check [put' "a" "1" 0 1, (get' "b" Nothing 2 3) {operationKey = "other"}] @?= Right (),
      testCase "a picture" $ case check [put' "a" "1" 0 1, put' "a" "2" 2 9, get' "b" (Just "2") 3 4, get' "c" (Just "1") 5 6] of
        Right () -> assertFailure "linearizable"
        Left violation ->
          drop 4 (lines (explain violation))
            @?= [ "a  |-----|                                      put 1   [0.000, 1.000] ms",
                  "a              |-----------------------------|  put 2   [2.000, 9.000] ms",
                  "b                    |-----|                    get: 2   [3.000, 4.000] ms",
                  "c                                |-----|        get: 1   [5.000, 6.000] ms"
                ],
      testCase "a picture of a put of unknown outcome" $ case check [op "a" (Put "1" (Unknown "?")) 0 1, get' "b" (Just "1") 2 3, get' "b" Nothing 4 5] of
        Right () -> assertFailure "linearizable"
        Left violation ->
          drop 4 (lines (explain violation))
            @?= [ "a  |------------------------>  put 1 (unknown)   [0.000, ?] ms",
                  "b        |-----|              get: 1   [2.000, 3.000] ms",
                  "b                    |-----|  get: nothing   [4.000, 5.000] ms"
                ]
    ]

data Expected = Linearizable | Crosses [String]

known :: TestName -> Expected -> History -> TestTree
known name expected ops = testCase name $ do
  bySearch ops @?= isRight (check ops)
  case (expected, check ops) of
    (Linearizable, Right ()) -> pure ()
    (Crosses texts, Left violation) -> mapM_ (\text -> assertBool (explain violation) (text `isInfixOf` explain violation)) texts
    (Linearizable, Left violation) -> assertFailure (explain violation)
    (Crosses _, Right ()) -> assertFailure "taken for linearizable"

-- ---------------------------------------------------------------------------
-- Small histories

newtype Some = Some History

instance Show Some where
  show (Some ops) = unlines (map show ops)

-- | One register, few values, and few moments, so that much happens in the same one.
-- Every put has a value of its own.
history :: Gen History
history = do
  puts <- chooseInt (0, 4)
  gets <- chooseInt (0, 4)
  (<>) <$> traverse aPut [1 .. puts] <*> traverse (aGet puts) [1 .. gets]
  where
    aPut n = do
      outcome <- frequency [(6, pure (Done ())), (2, pure (Unknown "?")), (1, pure (Failed "no"))]
      placed ("p" <> show n) (Put (named n) outcome)
    aGet puts n = do
      found <- frequency [(1, pure Nothing), (puts, Just . named <$> chooseInt (1, max 1 puts))]
      outcome <- frequency [(9, pure (Done found)), (1, pure (Failed "no"))]
      placed ("g" <> show n) (Get outcome)
    placed client action = do
      begin <- chooseInt (0, 9)
      end <- (begin +) <$> chooseInt (0, 5)
      pure (op client action begin end)
    named = Char8.pack . show

-- | The checker says what a search says.
agrees :: Property
agrees = forAll (Some <$> history) $ \(Some ops) ->
  let explainable = bySearch ops
   in cover 20 explainable "linearizable" . cover 20 (not explainable) "not linearizable" $
        cover 10 (explainable && any isUnknown ops && length ops > 3) "linearizable, with an unknown outcome" $
          isRight (check ops) === explainable

-- | Is there any order? Tries all. An unknown put may be anywhere after its beginning, or
-- nowhere.
bySearch :: History -> Bool
bySearch ops = go Nothing [o | o <- ops, matters o]
  where
    go held left = not (any mustBe left) || or [go held' (filter (/= o) left) | o <- left, first o left, Just held' <- [step held o]]
    -- Nothing that is left had ended before it began.
    first o left = null [() | other <- left, not (isUnknown other), operationEnded other < operationBegan o]
    step held o = case operationAction o of
      Put value _ -> Just (Just value)
      Get (Done found) | found == held -> Just held
      _ -> Nothing
    mustBe = not . isUnknown
    matters o = case operationAction o of
      Put _ (Failed _) -> False
      Get (Done _) -> True
      Get _ -> False
      Put {} -> True

isUnknown :: Operation -> Bool
isUnknown o = case operationAction o of
  Put _ (Unknown _) -> True
  _ -> False

op :: String -> Action -> Int -> Int -> Operation
op client action begin end = Operation (Text.pack client) "x" action (at begin) (at end)
  where
    at n = Moment n (Instant (1_000_000 * fromIntegral n))

put' :: String -> Value -> Int -> Int -> Operation
put' client value = op client (Put value (Done ()))

get' :: String -> Maybe Value -> Int -> Int -> Operation
get' client found = op client (Get (Done found))
