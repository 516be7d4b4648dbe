{-# LANGUAGE MagicHash #-}
{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Stand-ins for functions of base
--
-- The handlers that the stand-ins of @stand_ins.cmm@ call, and their installation. A handler
-- runs on any thread of the process.
module Weft.GhcIO.Internal.Relink
  ( installHandlers,
  )
where

import Control.Concurrent (ThreadId, myThreadId, rtsSupportsBoundThreads, threadDelay, threadWaitRead)
import Control.Exception (Exception (..), bracket_, throwIO, try)
import Control.Monad (unless, when)
import Data.IORef (IORef, atomicModifyIORef', newIORef, readIORef)
import Data.List (delete)
import Data.Maybe (isJust)
import Foreign.Ptr (nullPtr)
import Foreign.StablePtr (castPtrToStablePtr, newStablePtr)
import GHC.Conc (closeFdWith)
import GHC.Event (Event, evtRead)
import GHC.Exts (Any, Ptr (..), RealWorld, State#, addrToAny#)
import GHC.IO (IO (..), unIO)
import System.IO.Unsafe (unsafePerformIO)
import System.Posix.Types (Fd (..))
import System.Timeout (timeout)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Descriptor (awaitReadableFd, awaitWritableFd)
import Weft.Descriptor qualified as Descriptor
import Weft.GhcIO.Internal.Foreign
import Weft.GhcIO.Internal.Simulation
import Weft.IO (CannotSuspend, await, direct)
import Weft.Internal.Core.Direct (awaitOr)
import Weft.Internal.Core.Trace (Thread)
import Weft.Internal.Os.Simulated (everSimulated)
import Weft.Time (microseconds, sleep)
import Weft.Timeout qualified as Weft

-- Note [On which thread]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- A handler cannot be told whether its caller is a direct thread. A carrier is a bound
-- thread of GHC's, which most others are not: those wait as before, after a look at that. On
-- a bound thread the handler tries to suspend, which fails where there is no direct thread, or
-- something is in between that GHC must finish in one go; then the original waits there.
--
-- A simulated run has no carriers. Where there has been one in the process, all threads try,
-- so that a wait in a simulated run is refused.

-- | The function that GHC compiles an action of 'IO' to.
type Code a = State# RealWorld -> (# State# RealWorld, a #)

-- | Wait in the Weft thread if this is one, and else as base does. The name is for simulated runs.
suspendedOr :: String -> IO a -> Thread a -> IO a
suspendedOr name base weft =
  everSimulated >>= \case
    False -> awaitOr base weft
    True ->
      try (await (refuseSimulation name >> weft)) >>= \case
        Right a -> pure a
        Left e -> base where _ = e :: CannotSuspend
{-# INLINE suspendedOr #-}

waitHandler :: Event -> Fd -> Code ()
waitHandler event fd = unIO (probed (fd == minBound) (suspendedOr "threadWait" (originalWait event fd) awaited))
  where
    awaited = if event == evtRead then awaitReadableFd fd else awaitWritableFd fd
{-# OPAQUE waitHandler #-}

delayHandler :: Int -> Code ()
delayHandler time = unIO (probed (time == minBound) (suspendedOr "threadDelay" (originalDelay time) (sleep (microseconds (limited time)))))

closeHandler :: (Fd -> IO ()) -> Fd -> Code ()
closeHandler close fd = unIO (probed (fd == minBound) (Descriptor.closeFdWith (originalClose close) fd))

-- | The action is the user's, so it must not be run again if it fails with 'CannotSuspend':
-- whether this thread can be suspended is asked before.
timeoutHandler :: Int -> IO a -> Code (Maybe a)
timeoutHandler time action = unIO . probed (time == minBound) $ do
  inWeft <- suspendedOr "timeout" (pure False) (pure True)
  if
    | not inWeft -> originalTimeout time action
    | time < 0 -> Just <$> action
    | otherwise -> await (Weft.timeout (microseconds (limited time)) (direct action))
{-# OPAQUE timeoutHandler #-}

-- | A century is for ever, and its nanoseconds are a number that can be added to a clock.
limited :: Int -> Int
limited = min 3_000_000_000_000_000

-- The originals. They are reached by the addresses of static closures; @weft_ghc_io.c@ keeps what
-- those refer to.

originalWait :: Event -> Fd -> IO ()
originalWait event fd = IO (code event fd)
  where
    code = unsafeCoerce (theOriginal waitOriginal) :: Event -> Fd -> Code ()

originalDelay :: Int -> IO ()
originalDelay time = IO (code time)
  where
    code = unsafeCoerce (theOriginal delayOriginal) :: Int -> Code ()

originalClose :: (Fd -> IO ()) -> Fd -> IO ()
originalClose close fd = IO (code close fd)
  where
    code = unsafeCoerce (theOriginal closeOriginal) :: (Fd -> IO ()) -> Fd -> Code ()

originalTimeout :: Int -> IO a -> IO (Maybe a)
originalTimeout time action = IO (code time action)
  where
    code = unsafeCoerce (theOriginal timeoutOriginal) :: Int -> IO a -> Code (Maybe a)

{- HLINT ignore Original "Use newtype instead of data" -}

-- | A function of base, in a box: its address is not tagged, so to evaluate it would be to run it.
data Original = Original Any

theOriginal :: Original -> Any
theOriginal (Original f) = f

waitOriginal, delayOriginal, closeOriginal, timeoutOriginal :: Original
waitOriginal = unsafePerformIO (look 0)
{-# NOINLINE waitOriginal #-}
delayOriginal = unsafePerformIO (look 1)
{-# NOINLINE delayOriginal #-}
closeOriginal = unsafePerformIO (look 2)
{-# NOINLINE closeOriginal #-}
timeoutOriginal = unsafePerformIO (look 3)
{-# NOINLINE timeoutOriginal #-}

look :: Int -> IO Original
look which = do
  Ptr address <- original which
  case addrToAny# address of
    (# f #) -> pure (Original f)

-- | Install the handlers. True if calls of these functions reach them, of each one. Otherwise
-- no handler is left.
--
-- Without @-threaded@ base waits in other functions, and a probe of them would end the process.
installHandlers :: IO Bool
installHandlers = if rtsSupportsBoundThreads then probeHandlers else pure False

probeHandlers :: IO Bool
probeHandlers = do
  newStablePtr waitHandler >>= installHandler 0
  newStablePtr delayHandler >>= installHandler 1
  newStablePtr closeHandler >>= installHandler 2
  newStablePtr (timeoutHandler :: Int -> IO Any -> Code (Maybe Any)) >>= installHandler 3
  me <- myThreadId
  reached <-
    bracket_ (probers (me :)) (probers (delete me)) $
      and
        <$> sequence
          [ probe (threadWaitRead minBound),
            probe (threadDelay minBound),
            probe (closeFdWith (\_ -> pure ()) minBound),
            probe (timeout minBound (pure ()))
          ]
  unless reached (mapM_ (`installHandler` castPtrToStablePtr nullPtr) [0 .. 3])
  pure reached

-- | The threads of GHC's that probe.
probing :: IORef [ThreadId]
probing = unsafePerformIO (newIORef [])
{-# NOINLINE probing #-}

probers :: ([ThreadId] -> [ThreadId]) -> IO ()
probers change = atomicModifyIORef' probing (\threads -> (change threads, ()))

-- | Does the handler answer a call with an argument that is rare? From other threads, and later, it is like any other.
probe :: IO a -> IO Bool
probe call =
  try call >>= \case
    Left e -> pure (isJust (fromException e :: Maybe Reached))
    Right _ -> pure False

-- | The answer of a handler to 'probe'.
data Reached = Reached
  deriving stock (Show)

instance Exception Reached

-- | Answer a 'probe', which this may be.
probed :: Bool -> IO a -> IO a
probed mayBe act = when mayBe answer >> act

answer :: IO ()
answer = do
  me <- myThreadId
  threads <- readIORef probing
  when (me `elem` threads) (throwIO Reached)
{-# NOINLINE answer #-}
