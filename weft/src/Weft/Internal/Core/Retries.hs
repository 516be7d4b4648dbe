{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# LANGUAGE UnliftedFFITypes #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Transactions that conflict, or wait for a change. Those of one worker that have called @retry@ a moment
-- ago, before GHC waits for them: what each has read, and how its thread is told to run it again. The worker
-- looks for changes after a transaction of its own and after each slice, and tells all before it sleeps: Note
-- [Waiting in a transaction] in "Weft.STM". On the worker only, but for 'someWait' and 'whatIsRead'.
module Weft.Internal.Core.Retries
  ( -- * Transactions that conflict
    BackOff,
    newBackOff,
    transactionally,

    -- * Transactions that wait
    Retries,
    newRetries,
    Found (..),
    Credit,
    fullCredit,
    ReadSet,
    whatIsRead,
    hasChanged,
    addRetry,
    someWait,
    lookAgain,
    tellAll,
  )
where

import Control.Monad (filterM, unless, when)
import Control.Monad.STM (STM, atomically)
import Data.Bits (unsafeShiftR)
import Data.List qualified as List
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import GHC.Conc (unsafeIOToSTM)
import GHC.Exts
import GHC.IO (IO (..))
import Weft.Internal.Os.Sys (spin)

-- Note [Conflicts]
-- ~~~~~~~~~~~~~~~~
-- GHC runs a transaction again at once when another has committed to one of its variables, and two workers
-- that change one variable then disturb each other all the time: each run moves the variable between
-- processors. So a transaction waits twice as long as the last time before it runs again, and less after each
-- that ran once (after the contention manager /Polite/ of Herlihy, Luchangco, Moir & Scherer 2003, /Software
-- transactional memory for dynamic-sized data structures/). The worker waits in user code, at most 'longest'.

-- | Of one worker: how often its transaction has begun, and the last wait of one that ran again.
newtype BackOff = BackOff (MutablePrimArray RealWorld Int)

newBackOff :: IO BackOff
newBackOff = do
  a <- newPrimArray 2
  setPrimArray a 0 2 0
  pure (BackOff a)

-- | 'atomically' that waits before it runs the transaction again. On the worker; a carrier that has
-- lost it may still run one, which can make a wait too short or too long.
transactionally :: BackOff -> STM a -> IO a
transactionally (BackOff a) tx = do
  writePrimArray a begun 0
  r <- atomically (unsafeIOToSTM again >> tx)
  n <- readPrimArray a begun
  wait <- readPrimArray a pause
  when (n == 1 && wait > 0) (writePrimArray a pause (wait - 1 - wait `unsafeShiftR` 8))
  pure r
  where
    again = do
      n <- readPrimArray a begun
      writePrimArray a begun (n + 1)
      when (n > 0) $ do
        wait <- min longest . max shortest . (2 *) <$> readPrimArray a pause
        writePrimArray a pause wait
        spin wait
    begun = 0
    pause = 1

-- | In nanoseconds.
shortest, longest :: Int
shortest = 250
longest = 64_000

-- | The transactions that wait, the newest first.
data Retries = Retries
  { -- | Is each told only when what it has read has changed?
    retriesSelective :: !Bool,
    retriesWaiting :: !(MutVar RealWorld [Retry])
  }

-- | What it has read, how much looking it is still worth, whether its thread waits still, and how that is told.
data Retry = Retry !ReadSet !Credit !(IO Bool) !(Found -> IO Bool)

-- | What the worker may still spend on one wait, in variables that are compared.
type Credit = Int

-- | About what a thread of GHC's costs.
fullCredit :: Credit
fullCredit = 1000

-- | What it costs, beside the comparisons, to look at a wait, and to run its transaction again.
lookPrice, tryPrice :: Credit
lookPrice = 4
tryPrice = 50

-- | What a thread that waits is told.
data Found
  = -- | Run the transaction again, and if it must wait again, with this credit.
    Changed !Credit
  | -- | The worker looks no more: have GHC wait.
    NoMore

-- | A simulation is not selective: two runs of one program may keep equal values in different places.
newRetries :: Bool -> IO Retries
newRetries selective = Retries selective <$> newMutVar []

-- | A transaction has called @retry@: what it has read, its credit, whether its thread waits still, and
-- how to tell it, which does nothing when the wait is over. Answers how to withdraw it in a simulation,
-- where no look may come for long.
addRetry :: Retries -> ReadSet -> Credit -> IO Bool -> (Found -> IO Bool) -> IO (IO ())
addRetry (Retries selective waiting) reads' credit waits tell = do
  modifyMutVar' waiting (Retry reads' credit waits tell :)
  pure . unless selective $
    readMutVar waiting >>= filterM (\(Retry _ _ it _) -> it) >>= writeMutVar waiting

