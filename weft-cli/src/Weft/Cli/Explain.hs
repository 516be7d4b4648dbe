-- |
-- Description : What an error says to an operator
module Weft.Cli.Explain (explain) where

import GHC.IO.Exception (IOException (..))

-- | An 'IOError' on one line, without the parts that say nothing to an operator.
explain :: IOException -> String
explain e = case (ioe_location e, ioe_description e) of
  ("", description) -> description
  (location, description) -> maybe "" (<> ": ") (ioe_filename e) <> location <> ": " <> description
