{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Bugs that tests plant
--
-- Mistakes that one could make in the substrate, by name. The library @explored@ makes one of them
-- when it is told to, so that its tests can show that the explorer finds it. The library itself
-- is compiled without any.
module Weft.Substrate.Internal.Bugs (Bug (..)) where

-- | A mistake in the substrate.
data Bug
  = -- | 'Weft.Substrate.switch' commits before the stack that it leaves is captured.
    CommitBeforeCapture
  | -- | What is left of a stack is stored before the commit, and not in it.
    StoreBeforeCommit
  | -- | A switch does not look whether its target is suspended.
    TargetUnchecked
  | -- | A switch looks at its target before it has the lock.
    TargetCheckedEarly
  | -- | A HEC is said to sleep after its transaction, and not in it.
    AsleepAfterCommit
  | -- | Only a transaction that returns has its writes published, not one that sleeps.
    SleepDropsWrites
  | -- | A wake-up is given while the transaction runs, which may yet fail.
    WakeBeforeCommit
  | -- | Whether a HEC sleeps is read beside the log.
    WakeUnlogged
  | -- | A read is not compared with the reads before it.
    ReadUnvalidated
  | -- | A commit that finds the lock taken since takes it later, and does not look at its reads again.
    CommitUnvalidated
  | -- | A commit does not take the lock.
    LockNotTaken
  | -- | The lock is given back before the last write.
    UnlockEarly
  | -- | What failed inside a 'Weft.Substrate.catchPTM' is no condition of the commit.
    CatchForgetsReads
  | -- | What failed inside a 'Weft.Substrate.catchPTM' has its writes published.
    CatchKeepsWrites
  | -- | A stack does not look whether it was displaced from its HEC.
    DisplacementUnseen
  | -- | A HEC that sleeps has its stack displaced.
    SleeperDisplaced
  | -- | A displaced stack can be entered before the transaction is committed that says so.
    ReturnBeforeCommit
  deriving stock (Eq, Show, Enum, Bounded)
