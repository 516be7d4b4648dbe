-- | Preconditions: every combination of them against the table of RFC 9110,
-- section 13.2.2, written out step by step.
module ConditionalTest (tests) where

import Data.ByteString (ByteString)
import Data.Maybe (isJust)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Conditional
import Weft.Http.Date
import Weft.Http.ETag
import Weft.Http.RequestHead

tests :: TestTree
tests =
  testGroup
    "preconditions"
    [ testCase "every combination, against the steps of the RFC" everyCombination,
      testProperty "If-None-Match wins over If-Modified-Since" prop_noneMatchWins,
      testCase "a date of this or the last second is not strong" unsettled,
      testCase "weak and strong" weakStrong
    ]

now, modified :: HttpTime
modified = HttpTime 784111777
now = HttpTime 784111877

before, same, after :: ByteString
before = formatDate (HttpTime 784111776)
same = formatDate modified
after = formatDate (HttpTime 784111778)

strong :: Validators
strong = Validators (Just (Strong "a")) (Just modified) True now

-- | The facts about each field are written beside it, so that the model below
-- needs neither tags nor dates.
everyCombination :: Assertion
everyCombination =
  sequence_
    [ assertEqual (show (method, conditions)) (model method facts) (evaluatePreconditions method conditions strong)
      | method <- [Get, Head, Put, Delete],
        (im, imF) <- [(Nothing, Nothing), (Just "*", Just True), (Just "\"a\"", Just True), (Just "\"b\", \"a\"", Just True), (Just "W/\"a\"", Just False), (Just "\"b\"", Just False), (Just "junk", Just False)],
        (inm, inmF) <- [(Nothing, Nothing), (Just "*", Just True), (Just "\"a\"", Just True), (Just "W/\"a\"", Just True), (Just "\"b\"", Just False), (Just "junk", Just False)],
        (ims, imsF) <- [(Nothing, Nothing), (Just before, Just True), (Just same, Just False), (Just after, Just False), (Just "junk", Nothing)],
        (ius, iusF) <- [(Nothing, Nothing), (Just before, Just True), (Just same, Just False), (Just after, Just False), (Just "junk", Nothing)],
        (ir, irF) <- [(Nothing, Nothing), (Just "\"a\"", Just True), (Just "W/\"a\"", Just False), (Just "\"b\"", Just False), (Just same, Just True), (Just after, Just False), (Just "junk", Just False)],
        range <- [Nothing, Just "bytes=0-1"],
        let conditions = Conditions im inm ims ius ir range
            facts = (imF, inmF, imsF, iusF, irF, isJust range)
    ]

-- | Given: does If-Match match, does If-None-Match match, was it modified since,
-- was it modified since (for If-Unmodified-Since), does If-Range match, is there
-- a range.
model :: Method -> (Maybe Bool, Maybe Bool, Maybe Bool, Maybe Bool, Maybe Bool, Bool) -> Outcome
model method (im, inm, ims, ius, ir, range) = step1
  where
    step1 = case im of
      Just True -> step3
      Just False -> PreconditionFailed
      Nothing -> step2
    step2 = if ius == Just True then PreconditionFailed else step3
    step3 = case inm of
      Just False -> step5
      Just True -> if method `elem` [Get, Head] then NotModified else PreconditionFailed
      Nothing -> step4
    step4 = if method `elem` [Get, Head] && ims == Just False then NotModified else step5
    step5 = if method == Get && range && ir == Just False then PerformWhole else Perform

prop_noneMatchWins :: Property
prop_noneMatchWins = forAll (elements [before, same, after, "junk"]) $ \date ->
  forAll (elements ["\"a\"", "\"b\"", "*", "W/\"a\""]) $ \tags ->
    let with = noConditions {conditionIfNoneMatch = Just tags}
     in evaluatePreconditions Get with {conditionIfModifiedSince = Just date} strong === evaluatePreconditions Get with strong

unsettled :: Assertion
unsettled = do
  let conditions = noConditions {conditionIfRange = Just same, conditionRange = Just "bytes=0-1"}
      at seconds = evaluatePreconditions Get conditions strong {validatorNow = HttpTime (784111777 + seconds)}
  map at [0, 1, 2] @?= [PerformWhole, PerformWhole, Perform]
  evaluatePreconditions Get conditions strong {validatorExact = False} @?= PerformWhole

weakStrong :: Assertion
weakStrong = do
  -- The table of RFC 9110, section 8.8.3.2.
  let pairs = [(Weak "1", Weak "1"), (Weak "1", Weak "2"), (Weak "1", Strong "1"), (Strong "1", Strong "1")]
  map (uncurry strongMatch) pairs @?= [False, False, False, True]
  map (uncurry weakMatch) pairs @?= [True, False, True, True]
  evaluatePreconditions Get noConditions {conditionIfMatch = Just "*"} (Validators Nothing Nothing False now) @?= Perform
  evaluatePreconditions Get noConditions {conditionIfMatch = Just "\"a\""} (Validators Nothing Nothing False now) @?= PreconditionFailed
  evaluatePreconditions Get noConditions {conditionIfUnmodifiedSince = Just before} (Validators Nothing Nothing False now) @?= Perform
