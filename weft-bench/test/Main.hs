-- | The tests of the benchmarks: the parsers, the arithmetic, the phases of a
-- measurement, and that no child is left running. Nothing here measures anything.
module Main (main) where

import Test.Tasty (defaultMain, localOption, mkTimeout, testGroup)
import Weft.Bench.AbSpec qualified
import Weft.Bench.ChildSpec qualified
import Weft.Bench.ClientSpec qualified
import Weft.Bench.ContestSpec qualified
import Weft.Bench.EventsSpec qualified
import Weft.Bench.ExperimentSpec qualified
import Weft.Bench.HarnessSpec qualified
import Weft.Bench.HttpSpec qualified
import Weft.Bench.PeersSpec qualified
import Weft.Bench.PlotSpec qualified
import Weft.Bench.ProcSpec qualified
import Weft.Bench.ReportSpec qualified
import Weft.Bench.StatisticsSpec qualified
import Weft.Bench.TcpSpec qualified
import Weft.Bench.WebSpec qualified
import Weft.Bench.WorksSpec qualified
import Weft.Bench.WrkSpec qualified

main :: IO ()
main =
  defaultMain . localOption (mkTimeout 180_000_000) $
    testGroup
      "weft-bench"
      [ Weft.Bench.StatisticsSpec.tests,
        Weft.Bench.ReportSpec.tests,
        Weft.Bench.WrkSpec.tests,
        Weft.Bench.AbSpec.tests,
        Weft.Bench.ProcSpec.tests,
        Weft.Bench.HttpSpec.tests,
        Weft.Bench.ClientSpec.tests,
        Weft.Bench.ContestSpec.tests,
        Weft.Bench.EventsSpec.tests,
        Weft.Bench.WorksSpec.tests,
        Weft.Bench.ExperimentSpec.tests,
        Weft.Bench.PlotSpec.tests,
        Weft.Bench.TcpSpec.tests,
        Weft.Bench.WebSpec.tests,
        Weft.Bench.PeersSpec.tests,
        Weft.Bench.HarnessSpec.tests,
        Weft.Bench.ChildSpec.tests
      ]
