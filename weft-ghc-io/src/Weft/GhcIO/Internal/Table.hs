{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Who waits for which foreign descriptor
--
-- One table for the process, by number, of the Weft threads that wait for descriptors which
-- libraries own. From any OS thread; every change is one atomic step.
module Weft.GhcIO.Internal.Table
  ( -- * Waits
    Wait (..),
    Interest (..),
    Answer (..),
    bitsOf,
    answer,

    -- * The table
    enter,
    withdraw,
    takeReported,
    wanted,
    waiting,
    anyIn,

    -- * Closing
    beginClosing,
    endClosing,
  )
where

import Control.Monad (void)
import Data.Bits ((.&.), (.|.))
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (partition)
import Data.List qualified as List
import Foreign.C.Types (CInt)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.SystemCall (Outcome (..), Waiter (..))

-- Note [A number that is closed]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A descriptor belongs to its library, so its number can be closed at any moment by any
-- thread, and be another file's at once. `closeFdWith` says so around the closing:
--
--   beginClosing   takes those who wait for the number, and notes that it is being closed;
--   close(2)       from here on the number may be another file's;
--   endClosing     takes the note away; then those who waited are answered with EBADF.
--
-- Nobody enters while the note is there, since one who does could wait for the file that is
-- going: he is answered that he is to try again (GHC holds a lock meanwhile). So
-- everybody in the table waits for the file that has the number now. An event that comes late,
-- of the old file, finds nobody, or answers one who waits for the new file: he tries his
-- operation, and waits again.

-- | What is waited for.
data Interest = Readable | Writable
  deriving stock (Eq, Show)

-- | As in @weft_ghc_io.c@.
bitsOf :: Interest -> Int
bitsOf = \case
  Readable -> 1
  Writable -> 2

-- | How a wait ends.
data Answer
  = -- | It is readable or writable, or was a moment ago.
    Ready
  | -- | It was closed.
    ClosedMeanwhile
  | -- | The number is being closed: try again.
    Again

-- | A thread that waits.
data Wait = Wait
  { -- | Tells it from others.
    waitName :: !(IORef ()),
    waitInterest :: !Interest,
    -- | The epoll instance that reports it.
    waitSource :: !CInt,
    waitWaiter :: !(Waiter Answer)
  }

-- | One number: how many are closing it, and who waits for it.
data Cell = Cell !Int [Wait]

table :: IORef (IntMap Cell)
table = unsafePerformIO (newIORef IntMap.empty)
{-# NOINLINE table #-}

-- | Change one cell; one with nothing in it is not kept.
alter :: CInt -> (Cell -> (Cell, a)) -> IO a
alter number change = atomicModifyIORef' table $ \cells ->
  let key = fromIntegral number
      (cell, result) = change (IntMap.findWithDefault (Cell 0 []) key cells)
   in case cell of
        Cell 0 [] -> (IntMap.delete key cells, result)
        _ -> (IntMap.insert key cell cells, result)

-- | Answer a thread that was taken out of the table.
answer :: Answer -> Wait -> IO ()
answer a wait = void (deliver (waitWaiter wait) (Answered a))

-- | Put a wait in. False, and it is not in: the number is being closed.
enter :: CInt -> Wait -> IO Bool
enter number wait = alter number $ \case
  Cell 0 waits -> (Cell 0 (wait : waits), True)
  closing -> (closing, False)

-- | Take a wait out, if it is still there.
withdraw :: CInt -> Wait -> IO ()
withdraw number wait = alter number $ \(Cell n waits) ->
  (Cell n (filter ((/= waitName wait) . waitName) waits), ())

-- | Take out those that wait with this source for any of these bits; and the bits that are still
-- waited for.
takeReported :: CInt -> CInt -> Int -> IO ([Wait], Int)
takeReported source number bits = alter number $ \(Cell n waits) ->
  let (met, left) = partition (\w -> waitSource w == source && bitsOf (waitInterest w) .&. bits /= 0) waits
   in (Cell n left, (met, interests source left))

-- | The bits that are waited for with this source.
wanted :: CInt -> CInt -> IO Int
wanted source number = do
  cells <- readIORef table
  pure $! case IntMap.lookup (fromIntegral number) cells of
    Just (Cell _ waits) -> interests source waits
    Nothing -> 0

interests :: CInt -> [Wait] -> Int
interests source waits = List.foldl' (.|.) 0 [bitsOf (waitInterest w) | w <- waits, waitSource w == source]

-- | How many Weft threads wait for this number.
waiting :: CInt -> IO Int
waiting number =
  readIORef table >>= \cells ->
    pure $! case IntMap.lookup (fromIntegral number) cells of
      Just (Cell _ waits) -> length waits
      Nothing -> 0

-- | Does anybody wait with this source?
anyIn :: CInt -> IO Bool
anyIn source = any (\(Cell _ waits) -> any ((== source) . waitSource) waits) <$> readIORef table

-- | Note [A number that is closed]. Answers who waited for it.
beginClosing :: CInt -> IO [Wait]
beginClosing number = alter number $ \(Cell n waits) -> (Cell (n + 1) [], waits)

-- | Take the note away.
endClosing :: CInt -> IO ()
endClosing number = alter number $ \(Cell n waits) -> (Cell (n - 1) waits, ())
