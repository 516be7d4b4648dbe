{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Waiting for the first of several things. Each kind of object defines its own choices. See Note [Choices].
module Weft.Internal.Sync.Choice (Choice (..), choiceOf, andThen, select) where

import Control.Monad ((>=>))
import Data.IORef
import Data.List (intercalate)
import GHC.Exts (oneShot)
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..), describe)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell
import Weft.Internal.Sync

-- Note [Choices]
-- ~~~~~~~~~~~~~~
-- A thread in `select` is parked once, like any thread, in a place that is in no queue. Each
-- choice puts another place (`OneOf`), which points to the first, into its own queue. To answer
-- one, a thread claims the first, in the usual atomic step. So exactly one choice happens, and a
-- value has one receiver: if the claim fails, the value stays where it was.
--
-- `select` tries the choices in the order of the list, parks and joins the queues in that order, and once
-- answered first leaves the others, without user code in between. The races:
--
-- (A) A queue that was joined delivers while others are being joined: that is an answer, and
--     the thread continues when its worker reaches the end of the node.
-- (B) An event comes after its choice was tried and before its queue is joined. Taking it
--     could make two, because of (A). So the thread claims its own place first: if it was
--     answered, it is done; if not, no other thread can answer it any more, and it leaves the queues
--     and tries again. Each retry means that another thread has made progress.
-- (C) A cancellation claims the place like an answer: either nothing was taken, or the thread
--     continues with what it got and is cancelled at its next system call.
-- (D) A thread leaves a queue late, after its answer. Its entry is a tombstone until then
--     (Note [Tombstones] in "Weft.Internal.Sync").
--
-- Two threads in `select` never need to claim each other: a channel never has both senders and
-- receivers that wait.

-- | One of several things to wait for, with an @a@ as result.
data Choice a = forall o b.
  Choice
  { _choiceBlockedOn :: BlockedOn,
    -- | A verb for reports; empty if a report need not say it.
    _choiceVerb :: String,
    -- | Take it, if it is there: 'Later' if it is not.
    _choiceTry :: Home -> IO (Tried b),
    -- | Offered while it waits.
    _choiceOffer :: o,
    -- | Join those that wait for it; how to leave them. 'Nothing' if it may be there.
    _choiceJoin :: Home -> ParkedThread o b -> IO (Maybe (Home -> IO ())),
    -- | How the thread goes on with it.
    _choiceUse :: b -> Thread a
  }

-- | Apply a function to the result.
instance Functor Choice where
  fmap f c = c `andThen` (pure . f)

-- | When this is chosen, go on so, as a part of 'select'.
andThen :: Choice a -> (a -> Thread b) -> Choice b
andThen (Choice blockedOn verb try offer join use) next = Choice blockedOn verb try offer join (use >=> next)

-- | A choice of an object: how to try, what is offered, how to join those that wait (what to do then, and if
-- the state has changed) and to leave.
choiceOf :: BlockedOn -> String -> (Home -> IO (Tried b)) -> o -> (forall r. Home -> ParkedThread o b -> IO r -> IO r -> IO r) -> (Home -> IO ()) -> Choice b
choiceOf blockedOn verb now offer queueUp leave =
  Choice blockedOn verb now offer (\home waiter -> queueUp home waiter (pure (Just leave)) (pure Nothing)) pure

-- | Wait for the first of several choices: exactly one happens; the others take nothing and give nothing.
--
-- If several are ready, the first in the list is taken. A choice that is always ready therefore
-- starves those after it: vary the order of the list. An empty list waits for ever.
--
-- Cancellable; a cancelled thread has taken and given nothing. Throws what the chosen operation throws.
select :: [Choice a] -> Thread a
select choices = Thread $ \k -> foldr seq (trySelect choices k) choices -- It is evaluated as user code.

trySelect :: [Choice a] -> (a -> Trace) -> Trace
trySelect choices = unThread . attempt (Uses uses) $ selectNow choices
  where
    uses = [Use verb blockedOn | Choice blockedOn verb _ _ _ _ <- choices, not (null verb)]

selectNow :: [Choice a] -> Home -> Tcb -> (a -> Trace) -> IO (Tried a)
selectNow choices home tcb k = poll choices
  where
    poll [] = park
    poll (Choice _ _ try _ _ use : rest) =
      try home >>= \case
        Got b -> pure (Instead (unThread (use b) k))
        Instead trace -> pure (Instead trace)
        Run io -> pure (Run io)
        Later -> poll rest
    park = do
      joined <- newIORef []
      let leave here = readIORef joined >>= mapM_ ($ here)
          goOn resume = internally (\here _ -> leave here >> pure (resume ()))
      Later <$ waitFor home tcb (blockedOnAny choices) () goOn (\waiter -> leave home <$ joinAll joined leave waiter choices)
    joinAll _ _ _ [] = pure ()
    joinAll joined leave waiter (Choice _ _ _ offer join use : rest) = do
      place <- newCell (OneOf offer waiter (oneShot (\b -> unThread (use b) k)))
      join home (ParkedThread place) >>= \case
        Just quit -> do
          -- Nothing of the thread is to be held by a queue that it has left.
          modifyIORef joined ((\here -> writeCell place Vacant >> quit here) :)
          joinAll joined leave waiter rest
        Nothing ->
          claim home waiter >>= \case
            WaitOver -> pure ()
            claimed -> leave home >> letGo home claimed (oneShot (\_ -> trySelect choices k))

-- | For dumps.
blockedOnAny :: [Choice a] -> BlockedOn
blockedOnAny choices = blockedOnNumber 0 (Reason text (pure 0) ByThreads)
  where
    text
      | null choices = "nothing"
      | otherwise = "the first of: " <> intercalate "; " [describe request | Choice (BlockedOn _ request) _ _ _ _ _ <- choices]
