-- |
-- Description : Tests of the stack in simulated worlds
--
-- The conformance suite of networks, worlds of several machines, options of sockets, and the scenarios of the HTTP
-- server and the replicated store, over segments.
module Main (main) where

import ConformanceTest qualified
import FloodTest qualified
import HandoverTest qualified
import LiesTest qualified
import MachinesTest qualified
import MemoryTest qualified
import OptionsTest qualified
import ServicesTest qualified
import Test.Tasty

main :: IO ()
main = defaultMain (testGroup "weft-tcp:simulated" [MachinesTest.tests, MemoryTest.tests, OptionsTest.tests, LiesTest.tests, FloodTest.tests, HandoverTest.tests, ServicesTest.tests, ConformanceTest.tests])
