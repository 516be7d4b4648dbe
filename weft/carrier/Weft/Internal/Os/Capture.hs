{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Prompt tags, as GHC's collector bears them
--
-- Makes the tags between which @prompt#@ and @control0#@ capture a part of a stack, and what has
-- to be there before the first capture. Called once for each kind of segment: a tag is a
-- constant of its program.
module Weft.Internal.Os.Capture (newTag) where

import Control.Exception.Base (noMatchingContinuationPrompt)
import Foreign.StablePtr (newStablePtr)
import GHC.Exts (PromptTag#, RealWorld, State#, newMutVar#, unsafeCoerce#)
import GHC.IO (unIO)

-- Note [The run-time system's exception]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- control0# raises a constant of base that the run-time system knows by its address. GHC (9.6.6)
-- does not count that as a reference: once evaluated, the constant is freed by a major
-- collection, the next failing control0# raises whatever is then at its place, and the process
-- dies. A stable pointer, made with the tag and so before the first control0#, keeps it.

-- Note [Prompt tags of two words]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- `newPromptTag#` (GHC 9.6 to 9.10) makes an object of one word. The run-time system needs two:
-- the compacting collector (`+RTS -c`, and `-M` near its limit) keeps two mark bits for each
-- object, one in each of its first two words, so the second bit of a one-word tag is the first
-- bit of its neighbour. A compaction corrupts a program that keeps such tags alive, and the
-- sanity checks of the debugging run-time system (`-debug`, `+RTS -DS`) stop it. A tag is only
-- compared by address (`captureContinuationAndAbort`), so a variable, two words, serves.

-- | A new tag. See Note [Prompt tags of two words].
newTag :: State# RealWorld -> (# State# RealWorld, PromptTag# a #)
newTag s = case unIO (newStablePtr noMatchingContinuationPrompt) s of
  (# s1, _ #) -> case newMutVar# () s1 of (# s2, var #) -> (# s2, unsafeCoerce# var #)
