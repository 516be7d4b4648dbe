{-# OPTIONS_HADDOCK not-home #-}

-- | Waits for foreign descriptors, on the real system. Puts a thread that waits for a foreign
-- descriptor into the table of the process, by which it is told of a close, and has the backend wait.
-- On the worker that owns the 'Env'.
module Weft.Internal.Kernel.Foreign (awaitForeign) where

import Control.Monad (when)
import Data.IORef
import Foreign.C.Types (CInt)
import GHC.Exts (oneShot)
import GHC.Stack (emptyCallStack)
import Weft.Internal.Backend
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.SystemCall (SystemCall (SleepUntil))
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration (..), Instant (..), after)
import Weft.Internal.Kernel (hostPost)
import Weft.Internal.Kernel.Env
import Weft.Internal.Os.Foreign
import Weft.Internal.Os.Sys qualified as Sys

-- | Answer this request by this operation on this number: Note [A number that is closed].
awaitForeign :: Env -> Operation -> CInt -> SystemCall () -> Wait -> (() -> Trace) -> IO Trace
awaitForeign env operation number request wait k = do
  -- The answer of 'submit' while it says that the operation is pending, else 0.
  place <- newIORef 0
  let this = ForeignWait place . hostPost (envHost env) $ do
        answer <- readIORef place
        when (isPending answer) $ cancel (envBackend env) (answerToken answer)
      outcome r = (\open -> if open then r else Sys.badDescriptor) <$> withdraw number this
      -- Named as base names it, whose callers know it by that.
      next = failing "threadWait" Nothing (\_ -> k ())
  entered <- enter number this
  if not entered
    then tryLater
    else do
      answer <- submit (envBackend env) operation . Completion wait $ \r -> do
        writeIORef place 0
        result <- outcome r
        completed env Completed wait result (oneShot (\_ -> next result))
      if isPending answer
        then do
          writeIORef place answer
          countPending env 1
          interruptible (waitTcb wait) (cancel (envBackend env) (answerToken answer))
          pure Parked
        else next <$> outcome answer
  where
    -- The number is being closed.
    tryLater = do
      now <- Sys.monotonicNow
      pure (Call emptyCallStack (SleepUntil (Duration 1_000_000 `after` Instant now)) (\_ -> Call emptyCallStack request k))
