-- |
-- Description : Events under exploration
module Explore.Event (scenarios) where

import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Event
import Weft.Mask (mask_)

scenarios :: [Scenario]
scenarios =
  [ small "event/set" 2 "all that wait go on, whichever thread is cancelled" setting,
    small "event/cleared" 2 "who was woken goes on though it has been cleared since" cleared,
    drawn "event/model" "random clients see one flag" (crowd (pure model))
  ]

setting :: Thread Complaints
setting = do
  event <- newEvent
  log' <- newLog
  threads <- spread [mask_ (wait event >> say log' i) | i <- [1 .. 3 :: Int]]
  _ <- forkOn 0 (set event)
  _ <- forkOn 1 (mapM_ cancel (take 1 threads))
  quiet
  got <- said log'
  pure (expect ("not all went on: " <> show got) (all (`elem` got) [2, 3]))

cleared :: Thread Complaints
cleared = do
  event <- newEvent
  log' <- newLog
  _ <- spread [wait event >> say log' i | i <- [1, 2 :: Int]]
  quiet
  _ <- forkOn 0 (set event >> clear event)
  quiet
  got <- said log'
  is <- isSet event
  pure (expectEqual "how many went on, and is it set" (2, False) (length got, is))

data Op = Set | Clear | IsSet | Wait
  deriving stock (Show)

model :: Model Event Op (Maybe Bool) Bool
model =
  Model
    { modelNew = newEvent,
      modelDo = \event -> \case
        Set -> Nothing <$ set event
        Clear -> Nothing <$ clear event
        IsSet -> Just <$> isSet event
        Wait -> Nothing <$ wait event,
      modelStart = False,
      modelStep = \is _ -> \case
        Set -> [(True, Nothing)]
        Clear -> [(False, Nothing)]
        IsSet -> [(is, Just is)]
        Wait -> [(is, Nothing) | is],
      modelOps = weighted [(3, pure Wait), (2, pure Set), (2, pure Clear), (1, pure IsSet)],
      modelLast = [IsSet],
      modelWaits = NobodyWaits
    }
