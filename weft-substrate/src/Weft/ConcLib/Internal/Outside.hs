{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Calls that block
--
-- They are performed on threads of GHC's, which has OS threads for them. (The pool of HECs for
-- out-calls of Li 2008, section 5.2.2.)
module Weft.ConcLib.Internal.Outside (outside) where

import Control.Concurrent qualified as GHC
import Control.Exception (MaskingState (..), catch, getMaskingState, mask_, try, uninterruptibleMask_)
import Control.Monad (void)
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Maybe (isJust)
import Weft.ConcLib.Internal.Threads
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate
import Weft.Substrate.Internal.Raise (raiseAgain)

-- | Perform an action that blocks on a thread of GHC's, and let other threads run meanwhile. An
-- exception that is thrown at this thread is thrown at the action; if the action has ended before, it is
-- raised here later. (An out-call.)
outside :: IO a -> IO a
outside act = getMaskingState >>= mask_ . performOutside act

-- | Masked: an exception that comes is raised where this waits, or later. Told in which state the action is to be performed.
performOutside :: IO a -> MaskingState -> IO a
performOutside act masking = do
  done <- newPVarIO Nothing
  waiting <- newPVarIO Nothing
  interrupted <- newPVarIO False
  ended <- newPVarIO False
  thrown <- GHC.newEmptyMVar
  worker <- GHC.forkIOWithUnmask $ \unmask -> do
    r <- try (if masking == Unmasked then unmask act else act)
    coming <- atomicPTM (writePVar ended True >> readPVar interrupted)
    -- The exception has been raised in the action, or is raised here, where it waits to be thrown.
    late <- if coming then either Just (\() -> Nothing) <$> try (GHC.takeMVar thrown) else pure Nothing
    atomicPTM $ do
      writePVar done (Just (r, late))
      readPVar waiting >>= mapM_ (`give` ())
  interruption <- newIORef Nothing
  let wait =
        performWaiting (succeedsIf . isJust <$> readPVar done) (\() w -> writePVar waiting (Just w))
      -- The action may be masked: then 'GHC.throwTo' would wait here.
      raisedWhileWaiting e = do
        over <- atomicPTM (readPVar ended >>= \over -> over <$ writePVar interrupted (not over))
        if over
          then writeIORef interruption (Just e)
          else void (GHC.forkIO (GHC.throwTo worker e >> GHC.putMVar thrown ()))
  wait `catch` raisedWhileWaiting
  let end = readPVarIO done >>= maybe (uninterruptibleMask_ wait >> end) pure
  (r, late) <- end
  readIORef interruption >>= mapM_ postpone
  mapM_ postpone late
  either (`raiseAgain` outside act) pure r
