{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Waiting for the first of several things
--
-- What one can wait for beside other things ('Choice'), and the operation that waits for
-- the first of them ('select'). "Weft.Internal.Sync.Channel", "Weft.Internal.Sync.MVar" and their
-- neighbours say what their choices are; this module knows no states but those of a wait.
--
-- See Note [Choices].
module Weft.Internal.Sync.Choice (Choice (..), andThen, select) where

import Control.Monad ((>=>))
import Data.IORef
import Data.List (intercalate)
import GHC.Exts (oneShot)
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Park
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..), describe)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync (attempt)

-- Note [Choices]
-- ~~~~~~~~~~~~~~
-- A thread that waits for the first of several things is parked once, as any thread, in a
-- place of its own that is in no queue. Each thing gets another place for its queue
-- (`OneOf`), which points to the first. Whoever answers such a place claims the first, in the
-- one atomic step that answers any thread. So exactly one of the things is chosen, and what is
-- handed over has one receiver: if the claim fails the value stays where it was, as if
-- the thread had been cancelled.
--
-- `select` goes in three steps, all in one node and so without user code between:
--
--   * Try each thing in the order of the list. The first that is there is taken, and it alone.
--   * Park, and join the queues in that order.
--   * Whoever answers makes the thread ready; its first act is to leave the other
--     queues, in the way of a wait that was cancelled.
--
-- The races:
--
-- (A) A thing comes while the queues are being joined, in one that was joined already: it
--     is an answer, and the thread goes on when its worker has come to the end of the node.
-- (B) A thing comes before its queue is joined, after it was tried. To take it now would be
--     wrong: (A) may have happened meanwhile, and then there would be two. So
--     the thread claims its own place first. If it has been answered, it is done. If not,
--     nobody will answer it any more: it leaves the queues and tries all again.
--     Whenever that happens, another thread has got on.
-- (C) A cancellation claims the place like an answer. So either nothing was taken, or
--     the thread goes on with what it got, and is cancelled at its next system call.
-- (D) A queue is left late, by a thread that has its answer. What is found in the queue
--     until then is as good as empty (Note [Graves] in "Weft.Internal.Sync.WaitQueue").
--
-- Two threads that both wait for several things cannot wait for each other in pairs: nobody
-- waits to send to a channel on which somebody waits to receive. So nobody needs to claim two.

-- | One of several things to wait for, with an @a@ as result.
data Choice a = forall o b.
  Choice
  { -- | What a dump says of it.
    _choiceWish :: Wish,
    -- | What is done to it, in a word; empty if that is nobody's business.
    _choiceVerb :: String,
    -- | Take it, if it is there: 'Later' if it is not.
    _choiceTry :: Home -> IO (Tried b),
    -- | What is offered while it waits.
    _choiceOffer :: o,
    -- | Join those that wait for it; how to leave them. 'Nothing' if it may be there.
    _choiceJoin :: Home -> Waiter o b -> IO (Maybe (Home -> IO ())),
    -- | How the thread goes on with it.
    _choiceUse :: b -> Thread a
  }

-- | Apply a function to the result.
instance Functor Choice where
  fmap f c = c `andThen` (pure . f)

-- | When this is chosen, go on so, as a part of 'select'.
andThen :: Choice a -> (a -> Thread b) -> Choice b
andThen (Choice wish verb try offer join use) next = Choice wish verb try offer join (use >=> next)

-- | Wait for the first of several things: exactly one of them happens, and its result is
-- returned; the others take nothing and give nothing.
--
-- If several are there, the first in the list is taken. Otherwise the one that comes first.
-- Where an early one may always be there, the later ones would never come to their turn: give
-- the list in another order the next time. Of an empty list one waits for ever.
--
-- Cancellable; who is cancelled has taken nothing, and given nothing.
--
-- Throws what the operation throws that is chosen.
select :: [Choice a] -> Thread a
-- The list is the user's, and evaluated as his code.
select choices = Thread $ \k -> foldr seq (trySelect choices k) choices

trySelect :: [Choice a] -> (a -> Trace) -> Trace
trySelect choices = unThread . attempt (Uses uses) $ selectNow choices
  where
    uses = [Use verb wish | Choice wish verb _ _ _ _ <- choices, not (null verb)]

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
      Later <$ waitFor home tcb (wishOf choices) () goOn (\waiter -> leave home <$ joinAll joined leave waiter choices)
    joinAll _ _ _ [] = pure ()
    joinAll joined leave waiter (Choice _ _ _ offer join use : rest) = do
      place <- newShared (OneOf offer waiter (oneShot (\b -> unThread (use b) k)))
      join home (Parking place) >>= \case
        Just quit -> do
          -- Nothing of the thread is to be held by a queue that it has left.
          modifyIORef joined ((\here -> publish place Vacant >> quit here) :)
          joinAll joined leave waiter rest
        Nothing ->
          claim home waiter >>= \case
            WaitOver -> pure ()
            claimed -> leave home >> letGo home claimed (oneShot (\_ -> trySelect choices k))

-- | For dumps.
wishOf :: [Choice a] -> Wish
wishOf choices = wishFor 0 (Reason text (pure 0) ByThreads)
  where
    text
      | null choices = "nothing"
      | otherwise = "the first of: " <> intercalate "; " [describe request | Choice (Wish _ request) _ _ _ _ _ <- choices]
