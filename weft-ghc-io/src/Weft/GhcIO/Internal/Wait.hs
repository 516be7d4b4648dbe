{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Waiting for a descriptor that a library owns
--
-- The wait of a Weft thread for a foreign descriptor, and the thread of each run that
-- reports them: the reporter. On a worker.
module Weft.GhcIO.Internal.Wait
  ( awaitDescriptor,
    NotSimulated (..),
    refuseSimulation,
  )
where

import Control.Exception (Exception, SomeException)
import Control.Monad (unless, void, when)
import Control.Monad.Catch (throwM, try, uninterruptibleMask_)
import Control.Monad.Catch qualified as Catch
import Control.Monad.Primitive (RealWorld)
import Data.Bits (complement, (.&.))
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int32)
import Data.Maybe (isJust)
import Data.Primitive.PrimVar (PrimVar)
import Foreign.C.Error (Errno (..), eBADF, ePERM, errnoToIOError)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Array (allocaArray, peekArray)
import Foreign.Ptr (Ptr)
import Network.Socket (Family (AF_UNIX), SocketType (Stream))
import System.IO.Unsafe (unsafePerformIO)
import Weft.GhcIO.Internal.Foreign
import Weft.GhcIO.Internal.Table
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace hiding (Wait)
import Weft.Internal.Os.AtEnd (register)
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Time (milliseconds, sleep)

-- Note [One epoll instance for each run]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The event source of a worker registers a descriptor once, edge-triggered, and
-- wants to know when it is closed: it owns what it waits for. A foreign descriptor is used
-- between two waits by code that does not say so, and closed by it. So a run has an epoll
-- instance for these alone, where each wait is armed anew, level-triggered and one-shot.
--
-- An epoll instance is itself readable when it has something to report. A thread of the
-- run, the reporter, waits for that like any thread for a socket: no OS thread is needed, all
-- event sources can do it, and a worker that blocks in its own source wakes for both.
--
-- To arm is to set the bits of a number anew, so two who arm could each leave out what the
-- other one waits for. Each therefore reads the bits that are wanted, arms, and reads again;
-- the last to arm sees all that is wanted. (The armed bits may be too many: an event that
-- nobody waits for is dropped.)

-- Note [The end of the reporter]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- When the main thread has ended the others are cancelled, the reporter among them. Others may
-- still wait: in a finalizer, or masked uninterruptibly. What the reporter has it therefore
-- reports until nobody waits any more, looking every millisecond. Those who begin to wait when
-- the run is closing look for themselves as often; the reporter may have ended.

