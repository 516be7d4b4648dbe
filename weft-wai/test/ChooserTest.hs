-- | When applications move from their workers to threads of their own, and back.
module ChooserTest (tests) where

import Control.Monad (forM_, replicateM_)
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Counters (Counters (..), WorkerCounters (..))
import Weft.Wai.Internal.Perform

-- | A chooser, and what it is told: time, takeovers and strays.
data World = World
  { worldChooser :: Chooser,
    worldTime :: IORef Int,
    worldTakeovers :: IORef Int,
    worldStrays :: IORef Int
  }

newWorld :: IO World
newWorld = do
  time <- newIORef 1_000_000_000
  takeovers <- newIORef 0
  strays <- newIORef 0
  let counted = (\t s -> Counters [mempty {countedTakeovers = t, countedStrays = s}] 0 mempty) <$> readIORef takeovers <*> readIORef strays
  chooser <- newChooserWith (readIORef time) counted
  pure (World chooser time takeovers strays)

microseconds, seconds :: Int -> Int
microseconds = (* 1_000)
seconds = (* 1_000_000_000)

pass :: World -> Int -> IO ()
pass world by = modifyIORef' (worldTime world) (+ by)

-- | A request that takes this time.
request :: World -> Int -> IO ()
request world time = do
  way <- chosen (worldChooser world)
  watch <- beginWatch (worldChooser world)
  pass world time
  endWatch (worldChooser world) way watch

is :: World -> Way -> Assertion
is world way = chosen (worldChooser world) >>= (@?= way)

tests :: TestTree
tests =
  testGroup
    "the choice of a way"
    [ testGroup
        "by how long requests take"
        [ testCase name $ do
            world <- newWorld
            replicateM_ times (replicateM_ quick (request world (microseconds 20)) >> mapM_ (request world . microseconds) slow)
            world `is` way
          | (name, times, quick, slow, way) <-
              [ ("quick ones stay on their worker", 1, 10_000, Nothing, OnWorker),
                ("and so they do when one in a hundred is slow, as a collector makes them", 300, 99, Just 9_000, OnWorker),
                ("a query in each moves them within a dozen", 12, 0, Just 500, OnItsOwn),
                ("one slow request in eight moves them", 100, 7, Just 500, OnItsOwn)
              ]
        ],
      testGroup
        "by takeovers of workers"
        [ testCase name $ do
            world <- newWorld
            forM_ [1 .. takeovers] $ \n -> do
              writeIORef (worldTakeovers world) n
              replicateM_ between (request world (microseconds 20))
              pass world pause
            world `is` way
          | (name, takeovers, between, pause, way) <-
              [ ("many move them, though their requests are few", 20, 100, seconds 1 `div` 3, OnItsOwn),
                ("one now and then does not", 100, 10, seconds 10, OnWorker)
              ]
        ],
      testCase "they go back when they have been quick, each time later" $ do
        world <- newWorld
        let leave = replicateM_ 12 (request world (microseconds 500)) >> world `is` OnItsOwn
            quick = replicateM_ 2_000 (request world (microseconds 20))
        leave
        quick
        world `is` OnItsOwn
        pass world (seconds 10)
        request world (microseconds 20)
        quick
        world `is` OnWorker
        leave
        pass world (seconds 10)
        quick
        world `is` OnItsOwn
        pass world (seconds 10)
        quick
        world `is` OnWorker,
      testCase "not while one in eight is slow" $ do
        world <- newWorld
        replicateM_ 12 (request world (microseconds 500))
        replicateM_ 100 (pass world (seconds 1) >> replicateM_ 7 (request world (microseconds 20)) >> request world (microseconds 500))
        world `is` OnItsOwn,
      testGroup
        "never again after an exception has gone astray"
        [ testCase name $ do
            world <- newWorld
            tell world
            pass world (seconds 1)
            -- They are looked for every quarter of a second, when a request is timed.
            replicateM_ 16 (request world (microseconds 20))
            world `is` OnItsOwn
            pass world (seconds 100_000)
            replicateM_ 10_000 (request world (microseconds 20))
            world `is` OnItsOwn
          | (name, tell) <- [("to a worker", \world -> writeIORef (worldStrays world) 1), ("to a request", misdirected . worldChooser)]
        ]
    ]
