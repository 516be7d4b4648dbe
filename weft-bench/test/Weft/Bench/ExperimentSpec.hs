-- | Plans, and contents that are served.
module Weft.Bench.ExperimentSpec (tests) where

import Control.Monad (forM_)
import Data.ByteString qualified as Bytes
import Data.Either (isLeft)
import Data.List (nub)
import System.Directory (listDirectory)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, assertEqual, testCase, (@?=))
import Weft.Bench.Http.Content
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Name (serverName, serves)
import Weft.Bench.Http.Scenario
import Weft.Bench.Machine

tests :: TestTree
tests =
  testGroup
    "Experiment"
    [ testCase "every experiment is known by its name" $
        mapM_ (\e -> parseExperiment (experimentName e) @?= Right e) [minBound ..],
      testCase "no other is" $ assertBool "parsed" (isLeft (parseExperiment "nothing")),
      testCase "every server can serve what is planned, and is there once" $
        forM_ both $ \e -> do
          [serverName s | s <- experimentServers e, not (s `serves` experimentContent e)] @?= []
          nub (experimentServers e) @?= experimentServers e,
      testCase "ratios are to a server that takes part" $
        [experimentName (experimentIs e) | e <- both, experimentBase e `notElem` experimentServers e] @?= [],
      testCase "loads fit under 20,000 descriptors" $
        [showScenario s | e <- both, s <- experimentScenarios e, descriptorsNeeded s > 20_000] @?= [],
      testCase "a cold set is twenty times the cache of 100 MB" $
        assertBool "smaller" (totalBytes (experimentContent (experiment Whole ColdFiles)) >= 20 * 100_000_000),
      testCase "a cached set fits it, each file counted twice" $
        assertBool "larger" (2 * totalBytes (experimentContent (experiment Whole CachedFiles)) < 80_000_000),
      testGroup
        "Content"
        [ testCase "what is asked for" $
            map contentTarget [PageContent, HelloContent, FileContent 128 10] @?= ["/page.html", "/hello", "/f{0..127}"],
          testCase "what lies there is the right answer" $
            withSystemTempDirectory "weft-bench-test" $ \directory -> do
              let content = FileContent 5 1000
                  (path, body) = contentSample content
              writeContent (directory </> "site") content
              names <- listDirectory (directory </> "site")
              length names @?= 6
              found <- Bytes.readFile (directory </> "site" </> drop 1 path)
              assertEqual "body" body found
              -- Evicted, it is there as before.
              evictContent (directory </> "site") content
              again <- Bytes.readFile (directory </> "site" </> drop 1 path)
              assertEqual "body" body again,
          testCase "files have their size, and differ" $ do
            let files = map (fileContents 100) [0 .. 20]
            map Bytes.length files @?= replicate 21 100
            nub files @?= files
            Bytes.length (fileContents 1 12345) @?= 1
        ],
      testGroup
        "Machine"
        [ testCase "the processor" $
            map parseModel ["processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n", ""] @?= [Just "A: B", Nothing],
          testCase "the load" $ map parseLoad ["4.96 4.52 2.54 1/200 99\n", ""] @?= [Just 4.96, Nothing]
        ]
    ]
  where
    both = [experiment size e | size <- [Quick, Whole], e <- [minBound ..]]
