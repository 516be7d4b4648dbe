-- |
-- Description : What all commands ask of the system
--
-- The limit of open files, and what an error says to an operator.
module Weft.Cli.System
  ( raiseDescriptorLimit,
    explain,
  )
where

import Control.Exception (IOException, try)
import GHC.IO.Exception (IOException (..))
import System.Posix.Resource

-- | Raise the limit of open files as far as the system lets us; what it is then, 'maxBound'
-- for none.
raiseDescriptorLimit :: IO Int
raiseDescriptorLimit = do
  limits <- getResourceLimit ResourceOpenFiles
  raised <- try (setResourceLimit ResourceOpenFiles limits {softLimit = hardLimit limits})
  pure $ case either (\(_ :: IOException) -> softLimit limits) (\() -> hardLimit limits) raised of
    ResourceLimit n -> fromInteger (min 1_000_000_000 n)
    _ -> maxBound

-- | An 'IOError' on one line, without the parts that say nothing to an operator.
explain :: IOException -> String
explain e = case (ioe_location e, ioe_description e) of
  ("", description) -> description
  (location, description) -> maybe "" (<> ": ") (ioe_filename e) <> location <> ": " <> description