-- | May be a little old where the carrier has lost its worker.
someWait :: Retries -> IO Bool
someWait retries = not . null <$> readMutVar (retriesWaiting retries)

-- | Tell those whose variables have changed, the oldest first, and those whose credit is spent. One look
-- costs no more than one wait may: the oldest, for which nothing is left, wait with GHC. Drops the cancelled.
lookAgain :: Retries -> IO ()
lookAgain retries =
  readMutVar (retriesWaiting retries) >>= \case
    [] -> pure ()
    waiting
      | retriesSelective retries -> go fullCredit [] [] waiting
      | otherwise -> tellAll retries (Changed fullCredit)
  where
    -- What is left of this look, those who wait still, newest last, and what is told.
    go !budget left told = \case
      it@(Retry reads' credit waits tell) : rest ->
        waits >>= \case
          False -> go (budget - 1) left told rest
          True
            | price >= credit -> go (budget - lookPrice) left (tell NoMore : told) rest
            | price > budget -> done left (List.foldl' (\ts (Retry _ _ _ t) -> t NoMore : ts) told (it : rest))
            | otherwise ->
                hasChanged reads' >>= \case
                  False -> go (budget - price) (Retry reads' (credit - price) waits tell : left) told rest
                  True -> go (budget - price) left (tell (afterTry (credit - price)) : told) rest
        where
          price = lookPrice + size reads'
      [] -> done left told
    done left told = writeMutVar (retriesWaiting retries) (reverse left) >> sequence_ told
    afterTry credit
      | credit > tryPrice = Changed (credit - tryPrice)
      | otherwise = NoMore

-- | Tell all; none waits then.
tellAll :: Retries -> Found -> IO ()
tellAll retries found = do
  waiting <- readMutVar (retriesWaiting retries)
  unless (null waiting) $ do
    writeMutVar (retriesWaiting retries) []
    mapM_ (\(Retry _ _ _ tell) -> tell found) (reverse waiting)

-- Note [What a transaction has read]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- GHC's run-time system keeps for each transaction a record of its variables: what each held when the
-- transaction read it, and what it is to hold. When the first alternative of an `orElse` calls `retry`, what
-- it has read goes into the record of the transaction around it (`stmAbortTransaction`), where the second
-- alternative can look. It only reads the record, whose layout is in the headers of the run-time system. Not
-- in the headers, and assumed: in GHC 9.6 the second alternative has a record inside of that one, so we go
-- outwards to the record that no other encloses, which is right where it has none, too.
--
-- A transaction is a function of the values that it reads. While each variable holds the very object that it
-- held then, running it again would give `retry` again. To compare the pointers is what the run-time system
-- does, too. A collection may make two pointers to one value differ: then it runs once more than it must.

-- | Variables, each with the value that it had; nothing where that is not known.
data ReadSet = ReadSet (SmallArray# Any) | Unknown

-- | How many variables.
size :: ReadSet -> Int
size = \case
  ReadSet a -> I# (sizeofSmallArray# a) `quot` 2
  Unknown -> fullCredit

-- | In the second alternative of an 'orElse' at the top of a transaction: what the first has read.
whatIsRead :: STM ReadSet
whatIsRead = unsafeIOToSTM . IO $ \s -> case myThreadId# s of
  (# s1, me #) -> case unIO (c_reads me) s1 of
    (# s2, n@(I# count) #)
      | n < 0 -> (# s2, Unknown #)
      | otherwise -> case newSmallArray# (2# *# count) (unsafeCoerce# ()) s2 of
          (# s3, a #) -> case unIO (c_copyReads me a) s3 of
            (# s4, () #) -> case unsafeFreezeSmallArray# a s4 of
              (# s5, frozen #) -> (# s5, ReadSet frozen #)
  where
    unIO (IO f) = f

foreign import ccall unsafe "weft_stm_reads" c_reads :: ThreadId# -> IO Int

foreign import ccall unsafe "weft_stm_copy_reads" c_copyReads :: ThreadId# -> SmallMutableArray# RealWorld Any -> IO ()

-- | Does one of the variables hold another object now? (Not known to, where it is unknown.)
hasChanged :: ReadSet -> IO Bool
hasChanged = \case
  Unknown -> pure False
  ReadSet a -> IO (go a 0#)
  where
    go :: SmallArray# Any -> Int# -> State# RealWorld -> (# State# RealWorld, Bool #)
    go a i s
      | isTrue# (i >=# sizeofSmallArray# a) = (# s, False #)
      | otherwise = case indexSmallArray# a i of
          (# variable #) -> case indexSmallArray# a (i +# 1#) of
            (# before #) -> case readTVarIO# (unsafeCoerce# variable :: TVar# RealWorld Any) s of
              (# s1, now #)
                | isTrue# (reallyUnsafePtrEquality# before now) -> go a (i +# 2#) s1
                | otherwise -> (# s1, True #)
