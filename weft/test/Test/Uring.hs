-- |
-- Description : The io_uring event source on real sockets, pipes and files
--
-- Where the kernel gives no ring the event source answers 'Left', which one of the
-- tests checks; the others say so and pass.
module Test.Uring (tests) where

import Control.Monad (replicateM_)
import Network.Socket qualified as N
import System.Posix.IO qualified as P
import System.Posix.Types (Fd (..))
import Test.Rig (withFullListener', withSocketAddress)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, testCase, (@?=))
import Test.Tasty.QuickCheck (choose, forAll, testProperty, (.&&.), (===))
import Test.Uring.Cancelling (cancelling, forgetting)
import Test.Uring.Operations qualified as Operations
import Test.Uring.Polling (limits, polling, shuttingDown)
import Test.Uring.Rig
import Test.Uring.Watching (watching)
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.Steps (CancelState (..), Next (..), Stage (..))
import Weft.Internal.Backend.Uring.Steps qualified as Steps
import Weft.Internal.Data.Slots (SlotKey (..), keyBits)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys

tests :: TestTree
tests =
  testGroup
    "Uring"
    [ testProperty "user_data keeps every bit of a key and marks an operation" $
        forAll (choose (0, 2 ^ keyBits - 1)) $ \k ->
          let w = Ring.operationData (SlotKey k)
           in Ring.operationKey w === SlotKey k .&&. w `mod` 8 === 0 .&&. (w < 2 ^ (63 :: Int)) === True,
      testCase "a connection attempt that lost its request goes on" resumes,
      Operations.tests,
      cancelling,
      forgetting,
      watching,
      polling,
      limits,
      shuttingDown
    ]

-- | The step after each completion of a connection attempt whose thread has ended.
resumes :: Assertion
resumes = do
  closedPort <- withListener (\_ port _ -> pure port)
  withFullListener' $ \listener address -> do
    s <- N.socket N.AF_INET N.Stream N.defaultProtocol
    d <- N.withFdSocket s newDescriptor
    withSocketAddress address $ \p n -> do
      let op = Connect d p n
          step wish stage = Steps.after wish stage op
      Sys.connect (descriptorNumber d) p n >>= (@?= Sys.inProgress)
      -- The request is lost: ask again, which says that it is under way.
      step Wanted Whole eCANCELED >>= (@?= Continue Resumed)
      step Wanted Whole eINTR >>= (@?= Continue Resumed)
      step Wanted Whole eFAULT >>= (@?= Continue Resumed)
      again <- Sys.connect (descriptorNumber d) p n
      step Wanted Resumed again >>= (@?= Continue (Until Writing))
      step Wanted (Until Writing) 4 >>= (@?= Continue (Until Writing))
      -- The first is the one that filled the queue.
      replicateM_ 2 (N.accept listener >>= N.close . fst)
      step Wanted (Until Writing) 4 >>= (@?= Deliver 0)
      step Wanted Resumed eISCONN >>= (@?= Deliver 0)
      -- The answer of the first submission goes to the user.
      step Wanted Whole eISCONN >>= (@?= Deliver eISCONN)
      step Wanted Whole eALREADY >>= (@?= Deliver eALREADY)
      step Wanted Resumed eFAULT >>= (@?= Deliver eFAULT)
      -- Nothing more is done for one that is cancelled.
      step Cancelled Whole eCANCELED >>= (@?= Deliver eCANCELED)
      step Cancelled Resumed again >>= (@?= Deliver eCANCELED)
      step Cancelled Resumed 0 >>= (@?= Deliver 0)
    N.close s
  t <- N.socket N.AF_INET N.Stream N.defaultProtocol
  d <- N.withFdSocket t newDescriptor
  withAddress closedPort $ \p n -> do
    P.setFdOption (Fd (descriptorNumber d)) P.NonBlockingRead True
    r <- Sys.connect (descriptorNumber d) p n
    if r == Sys.inProgress
      then Steps.after Wanted (Until Writing) (Connect d p n) 4 >>= (@?= Deliver eCONNREFUSED)
      else r @?= eCONNREFUSED
  N.close t
  where
    eINTR = -4
    eFAULT = -14
    eISCONN = -106
    eALREADY = -114
