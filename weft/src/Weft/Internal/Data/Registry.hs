{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A list of variables that each say whether they are live (a thread that waits, "Weft.Internal.Core.Park").
-- One enters when it becomes live, and need not be found when it dies: the list is swept now and then. One
-- worker owns a registry, and one OS thread at a time uses it: Note [The registry].
module Weft.Internal.Data.Registry (LiveRegistry, newRegistry, enter, makeRoom, leave, tidy, living, changes, foldRegistry) where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (foldlM)
import Data.Kind (Type)
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.SmallArray
import GHC.Exts (Any, Int (..), MutVar#, SmallArray#, SmallMutableArray#, UnliftedType, indexSmallArray#, readSmallArray#, unsafeCoerce#, writeSmallArray#)
import GHC.IO (IO (..))
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Data.Cell

-- Note [The registry]
-- ~~~~~~~~~~~~~~~~~~~
-- Most waits are short, and few end in the order in which they began. A table with a slot for
-- each costs as much at the end of a wait as at its beginning; here the end is a subtraction. The
-- variable says whether it is live, as it must anyhow, so that only one thread ends the wait.
--
--     open page   | v | v | v | ...     |     filled from the left
--     full pages  [v v v ... v] [v v ... v]   frozen, none empty
--
-- When the open page is full, its dead entries are dropped. If more than half of it is live it becomes a full
-- page, otherwise the rest is filled up again: so a short wait never leaves the open page, and costs a 32nd
-- of a sweep of 64 variables. The full pages are swept when there are somewhat more than twice as many
-- entries as live ones: amortized constant time for each. They are frozen, so that the collector looks at
-- them again only when they hold something younger (as in "Weft.Internal.Data.Slots").
--
-- Invariants: whatever is live is in the registry exactly once. The entries are at most four times as many as the
-- live ones, and six pages more. A dead entry retains nothing but itself, because its variable was emptied.

type LiveRegistry :: UnliftedType -> Type
data LiveRegistry a = LiveRegistry
  { -- | How many are in the open page, how many last, how many are in full pages, the number of
    -- live entries below which the full pages are swept, how many have left the open page.
    _registryInts :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    -- | Its elements are primitive variables, and are read at that type.
    _registryOpen :: {-# UNPACK #-} !(SmallMutableArray RealWorld Any),
    _registryFull :: {-# UNPACK #-} !(MutVar RealWorld [Page])
  }

newtype Page = Page (SmallArray Any)

filled, lasting, inFull, threshold, past :: Int
filled = 0
lasting = 1
inFull = 2
threshold = 3
past = 4

perPage :: Int
perPage = 64

-- | The number of dead entries that does not justify a sweep.
spare :: Int
spare = 4 * perPage

newRegistry :: forall (a :: UnliftedType). IO (LiveRegistry a)
newRegistry = do
  ints <- newPrimArray 5
  setPrimArray ints 0 5 0
  LiveRegistry ints <$> newSmallArray perPage nothing <*> newMutVar []

-- | Fills the unused slots of a page; never read.
nothing :: Any
nothing = unsafeCoerce ()
{-# NOINLINE nothing #-}

-- | Add a variable. The action calls 'makeRoom'.
enter :: forall (a :: UnliftedType). LiveRegistry a -> Cell a -> IO () -> IO ()
enter (LiveRegistry ints open _) var full = do
  n <- readPrimArray ints filled
  put open n var
  writePrimArray ints filled (n + 1)
  l <- readPrimArray ints lasting
  writePrimArray ints lasting (l + 1)
  when (n == perPage - 1) full
{-# INLINE enter #-}

-- | One variable is dead, and says so already. The action calls 'tidy'.
leave :: forall (a :: UnliftedType). LiveRegistry a -> IO () -> IO ()
leave (LiveRegistry ints _ _) few = do
  l <- readPrimArray ints lasting
  writePrimArray ints lasting (l - 1)
  limit <- readPrimArray ints threshold
  when (l <= limit) few
{-# INLINE leave #-}

-- | The number of live entries. From any OS thread, where it may be slightly old.
living :: forall (a :: UnliftedType). LiveRegistry a -> IO Int
living (LiveRegistry ints _ _) = readPrimArray ints lasting

-- | How many times an entry has begun or ended so far.
changes :: forall (a :: UnliftedType). LiveRegistry a -> IO Int
changes (LiveRegistry ints _ _) = do
  entered <- (+) <$> readPrimArray ints past <*> readPrimArray ints filled
  l <- readPrimArray ints lasting
  pure (2 * entered - l)

put :: forall (a :: UnliftedType). SmallMutableArray RealWorld Any -> Int -> Cell a -> IO ()
put (SmallMutableArray array) (I# i) (Cell var) = IO $ \s -> case writeSmallArray# (ofVariables array) i var s of s' -> (# s', () #)

get :: forall (a :: UnliftedType). SmallMutableArray RealWorld Any -> Int -> IO (Cell a)
get (SmallMutableArray array) (I# i) = IO $ \s -> case readSmallArray# (ofVariables array) i s of (# s', var #) -> (# s', Cell var #)

ofVariables :: forall (a :: UnliftedType). SmallMutableArray# RealWorld Any -> SmallMutableArray# RealWorld (MutVar# RealWorld a)
ofVariables = unsafeCoerce#

-- | The open page is full: keep its live entries.
makeRoom :: forall (a :: UnliftedType). (a -> Bool) -> LiveRegistry a -> IO ()
makeRoom lasts registry@(LiveRegistry ints open full) = do
  kept <- sift lasts open
  if 2 * kept <= perPage
    then continueAt kept
    else do
      page <- freezeSmallArray open 0 kept
      modifyMutVar' full (Page page :)
      continueAt 0
      more <- (+ kept) <$> readPrimArray ints inFull
      writePrimArray ints inFull more
      setThreshold registry
      l <- readPrimArray ints lasting
      when (more > 2 * l + spare) (tidy lasts registry)
  where
    continueAt n = do
      writePrimArray ints filled n
      before <- readPrimArray ints past
      writePrimArray ints past (before + perPage - n)
{-# INLINE makeRoom #-}

-- | Sweep the full pages when only a quarter of their entries is live.
setThreshold :: forall (a :: UnliftedType). LiveRegistry a -> IO ()
setThreshold (LiveRegistry ints _ _) = do
  n <- readPrimArray ints inFull
  writePrimArray ints threshold (if n <= spare then -1 else n `div` 4)

-- | Move the live entries of a page to its front; answers their number.
sift :: forall (a :: UnliftedType). (a -> Bool) -> SmallMutableArray RealWorld Any -> IO Int
sift lasts page = go 0 0
  where
    go :: Int -> Int -> IO Int
    go i kept
      | i == perPage = pure kept
      | otherwise = do
          var <- get page i
          readCell var $ \a -> if lasts a then put page kept var >> go (i + 1) (kept + 1) else go (i + 1) kept

-- | Remove the dead entries from the full pages.
tidy :: forall (a :: UnliftedType). (a -> Bool) -> LiveRegistry a -> IO ()
tidy lasts registry@(LiveRegistry ints _ full) = do
  pages <- readMutVar full
  scratch <- newSmallArray perPage nothing
  (fuller, kept) <- foldlM (again scratch) ([], 0) pages
  left <- if kept == 0 then pure fuller else (: fuller) . Page <$> freezeSmallArray scratch 0 kept
  writeMutVar full left
  writePrimArray ints inFull (perPage * length fuller + kept)
  setThreshold registry
  where
    again scratch start page = go 0 start
      where
        go i (done, !kept)
          | i == entries page = pure (done, kept)
          | otherwise = do
              let var = entry page i
              readCell var $ \a ->
                if not (lasts a)
                  then go (i + 1) (done, kept)
                  else do
                    put scratch kept var
                    if kept + 1 < perPage
                      then go (i + 1) (done, kept + 1)
                      else freezeSmallArray scratch 0 perPage >>= \new -> go (i + 1) (Page new : done, 0)
{-# INLINE tidy #-}

-- | Fold over all variables, dead ones included.
foldRegistry :: forall (a :: UnliftedType) r. (r -> a -> IO r) -> r -> LiveRegistry a -> IO r
foldRegistry f start (LiveRegistry ints open full) = do
  n <- readPrimArray ints filled
  pages <- readMutVar full
  foldlM frozen start pages >>= \r -> foldlM (\r' i -> get open i >>= visit r') r [0 .. n - 1]
  where
    visit r var = readCell var (f r)
    frozen r page = foldlM (\r' i -> visit r' (entry page i)) r [0 .. entries page - 1]

entries :: Page -> Int
entries (Page page) = sizeofSmallArray page

entry :: forall (a :: UnliftedType). Page -> Int -> Cell a
entry (Page (SmallArray page)) (I# i) = case indexSmallArray# (frozenVariables page) i of (# var #) -> Cell var

frozenVariables :: forall (a :: UnliftedType). SmallArray# Any -> SmallArray# (MutVar# RealWorld a)
frozenVariables = unsafeCoerce#
