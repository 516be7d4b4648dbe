{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The ready threads of all simulated workers, in the order of arrival; the strategy takes any.
module Weft.Sim.Internal.Ready
  ( ReadyList,
    Entry (..),
    newReadyList,
    count,
    append,
    entryAt,
    takeAt,
    takeLast,
    takeWhere,
    entries,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.Array
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import Weft.Internal.Core.Trace

data Entry = Entry
  { entryWorker :: {-# UNPACK #-} !Int,
    entryTcb :: !Tcb,
    -- | Lazy: of an entry with a strict field for a new function GHC 9.6 makes a thunk.
    entryResume :: Resume
  }

-- | The memory, the index of the first, and the length; in order, without gaps.
data ReadyList = ReadyList !(MutVar RealWorld (MutableArray RealWorld Entry)) !(PrimVar RealWorld Int) !(PrimVar RealWorld Int)

newReadyList :: IO ReadyList
newReadyList = ReadyList <$> (newArray 16 gone >>= newMutVar) <*> newPrimVar 0 <*> newPrimVar 0

gone :: Entry
gone = error "Weft.Sim.Internal.Ready: no entry"

count :: ReadyList -> IO Int
count (ReadyList _ _ n) = readPrimVar n

append :: ReadyList -> Entry -> IO ()
append list@(ReadyList memory start size) !e = do
  array <- readMutVar memory
  let room = sizeofMutableArray array
  s <- readPrimVar start
  n <- readPrimVar size
  if s + n < room
    then writeArray array (s + n) e >> writePrimVar size (n + 1)
    else do
      -- Move to the front of the same memory if half of it is free, else to a larger one.
      if 2 * s > room
        then do
          copyMutableArray array 0 array s n
          mapM_ (\i -> writeArray array i gone) [n .. s + n - 1]
        else do
          larger <- newArray (2 * room) gone
          copyMutableArray larger 0 array s n
          writeMutVar memory larger
      writePrimVar start 0
      append list e

-- | By its index in the order of arrival.
entryAt :: ReadyList -> Int -> IO Entry
entryAt (ReadyList memory start _) i = do
  array <- readMutVar memory
  s <- readPrimVar start
  readArray array (s + i)

-- | Take one by its index; the others keep their order.
takeAt :: ReadyList -> Int -> IO Entry
takeAt list@(ReadyList memory start size) i = do
  n <- readPrimVar size
  if i == n - 1
    then takeLast list
    else do
      array <- readMutVar memory
      s <- readPrimVar start
      e <- readArray array (s + i)
      when (i > 0) $ copyMutableArray array (s + 1) array s i
      writeArray array s gone
      writePrimVar start (s + 1)
      writePrimVar size (n - 1)
      pure e

takeLast :: ReadyList -> IO Entry
takeLast (ReadyList memory start size) = do
  array <- readMutVar memory
  s <- readPrimVar start
  n <- readPrimVar size
  e <- readArray array (s + n - 1)
  writeArray array (s + n - 1) gone
  writePrimVar size (n - 1)
  when (n == 1) $ writePrimVar start 0
  pure e
{-# INLINE takeLast #-}

takeWhere :: (Entry -> Bool) -> ReadyList -> IO (Maybe Entry)
takeWhere wanted list = count list >>= go 0
  where
    go i n
      | i == n = pure Nothing
      | otherwise = do
          e <- entryAt list i
          if wanted e then Just <$> takeAt list i else go (i + 1) n

entries :: ReadyList -> IO [Entry]
entries list = count list >>= \n -> mapM (entryAt list) [0 .. n - 1]
