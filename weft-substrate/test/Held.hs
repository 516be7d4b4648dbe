-- |
-- Description : A program that ends only if HECs steal
--
-- For the scheduler of the example @Stealing@, on two HECs. Used by two test-suites: over OS threads, and
-- over the explorer.
module Held (Held (..), held, wrong) where

import Control.Monad (forM_)
import Data.IORef
import Data.List (sort)
import Stealing
import Weft.Substrate

-- | A program, and what its threads have done.
data Held = Held
  { heldProgram :: IO (),
    -- | The threads that have ended.
    heldEnds :: IORef [String],
    -- | How many stacks are in queues.
    heldLeft :: IO Int
  }

-- | One thread keeps its HEC, asleep, until another has run. Both come into the queue of one HEC, so one
-- of the two has to be stolen.
held :: IO Held
held = do
  ends <- newIORef []
  pool <- newIORef Nothing
  flag <- newPVarIO False
  waiter <- newPVarIO Nothing
  let end name = atomicModifyIORef' ends (\es -> (name : es, ()))
      await =
        waitCond $
          readPVar flag >>= \case
            True -> pure (Just ())
            False -> Nothing <$ (getHEC >>= writePVar waiter . Just)
      raise = atomicPTM (writePVar flag True >> readPVar waiter >>= mapM_ wakeupHEC)
  pure
    Held
      { heldProgram = run 2 $ \p -> do
          writeIORef pool (Just p)
          forM_ [("waits", await), ("raises", raise)] (\(name, act) -> fork p (act >> end name))
          end "main",
        heldEnds = ends,
        heldLeft = do
          ws <- readIORef pool >>= maybe (pure mempty) (readPVarIO . workers)
          sum <$> mapM (fmap length . readPVarIO . ready) ws
      }

-- | The violations at the end of a run.
wrong :: Held -> IO [String]
wrong h = do
  ends <- sort <$> readIORef (heldEnds h)
  left <- heldLeft h
  pure (["ended: " <> unwords ends | ends /= ["main", "raises", "waits"]] <> ["left in queues: " <> show left | left /= 0])
