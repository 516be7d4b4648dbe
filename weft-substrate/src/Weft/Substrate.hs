-- |
-- Description : The parts of concurrency libraries
--
-- A substrate: the mechanisms of concurrency, without a policy. What a thread is, which thread runs next,
-- what waiting means are for a library on it, which is ordinary Haskell. (Li 2008, chapter 4.)
--
-- * A 'HEC' is a processor: an OS thread that runs one stack at a time.
-- * A 'StackId' names a computation that is suspended, and a 'switch' has the HEC go on with another.
-- * Transactions ('PTM') on variables ('PVar') are how HECs share memory. A switch is a part of its
--   transaction: a stack that finds another in a queue can switch to it.
-- * A HEC with handlers ('inCallWith') takes itself away from a stack that computes or blocks for long, and asks the library
--   what to run.
-- * Each stack has state of its own ('SLSKey'), such as which thread it is.
module Weft.Substrate
  ( -- * Transactions
    PTM,
    PVar,
    newPVar,
    newPVarIO,
    readPVar,
    readPVarIO,
    writePVar,
    throwPTM,
    catchPTM,
    atomicPTM,
    afterCommit,

    -- * HECs
    HEC,
    getHEC,
    sleepHEC,
    wakeupHEC,
    inCall,
    forkHEC,

    -- ** With handlers
    inCallWith,
    outCall,
    Handlers (..),
    Reason (..),

    -- * Stacks
    StackId,
    newStack,
    getStackId,
    switch,
    raiseAsync,

    -- ** As in the 2007 workshop version
    SCont,
    newSCont,
    switchWith,
    waitCond,

    -- * Stack-local state
    SLSKey,
    newSLSKey,
    getSLS,
    getSLSIO,
    setSLS,

    -- * Errors of use
    NotOnHEC (..),
    NotSuspended (..),
    CannotSwitch (..),
  )
where

import Weft.Substrate.Internal.Hec (forkHEC, inCall)
import Weft.Substrate.Internal.Local
import Weft.Substrate.Internal.Place
import Weft.Substrate.Internal.Raise (raiseAsync)
import Weft.Substrate.Internal.Stack
import Weft.Substrate.Internal.Takeover
import Weft.Substrate.Internal.Transaction
import Weft.Substrate.Internal.Types
