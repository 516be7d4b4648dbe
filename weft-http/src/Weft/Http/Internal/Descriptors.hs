{-# OPTIONS_HADDOCK not-home #-}

-- | The process's limit of open descriptors. Not blocking; from any thread.
module Weft.Http.Internal.Descriptors (mostDescriptors, raiseDescriptors) where

import Control.Exception (IOException, try)
import Control.Monad (void)
import System.Posix.Resource

-- | The limit of open descriptors; 'maxBound' without one.
mostDescriptors :: IO Int
mostDescriptors =
  getResourceLimit ResourceOpenFiles >>= \limits -> pure $ case softLimit limits of
    ResourceLimit n -> fromInteger (min (toInteger (maxBound :: Int)) n)
    _ -> maxBound

-- | Raise the limit as far as the system permits, and return it.
raiseDescriptors :: IO Int
raiseDescriptors = do
  limits <- getResourceLimit ResourceOpenFiles
  void (try @IOException (setResourceLimit ResourceOpenFiles limits {softLimit = hardLimit limits}))
  mostDescriptors
