{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The threads that wait for foreign descriptors: one table for the process, by number, so that closing a
-- descriptor can end the waits for it. From any OS thread; every change is one atomic step.
module Weft.Internal.Os.Foreign (ForeignWait (..), enter, withdraw, waiting, closing) where

import Control.Exception (finally, mask_)
import Data.Foldable (for_)
import Data.IORef (IORef)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar
import Foreign.C.Types (CInt)
import GHC.Exts (casMutVar#, readMutVar#)
import GHC.IO (IO (..))
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Data.Buckets

-- Note [A number that is closed]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Any thread can close a foreign descriptor at any moment, and its number be another file's at once. It
-- says so around the closing:
--
--   begin     takes the threads that wait for the number out of the table, and notes that it is
--             being closed;
--   close(2)  from here on the number may be another file's;
--   end       takes the note away; then the waits that were taken out are ended.
--
-- No thread enters while the note is there, since it could wait for the file that is going: it tries
-- again later. So every thread in the table waits for the file that has the number now. However a wait
-- ends, its thread leaves the table; if it is not in it any more, the descriptor was closed.

-- | A thread that waits.
data ForeignWait = ForeignWait
  { -- | Tells it from others.
    foreignName :: !(IORef Int),
    -- | End the wait, from any OS thread; nothing if it has ended.
    foreignEnd :: !(IO ())
  }

-- | One number: how many threads are closing it, and which wait for it.
data Waits = Waits !Int [ForeignWait]

cells :: Buckets Waits
cells = unsafePerformIO newBuckets
{-# NOINLINE cells #-}

-- | Change one cell; one with nothing in it is not kept.
alter :: CInt -> (Waits -> (Waits, a)) -> IO a
alter number change = case bucketOf cells number of
  MutVar bucket ->
    let key = fromIntegral number
        go s = case readMutVar# bucket s of
          (# s1, known #) -> case change (IntMap.findWithDefault (Waits 0 []) key known) of
            (cell, result) -> case stored cell known of
              -- Compared by its address, as it was read.
              !next -> case casMutVar# bucket known next s1 of
                (# s2, 0#, _ #) -> (# s2, result #)
                (# s2, _, _ #) -> go s2
        stored cell known = case cell of
          Waits 0 [] -> IntMap.delete key known
          _ -> IntMap.insert key cell known
     in IO go

-- | Put a wait in. False, and it is not in: the number is being closed.
enter :: CInt -> ForeignWait -> IO Bool
enter number wait = alter number $ \case
  Waits 0 waits -> (Waits 0 (wait : waits), True)
  beingClosed -> (beingClosed, False)

-- | Take a wait out. False if it was not there any more: the descriptor was closed.
withdraw :: CInt -> ForeignWait -> IO Bool
withdraw number wait = alter number $ \(Waits n waits) ->
  case break ((== foreignName wait) . foreignName) waits of
    (_, []) -> (Waits n waits, False)
    (before, _ : after) -> (Waits n (before <> after), True)

-- | How many threads wait for this number.
waiting :: CInt -> IO Int
waiting number = do
  known <- readMutVar (bucketOf cells number)
  pure $! case IntMap.lookup (fromIntegral number) known of
    Just (Waits _ waits) -> length waits
    Nothing -> 0

-- | Run the action that closes this number; then the waits for it are ended.
closing :: CInt -> IO a -> IO a
closing number close = mask_ $ do
  waits <- alter number (\(Waits n waits) -> (Waits (n + 1) [], waits))
  close `finally` do
    alter number (\(Waits n others) -> (Waits (n - 1) others, ()))
    for_ (reverse waits) foreignEnd