-- | The epoll instances by run. All homes of a run have the same variable.
sources :: IORef [(PrimVar RealWorld Int, CInt)]
sources = unsafePerformIO (newIORef [])
{-# NOINLINE sources #-}

-- | A library waits in a simulated run.
newtype NotSimulated = NotSimulated String

instance Show NotSimulated where
  show (NotSimulated what) =
    what
      <> ": weft-ghc-io cannot simulate a wait of a library, since the descriptor and the clock are real. "
      <> "Use the operations of Weft in simulated runs, or give the code what it waits with as an argument."

instance Exception NotSimulated

-- | Fail with 'NotSimulated' in a simulated run.
refuseSimulation :: String -> Thread ()
refuseSimulation what = do
  simulated <- internal (\home _ -> pure (isJust (homeProbe home)))
  when simulated (throwM (NotSimulated what))

-- | Wait until a descriptor that somebody else owns is readable or writable, or return a
-- moment after it was. What cannot be waited for (a file on a disk) is ready. Suspends this thread; a
-- cancellation ends the wait. Fails with @EBADF@, as @threadWaitRead@ does, if it
-- is closed with @closeFdWith@ meanwhile.
awaitDescriptor :: Interest -> CInt -> Thread ()
awaitDescriptor interest number = do
  refuseSimulation "threadWait"
  closing <- internal (\home _ -> readIORef (homeClosing home))
  if closing then lookForItself else sourceHere >>= armed
  where
    armed source =
      call (Suspend reason (\waiter -> newIORef () >>= \name -> begin (Wait name interest source waiter))) >>= \case
        Ready -> pure ()
        ClosedMeanwhile -> throwM closed
        Again -> sleep (milliseconds 1) >> awaitDescriptor interest number
    reason = because ("wait until descriptor " <> show number <> (if interest == Readable then " of a library is readable" else " of a library is writable"))
    begin wait = do
      entered <- enter number wait
      if not entered
        then answer Again wait
        else do
          r <- armWanted (waitSource wait) number
          unless (r >= 0) $ do
            withdraw number wait
            if Errno (fromIntegral (negate r)) == ePERM
              then answer Ready wait
              else void (deliver (waitWaiter wait) (Failed (Catch.toException (failure (Errno (fromIntegral (negate r)))))))
      pure (withdraw number wait)
    lookForItself =
      effect (Sys.readyNow number (if interest == Readable then Sys.readableBit else Sys.writableBit)) >>= \r ->
        if
          | r >= 0 -> pure ()
          | r == Sys.wouldBlock -> sleep (milliseconds 1) >> lookForItself
          | otherwise -> throwM (failure (Errno (fromIntegral (negate r))))
    closed = failure eBADF
    failure e = errnoToIOError "threadWait" e Nothing Nothing

-- | Arm what is wanted. Note [One epoll instance for each run].
armWanted :: CInt -> CInt -> IO Int
armWanted source number = wanted source number >>= go
  where
    go 0 = pure 0
    go bits = do
      r <- arm source number bits
      now <- wanted source number
      if r < 0 || now .&. complement bits == 0 then pure r else go now

-- | The epoll instance of this run; the first to ask makes it, and starts the reporter.
sourceHere :: Thread CInt
sourceHere = internal $ \home _ -> do
  let run = homeNumbers home
  there <- lookup run <$> readIORef sources
  case there of
    Just source -> pure source
    Nothing -> do
      source <- fromIntegral <$> Sys.throwFailure "epoll_create" Sys.epollCreate
      found <- atomicModifyIORef' sources $ \known -> case lookup run known of
        Just other -> (known, Just other)
        Nothing -> ((run, source) : known, Nothing)
      case found of
        Just other -> other <$ Sys.close source
        Nothing -> do
          void . register (homeAtEnd home) $ do
            atomicModifyIORef' sources (\known -> (filter ((/= run) . fst) known, ()))
            void (Sys.close source)
          homePost home (homeStart home (newTcb Nobody rootContext) (\_ -> toTrace (reporter source)))
          pure source

-- | The life of the reporter. It masks itself, so that what a library throws at the OS
-- thread of the worker does not hit it.
reporter :: CInt -> Thread ()
reporter source = Catch.mask_ $ do
  descriptor <- effect (newDescriptor source)
  -- A socket is what a thread waits for; of this one nobody asks more than that.
  let pollable = Socket descriptor AF_UNIX Stream
      serve = call (AwaitReadable pollable) >> effect (report source) >> serve
  outcome <- try serve
  case outcome of
    Left e -> uninterruptibleMask_ finish >> throwM (e :: SomeException)
    Right () -> pure ()
  where
    finish = do
      effect (report source)
      left <- effect (anyIn source)
      when left (sleep (milliseconds 1) >> finish)

-- | Answer all that is reported.
report :: CInt -> IO ()
report source = allocaArray (2 * most) go
  where
    most = 64
    go :: Ptr Int32 -> IO ()
    go pairs = do
      n <- reported source pairs most
      events <- peekArray (2 * n) pairs
      each events
      when (n == most) (go pairs)
    each (number : bits : rest) = do
      (met, left) <- takeReported source (fromIntegral number) (fromIntegral bits)
      for_ met (answer Ready)
      unless (left == 0) (void (armWanted source (fromIntegral number)))
      each rest
    each _ = pure ()
