-- |
-- Description : The measurements of a run that may be interrupted
--
-- A file with a line that says which run it is of (program, machine, extent), and a line for each
-- measurement, written as soon as there is one. A run that finds its own line goes on from there.
module Weft.Bench.Works.State (resume, keep) where

import Control.Monad (when)
import Data.ByteString.Char8 qualified as Bytes
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.Either (rights)
import System.Directory (createDirectoryIfMissing, doesFileExist)
import System.FilePath (takeDirectory)
import Weft.Bench.Contest (Sample, parseSample, sampleRow)
import Weft.Bench.Report (Row, renderJson)

-- | The samples of the run that the row identifies; none, and a file without measurements, if
-- the file is of another run or is not there.
resume :: FilePath -> Row -> IO [Sample]
resume file run = do
  there <- doesFileExist file
  old <- if there then Bytes.readFile file else pure ""
  case Bytes.lines old of
    first : samples | first == header -> do
      -- A line that was cut short by the end of the program is measured again, and is not to run into the next.
      when (Bytes.last old /= '\n') (Bytes.appendFile file "\n")
      pure (rights (map parseSample samples))
    _ -> [] <$ (createDirectoryIfMissing True (takeDirectory file) >> Bytes.writeFile file (header <> "\n"))
  where
    header = Lazy.toStrict (renderJson run)

-- | Add a sample to the file.
keep :: FilePath -> Sample -> IO ()
keep file sample = Lazy.appendFile file (renderJson (sampleRow sample) <> "\n")
