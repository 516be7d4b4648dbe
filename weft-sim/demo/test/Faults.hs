{-# LANGUAGE GADTs #-}
{-# LANGUAGE RankNTypes #-}

-- | The real system, but for some calls that are answered otherwise.
module Faults (runWithout, Instead (..), diskFull, inputOutputError) where

import Control.Exception (toException)
import GHC.IO.Exception (IOErrorType (..), IOException (..))
import Weft
import Weft.Internal.Core.Trace (Trace (Throw))
import Weft.Kernel

-- | The answer that replaces the true one.
data Instead a = Instead a | Raise IOError | TheTruth

-- | Run a thread whose calls are first shown to the function.
runWithout :: (forall a. SystemCall a -> IO (Instead a)) -> Thread b -> IO b
runWithout intercept = runWith defaultSettings {settingKernel = intercepted (settingKernel defaultSettings)}
  where
    intercepted kernel = kernel {openKernel = fmap opened . openKernel kernel}
    opened one = one {startKernel = fmap started . startKernel one}
    started :: Instance -> Instance
    started one = case instanceAnswer one of
      AnswerCall truth ->
        one
          { instanceAnswer = AnswerCall $ \tcb asked k ->
              intercept asked >>= \case
                Instead a -> pure (k a)
                Raise e -> pure (Throw (toException e))
                TheTruth -> truth tcb asked k
          }

diskFull, inputOutputError :: IOError
diskFull = IOError Nothing ResourceExhausted "write" "no space left on device" (Just 28) Nothing
inputOutputError = IOError Nothing HardwareFault "fsync" "input/output error" (Just 5) Nothing
