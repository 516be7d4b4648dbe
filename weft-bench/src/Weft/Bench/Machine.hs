-- |
-- Description : The machine on which figures are measured
--
-- A figure without its machine says nothing. One row: the processor, how many there
-- are, the kernel, the date, and how busy others kept it when the measurement began.
module Weft.Bench.Machine (machineRow, raiseDescriptors, parseModel, parseLoad) where

import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import Data.Text.Read qualified as Text
import Data.Time (defaultTimeLocale, formatTime, getCurrentTime)
import Data.Version (showVersion)
import GHC.Conc (getNumProcessors)
import System.Info (compilerVersion)
import System.Posix.Resource
import Weft.Bench.Report (Cell (..), Row, figure)

-- | Now, here.
machineRow :: IO Row
machineRow = do
  processors <- getNumProcessors
  model <- parseModel <$> Text.readFile "/proc/cpuinfo"
  kernel <- Text.strip <$> Text.readFile "/proc/sys/kernel/osrelease"
  date <- formatTime defaultTimeLocale "%F %R UTC" <$> getCurrentTime
  load <- parseLoad <$> Text.readFile "/proc/loadavg"
  pure
    [ ("kind", Name "machine"),
      ("processor", maybe Absent Name model),
      ("processors", Count (fromIntegral processors)),
      ("kernel", Name kernel),
      ("ghc", Name (Text.pack (showVersion compilerVersion))),
      ("date", Name (Text.pack date)),
      ("load_before", figure load)
    ]

-- | Raise this process's limit of descriptors, which its children inherit, as far as it may; the
-- limit.
raiseDescriptors :: IO ResourceLimit
raiseDescriptors = do
  limits <- getResourceLimit ResourceOpenFiles
  setResourceLimit ResourceOpenFiles limits {softLimit = hardLimit limits}
  pure (hardLimit limits)

-- | The model of the first processor in @\/proc\/cpuinfo@.
parseModel :: Text -> Maybe Text
parseModel text = listToMaybe [Text.strip (Text.drop 1 value) | line <- Text.lines text, let (key, value) = Text.breakOn ":" line, Text.strip key == "model name"]

-- | The mean of the last minute in @\/proc\/loadavg@.
parseLoad :: Text -> Maybe Double
parseLoad text = case Text.double text of
  Right (load, _) -> Just load
  Left _ -> Nothing
