-- |
-- Description : The limit of open descriptors
-- Stability   : not home
--
-- How many descriptors the process may have. Not blocking; may be called from anywhere.
module Weft.Http.Internal.Descriptors
  ( mostDescriptors,
    raiseDescriptors,
  )
where

import Control.Exception (IOException, try)
import Control.Monad (void)
import System.Posix.Resource

-- | How many the process may have; 'maxBound' if that is not limited.
mostDescriptors :: IO Int
mostDescriptors =
  getResourceLimit ResourceOpenFiles >>= \limits -> pure $ case softLimit limits of
    ResourceLimit n -> fromInteger (min (toInteger (maxBound :: Int)) n)
    _ -> maxBound

-- | Raise the limit as far as the system lets us, which may be not at all; what it is then.
raiseDescriptors :: IO Int
raiseDescriptors = do
  limits <- getResourceLimit ResourceOpenFiles
  void (try @IOException (setResourceLimit ResourceOpenFiles limits {softLimit = hardLimit limits}))
  mostDescriptors
