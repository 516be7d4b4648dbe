-- |
-- Description : The allocation area of a load
-- Stability   : not home
--
-- The program's allocation area of 64 megabytes is for a server that runs for long and keeps
-- much. A load runs for seconds and keeps next to nothing: it would only ever touch fresh
-- memory, page by page. An area that fits into the processor's cache makes a request cheaper
-- (measured twice on a busy machine, of the processor time that @wrk@ needs: 1.22 and 1.05
-- before, 0.97 and 0.99 with 2 megabytes). An area is chosen when a program starts, so it is
-- started again, as the same process.
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
