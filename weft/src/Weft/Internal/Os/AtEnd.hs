{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What remains to be done when a run has ended, and who may come in
--
-- Whoever is outside a run, in another OS thread or a thread of GHC, and waits for
-- something in it, must learn when the run is over: the action that tells it is left
-- here ("Weft.Outside", "Weft.STM"). One for each run. From any OS thread.
module Weft.Internal.Os.AtEnd
  ( AtEnd,
    newAtEnd,

    -- * Actions
    register,
    forget,
    runAll,

    -- * Open doors
    openDoor,
    closeDoor,
    openDoors,
  )
where

import Control.Exception (SomeException, try)
import Control.Monad (void)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap

-- | What a run leaves to be done.
data AtEnd = AtEnd !(IORef Actions) !(IORef Int)

data Actions
  = -- | The next key, and the actions.
    Running !Int !(IntMap (IO ()))
  | Over

-- | Nothing to do, nobody may come in.
newAtEnd :: IO AtEnd
newAtEnd = AtEnd <$> newIORef (Running 0 IntMap.empty) <*> newIORef 0

-- | Have an action run when the run has ended and its workers have stopped; at once if
-- that is so. It must not block. The key is for 'forget'.
register :: AtEnd -> IO () -> IO Int
register (AtEnd ref _) act = do
  key <- atomicModifyIORef' ref $ \case
    Running n acts -> (Running (n + 1) (IntMap.insert n act acts), n)
    Over -> (Over, -1)
  if key < 0 then key <$ act else pure key

-- | It is not needed any more.
forget :: AtEnd -> Int -> IO ()
forget (AtEnd ref _) key = atomicModifyIORef' ref $ \case
  Running n acts -> (Running n (IntMap.delete key acts), ())
  Over -> (Over, ())

-- | The run has ended. What an action throws is ignored.
runAll :: AtEnd -> IO ()
runAll (AtEnd ref _) =
  atomicModifyIORef' ref (Over,) >>= \case
    Running _ acts -> mapM_ (void . try @SomeException) acts
    Over -> pure ()

-- | Somebody outside may make a thread of the run go on: threads that all wait for
-- each other are no deadlock.
openDoor :: AtEnd -> IO ()
openDoor (AtEnd _ doors) = atomicModifyIORef' doors (\n -> (n + 1, ()))

-- | The opposite.
closeDoor :: AtEnd -> IO ()
closeDoor (AtEnd _ doors) = atomicModifyIORef' doors (\n -> (n - 1, ()))

-- | How many are open.
openDoors :: AtEnd -> IO Int
openDoors (AtEnd _ doors) = readIORef doors
