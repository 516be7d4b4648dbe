-- | The phases of a measurement, on threads small enough to run here.
module Weft.Bench.HarnessSpec (tests) where

import Data.IORef
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck (Positive (..), testProperty, (.&&.))
import Weft.Bench.Harness
import Weft.Bench.Measure
import Weft.Bench.Report (Cell (..))
import Weft.Bench.Style

tests :: TestTree
tests =
  testGroup
    "Harness"
    [ testProperty "at least as many switches as were asked for, and not a round more" $
        \(Positive n) (Positive m) ->
          let s = YieldSettings n m 1
              done = switchesPerThread s * n
           in (done >= m) .&&. (done < m + n),
      testCase "phases come in order, once a run" $ do
        journal <- newIORef []
        let note what = modifyIORef journal (what :)
        figures <- measureYield (YieldSettings 3 9 2) . pure $ YieldThreads {holdAll = note "hold", runAll = note "run"}
        said <- readIORef journal
        (length figures, reverse said) @?= (2, ["hold", "run", "hold", "run" :: String]),
      testCase "live bytes are those of the threads" $ do
        kept <- newIORef []
        figures <-
          measureYield (YieldSettings 1000 1000 1) . pure $
            YieldThreads
              { -- 1,000 list cells of 24 bytes, each with a number of 16
                holdAll = writeIORef kept (map negate [1 .. 1000 :: Int]) >> readIORef kept >>= \l -> sum l `seq` pure (),
                runAll = readIORef kept >>= \l -> length l `seq` pure ()
              }
        assertBool (show figures) (all ((\b -> b >= 24 && b < 200) . liveBytesPerThread) figures),
      testGroup
        "every style"
        [ testGroup
            (show (styleName style))
            [ testCase "yields" $ do
                let s = YieldSettings 50 500 2
                runs <- measureYield s (styleYield style s)
                assertBool (show runs) (length runs == 2 && all ((> 0) . nsPerSwitch) runs)
                lookup "switches" (yieldRow (styleName style) s runs) @?= Just (Count 500),
              testCase "sleeps, and never wakes early" $ do
                -- All are forked before the first is due, if there is time enough.
                let within lead = do
                      let s = TimerSettings 50 lead 1
                      runs <- measureTimers s (styleTimers style s)
                      if map asleepAtOnce runs == [50] || lead > 5_000 then pure runs else within (4 * lead)
                runs <- within 100
                map asleepAtOnce runs @?= [50]
                assertBool (show runs) (all ((>= 0) . wakeNsPerThread) runs)
            ]
          | style <- styles
        ],
      testCase "time does not run backwards" $ do
        (spent, ()) <- spending (pure ())
        assertBool (show spent) (spentTime spent >= 0 && spentCpu spent >= 0)
    ]
