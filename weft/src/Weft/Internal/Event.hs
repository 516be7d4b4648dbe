-- |
-- Description : How "Weft.Event" works
-- Stability   : not home
--
-- The two states of an event, and the operations, each a change of one. See
-- Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.Event
  ( Event (..),
    State (..),
    newEvent,
    newEventNamed,
    set,
    clear,
    isSet,
    wait,
  )
where

import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Atomic
import Weft.Internal.Park
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | A flag that threads wait for.
data Event = Event !(MutVar RealWorld State) !Wish

-- | Is it set? If not, who waits.
data State = Set | Unset !(Queue () ())

-- | An event that is not set.
newEvent :: Thread Event
newEvent = newEventNamed mempty

-- | The same with a label, for reports.
newEventNamed :: Text -> Thread Event
newEventNamed text = internal $ \home _ -> do
  name <- newName home text
  state <- newShared (Unset emptyQueue)
  pure (Event state (waiting "event" name "until it is set"))

-- | Set it and wake all that wait for it. If it is set, nothing happens.
set :: Event -> Thread ()
set (Event state wish) = immediate (\home -> touch home "set" wish >> go home)
  where
    go here = look state $ \seen -> \case
      Set -> pure ()
      Unset queue -> do
        ours <- swapFor here state seen Set
        if ours then wakeAll here () queue else go here

-- | From now on threads wait again.
clear :: Event -> Thread ()
clear (Event state wish) = immediate (\home -> touch home "clear" wish >> go home)
  where
    go here = look state $ \seen -> \case
      Set -> swapFor here state seen (Unset emptyQueue) >>= \ours -> unless ours (go here)
      Unset _ -> pure ()

-- | Is it set? Perhaps not any more when this returns.
isSet :: Event -> Thread Bool
isSet (Event state wish) = immediate (\home -> touch home "look at" wish >> isIt <$> readMutVar state)
  where
    isIt = \case Set -> True; Unset _ -> False

-- | Wait until it is set. Who was woken goes on even if the event has been cleared
-- since. Cancellable.
wait :: Event -> Thread ()
wait (Event state wish) = attempt $ \home tcb k ->
  touch home "wait for" wish >> readMutVar state >>= \case
    Set -> pure (Got ())
    Unset _ -> waitFor home tcb wish () k (join home)
  where
    join here waiter = look state $ \seen -> \case
      Set -> pure () <$ answer here waiter ()
      Unset queue -> do
        ours <- swapFor here state seen (Unset (enqueue waiter queue))
        if ours then pure (leave here) else join here waiter
    leave here = change here state (\case Set -> pure Set; Unset queue -> Unset <$> afterBurial queue)
