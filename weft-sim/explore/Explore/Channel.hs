-- |
-- Description : Channels under exploration
module Explore.Channel (scenarios) where

import Control.Monad (forM_, replicateM, void)
import Control.Monad.Catch (Handler (..), catches)
import Data.Either (rights)
import Data.List (sort)
import Data.Maybe (catMaybes)
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Channel
import Weft.Mask (mask_)

scenarios :: [Scenario]
scenarios =
  [ small "channel/handover" 2 "what is sent is received once, whichever thread is cancelled" handover,
    small "channel/close-senders" 2 "senders that wait fail when it is closed, what was sent before is received" closeSenders,
    small "channel/close-receivers" 2 "receivers that wait get the end when it is closed" closeReceivers,
    small "channel/order" 2 "senders that wait send in the order in which they came" order,
    drawn "channel/model" "random clients see one queue" (crowd model)
  ]

handover :: Thread Complaints
handover = do
  channel <- newChannel 1
  log' <- newLog
  threads <- spread (replicate 2 (mask_ (receive channel >>= say log')))
  _ <- forkOn 0 (mapM_ (send channel) "ab")
  _ <- forkOn 1 (mapM_ cancel (take 1 threads))
  quiet
  taken <- said log'
  left <- replicateM 2 (tryReceive channel)
  pure (expectEqual "received and left" "ab" (sort (catMaybes taken <> [c | Received c <- left])))

closeSenders :: Thread Complaints
closeSenders = do
  channel <- newChannel 1
  log' <- newLog
  _ <- spread [mask_ ((send channel c >> say log' (Right c)) `catches` [Handler (\(ChannelClosed _) -> say log' (Left c))]) | c <- "ab"]
  _ <- forkOn 1 (close channel)
  got <- receiveAll channel
  quiet
  answers <- said log'
  pure
    ( expectEqual "answers to the senders" 2 (length answers)
        <> expectEqual "received, of what was sent" (length (rights answers)) (length got)
        <> expect ("received what was not sent: " <> show (got, answers)) (all ((`elem` answers) . Right) got)
    )

receiveAll :: Channel a -> Thread [a]
receiveAll channel = receive channel >>= maybe (pure []) (\a -> (a :) <$> receiveAll channel)

closeReceivers :: Thread Complaints
closeReceivers = do
  channel <- newChannel 2
  log' <- newLog
  _ <- spread (replicate 3 (receive channel >>= say log'))
  _ <- forkOn 0 (send channel 'a' >> close channel)
  quiet
  got <- said log'
  pure (expectEqual "receivers with a value, with the end" (1, 2) (length [() | Just 'a' <- got], length [() | Nothing <- got]))

order :: Thread Complaints
order = do
  channel <- newChannel 1
  forM_ [1 .. 4 :: Int] $ \i -> forkOn i (send channel i) >> quiet
  void (forkOn 1 yield)
  expectEqual "received" [1 .. 4] <$> replicateM 4 (receive channel >>= maybe (pure 0) pure)

data Op = Send Int | Receive | TrySend Int | TryReceive | Close | Waiting
  deriving stock (Show)

data Answer = Done | Got (Maybe Int) | Tried (Received Int) | Is Bool | Number Int | Refused
  deriving stock (Eq, Show)

model :: Draw (Model (Channel Int) Op Answer (Bool, [Int]))
model = do
  room <- weighted [(3, pure 1), (2, pure 2), (1, pure 3), (1, pure 0)]
  closes <- chance 50
  let limit = if room == 0 then 1000 else room
  pure
    Model
      { modelNew = if room == 0 then newUnboundedChannel else newChannel room,
        modelDo = \c op -> answer c op `catches` [Handler (\(ChannelClosed _) -> pure Refused)],
        modelStart = (False, []),
        modelStep = \st@(shut, values) _ op -> case op of
          Send n
            | shut -> [(st, Refused)]
            | length values < limit -> [((shut, values <> [n]), Done)]
            | otherwise -> []
          TrySend n
            | shut -> [(st, Refused)]
            | length values < limit -> [((shut, values <> [n]), Is True)]
            | otherwise -> [(st, Is False)]
          Receive -> case values of
            n : rest -> [((shut, rest), Got (Just n))]
            [] -> [(st, Got Nothing) | shut]
          TryReceive -> case values of
            n : rest -> [((shut, rest), Tried (Received n))]
            [] -> [(st, Tried (if shut then EndOfChannel else NotYet))]
          Close -> [((True, values), Done)]
          Waiting -> [(st, Number (length values))],
        modelOps =
          weighted $
            [ (5, Send <$> value),
              (5, pure Receive),
              (1, TrySend <$> value),
              (1, pure TryReceive),
              (1, pure Waiting)
            ]
              <> [(1, pure Close) | closes],
        modelLast = Waiting : replicate 4 TryReceive,
        modelWaits = NobodyWaits
      }
  where
    value = between 1 1000
    answer c = \case
      Send n -> Done <$ send c n
      TrySend n -> Is <$> trySend c n
      Receive -> Got <$> receive c
      TryReceive -> Tried <$> tryReceive c
      Close -> Done <$ close c
      Waiting -> Number <$> waitingValues c
