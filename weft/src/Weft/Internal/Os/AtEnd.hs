{-# OPTIONS_HADDOCK not-home #-}

-- | Actions for the end of a run, and the callers outside of it: one that waits for something in the run
-- learns here when it is over ("Weft.Outside", "Weft.STM"). From any OS thread.
module Weft.Internal.Os.AtEnd
  ( AtEnd,
    newAtEnd,
    register,
    forget,
    runAll,
    addOutsider,
    removeOutsider,
    outsiders,
  )
where

import Control.Exception (SomeException, try)
import Control.Monad (void)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap

data AtEnd = AtEnd !(IORef Actions) !(IORef Int)

data Actions
  = -- | The next key, and the actions.
    Running !Int !(IntMap (IO ()))
  | Over

newAtEnd :: IO AtEnd
newAtEnd = AtEnd <$> newIORef (Running 0 IntMap.empty) <*> newIORef 0

-- | Have an action run when the run and its workers have ended; at once if that is so. It must not
-- block. The key is for 'forget'.
register :: AtEnd -> IO () -> IO Int
register (AtEnd ref _) act = do
  key <- atomicModifyIORef' ref $ \case
    Running n acts -> (Running (n + 1) (IntMap.insert n act acts), n)
    Over -> (Over, -1)
  if key < 0 then key <$ act else pure key

forget :: AtEnd -> Int -> IO ()
forget (AtEnd ref _) key = atomicModifyIORef' ref $ \case
  Running n acts -> (Running n (IntMap.delete key acts), ())
  Over -> (Over, ())

-- | The run has ended: run all actions. Their exceptions are ignored.
runAll :: AtEnd -> IO ()
runAll (AtEnd ref _) =
  atomicModifyIORef' ref (Over,) >>= \case
    Running _ acts -> mapM_ (void . try @SomeException) acts
    Over -> pure ()

-- | Code outside the run may make a thread of the run go on: threads that all wait for each other are
-- no deadlock. Taken back by 'removeOutsider'.
addOutsider, removeOutsider :: AtEnd -> IO ()
addOutsider (AtEnd _ count) = atomicModifyIORef' count (\n -> (n + 1, ()))
removeOutsider (AtEnd _ count) = atomicModifyIORef' count (\n -> (n - 1, ()))

outsiders :: AtEnd -> IO Int
outsiders (AtEnd _ count) = readIORef count
