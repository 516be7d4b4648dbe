-- | What the works state, whether it holds, and the page of it.
module Weft.Bench.WorksSpec (tests) where

import Chart (renderChart)
import Data.ByteString qualified as Bytes
import Data.Either (isLeft)
import Data.List (nub, (\\))
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, assertFailure, testCase, (@?=))
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind (kindName, kinds)
import Weft.Bench.Contest.Workload
import Weft.Bench.Report (Cell (..))
import Weft.Bench.Works.Claim
import Weft.Bench.Works.Page
import Weft.Bench.Works.Plan

tests :: TestTree
tests =
  testGroup
    "Works"
    [ testCase "the claims name experiments, contenders and parameters that there are" $ do
        claims <- theClaims
        let whole = [(plannedName p, p) | p <- plan Whole]
        [e | Claim {claimTest = Bounds e _ _ _ _ _ _ _ _} <- claims, e `notElem` map fst whole] @?= []
        [e | Claim {claimTest = Unreachable e _} <- claims, e `notElem` map fst whole] @?= []
        nub [n | Claim {claimTest = Bounds _ _ of' over _ _ _ _ _} <- claims, n <- of' : maybe [] pure over] \\ ("NPTL" : map kindName kinds) @?= []
        [ (e, k)
          | Claim {claimTest = Bounds e _ _ _ wanted from to _ _} <- claims,
            Just p <- [lookup e whole],
            k <- concatMap Map.keys [wanted, from, to],
            k `notElem` map fst (plannedKeys p)
          ]
          @?= []
        assertBool "a claim without bounds" (and [isJust least || isJust most | Claim {claimTest = Bounds _ _ _ _ _ _ _ least most} <- claims]),
      testCase "each claim meets a point of both sizes" $ do
        claims <- theClaims
        [ (s, claimStates c)
          | s <- [Whole, Quick],
            c@Claim {claimTest = Bounds e field of' over _ _ _ _ _} <- claims,
            p <- plan s,
            plannedName p == e,
            let samples = [(sampleAt e n point) {samplePrinted = Map.fromList [("operations", 1), ("seconds", 1), (field, 1)]} | point <- pointsPlanned p, n <- of' : maybe [] pure over],
            NotMeasured _ <- [judge (Contest e [Contender n (const (Left "")) | n <- [of']] (pointsPlanned p) 1 1) samples c]
          ]
          @?= [],
      testCase "both sizes have the parameters of their workload" $
        [(plannedName p, workloadName w) | s <- [Whole, Quick], p <- plan s, w <- workloads, workloadName w == plannedWorkload p, map keyName (workloadKeys w) /= map fst (plannedKeys p)] @?= [],
      testCase "what is no claim is refused" $ assertBool "parsed" (isLeft (parseClaims "[{\"work\": \"x\"}]")),
      testGroup
        "verdicts"
        [ testCase "within the bounds at all sizes" $ fst (verdictText (judged [2, 3])) @?= "reproduced",
          testCase "at some" $ verdictText (judged [2, 0.5]) @?= ("reproduced at 1 of 2 sizes", "0.500 to 2.000"),
          testCase "at none" $ fst (verdictText (judged [0.5, 0.25])) @?= "reversed",
          testCase "nobody ran" $ fst (verdictText (judge contest [] claim)) @?= "not yet measured: no contender of this claim could be run"
        ],
      testCase "the page has verdicts, pictures, what is missing, and that it was a quick run" $ do
        claims <- theClaims
        p <- maybe (assertFailure "no such experiment") pure (lookup "pipes-idle" [(plannedName q, q) | q <- plan Quick])
        let result = Result p (Contest "pipes-idle" [Contender n (const (Left "")) | n <- ["weft-epoll", "NPTL", "forkIO"]] (pointsPlanned p) 1 1) [sampleAt "pipes-idle" n x | x <- pointsPlanned p, n <- ["weft-epoll", "NPTL"]]
            page = pageOf Quick [[("kind", Name "machine"), ("processor", Name "abacus")]] "figures" [result] claims
        mapM_
          (\part -> assertBool (Text.unpack part) (part `Text.isInfixOf` page))
          ["quick run", "abacus", "figures/works-pipes-idle-processors1.svg", "figures/works-pipes-idle-processors2.svg", "reproduced", "figure 20", "Not yet measured", "table 5.1", "Without a figure: forkIO"]
        assertBool "a quick run of a whole one" (not ("quick run" `Text.isInfixOf` pageOf Whole [] "figures" [] []))
        let pictures = picturesOf Quick [] result
        [name | (name, _, _) <- pictures] @?= ["works-pipes-idle-processors1", "works-pipes-idle-processors2"]
        assertBool "a picture without its lines" (and [n `Text.isInfixOf` renderChart chart | (_, _, chart) <- pictures, n <- ["weft-epoll", "NPTL"]])
    ]
  where
    contest = Contest "c" [Contender n (const (Left "")) | n <- ["a", "b"]] (pointsOf [("n", [1, 2])]) 1 1
    claim = Claim "w" "p" "m" "s" "" "" (Bounds "c" "per_second" "a" (Just "b") Map.empty Map.empty Map.empty (Just 1) Nothing)
    judged ratios =
      judge
        contest
        [ Sample "c" name 1 [("n", n)] (Map.fromList [("operations", rate), ("seconds", 1)])
          | (n, ratio) <- zip ["1", "2"] ratios,
            (name, rate) <- [("a", ratio), ("b", 1)]
        ]
        claim

sampleAt :: Text -> Text -> Point -> Sample
sampleAt e name point = Sample e name 1 point (Map.fromList [("operations", 2), ("seconds", 1), ("cpu_seconds", 1), ("gc_share", 0.5)])

-- Tests run in the package's directory.
theClaims :: IO [Claim]
theClaims = Bytes.readFile "works.json" >>= either assertFailure pure . parseClaims
