-- |
-- Description : Existing code inside Weft threads
--
-- The program is linked as any program is that depends on the package.
module Main (main) where

import BlockTest qualified
import CloseTest qualified
import DelayTest qualified
import GatewayTest qualified
import GhcTest qualified
import InterruptTest qualified
import ServeTest qualified
import SimulationTest qualified
import Test.Tasty
import Weft.GhcIO qualified as GhcIO

main :: IO ()
main = do
  -- Throws if the program was not linked for it.
  GhcIO.install
  defaultMain . adjustOption limited $
    testGroup "libraries in Weft threads" [ServeTest.tests, GatewayTest.tests, DelayTest.tests, InterruptTest.tests, BlockTest.tests, CloseTest.tests, GhcTest.tests, SimulationTest.tests]

limited :: Timeout -> Timeout
limited = \case
  NoTimeout -> mkTimeout 60_000_000
  chosen -> chosen
