{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Exceptions that come from outside, and lazy values
--
-- How an exception is raised so that a lazy value, which it leaves, can be evaluated later.
module Weft.Substrate.Internal.Raise (raiseAsync, raiseAgain, fromWithin) where

import Control.Concurrent (myThreadId, throwTo)
import Control.Exception (Exception (..), SomeAsyncException (..), SomeException, throwIO)

-- Note [Lazy values that are left]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An exception that comes from outside leaves a lazy value as far as it has been evaluated. One that is raised by throwIO
-- becomes the value: each thread that needs it later has the exception. A handler of GHC's that does not take an exception
-- raises it by throwIO, whatever it was before. So code that may run in a lazy value, and has a handler,
--
--   1. raises what it does not take by `raiseAgain`, and in the handler, which is masked: a second exception would replace
--      the first else;
--   2. says there how it begins again, because the value is evaluated from there on when it is next needed;
--   3. asks again which HEC, stack and thread this is: it may be another. What was asked before the handler is not used
--      after it, and what is asked in code that a handler surrounds is dropped with it.
--
-- A value that was left in a handler, or in masked code, keeps GHC's frame that unmasks, as one that was left in any mask_ of
-- GHC's does: a thread that evaluates it while it is masked itself is unmasked from then on. To make the exception
-- pending, to be raised as the handler is left, was tried: it was taken for another that was on its way, and came too late.

-- | Raise an exception here as if it had come from outside: what is being evaluated is left as it is,
-- and goes on from there if it is needed again. Also where exceptions are masked: code that posts
-- one to a stack asks first. (Li 2008, section 4.4.3.)
raiseAsync :: (Exception e) => e -> IO ()
raiseAsync e = myThreadId >>= \me -> throwTo me e

-- | Raise an exception that was caught and is not handled, as it had come. Where it came from outside, a lazy value that is
-- left here goes on with the action.
raiseAgain :: SomeException -> IO a -> IO a
raiseAgain e again = if fromWithin e then throwIO e else raiseAsync e >> again

-- | Is it an exception of the code itself? One from outside that says so, too, is taken for such a one.
fromWithin :: SomeException -> Bool
fromWithin e = case fromException e of
  Just (SomeAsyncException _) -> False
  Nothing -> True
