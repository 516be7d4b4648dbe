-- |
-- Description : Waiting for the first of several things, under exploration
module Explore.Select (scenarios) where

import Control.Applicative ((<|>))
import Control.Monad (forM_, replicateM, replicateM_)
import Control.Monad.Catch (Handler (..), catches)
import Data.List (sort)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes, fromMaybe, mapMaybe)
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Channel
import Weft.Event
import Weft.MVar
import Weft.Mask (mask_)
import Weft.Scope
import Weft.Select
import Weft.Timeout (timeout)

scenarios :: [Scenario]
scenarios =
  [ small "select/receive" 2 "what is sent is received once, by two that wait for both channels" receiving,
    small "select/cancelled" 2 "a thread that is cancelled has taken nothing, or says what" cancelled,
    small "select/limited" 1 "a time limit loses nothing" limited,
    small "select/send" 1 "exactly one of two sends has happened, whichever thread is cancelled" sending,
    small "select/child" 1 "the first child that ends, and the others later" children,
    small "select/forgotten" 1 "no queue keeps a wait that is over" forgotten,
    drawn "select/model" "random clients see channels, a variable and a flag" (crowd (pure model))
  ]

-- | Two channels, and what is left in them in the end.
two :: Thread (Channel Char, Channel Char, Thread [Char])
two = do
  a <- newChannel 1
  b <- newChannel 1
  pure (a, b, (\left -> [c | Received c <- left]) <$> mapM tryReceive [a, a, b, b])

