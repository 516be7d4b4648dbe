{-# LANGUAGE OverloadedStrings #-}

-- |
-- Results of children in the order in which the children end.
--
-- >>> import Weft
-- >>> import Weft.Scope
-- >>> :{
-- run . withScope $ \scope -> do
--   downloads <- newJoinSet scope
--   mapM_ (\n -> forkInSet downloads (sleep (milliseconds n) >> pure n)) [20, 1, 10]
--   let results = joinNext downloads >>= maybe (pure []) (\n -> (n :) <$> results)
--   results
-- :}
-- [1,10,20]
--
-- Children can be added at any time, by a child too: take a result, fork what follows from it, until
-- there is none. (After the @JoinSet@ of tokio.)
module Weft.JoinSet (JoinSet, newJoinSet, forkInSet, joinNext) where

import Control.Monad (when)
import Control.Monad.Catch (mask_, onException, throwM)
import Data.IORef
import Weft.Channel
import Weft.Internal.Core.Trace
import Weft.Internal.Sync.Scope (ChildKind (..), ScopeEnding (..), forkInto)
import Weft.Scope

-- | Children of a scope whose results are taken one after the other.
data JoinSet a = JoinSet
  { joinScope :: !Scope,
    -- | Results; and 'Nothing' for a child that the scope refused when a thread waited for its result.
    joinEnded :: !(Channel (Maybe (Either ChildFailed a))),
    -- | Children whose result no thread has taken or waits for. Each of these sends one.
    joinLeft :: !(IORef Int)
  }

-- | An empty set, of children of this scope.
newJoinSet :: Scope -> Thread (JoinSet a)
newJoinSet scope = JoinSet scope <$> newUnboundedChannelNamed "results of children" <*> effect (newIORef 0)

-- | Fork a thread into the scope, as 'Weft.Scope.forkIn'; its result comes to 'joinNext'.
forkInSet :: JoinSet a -> Thread a -> Thread ThreadId
forkInSet set body = mask_ $ do
  -- Before the thread: its result may come before this returns.
  count set 1
  forkInto (joinScope set) Awaited defaultForkOptions body ended `onException` refused
  where
    refused = do
      awaited <- effect . atomicModifyIORef' (joinLeft set) $ \n -> if n > 0 then (n - 1, False) else (n, True)
      when awaited (send (joinEnded set) Nothing)
    -- Masked, and there is room: so it does not wait, and is not interrupted.
    ended = \case
      Right a -> Quiet <$ send (joinEnded set) (Just (Right a))
      Left e -> do
        failed <- internal (\_ tcb -> pure (ChildFailed (ThreadId (tcbIdentity tcb)) (tcbLabel tcb) e))
        Failing e <$ send (joinEnded set) (Just (Left failed))

-- | Take the result of the child that has ended first, of those whose result was not taken yet; wait
-- for one. 'Nothing' if there is no child whose result no other thread has taken or waits for.
-- Cancellable; a thread that is cancelled has taken nothing.
--
-- Raises 'ChildFailed' if the child has failed or was cancelled. A failure also ends the scope; where
-- it is expected, the body makes it a result (@'Weft.try' body@).
joinNext :: JoinSet a -> Thread (Maybe a)
joinNext set = mask_ $ do
  claimed <- effect . atomicModifyIORef' (joinLeft set) $ \n -> if n > 0 then (n - 1, True) else (n, False)
  if claimed
    then
      (receive (joinEnded set) `onException` count set 1) >>= \case
        Just (Just result) -> either throwM (pure . Just) result
        Just Nothing -> joinNext set
        Nothing -> pure Nothing
    else pure Nothing

count :: JoinSet a -> Int -> Thread ()
count set by = effect (atomicModifyIORef' (joinLeft set) (\n -> (n + by, ())))
