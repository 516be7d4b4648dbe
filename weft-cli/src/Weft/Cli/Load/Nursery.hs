-- |
-- Description : The allocation area of a load
-- Stability   : not home
--
-- The program's allocation area of 64 megabytes is for a server that runs for long and keeps
-- much. A load runs for seconds and keeps next to nothing: it would only ever touch fresh memory,
-- page by page. With an area that fits into the processor's cache a request costs a fifth less
-- on a busy machine (measured: 1.22 of what @wrk@ needs, and 0.97). An area is chosen when a
-- program starts, so it is started again, as the same process.
module Weft.Cli.Load.Nursery (withSmallNursery) where

import Control.Exception (IOException, try)
import GHC.Environment (getFullArgs)
import System.Environment (getEnvironment, getExecutablePath)
import System.Posix.Process (executeFile)

-- | Go on with a small allocation area. Where somebody has chosen flags in @GHCRTS@ those hold;
-- flags on the command line hold in any case.
withSmallNursery :: IO a -> IO a
withSmallNursery go = do
  variables <- getEnvironment
  case lookup name variables of
    Just _ -> go
    Nothing -> do
      program <- getExecutablePath
      -- With those of the run-time system; the first is the name of the program.
      args <- drop 1 <$> getFullArgs
      -- It does not come back, unless it cannot be done; then the load is a little dearer.
      _ <- try (executeFile program False args (Just ((name, "-A2m") : variables))) :: IO (Either IOException ())
      go
  where
    name = "GHCRTS"
