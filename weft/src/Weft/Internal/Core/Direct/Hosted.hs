{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Actions on threads of GHC's, which wait by blocking. See "Weft.Outside", and Note [Await on a
-- thread of GHC's].
module Weft.Internal.Core.Direct.Hosted (Performer (..), hosted, performerHere) where

import Control.Exception (mask, mask_, throwIO)
import Data.IORef (newIORef, readIORef, writeIORef)
import GHC.Exts
import GHC.IO (IO (..), unIO)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.Direct.Errors
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
-- exception is pending (Note [Pending exceptions] in "Weft.Internal.Core.Direct"). Only an await that
-- finds no segment asks.
performerHere :: IO (Maybe Performer)
performerHere = mask_ (IO (catch# asking (\_ s -> (# s, Nothing #))))

-- | Fails where there is no such prompt, and with nothing else: it is masked.
asking :: State# RealWorld -> (# State# RealWorld, Maybe Performer #)
asking s = case hostTag of HostTag t -> control0# t (\k s1 -> (# s1, Asks k #)) s
{-# OPAQUE asking #-}
