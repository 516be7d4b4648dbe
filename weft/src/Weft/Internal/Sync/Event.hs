{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.Event" works. The states of an event and its operations: Note [Synchronization] in
-- "Weft.Internal.Sync".
module Weft.Internal.Sync.Event
  ( Event (..),
    EventState (..),
    newEvent,
    newEventNamed,
    set,
    clear,
    isSet,
    wait,
    onSet,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Park
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Sync
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.WaitQueue

-- | A flag that threads wait for.
data Event = Event !(MutVar RealWorld EventState) !BlockedOn

-- | Is it set? If not, the threads that wait.
data EventState = Set | Unset !(WaitQueue () ())

-- | An event that is not set.
newEvent :: Thread Event
newEvent = newEventNamed mempty

-- | 'newEvent' with a label, for reports.
newEventNamed :: Text -> Thread Event
newEventNamed text = internal $ \home _ -> do
  name <- newName home text
  state <- newShared (Unset emptyQueue)
  pure (Event state (waiting "event" name "until it is set"))

-- | Set it and wake all that wait for it. If it is set, nothing happens.
set :: Event -> Thread ()
set (Event state blockedOn) = immediate (using "set" blockedOn) $ \here ->
  changing here state (\case Set -> (Set, emptyQueue); Unset queue -> (Set, queue)) >>= wakeAll here ()

-- | From now on threads wait again.
clear :: Event -> Thread ()
clear (Event state blockedOn) = immediate (using "clear" blockedOn) $ \here ->
  change here state (\case Set -> pure (Unset emptyQueue); unset -> pure unset)

-- | Is it set? Perhaps not any more when this returns.
isSet :: Event -> Thread Bool
isSet (Event state blockedOn) = immediate (using "look at" blockedOn) (\_ -> isIt <$> readMutVar state)
  where
    isIt = \case Set -> True; Unset _ -> False

-- | Wait until it is set. A thread that was woken goes on even if the event has been cleared
-- since. Cancellable.
wait :: Event -> Thread ()
wait (Event state blockedOn) = attempt (using "wait for" blockedOn) $ \home tcb k ->
  readMutVar state >>= \case
    Set -> pure (Got ())
    Unset _ -> waitFor home tcb blockedOn () k (\waiter -> queueUp state home waiter (pure (leave state home)) (pure () <$ answer home waiter ()))

-- | To find it set, as 'wait' does.
onSet :: Event -> Choice ()
onSet (Event state blockedOn) = choiceOf blockedOn "wait for" (const now) () (queueUp state) (leave state)
  where
    now none use = readMutVar state >>= \case Set -> use (); Unset _ -> none

-- | Join those that wait; what to do when that is done, and if it is set.
queueUp :: MutVar RealWorld EventState -> Home -> ParkedThread () () -> IO r -> IO r -> IO r
queueUp state here waiter joined isSet' = again
  where
    again = look state $ \seen -> \case
      Set -> isSet'
      Unset queue -> ifM (swapFor here state seen (Unset (enqueue waiter queue))) joined again

leave :: MutVar RealWorld EventState -> Home -> IO ()
leave state here = change here state (\case Set -> pure Set; Unset queue -> Unset <$> afterRemoval queue)
