{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Small runs of the workloads of event managers and of relinked waits
module Weft.Bench.EventsSpec
  ( tests,
  )
where

import Data.ByteString.Char8 qualified as Bytes
import Data.Either (fromLeft)
import Data.Text qualified as Text
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload
import Weft.Bench.Events.Manager
import Weft.Bench.GhcIO
import Weft.Bench.Services

tests :: TestTree
tests =
  testGroup
    "events and ghc-io"
    [ testGroup
        "each workload with each manager does all that it is to do"
        [ testCase (Text.unpack (workloadName w <> ", " <> managerName m)) (work m small `does` (if workloadName w == "events-delays" then 50 else 40))
          | w@Workload {workloadBy = ByManagers work} <- workloads,
            m <- managers
        ],
      testGroup
        "round trips over sockets"
        [testCase (Text.unpack (tripsName kind)) (tripsWork kind small `does` 60) | kind <- [minBound .. maxBound]],
      testCase "an answer ends by its length or its last chunk, and not before" $ do
        let wholeAfter answer = [n | n <- [0 .. Bytes.length answer], isWhole (Bytes.take n answer)]
        wholeAfter "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\nslept" @?= [49]
        wholeAfter "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n15\r\n0\r\n\r\n" @?= [59],
      testCase "the gateway is not served by direct threads that block" $
        fromLeft "served" (serviceWork (Just "weft-ghc-io-gateway") Gateway OnDirect [("capabilities", "1"), ("connections", "1"), ("requests", "1")])
          @?= "the gateway is served by warp or relinked",
      testCase "a parameter that is missing is named" $
        fromLeft "nothing" (tripsWork ByForkIO [("processors", "1"), ("pairs", "1")]) @?= "trips is missing"
    ]
  where
    small = [("capabilities", "1"), ("clients", "4"), ("idle", "3"), ("descriptors", "4"), ("requests", "40"), ("threads", "50"), ("processors", "1"), ("pairs", "3"), ("trips", "60")]
    does work operations = either assertFailure (>>= \done -> workOperations done @?= operations) work
