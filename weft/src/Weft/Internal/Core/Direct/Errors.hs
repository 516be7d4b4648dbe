{-# OPTIONS_HADDOCK not-home #-}

-- | The errors of direct threads. What 'Weft.Internal.Core.Direct' says to the programmer of the two
-- mistakes that it notices.
module Weft.Internal.Core.Direct.Errors (CannotSuspend (..), ResumedTwice (..)) where

import Control.Exception (Exception)
import Data.List (intercalate)

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

-- | A continuation was entered a second time: a kernel or a policy has answered twice. The first entry
-- goes on.
data ResumedTwice = ResumedTwice
  deriving stock (Eq)

instance Show ResumedTwice where
  show ResumedTwice =
    "a direct thread was resumed twice: its system call was answered, or a ready queue gave it back, more than once"

instance Exception ResumedTwice
