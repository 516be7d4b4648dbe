{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack that does not come back loses its HEC
--
-- HECs with handlers. A stack that computes or blocks for long, or says that it will, is displaced: another OS thread
-- carries the HEC, and asks the library what to run. Called by the monitor's OS threads, and by stacks.
module Weft.Substrate.Internal.Takeover (Handlers (..), Reason (..), inCallWith, inCallRuled, outCall, leaveHEC, unwatched, displace, reasonOf) where

import Control.Exception (bracket_, mask, throwIO, try, uninterruptibleMask_)
import Control.Monad (unless, when)
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Maybe (isJust, isNothing)
import GHC.Conc (BlockReason (..), ThreadStatus (..))
import GHC.IO (IO (..))
import Weft.Internal.Os.Masked (interruptiblyMasked)
import Weft.Substrate.Internal.Commit (takeRest)
import Weft.Substrate.Internal.Ground
import Weft.Substrate.Internal.Hec
import Weft.Substrate.Internal.Place
import Weft.Substrate.Internal.Raise
import Weft.Substrate.Internal.Stack
import Weft.Substrate.Internal.Transaction
import Weft.Substrate.Internal.Types

-- Note [Takeover by transaction]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The text runs a handler inside of the computation that a timer or a black hole interrupts. GHC cannot; it is
-- the HEC that leaves. Of each HEC with handlers a variable says which stack it runs, and all that is done on the HEC's
-- behalf reads it in its transaction: a switch (which writes it), `getHEC`, `sleepHEC`, the end of a stack. A takeover
-- is a transaction, too, that writes a new stack there, whose code is a switch by the library's `displaced`. So
--
--   1. a stack runs on a HEC if, and only if, the HEC's variable says so;
--   2. whatever a displaced stack was about to do for its HEC fails, and is done again when it has one;
--   3. a HEC that sleeps is not taken over, so nothing is done for it in two beds;
--   4. a displaced stack is in no slot until it returns, so no HEC enters it;
--   5. it returns once for each time that it was displaced (Note [To come back] in
--      "Weft.Substrate.Internal.Place"), and its own code says what is done next.
--
-- Each OS thread has a record of the HEC of its own. That of a displaced stack still names the HEC, which is how it
-- finds out.

-- | Run an action on a new HEC with handlers, on a new stack: see 'inCall'. OS threads of its own carry the HEC. This one
-- waits, and passes exceptions that other threads of GHC's throw at it to the stack that the HEC runs then. Stacks
-- that are away when the HEC ends go on until they need a HEC; a stack that no HEC can enter any more then gets
-- 'Control.Exception.BlockedIndefinitelyOnMVar'.
--
-- If the first argument is true, a stack is displaced that does not come back to its HEC within some 5 to 16 milliseconds
-- (at @-N1@ GHC may keep the next OS thread waiting for its time slice of 20 more). Otherwise only 'outCall' displaces.
inCallWith :: Bool -> Handlers -> IO a -> IO (Maybe a)
inCallWith preempts handlers = inCallRuled preempts rules (\_ -> pure Nothing)
  where
    rules = Rules handlers (\_ _ -> pure True) (\_ -> pure ()) (\_ -> pure False)

-- | 'inCallWith' for a library that has something of its own in its stacks, and says what follows them ('inCallEnding').
inCallRuled :: Bool -> Rules -> (StackId -> IO (Maybe Successor)) -> IO a -> IO (Maybe a)
inCallRuled preempts rules ending act = mask $ \restore -> do
  result <- newIORef Nothing
  known <- newIORef Nothing
  first <- newStackIn Nothing id (restore act >>= writeIORef result . Just)
  running <- newPVarIO (Just first)
  withWatch preempts (\w -> readIORef known >>= mapM_ (stuck w)) $ \w -> do
    h <- newHEC first ending (Governed running rules w)
    writeIORef known (Just h)
    rest <- takeRest first
    forkCarrier (carry h rest)
    ended h >>= either throwIO pure
  readIORef result
  where
    -- One that cannot be displaced now is watched on.
    stuck w h = carrierStatus (hecCarrier h) >>= \status -> takeOver h (const True) (reasonOf status) (`unless` userBegins w)

-- | Perform an action that blocks or takes long, such as a foreign call, without this HEC, which goes on with other
-- stacks at once. This stack has a HEC again when the action has ended. The library is told ('CallsOut'). On a HEC without
-- handlers the action is just performed. (Li 2008, section 4.4.4, where the compiler wraps @safe@ calls so.)
outCall :: IO a -> IO a
outCall act =
  placeHere Nothing >>= \case
    Just h | Governed {} <- hecGoverned h -> mask $ \restore -> do
      leaveHEC h CallsOut
      r <- try (restore act)
      comeBack
      either (`raiseAgain` outCall act) pure r
    _ -> act

-- | Have this stack displaced from the HEC, if it runs there.
leaveHEC :: HEC -> Reason -> IO ()
leaveHEC h reason = stackHere >>= \(_, here) -> displaceIf (== here) h reason

-- | Displace the stack that a HEC runs, if it runs one and has handlers.
displace :: HEC -> Reason -> IO ()
displace = displaceIf (const True)

-- | 'displace' a stack of this kind. Answers when that is done; a new OS thread does it, so that the HEC has one.
displaceIf :: (StackId -> Bool) -> HEC -> Reason -> IO ()
displaceIf wanted h reason = uninterruptibleMask_ $ do
  decided <- newGate
  forkCarrier (interruptiblyMasked (takeOver h wanted reason (\_ -> openGate decided ())))
  passGate decided

-- | Displace the stack that a HEC runs, if it is of this kind, perform an action, which is told whether that was done, and
-- carry the HEC. Masked.
takeOver :: HEC -> (StackId -> Bool) -> Reason -> (Bool -> IO ()) -> IO ()
takeOver h wanted reason decided = case hecGoverned h of
  Free -> decided False
  Governed running rules _ -> do
    taken <- newIORef Nothing
    -- Where the library chooses this very stack, it ends, and the HEC with it.
    activation <- newStack (readIORef taken >>= mapM_ (switch . displaced (rulesHandlers rules) reason))
    rest <- takeRest activation
    atomicPTM $ do
      asleep <- readPVar (hecAsleep h)
      now <- readPVar running
      unsafeIOToPTM (writeIORef taken Nothing)
      case now of
        Just t | wanted t -> do
          sleeper <- unsafeIOToPTM isSleeperTaken
          goes <- if isNothing asleep || sleeper then rulesLeaves rules (throwerAt (hecCarrier h)) t else pure False
          when goes $ do
            unsafeIOToPTM (writeIORef taken (Just t))
            writePVar running (Just activation)
        _ -> pure ()
    won <- isJust <$> readIORef taken
    decided won
    when won $ withStack h activation >>= \mine -> carry mine rest
  where
    isSleeperTaken = IO (\s -> (# s, planted SleeperDisplaced s #))

-- | Be the OS thread of a HEC that is about to run this stack, until the HEC ends or is given to another. Masked; throws
-- nothing.
carry :: HEC -> Rest -> IO ()
carry h rest = do
  carriedHere (hecCarrier h)
  case hecGoverned h of
    Free -> pure ()
    Governed _ _ w -> userBegins w
  withPlace (Just h) $
    -- It may be another HEC by now.
    carryOn h rest >>= mapM_ (\r -> placeHere Nothing >>= mapM_ (\now -> openGate (hecEnd now) r))

-- | Perform an action that waits for what the library collects, such as events. The stack is not displaced
-- for how long it takes.
unwatched :: IO a -> IO a
unwatched act =
  hecHere >>= \h -> case hecGoverned h of
    Free -> act
    Governed _ _ w -> bracket_ (liesDown w) (risesUp w) act

-- | Why a stack does not come back, by what GHC says of its OS thread.
reasonOf :: ThreadStatus -> Reason
reasonOf = \case
  ThreadBlocked BlockedOnBlackHole -> EntersBlackHole
  ThreadBlocked _ -> Blocks
  _ -> Computes
