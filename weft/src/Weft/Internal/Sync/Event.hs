{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.Event" works. A result without a value, which can be emptied again.
module Weft.Internal.Sync.Event
  ( Event (..),
    newEvent,
    newEventNamed,
    set,
    clear,
    isSet,
    wait,
    onSet,
  )
where

import Control.Monad (void)
import Data.Maybe (isJust)
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.Result

-- | A flag that threads wait for.
data Event = Event !(ResultVar ()) !BlockedOn

-- | An event that is not set.
newEvent :: Thread Event
newEvent = newEventNamed mempty

-- | 'newEvent' with a label, for reports.
newEventNamed :: Text -> Thread Event
newEventNamed text = internal $ \home _ -> do
  name <- newName home text
  var <- newResultVar
  pure (Event var (waiting "event" name "until it is set"))

-- | Set it and wake all that wait for it. If it is set, nothing happens.
set :: Event -> Thread ()
set (Event var blockedOn) = immediate (using "set" blockedOn) (\here -> void (fillResult here var ()))

-- | From now on threads wait again.
clear :: Event -> Thread ()
clear (Event var blockedOn) = immediate (using "clear" blockedOn) (`clearResult` var)

-- | Is it set? Perhaps not any more when this returns.
isSet :: Event -> Thread Bool
isSet (Event var blockedOn) = immediate (using "look at" blockedOn) (\_ -> isJust <$> peekResult var)

-- | Wait until it is set. A thread that was woken goes on even if it was cleared since. Cancellable.
wait :: Event -> Thread ()
wait (Event var blockedOn) = awaitResult (using "wait for" blockedOn) blockedOn var

-- | To find it set, as 'wait' does.
onSet :: Event -> Choice ()
onSet (Event var blockedOn) = onResult blockedOn "wait for" var
