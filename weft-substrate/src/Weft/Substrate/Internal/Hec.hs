{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : HECs, from their beginning to their end
--
-- A HEC is made by an in-call, is carried by an OS thread, and runs stacks until one has ended and the library goes on
-- with no other. Called on the HEC's own OS thread.
module Weft.Substrate.Internal.Hec (inCall, inCallEnding, forkHEC, newHEC, withStack, carryOn, ended) where

import Control.Exception (SomeException, catch, handle, mask, throwIO, try)
import Control.Monad (void, when)
import Data.IORef (IORef, atomicModifyIORef', newIORef, readIORef, writeIORef)
import GHC.Exts
import GHC.IO (IO (..), unIO)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Substrate.Internal.Commit
import Weft.Substrate.Internal.Ground
import Weft.Substrate.Internal.Place
import Weft.Substrate.Internal.Stack
import Weft.Substrate.Internal.Transaction
import Weft.Substrate.Internal.Types

-- | Run an action on a new HEC, on a new stack: how code outside of the substrate calls code inside,
-- and the only way to make a HEC. The HEC is carried by this OS thread, if it is bound, or by a
-- new one. It ends when the stack that it runs ends; 'Nothing' if that is another stack than the
-- first, so that there is no result. What ends with an exception ends the HEC, and the exception is
-- raised here.
--
-- Unlike other stacks the first begins in the masking state of the caller, without a moment in another. Called on a HEC, that
-- one waits meanwhile, with its stack. An exception that another thread of GHC's throws at this
-- OS thread is raised in the stack that runs on the HEC then.
inCall :: IO a -> IO (Maybe a)
inCall = inCallEnding (\_ -> pure Nothing)

-- | 'inCall', for a library whose stacks do not say what follows them: where this answers something for a stack, its end
-- does not end the HEC. To say it in each stack would be two frames more at which each capture looks.
inCallEnding :: (StackId -> IO (Maybe Successor)) -> IO a -> IO (Maybe a)
inCallEnding ending act = onCarrier $ mask $ \restore -> do
  result <- newIORef Nothing
  first <- newStackIn Nothing id (restore act >>= writeIORef result . Just)
  h <- newHEC first ending Free
  rest <- takeRest first
  -- The HEC may be given to another OS thread, where one of its stacks waits.
  withPlace (Just h) (carryOn h rest) >>= maybe (ended h) pure >>= either throwIO pure
  readIORef result

-- | Wait for the end of a HEC that another OS thread carries, and pass on to its stack what other threads of GHC's throw here.
ended :: HEC -> IO (Either SomeException ())
ended h = passGate (hecEnd h) `catch` \e -> throwToCarrier (hecCarrier h) e >> ended h

-- | Be the OS thread of a HEC that is about to run this stack, until the HEC ends, or is given to another OS thread: then
-- there is no answer. Masked.
carryOn :: HEC -> Rest -> IO (Maybe (Either SomeException ()))
carryOn h rest = try (runStack h rest) >>= finish

-- | The stack that this OS thread runs has ended so, and with it its HEC, if the library does not go on there. A stack that
-- was displaced comes back before.
finish :: Either SomeException () -> IO (Maybe (Either SomeException ()))
finish r = placeHere Nothing >>= maybe (pure Nothing) ending
  where
    ending h = do
      here <- IO (readMutVar# (hecStack h))
      next <- hecEnding h here >>= traverse (\after -> newStackIn Nothing id (either (successorThrow after) pure r >> switch (successorNext after)))
      mine <- leaves h here next
      case next of
        _ | not mine -> try comeBack >>= either brought (const (finish r))
        Just new -> do
          IO (\s -> case writeMutVar# (hecStack h) new s of s1 -> (# s1, () #))
          takeRest new >>= carryOn h
        Nothing -> pure (Just r)
    -- An exception of the handler has no stack any more to be raised in. It ends the HEC that came next.
    brought e =
      placeHere Nothing >>= \case
        Nothing -> pure Nothing
        Just now -> do
          here <- IO (readMutVar# (hecStack now))
          gone <- leaves now here Nothing
          pure (if gone then Just (Left e) else Nothing)

-- | From now on the HEC runs this stack, or nothing. 'False' if the one that it ran here was displaced.
leaves :: HEC -> StackId -> Maybe StackId -> IO Bool
leaves h here next = case hecGoverned h of
  Free -> pure True
  Governed running _ _ ->
    atomicPTM $ do
      mine <- isHere here <$> readPVar running
      when mine (writePVar running next)
      pure mine

-- | A HEC that is about to run this stack.
newHEC :: StackId -> (StackId -> IO (Maybe Successor)) -> Governed -> IO HEC
newHEC first ending governed = do
  number <- atomicModifyIORef' hecs (\n -> (n + 1, n))
  asleep <- newPVarIO Nothing
  bed <- newBed
  end <- newGate
  carrier <- newCarried
  IO (\s -> case newMutVar# first s of (# s1, v #) -> case tag of Tag t -> (# s1, HEC number asleep bed v end ending carrier governed t #))

-- | The record of a HEC for another OS thread, which is about to run this stack.
withStack :: HEC -> StackId -> IO HEC
withStack h t = do
  bed <- newBed
  IO (\s -> case newMutVar# t s of (# s1, v #) -> (# s1, h {hecBed = bed, hecStack = v} #))

-- | Run a stack on a HEC, and all to which it switches or that follow it, until one ends that nothing follows, or the HEC is
-- given to another OS thread.
runStack :: HEC -> Rest -> IO ()
runStack h rest = handle (throwIO . named) (IO (enter h rest goOn) >> followed)

-- | A stack has returned here: enter what follows it, if its HEC has no handlers. Where it has, the stack may have been
-- displaced, and 'finish' does this.
followed :: IO ()
followed =
  placeHere Nothing >>= \case
    Just h | Free <- hecGoverned h -> do
      here <- IO (readMutVar# (hecStack h))
      hecEnding h here >>= \case
        -- In the place of this call, however many follow each other.
        Just after -> IO (enterNext h here (successorNext after)) >> followed
        Nothing -> pure ()
    _ -> pure ()

-- | Enter the stack that a transaction chooses, on a HEC without handlers, in place of one that has ended.
enterNext :: HEC -> StackId -> PTM StackId -> State# RealWorld -> (# State# RealWorld, () #)
enterNext h here@(StackId slots) (PTM m) = attempt 0#
  where
    attempt k s = case begin s of
      (# s1, n #) -> case m (On h here) Nil n s1 of
        (# s2, l, n1, target #) -> case n1 of
          Conflict -> case failed k s2 of s3 -> attempt (k +# 1#) s3
          Asleep -> case goToSleep l s2 of s3 -> attempt 0# s3
          _ | StackId wanted <- target -> case commitEnd l n1 slots wanted s2 of
            (# s3, Done, rest #) -> case writeMutVar# (hecStack h) target s3 of s4 -> base h rest goOn s4
            (# s3, Failed, _ #) -> case failed k s3 of s4 -> attempt (k +# 1#) s4
            (# s3, _, _ #) -> unIO (throwIO NotSuspended) s3

-- | The number of the next HEC.
hecs :: IORef Int
hecs = unsafePerformIO (newIORef 0)
{-# NOINLINE hecs #-}

-- | Start an OS thread that makes an 'inCall', and does not wait for it. What its stacks throw is
-- reported by GHC, as of any thread.
forkHEC :: IO () -> IO ()
forkHEC act = forkCarrier (void (inCall act))
