{-# LANGUAGE CApiFFI #-}
{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnliftedFFITypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | An open file descriptor, and the users of its number. Any OS thread may call every function here.
module Weft.Internal.Os.Descriptor
  ( -- * Descriptors
    Descriptor (..),
    newDescriptor,
    livesOn,

    -- * Use by a worker
    mostWorkers,
    enterWorker,

    -- * Closing
    markClosed,
    isClosed,

    -- * Use by another thread
    whileHeld,
    isHeld,
    wasClosed,
    isBusy,

    -- * Facts about a file
    Fact (..),
    newDescriptorWith,
    knows,
    learn,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (finally, mask_)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (bit, countTrailingZeros, testBit, unsafeShiftL, (.&.), (.|.))
import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Word (Word32)
import Foreign.C.Error (Errno (..), eBUSY)
import Foreign.C.Types (CInt (..))
import GHC.Exts (MutableByteArray#)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Os.Sys (Result, badDescriptor, failureCode)

-- Note [Use of the number]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- The operating system gives a closed number to the next connection at once, and what is then
-- sent to it reaches the wrong client. So a number is used in two ways only, and closing waits for
-- both:
--
--   * By a worker that has entered ('enterWorker'), for as long as its backend likes. The closing
--     thread asks it to forget.
--   * By any OS thread that holds the descriptor ('whileHeld', and the calls of @weft_now.c@) for one
--     call that does not wait. Holding is: write 1 to the second word, check whether the descriptor is
--     closed, use the number if not, write 0. One thread holds it at a time; a thread that finds the 1
--     of another does nothing.
--
-- 'markClosed' sets the closed bit and learns in the same atomic step which workers have entered;
-- then the closing thread reads the second word, and closes the number when that is 0. Both sides
-- write before they look: a use that begins after the mark sees it, and the closing thread sees a use
-- that began before. A holder neither waits nor is interrupted, so closing is never late for long.
--
-- The bits of the first word:
--
--   0 .. 58   the worker with this index has entered
--   59 .. 61  each 'Fact'
--   62        closed

-- | An open file descriptor and its identity. The kernel reuses numbers at once, so every table entry
-- and every event carries the serial too.
data Descriptor = Descriptor
  { -- | The number the operating system gave.
    descriptorNumber :: {-# UNPACK #-} !CInt,
    -- | Unique in the process (modulo 2^32).
    descriptorSerial :: {-# UNPACK #-} !Word32,
    -- | The two words of Note [Use of the number], for foreign calls that hold the descriptor.
    descriptorWords :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int)
  }

instance Eq Descriptor where
  a == b = descriptorSerial a == descriptorSerial b && descriptorNumber a == descriptorNumber b

instance Show Descriptor where
  showsPrec _ d = showString "fd " . shows (descriptorNumber d)

-- | Give a freshly opened descriptor its identity. A socket, a pipe or a terminal must be in
-- non-blocking mode.
newDescriptor :: CInt -> IO Descriptor
newDescriptor = newDescriptorWith []

-- | The worker, of the given number, that a socket lives on. One of the system may be used by any. A kernel in this
-- process whose sockets are parted among its workers has negative numbers, whose remainders say it.
livesOn :: Int -> Descriptor -> Maybe Int
livesOn workers d
  | descriptorNumber d < 0 = Just (negate (fromIntegral (descriptorNumber d)) `rem` workers)
  | otherwise = Nothing

-- | 'newDescriptor' of a file with known facts.
newDescriptorWith :: [Fact] -> CInt -> IO Descriptor
newDescriptorWith facts n = do
  s <- atomicModifyIORef' serials (\s -> (max 1 (s + 1), s))
  words' <- newPrimArray 2
  writePrimArray words' 0 (foldr ((.|.) . factBit) 0 facts)
  writePrimArray words' 1 0
  pure (Descriptor n s words')

serials :: IORef Word32
serials = unsafePerformIO (newIORef 1)
{-# NOINLINE serials #-}

marks :: Descriptor -> PrimVar RealWorld Int
marks = PrimVar . descriptorWords

closedBit :: Int
closedBit = 62

-- | How many workers a run may have: each has a bit of its own.
mostWorkers :: Int
mostWorkers = 59

-- | From now on closing asks the worker with this index first. False if it was closed before.
enterWorker :: Descriptor -> Int -> IO Bool
enterWorker d worker = do
  seen <- readPrimVar (marks d)
  if testBit seen closedBit
    then pure False
    else do
      -- It was closed by another thread since the look: its number may be free.
      before <- if seen .&. me /= 0 then pure seen else fetchOrInt (marks d) me
      pure (not (testBit before closedBit))
  where
    -- Not 'bit', which asks whether there is such a bit: there is ('mostWorkers').
    me = unsafeShiftL 1 worker :: Int
{-# INLINE enterWorker #-}

-- | Mark it as closed: the workers that have entered it, or nothing if it was closed before.
-- The caller closes the number when they have forgotten it and it is not held ('isHeld').
markClosed :: Descriptor -> IO (Maybe [Int])
markClosed d = do
  before <- fetchOrInt (marks d) (bit closedBit)
  pure $ if testBit before closedBit then Nothing else Just (workersIn (before .&. (bit mostWorkers - 1)))
  where
    workersIn word
      | word == 0 = []
      | otherwise = countTrailingZeros word : workersIn (word .&. (word - 1))

isClosed :: Descriptor -> IO Bool
isClosed d = (`testBit` closedBit) <$> readPrimVar (marks d)

-- | Does a thread hold it?
isHeld :: Descriptor -> IO Bool
isHeld d = (/= 0) <$> readPrimArray (descriptorWords d) 1

-- | Hold the descriptor while an action, which must not wait for others, uses its number; @EBADF@ if it
-- was closed.
whileHeld :: Descriptor -> IO Result -> IO Result
whileHeld d action = mask_ again
  where
    !(MutablePrimArray words') = descriptorWords d
    again =
      c_hold words' >>= \r ->
        if
          | r == isBusy -> threadDelay 100 >> again
          | r < 0 -> pure badDescriptor
          | otherwise -> action `finally` c_let_go words'

-- | How a call that holds the descriptor fails when it was closed. (@EBADF@ is for numbers of other kernels.)
wasClosed :: Result
wasClosed = failureCode (Errno codeShutDown)

foreign import capi "errno.h value ESHUTDOWN" codeShutDown :: CInt

-- | The failure of such a call while another thread holds the descriptor.
isBusy :: Result
isBusy = failureCode eBUSY

foreign import ccall unsafe "weft_hold"
  c_hold :: MutableByteArray# RealWorld -> IO Result

foreign import ccall unsafe "weft_let_go"
  c_let_go :: MutableByteArray# RealWorld -> IO ()

-- | Something that is known of a file: it was opened without @O_DIRECT@; a thread was asked whether it is
-- on a local file system; it is.
data Fact = Buffered | LocalAsked | Local
  deriving stock (Enum)

factBit :: Fact -> Int
factBit fact = bit (mostWorkers + fromEnum fact)

knows :: Descriptor -> Fact -> IO Bool
knows d fact = (\seen -> seen .&. factBit fact /= 0) <$> readPrimVar (marks d)

-- | Add a fact; false if it was known. The successor of a closed descriptor has words of its own.
learn :: Descriptor -> Fact -> IO Bool
learn d fact = (\before -> before .&. factBit fact == 0) <$> fetchOrInt (marks d) (factBit fact)
