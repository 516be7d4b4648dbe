{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Where an await finds no segment to suspend: actions on threads of GHC's, which wait by blocking
-- ("Weft.Outside", Note [Await on a thread of GHC's]), and the mistakes of programs.
module Weft.Internal.Core.Direct.Hosted
  ( Performer (..),
    hosted,
    performerHere,
    CannotSuspend (..),
    ResumedTwice (..),
  )
where

import Control.Exception (Exception, mask, mask_, throwIO)
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.List (intercalate)
import GHC.Exts
import GHC.IO (IO (..), unIO)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.Trace (Thread)
import Weft.Internal.Os.Capture (newTag)

-- Note [Await on a thread of GHC's]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An action of `hosted` has the operations of a direct thread, but no scheduler to suspend to: an await
-- there blocks. The prompt of `hosted` knows the performer: an await that finds no prompt of a segment
-- leaves to that one with a question, and is entered again at once with the answer. Where there is
-- neither, it cannot suspend.
--
-- Outside of that prompt GHC is masked, as around a segment (Note [Masking of direct threads]): raised
-- before the action is entered again, an exception would unwind past the action's handlers. An await
-- that is masked uninterruptibly asks for the performer even so, without looking for a segment.
--
-- Carriers are bound threads and actions of `hosted` are not: a test for that keeps the performed
-- operation out of the continuations of direct threads.

-- | Performs an operation and waits for it.
newtype Performer = Performer (forall a. Thread a -> IO a)

-- | How an action of 'hosted' leaves its prompt: it has ended, or asks for the performer.
data Stop = Finished | Asks !(RestOfAction (Maybe Performer))

type RestOfAction b = (State# RealWorld -> (# State# RealWorld, b #)) -> State# RealWorld -> (# State# RealWorld, Stop #)

data HostTag = HostTag (PromptTag# Stop)

hostTag :: HostTag
hostTag = unsafePerformIO (IO (\s -> case newTag s of (# s', t #) -> (# s', HostTag t #)))
{-# NOINLINE hostTag #-}

-- | Run an action in which 'Weft.Internal.Core.Direct.await' uses this performer. Not on a carrier.
hosted :: Performer -> IO a -> IO a
hosted performer action = mask $ \restore -> do
  result <- newIORef Nothing
  let go (IO step) =
        IO (\s -> case hostTag of HostTag t -> prompt# t step s) >>= \case
          Asks k -> go (IO (k (unIO (pure (Just performer)))))
          Finished -> readIORef result >>= maybe (throwIO ResumedTwice) pure
  go (restore action >>= \a -> Finished <$ writeIORef result (Just a))

-- | The performer for this action; 'Nothing' outside of 'hosted'. In any masking state, also while an
-- exception is pending (Note [Pending exceptions] in "Weft.Internal.Core.Direct").
performerHere :: IO (Maybe Performer)
performerHere = mask_ (IO (catch# asking (\_ s -> (# s, Nothing #))))

-- | Fails where there is no such prompt, and with nothing else: it is masked.
asking :: State# RealWorld -> (# State# RealWorld, Maybe Performer #)
asking s = case hostTag of HostTag t -> control0# t (\k s1 -> (# s1, Asks k #)) s

-- | An @await@ was called where it cannot suspend. The program is wrong: change it, rather than handle this.
data CannotSuspend
  = -- | There is no @direct@ around the call, or something that GHC must finish in one go is in between.
    NothingToSuspend
  | -- | The call is masked uninterruptibly, and an asynchronous exception of GHC is pending for the worker
    -- that runs it. (In an action of 'Weft.Outside.onGhcThread' it waits, and the exception stays pending.)
    ExceptionPending
  deriving stock (Eq)

instance Show CannotSuspend where
  show = \case
    NothingToSuspend ->
      intercalate
        "\n"
        [ "await: this thread cannot be suspended here. Either there is no 'direct' around the call (in",
          "plain IO, or in a thread started with forkIO), or the call is inside one of these:",
          "  - unsafePerformIO, runST or a value that is evaluated lazily:",
          "      await first, and build the value from the result;",
          "  - atomically:",
          "      await before or after the transaction;",
          "  - a callback from foreign code, or an action that another OS thread runs (blocking, forkIO):",
          "      await before, or pass the callback's data to a direct thread that awaits;",
          "  - IO outside of any thread:",
          "      run it with Weft.IO.run, or wrap it in direct."
        ]
    ExceptionPending ->
      intercalate
        "\n"
        [ "await: an asynchronous exception of GHC is pending for the worker that runs this thread",
          "(throwTo, killThread or System.Timeout.timeout), while await is masked uninterruptibly.",
          "A worker runs many threads: do not throw to it. Use the operations of Weft to end a wait."
        ]

instance Exception CannotSuspend

-- | A continuation was entered twice: a kernel or a policy has answered twice. The first entry goes on.
data ResumedTwice = ResumedTwice
  deriving stock (Eq)

instance Show ResumedTwice where
  show ResumedTwice =
    "a direct thread was resumed twice: its system call was answered, or a ready queue gave it back, more than once"

instance Exception ResumedTwice