receiving :: Thread Complaints
receiving = do
  (a, b, left) <- two
  log' <- newLog
  _ <- spread (replicate 2 (select [onReceive a, onReceive b] >>= mapM_ (say log')))
  _ <- forkOn 0 (send a 'a')
  _ <- forkOn 1 (send b 'b')
  quiet
  taken <- said log'
  rest <- left
  pure (expectEqual "received and left" ("ab", "") (sort taken, rest))

cancelled :: Thread Complaints
cancelled = do
  (a, b, left) <- two
  log' <- newLog
  threads <- spread (replicate 2 (mask_ (select [onReceive a, onReceive b] >>= mapM_ (say log'))))
  _ <- forkOn 0 (send a 'a')
  _ <- forkOn 1 (mapM_ cancel (take 1 threads) >> send b 'b')
  quiet
  taken <- said log'
  rest <- left
  pure (expectEqual "received and left" "ab" (sort (taken <> rest)))

limited :: Thread Complaints
limited = do
  (a, b, left) <- two
  t <- forkOn 1 (sleep (milliseconds 1) >> send b 'b')
  _ <- forkOn 0 (sleep (milliseconds 1) >> send a 'a')
  taken <- replicateM 2 (timeout (milliseconds 1) (select [onReceive a, onReceive b]))
  quiet
  cancel t
  rest <- left
  pure (expectEqual "received and left" "ab" (sort (mapMaybe (fromMaybe Nothing) taken <> rest)))

sending :: Thread Complaints
sending = do
  (a, b, _) <- two
  send a 'x' >> send b 'y'
  log' <- newLog
  t <- forkOn 1 (mask_ (select ["a" <$ onSend a 'a', "b" <$ onSend b 'b'] >>= say log'))
  got <- newLog
  _ <- spread [receive c >>= mapM_ (say got) | c <- [a, b]]
  _ <- forkOn 0 (cancel t)
  quiet
  rest <- concat <$> mapM (fmap (\r -> [v | Received v <- [r]]) . tryReceive) [a, b]
  taken <- said got
  sent <- concat <$> said log'
  pure (expectEqual "received and left" (sort ("xy" <> sent)) (sort (taken <> rest)))

children :: Thread Complaints
children = withScope $ \scope -> do
  kids <- mapM (\(c, turns) -> forkIn scope (c <$ replicateM_ turns yield)) [('a', 1), ('b', 0), ('c', 2)]
  (first, x) <- awaitAny kids
  others <- awaitInTurn (filter (/= first) kids)
  pure (expectEqual "results" "abc" (sort (x : others)))
  where
    awaitInTurn [] = pure []
    awaitInTurn left = awaitAny left >>= \(k, x) -> (x :) <$> awaitInTurn (filter (/= k) left)

-- | One that is chosen often leaves no wait in the queue of the other: a send there finds room.
forgotten :: Thread Complaints
forgotten = do
  (a, b, left) <- two
  _ <- forkOn 1 (forM_ "ab" (send a))
  taken <- replicateM 2 (select [onReceive b, onReceive a])
  send b 'c'
  more <- waitingValues b
  rest <- left
  pure (expectEqual "received, then waiting, then left" ("ab", 1, "c") (sort (catMaybes taken), more, rest))

-- A model of channels, a variable and a flag, and of all that one can wait for at once.

data Side = A | B
  deriving stock (Eq, Ord, Show)

data Op = Plain Case | Select [Case] | Close Side | Put Int | Set | Clear
  deriving stock (Show)

data Case = Receive Side | Send Side Int | Take | Read | Wait
  deriving stock (Show)

data Answer = Done | Got (Maybe Int) | Chose Int Answer | Refused
  deriving stock (Eq, Show)

data Objects = Objects (Side -> Channel Int) (MVar Int) Event

-- | The channels with whether they are closed, the variable, the flag.
type World = (Map Side (Bool, [Int]), Maybe Int, Bool)

model :: Model Objects Op Answer World
model =
  Model
    { modelNew = do
        a <- newChannel 1
        b <- newChannel 2
        Objects (\case A -> a; B -> b) <$> newEmptyMVar <*> newEvent,
      modelDo = \objects op -> run' objects op `catches` [Handler (\(ChannelClosed _) -> pure Refused)],
      modelStart = (Map.fromList [(A, (False, [])), (B, (False, []))], Nothing, False),
      modelStep = \st _ op -> step st op,
      modelOps =
        weighted
          [ (4, Plain <$> aCase),
            (6, Select <$> several 1 3 aCase),
            (3, Put <$> value),
            (1, Close <$> side),
            (2, pure Set),
            (1, pure Clear)
          ],
      modelLast = [],
      modelWaits = NobodyWaits
    }
  where
    value = between 1 1000
    side = weighted [(1, pure A), (1, pure B)]
    aCase = weighted [(4, Receive <$> side), (4, Send <$> side <*> value), (2, pure Take), (1, pure Read), (1, pure Wait)]
    run' o@(Objects channel var event) = \case
      Plain c -> select [choice o c]
      Select cs -> select [Chose i <$> choice o c | (i, c) <- zip [0 ..] cs]
      Close s -> Done <$ close (channel s)
      Put n -> Done <$ putMVar var n
      Set -> Done <$ set event
      Clear -> Done <$ clear event
    choice (Objects channel var event) = \case
      Receive s -> Got <$> onReceive (channel s)
      Send s n -> Done <$ onSend (channel s) n
      Take -> Got . Just <$> onTake var
      Read -> Got . Just <$> onRead var
      Wait -> Done <$ onSet event

step :: World -> Op -> [(World, Answer)]
step st@(channels, var, flag) = \case
  Plain c -> one c
  -- The first that is there.
  Select cs -> fromMaybe [] (foldr ((<|>) . chosen) Nothing (zip [0 ..] cs))
  Close s -> [((Map.adjust (\(_, vs) -> (True, vs)) s channels, var, flag), Done)]
  Put n -> maybe [((channels, Just n, flag), Done)] (const []) var
  Set -> [((channels, var, True), Done)]
  Clear -> [((channels, var, False), Done)]
  where
    chosen (i, c) = case one c of
      [] -> Nothing
      -- An exception is that of the whole.
      results -> Just [(st', if a == Refused then a else Chose i a) | (st', a) <- results]
    one = \case
      Receive s -> case channels Map.! s of
        (shut, n : rest) -> [((Map.insert s (shut, rest) channels, var, flag), Got (Just n))]
        (shut, []) -> [(st, Got Nothing) | shut]
      Send s n -> case channels Map.! s of
        (True, _) -> [(st, Refused)]
        (False, values)
          | length values < room s -> [((Map.insert s (False, values <> [n]) channels, var, flag), Done)]
          | otherwise -> []
      Take -> maybe [] (\n -> [((channels, Nothing, flag), Got (Just n))]) var
      Read -> maybe [] (\n -> [(st, Got (Just n))]) var
      Wait -> [(st, Done) | flag]
    room = \case A -> 1; B -> 2
