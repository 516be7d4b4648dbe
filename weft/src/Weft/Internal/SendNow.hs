{-# LANGUAGE CApiFFI #-}
{-# LANGUAGE MagicHash #-}
{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE UnliftedFFITypes #-}

-- |
-- Description : Sending at once, from any thread
-- Stability   : not home
--
-- Sends without a system call of a thread and without its worker: what a socket takes at
-- once. Called from plain 'IO' on any OS thread, also by threads of GHC's that know a socket
-- which is being closed, or was: Note [Sending from elsewhere] in "Weft.Internal.Backend".
module Weft.Internal.SendNow
  ( -- * Sending
    sendNow,
    sendFileNow,
    Behind (..),
    wasClosed,
    isBusy,

    -- * In turn
    Turn,
    newTurn,
    readTurn,
    endTurn,
    sendOnce,
    takeTurn,
    notYours,

    -- * Other uses
    whileHeld,
  )
where

import Control.Concurrent (threadDelay, yield)
import Control.Exception (finally, mask_)
import Control.Monad.Primitive (RealWorld)
import Data.Int (Int64)
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar (PrimVar (..))
import Data.Word (Word8)
import Foreign.C.Error (Errno (..), eALREADY, eBUSY)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr)
import GHC.Exts (MutableByteArray#)
import Weft.Internal.Backend (Descriptor (..))
import Weft.Internal.Sys (Result, failureCode)

-- | What is sent next.
data Behind
  = NothingBehind
  | -- | More, at once: it leaves in one packet with this.
    MoreBehind

-- | Send some bytes: how many the socket has taken. A failure is 'wasClosed' when the
-- descriptor was closed, 'isBusy' when another thread is sending in this moment, @EAGAIN@ when
-- the socket takes none.
sendNow :: Descriptor -> Behind -> Ptr Word8 -> Int -> IO Result
sendNow d behind p n = c_send_now (wordsOf d) (descriptorNumber d) p n (flagsOf behind)
{-# INLINE sendNow #-}

-- | MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE.
flagsOf :: Behind -> CInt
flagsOf = \case
  NothingBehind -> 0x4040
  MoreBehind -> 0xc040

-- | Bytes, and behind them a part of a file (its offset and size) that is in the page
-- cache: how many of both together the socket took. 0 where the part is not in memory; fails
-- as 'sendNow'. The file is the caller's: nobody closes it meanwhile.
sendFileNow :: Descriptor -> Ptr Word8 -> Int -> Descriptor -> Int64 -> Int -> IO Result
sendFileNow d before n file = c_send_file_now (wordsOf d) (descriptorNumber d) before n (descriptorNumber file)
{-# INLINE sendFileNow #-}

-- | The failure of a descriptor that was closed. Not @EBADF@, which is what the system says of
-- numbers that it does not know: those of other kernels.
wasClosed :: Result
wasClosed = failureCode (Errno codeShutDown)

foreign import capi "errno.h value ESHUTDOWN" codeShutDown :: CInt

-- | The failure that another thread is sending in this moment.
isBusy :: Result
isBusy = failureCode eBUSY

-- | What may be done once, by one of several threads, about a descriptor: a number, which is 0
-- until somebody has done it, 1 while somebody does, and then what that one says. It is taken
-- together with the right to send, for the price of that alone.
newtype Turn = Turn (MutablePrimArray RealWorld Int)

-- | Nobody has had it.
newTurn :: IO Turn
newTurn = do
  word <- newPrimArray 1
  writePrimArray word 0 0
  pure (Turn word)

-- | What it is at the moment. For who wants to take it: 'takeTurn'.
readTurn :: Turn -> IO Int
readTurn (Turn word) = readPrimArray word 0
{-# INLINE readTurn #-}

-- | By who has taken it: what it is from now on.
endTurn :: Turn -> Int -> IO ()
endTurn (Turn word) = writePrimArray word 0
{-# INLINE endTurn #-}

-- | Take the turn and send, as 'sendNow'; 'notYours' if it was taken. With 'wasClosed' and
-- 'isBusy' it was not taken.
sendOnce :: Turn -> Descriptor -> Ptr Word8 -> Int -> IO Result
sendOnce (Turn (MutablePrimArray word)) d p n = c_send_once (wordsOf d) (descriptorNumber d) p n (flagsOf NothingBehind) word
{-# INLINE sendOnce #-}

-- | Take the turn: what it was, 0 if it is the caller's now.
takeTurn :: Turn -> Descriptor -> IO Int
takeTurn turn@(Turn (MutablePrimArray word)) d = do
  before <- c_take_turn (wordsOf d) word
  -- Somebody sends, which does not wait.
  if before < 0 then yield >> takeTurn turn d else pure before

-- | The turn was taken before.
notYours :: Result
notYours = failureCode eALREADY

-- | Run an action that uses the number of a descriptor on a thread of the pool, where no
-- backend knows of it: 'wasClosed' if that was closed, and it is not closed before the action
-- ends. The action does nothing that another thread must wait for.
whileHeld :: Descriptor -> IO Result -> IO Result
whileHeld d action = mask_ again
  where
    again =
      c_hold (wordsOf d) >>= \r ->
        if
          | r == isBusy -> threadDelay 100 >> again
          | r < 0 -> pure r
          | otherwise -> action `finally` c_let_go (wordsOf d)

wordsOf :: Descriptor -> MutableByteArray# RealWorld
wordsOf d = case descriptorWorkers d of
  PrimVar (MutablePrimArray words') -> words'
{-# INLINE wordsOf #-}

foreign import ccall unsafe "weft_send_now"
  c_send_now :: MutableByteArray# RealWorld -> CInt -> Ptr Word8 -> Int -> CInt -> IO Result

foreign import ccall unsafe "weft_send_once"
  c_send_once :: MutableByteArray# RealWorld -> CInt -> Ptr Word8 -> Int -> CInt -> MutableByteArray# RealWorld -> IO Result

foreign import ccall unsafe "weft_take_turn"
  c_take_turn :: MutableByteArray# RealWorld -> MutableByteArray# RealWorld -> IO Result

foreign import ccall unsafe "weft_hold"
  c_hold :: MutableByteArray# RealWorld -> IO Result

foreign import ccall unsafe "weft_let_go"
  c_let_go :: MutableByteArray# RealWorld -> IO ()

foreign import ccall unsafe "weft_send_file_now"
  c_send_file_now :: MutableByteArray# RealWorld -> CInt -> Ptr Word8 -> Int -> CInt -> Int64 -> Int -> IO Result
