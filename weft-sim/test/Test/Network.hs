-- |
-- Description : The simulated network
module Test.Network (tests) where

import Test.Network.Addresses qualified as Addresses
import Test.Network.Datagrams qualified as Datagrams
import Test.Network.Faults qualified as Faults
import Test.Network.Model qualified as Model
import Test.Network.Streams qualified as Streams
import Test.Tasty

tests :: TestTree
tests = testGroup "Network" [Streams.tests, Addresses.tests, Datagrams.tests, Faults.tests, Model.tests]
