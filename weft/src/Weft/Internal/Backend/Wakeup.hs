{-# OPTIONS_HADDOCK not-home #-}

-- | Waking a worker that blocks in its event source, by an event counter (@eventfd@) that is written only when
-- the worker is blocked in fact, and once however many wake it. 'wakeUp' is for any OS thread, everything
-- else for the owner of the event source.
module Weft.Internal.Backend.Wakeup
  ( Wakeup,
    newWakeup,
    newPipeWakeup,
    freeWakeup,
    wakeUp,
    watchedWakeup,
    wakeupKey,
    blockUnlessWoken,
    drainWakeup,
  )
where

import Control.Exception (mask_, onException)
import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.Primitive.PrimVar (PrimVar, fetchAndInt, fetchOrInt, modifyPrimVar, newPrimVar, readPrimVar)
import Data.Word (Word64)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (alloca)
import Foreign.Marshal.Array (allocaArray)
import Foreign.Marshal.Utils (with)
import Foreign.Ptr (castPtr)
import Foreign.Storable (peek, peekElemOff)
import Weft.Internal.Backend.Readiness.Poller (Key, Poller (..), Trigger, makeKey, toRead)
import Weft.Internal.Os.Net (c_pipe)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [The states of a wake-up]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The word has two bits, and every change is one atomic instruction with a full barrier:
--
--     0                  running: the owner looks at its inbox before it blocks
--     notified           running, and wakeUp was called
--     blocked            in, or about to enter, a blocking wait
--     blocked+notified   the same, and wakeUp was called
--
-- wakeUp sets 'notified'. Only the one that turns blocked into blocked+notified writes the counter. The owner
-- sets 'blocked' before it blocks and does not block if it finds 'notified'; after the wait it clears both.
--
-- Nothing is lost: a thread that has filled the inbox and finds 'notified' set relies on the owner,
-- which clears it later and looks at the inbox after that.
--
-- The write may come late, when the owner has already woken for another reason, but not after the counter's
-- number is closed. So the owner counts what it is owed: one for each blocked+notified it cleared, minus
-- what it has read; 'freeWakeup' waits for the rest, which are between two instructions of their threads.

-- | See Note [The states of a wake-up].
data Wakeup = Wakeup
  { -- | The counter, to be registered for reading with the event source.
    wakeupDescriptor :: {-# UNPACK #-} !CInt,
    -- | Where it is written: the same number, but for a pipe.
    wakeupWriter :: {-# UNPACK #-} !CInt,
    wakeupState :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | Writes that were or will be made and are not yet read. The owner's.
    wakeupOwed :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

blocked, notified :: Int
blocked = 1
notified = 2

-- | A new counter, in the state "running".
newWakeup :: IO Wakeup
newWakeup = do
  number <- Sys.throwFailure "eventfd" Sys.newEventCounter
  Wakeup (fromIntegral number) (fromIntegral number) <$> newPrimVar 0 <*> newPrimVar 0

-- | With a pipe for a counter, for event sources that refuse one (libkqueue). A read takes one write, so
-- that the source must repeat itself.
newPipeWakeup :: IO Wakeup
newPipeWakeup = do
  (reader, writer) <- allocaArray 2 \ends -> do
    _ <- Sys.throwFailure "pipe" (fromIntegral <$> c_pipe ends)
    (,) <$> peek ends <*> peekElemOff ends 1
  Wakeup reader writer <$> newPrimVar 0 <*> newPrimVar 0

-- | A wake-up that a poller watches. Throws an 'IOError' where the poller refuses.
watchedWakeup :: Poller -> Trigger -> IO Wakeup -> IO Wakeup
watchedWakeup poller trigger new = do
  w <- new
  w <$ Sys.throwFailure "watch a wake-up" (pollerWatch poller (wakeupDescriptor w) (wakeupKey w) trigger toRead) `onException` freeWakeup w

-- | The key of its events. Nothing else waits for this number.
wakeupKey :: Wakeup -> Key
wakeupKey w = makeKey (wakeupDescriptor w) 0

-- | Close the counter, once no write to it is on the way. 'wakeUp' does nothing afterwards.
freeWakeup :: Wakeup -> IO ()
freeWakeup w = do
  -- From here on no thread finds "blocked", so none begins a write.
  void $ fetchOrInt (wakeupState w) notified
  awaitWrites
  void $ Sys.close (wakeupDescriptor w)
  when (wakeupWriter w /= wakeupDescriptor w) $ void $ Sys.close (wakeupWriter w)
  where
    awaitWrites = do
      drainWakeup w
      owed <- readPrimVar (wakeupOwed w)
      when (owed > 0) do
        -- The writer may need our capability to get on: wait in a safe call.
        void $ Sys.awaitReady (wakeupDescriptor w) Sys.readableBit
        awaitWrites

-- | Make the present or the next blocking wait of the owner return. Masked: the owner waits for a write
-- that was begun.
wakeUp :: Wakeup -> IO ()
wakeUp w = mask_ do
  before <- fetchOrInt (wakeupState w) notified
  when (before == blocked) $
    with (1 :: Word64) \one ->
      void $ Sys.writeStream (wakeupWriter w) (castPtr one) 8

-- | The first wait, which may block, or the second, which must not, where 'wakeUp' was called since the last.
blockUnlessWoken :: Wakeup -> IO a -> IO a -> IO a
blockUnlessWoken w wait look = do
  before <- fetchOrInt (wakeupState w) blocked
  if before .&. notified /= 0
    then do
      void $ fetchAndInt (wakeupState w) 0
      look
    else do
      r <- wait
      after <- fetchAndInt (wakeupState w) 0
      unless (after .&. notified == 0) $ modifyPrimVar (wakeupOwed w) (+ 1)
      pure r

-- | Take what has been written, when the event source says that there is something.
drainWakeup :: Wakeup -> IO ()
drainWakeup w = alloca \count -> do
  r <- Sys.readStream (wakeupDescriptor w) (castPtr count) 8
  when (r == 8) do
    n <- peek count
    modifyPrimVar (wakeupOwed w) (subtract (fromIntegral (n :: Word64)))
