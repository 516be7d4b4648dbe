-- | Claims of the works, verdicts, and the page of them.
module Weft.Bench.WorksSpec (tests) where

import Chart (renderChart)
import Data.ByteString qualified as Bytes
import Data.Either (isLeft)
import Data.Foldable (toList)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, assertFailure, testCase, (@?=))
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload
import Weft.Bench.Report (Cell (..), nameAt)
import Weft.Bench.Works.Claim
import Weft.Bench.Works.Configurations
import Weft.Bench.Works.Page
import Weft.Bench.Works.Plan
import Weft.Bench.Works.State

tests :: TestTree
tests =
  testGroup
    "Works"
    [ testCase "the claims name experiments, contenders and parameters that there are" $ do
        claims <- theClaims
        let whole = [(plannedName p, p) | p <- plan Whole]
        [e | Claim {claimTest = Measured e _} <- claims, e `notElem` map fst whole] @?= []
        [e | Claim {claimTest = Unreachable e _} <- claims, e `notElem` map fst whole] @?= []
        [(e, n) | Claim {claimTest = Measured e b} <- claims, Just p <- [lookup e whole], n <- namesOf b, n `notElem` contendersPlanned p] @?= []
        [ (e, k)
          | Claim {claimTest = Measured e b} <- claims,
            Just p <- [lookup e whole],
            k <- concatMap Map.keys [boundsWhere b, boundsFrom b, boundsTo b] ++ toList (boundsAlong b),
            k `notElem` map fst (plannedKeys p)
          ]
          @?= []
        assertBool "a claim without bounds" (and [isJust (boundsLeast b) || isJust (boundsMost b) | Claim {claimTest = Measured _ b} <- claims]),
      testCase "the goals of the substrate name experiments, contenders and parameters that there are" $ do
        theirs <- theGoals
        let whole = [(plannedName p, p) | p <- substrateExperiments Whole]
        [(e, n) | Claim {claimTest = Measured e b} <- theirs, n <- namesOf b, maybe True ((n `notElem`) . contendersPlanned) (lookup e whole)] @?= []
        [(e, k) | Claim {claimTest = Measured e b} <- theirs, k <- Map.keys (boundsWhere b), maybe True ((k `notElem`) . map fst . plannedKeys) (lookup e whole)] @?= []
        [(plannedName p, n) | (_, p) <- whole, w <- toList (workloadNamed (plannedWorkload p)), n <- contendersPlanned p, n `notElem` contenderNames w] @?= []
        [plannedName p | (_, p) <- whole, w <- toList (workloadNamed (plannedWorkload p)), map keyName (workloadKeys w) /= map fst (plannedKeys p)] @?= [],
      testCase "each configuration has a row in each figure, with a verdict or the reason why there is none" $ do
        claims <- theClaims
        let of' name = [p | p <- substrateExperiments Whole, plannedName p == name]
            result p rate = Result p (Contest (plannedName p) [Contender n (const (Left "")) | n <- contendersPlanned p] (pointsPlanned p) 1 1) [(sampleAt (plannedName p) n x) {samplePrinted = Map.fromList [("operations", rate n), ("seconds", 1), ("cpu_seconds", 1)]} | x <- pointsPlanned p, n <- contendersPlanned p]
            rows = configurationRows (map (`result` const 1) (of' "disk") ++ map (`result` \n -> if n == "ConcLib_OS" then 2 else 1) (of' "pipes-token")) claims
            verdicts place who = [(there, here, v) | row <- rows, nameAt "figure" row == Just place, nameAt "of" row == Just who, Just there <- [nameAt "there" row], Just here <- [nameAt "here" row], Just v <- [nameAt "verdict" row]]
        [(place, who) | place <- ["figure 5.4", "figure 5.6", "figure 5.7"], who <- configurations, null (verdicts place who)] @?= []
        verdicts "figure 5.6" "ConcLib_OS" @?= [("about 1", "ConcLib_OS over NPTL: 2.000", "reversed")]
        verdicts "figure 5.6" "ConcLib_MP" @?= [("about 1", "ConcLib_MP over NPTL: 1.000", "reproduced")]
        verdicts "figure 5.7" "direct-epoll" @?= [("", "1.000", "the text states nothing of it")],
      testCase "each claim meets a point of both sizes" $ do
        claims <- theClaims
        [ (s, claimStates c)
          | s <- [Whole, Quick],
            c@Claim {claimTest = Measured e b} <- claims,
            p <- plan s,
            plannedName p == e,
            let samples = [(sampleAt e n point) {samplePrinted = Map.fromList [("operations", i), ("seconds", 1), ("cpu_seconds", 1), (boundsField b, i)]} | (i, point) <- zip [1 ..] (pointsPlanned p), n <- namesOf b],
            NotMeasured _ <- [judge (Contest e [Contender n (const (Left "")) | n <- [boundsOf b]] (pointsPlanned p) 1 1) samples c]
          ]
          @?= [],
      testCase "what takes part is a contender of the workload" $
        [(plannedName p, n) | p <- plan Whole, w <- toList (workloadNamed (plannedWorkload p)), n <- plannedContenders p, n `notElem` contenderNames w] @?= [],
      testCase "both sizes have the parameters of their workload" $
        [(plannedName p, workloadName w) | s <- [Whole, Quick], p <- plan s, w <- workloads, workloadName w == plannedWorkload p, map keyName (workloadKeys w) /= map fst (plannedKeys p)] @?= [],
      testCase "a tiny run has one point of each experiment, and takes part in all" $ do
        map (length . pointsPlanned) (plan Tiny) @?= map (const 1) (plan Tiny)
        map plannedName (plan Tiny) @?= map plannedName (plan Whole),
      testCase "the runs take as long as is said" $ do
        let time e = sum (map secondsPlanned (plan e)) / 60
        assertBool ("quick: " ++ show (time Quick)) (time Quick <= 12)
        assertBool ("whole: " ++ show (time Whole)) (time Whole >= 90 && time Whole <= 130),
      testCase "an interrupted run goes on, another one begins anew" . withSystemTempDirectory "works" $ \directory -> do
        let file = directory </> "new" </> "state"
            run n = [("program", Name n)]
            one = sampleAt "stm" "NPTL" [("n", "1")]
            two = one {sampleRound = 2}
        resume file (run "a") >>= (@?= [])
        keep file one
        Bytes.appendFile file "{\"contest\":\"st"
        resume file (run "a") >>= (@?= [one])
        keep file two
        resume file (run "a") >>= (@?= [one, two])
        resume file (run "b") >>= (@?= [])
        resume file (run "a") >>= (@?= []),
      testCase "what is no claim is refused" $ assertBool "parsed" (isLeft (parseClaims "[{\"work\": \"x\"}]")),
      testCase "rows of another command are a section, and judged" $ do
        let row n v = [("benchmark", Name "events"), ("contender", Name "a"), ("idle", Count n), ("per_second", Figure v)]
            about = claim {claimTest = Measured "events" (bounds "per_second") {boundsFrom = Map.singleton "idle" 64}}
            page = pageOf Quick [] "figures" [] [row 1 9, row 64 2] [about]
        judgeRows [row 1 9, row 64 2] about @?= Judged [2] []
        mapM_ (\part -> assertBool (Text.unpack page) (part `Text.isInfixOf` page)) ["## events", "| a | 64 |", "reproduced"]
        assertBool "not part of this run" ("not part of this run" `Text.isInfixOf` pageOf Quick [] "figures" [] [] [about]),
      testGroup
        "verdicts"
        [ testCase "within the bounds at all sizes" $ fst (verdictText (judged [2, 3])) @?= "reproduced",
          testCase "at some" $ verdictText (judged [2, 0.5]) @?= ("reproduced at 1 of 2 sizes", "0.500 to 2.000"),
          testCase "at none" $ fst (verdictText (judged [0.5, 0.25])) @?= "reversed",
          testCase "a ratio of what they print" $ do
            let at name v = Sample "c" name 1 [("n", "1")] (Map.singleton "mean_us" v)
            judge contest [at "a" 3, at "b" 2] (claimOf (bounds "mean_us") {boundsOver = Just "b"}) @?= Judged [1.5] [],
          testCase "a part of its own best" $ do
            let at n v = Sample "c" "a" 1 [("n", n)] (Map.fromList [("operations", 1), ("seconds", 1), ("mbit", v)])
            judge contest [at "1" 8, at "2" 4] (claimOf (bounds "mbit") {boundsOver = Just "best"}) @?= Judged [1, 0.5] ["n 2"],
          testCase "a straight line, and none" $ do
            let line = Contest "c" [Contender "a" (const (Left ""))] (pointsOf [("n", [1, 2, 3])]) 1 1
                seen values = [Sample "c" "a" 1 p (Map.singleton "mean_us" v) | (p, v) <- zip (contestPoints line) values]
                along = claimOf (bounds "mean_us") {boundsAlong = Just "n", boundsLeast = Just 0.999}
            judge line (seen [5, 7, 9]) along @?= Judged [1] []
            fst (verdictText (judge line (seen [5, 9, 7]) along)) @?= "reversed",
          testCase "who fails from a size on" $ do
            let failing = claimOf (bounds "failed") {boundsFrom = Map.singleton "n" 2}
                at name n = Sample "c" name 1 [("n", n)] (Map.fromList [("operations", 1), ("seconds", 1)])
            judge contest [at "a" "1"] failing @?= Judged [1] []
            judge contest [at "a" "1", at "a" "2"] failing @?= Judged [0] [""]
            judge contest [at "b" "1"] failing @?= NotMeasured "no contender of this claim could be run",
          testCase "an aim says where it is missed" $ do
            fst (aimText (judged [1, 2])) @?= "met"
            aimText (judged [2, 0.5]) @?= ("**missed** at n 2", "0.500 to 2.000")
            fst (aimText (judged [0.5, 0.25])) @?= "**missed**",
          testCase "nobody ran" $ fst (verdictText (judge contest [] claim)) @?= "not yet measured: no contender of this claim could be run"
        ],
      testCase "the page has verdicts, pictures, what is missing, and that it was a quick run" $ do
        claims <- theClaims
        p <- maybe (assertFailure "no such experiment") pure (lookup "pipes-idle" [(plannedName q, q) | q <- plan Quick])
        let result = Result p (Contest "pipes-idle" [Contender n (const (Left "")) | n <- ["weft-epoll", "NPTL", "forkIO"]] (pointsPlanned p) 1 1) [sampleAt "pipes-idle" n x | x <- pointsPlanned p, n <- ["weft-epoll", "NPTL"]]
            page = pageOf Quick [[("kind", Name "machine"), ("processor", Name "abacus")]] "figures" [result] [] claims
        mapM_
          (\part -> assertBool (Text.unpack part) (part `Text.isInfixOf` page))
          ["quick run", "abacus", "figures/works-pipes-idle-processors1.svg", "figures/works-pipes-idle-processors2.svg", "reproduced", "figure 20", "What is asked of Weft", "Not yet measured", "ConcLib_MP", "Without a figure: forkIO"]
        assertBool "a quick run of a whole one" (not ("quick run" `Text.isInfixOf` pageOf Whole [] "figures" [] [] []))
        assertBool "a machine that was busy" (busy `Text.isInfixOf` pageOf Whole [machine 7] "figures" [] [] [] && not (busy `Text.isInfixOf` pageOf Whole [machine 0.1] "figures" [] [] []))
        let pictures = picturesOf Quick [] result
        [name | (name, _, _) <- pictures] @?= ["works-pipes-idle-processors1", "works-pipes-idle-processors2"]
        toy <- maybe (assertFailure "no such experiment") pure (lookup "toy" [(plannedName q, q) | q <- plan Quick])
        let asked = Result toy (Contest "toy" [Contender n (const (Left "")) | n <- contendersPlanned toy] (pointsPlanned toy) 1 1) [(sampleAt "toy" n x) {samplePrinted = Map.fromList [("operations", 1), ("seconds", 1), ("mean_us", 9)]} | x <- pointsPlanned toy, n <- contendersPlanned toy]
            drawn = [renderChart chart | (_, _, chart) <- picturesOf Quick [] asked]
        [name | (name, _, _) <- picturesOf Quick [] asked] @?= ["works-toy-toys", "works-toy-production-servers"]
        [n | n <- contendersPlanned toy, not (any ((">" <> n <> "<") `Text.isInfixOf`) drawn)] @?= []
        assertBool "a picture without its lines" (and [n `Text.isInfixOf` renderChart chart | (_, _, chart) <- pictures, n <- ["weft-epoll", "NPTL"]])
    ]
  where
    busy = "The machine was busy"
    machine load = [("kind", Name "machine"), ("load_before", Figure load)]
    contest = Contest "c" [Contender n (const (Left "")) | n <- ["a", "b"]] (pointsOf [("n", [1, 2])]) 1 1
    claim = Claim "w" "p" "m" "s" "" "" (Measured "c" (bounds "per_second") {boundsOver = Just "b"})
    bounds field = Bounds field "a" Nothing Map.empty Map.empty Map.empty Nothing (Just 1) Nothing
    claimOf b = claim {claimTest = Measured "c" b}
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
namesOf :: Bounds -> [Text]
namesOf b = boundsOf b : filter (/= "best") (toList (boundsOver b))

theGoals :: IO [Claim]
theGoals = Bytes.readFile "substrate.json" >>= either assertFailure pure . parseClaims

theClaims :: IO [Claim]
theClaims = Bytes.readFile "works.json" >>= either assertFailure pure . parseClaims
