-- |
-- Description : The examples of docs/simulation.md
--
-- Its programs are compiled into the suite from @examples/Simulation@, and what it shows of their
-- output is in files beside them: here both are compared. That the page shows these programs and
-- these files is checked by @tools/docs@.
--
-- Where a change of the simulator changes what is right, @WEFT_SIM_ACCEPT=1@ writes the files
-- anew; then the page is to be changed, too.
module Test.Simulation (tests) where

import Control.Exception (try)
import Control.Monad (forM_)
import Data.IORef
import Data.List (isPrefixOf, isSuffixOf)
import Data.Map.Strict qualified as Map
import Options.Applicative (ParserResult (..), defaultPrefs, execParserPure, hsubparser, info, renderFailure)
import Replicated.Commands
import Simulation.Deadlock qualified as Deadlock
import Simulation.Late qualified as Late
import Simulation.LostUpdate qualified as LostUpdate
import Simulation.Patience qualified as Patience
import Simulation.Pool qualified as Pool
import Simulation.Properties qualified as Properties
import Simulation.Saving qualified as Saving
import System.Directory (withCurrentDirectory)
import System.Environment (lookupEnv)
import System.Exit (ExitCode (..))
import System.IO.Temp (withSystemTempDirectory)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Sim hiding (Failure, renderFailure)

tests :: TestTree
tests =
  testGroup
    "Simulation"
    [ testCase "a lost update: how many schedules, what comes of them, the report" lostUpdate,
      testCase "mended, none of them goes wrong" $ do
        checkAll defaultBounds {boundPreemptions = 4} defaultConfig LostUpdate.mended LostUpdate.right
        explored <- explore LostUpdate.mended
        Map.keys (exploredOutcomes explored) @?= ["30"],
      testCase "the lost update itself, with races tolerated" lostMoney,
      testCase "a deadlock: the report" $
        report (checkAll defaultBounds defaultConfig Deadlock.transfers flawless) >>= golden "Deadlock",
      testCase "a day of virtual time" patience,
      testCase "a file and a power failure: the report" $
        report (check defaultConfig [0 .. 999] (Saving.interrupted Saving.careless) Saving.whole) >>= golden "Saving",
      testCase "careful, it survives a thousand of them" $
        check defaultConfig [0 .. 999] (Saving.interrupted Saving.careful) Saving.whole,
      testCase "a pool whose borrowers are cancelled: the report" $
        report (check Pool.config [0 .. 29] (Pool.lending Pool.carelessly) Pool.allBack) >>= golden "Pool",
      testCase "the safe one survives that" $
        check Pool.config [0 .. 499] (Pool.lending Pool.safely) Pool.allBack,
      testCase "a late answer: the report" $
        Late.failure Late.asking >>= maybe (assertFailure "nothing was found") (golden "Late"),
      testCase "with another connection there is none" $
        Late.failure Late.reconnecting >>= mapM_ assertFailure,
      Properties.tests,
      testCase "weft-kv simulate: no failure without a mistake" $
        says "simulate --seeds 0-9" ExitSuccess "10 worlds, and nothing went wrong.\n",
      testCase "weft-kv simulate and replay: a mistake" mistake
    ]

lostUpdate :: Assertion
lostUpdate = do
  explored <- explore LostUpdate.deposits
  let counts = show (exploredSchedules explored) <> " schedules: " <> show (Map.toList (exploredOutcomes explored)) <> "\n"
  exploredAll explored @?= True
  text <- report (checkAll defaultBounds defaultConfig LostUpdate.deposits LostUpdate.right)
  golden "LostUpdate" (counts <> text)

-- | Also without the search for races.
lostMoney :: Assertion
lostMoney = do
  text <- report (checkAll defaultBounds defaultConfig LostUpdate.deposits (tolerating ["race"] LostUpdate.right))
  assertBool text ("the balance is " `isPrefixOf` text)

patience :: Assertion
patience = do
  result <- simulate 0 defaultConfig Patience.attempts
  case resultOutcome result of
    Value n ->
      golden "Patience" . unlines $
        ["Value " <> show n, show (resultTime result `div` 1_000_000_000) <> " s in " <> show (resultSteps result) <> " steps"]
    _ -> assertFailure (tell result)

-- | The search and the replay that the documentation shows of the store.
mistake :: Assertion
mistake = do
  (code, text) <- withSystemTempDirectory "weft-sim-test" $ \directory ->
    withCurrentDirectory directory $ do
      found <- weftKv "simulate --mistake wall-clock-versions"
      again <- weftKv "replay weft-kv.failure"
      fst again @?= ExitFailure 1
      assertBool (snd again) (snd again `isSuffixOf` snd found)
      pure found
  code @?= ExitFailure 1
  golden "WallClockVersions" text

says :: String -> ExitCode -> String -> Assertion
says arguments code text = weftKv arguments >>= (@?= (code, text))

-- | The program with these arguments: its exit code, and what it has printed.
weftKv :: String -> IO (ExitCode, String)
weftKv arguments = do
  printed <- newIORef []
  let line text = modifyIORef' printed (text :)
      parser = info (hsubparser (simulateCommand line <> replayCommand line)) mempty
  case execParserPure defaultPrefs parser (words arguments) of
    Success act -> do
      code <- act
      text <- unlines . reverse <$> readIORef printed
      pure (code, text)
    Failure why -> assertFailure (fst (renderFailure why "weft-kv"))
    CompletionInvoked _ -> assertFailure "a completion"

-- | The report that is raised.
report :: IO () -> IO String
report act =
  try act >>= \case
    Left (SimulationFailed text) -> pure text
    Right () -> assertFailure "nothing went wrong"

-- | It is what the file says; paths are as seen from the root of the repository.
golden :: String -> String -> Assertion
golden name text = do
  accepting <- lookupEnv "WEFT_SIM_ACCEPT"
  case accepting of
    Just "1" -> writeFile file rooted
    _ -> do
      wanted <- readFile file
      forM_ (zip3 [1 :: Int ..] (lines wanted) (lines rooted)) $ \(n, w, r) ->
        assertEqual (file <> ", line " <> show n) w r
      rooted @?= wanted
  where
    file = "examples/Simulation/" <> name <> ".txt"
    rooted = go text
    go t
      | Just rest <- stripped "examples/Simulation/" t = "weft-sim/examples/Simulation/" <> go rest
    go (c : rest) = c : go rest
    go [] = []
    stripped prefix t = if prefix `isPrefixOf` t then Just (drop (length prefix) t) else Nothing
