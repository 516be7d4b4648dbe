-- |
-- Description : Broadcasts, variables that are filled once, and sets of children, under exploration
module Explore.Broadcast (scenarios) where

import Control.Monad (forM_, void, when)
import Control.Monad.Catch (Handler (..), catches)
import Data.List (sort)
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Broadcast
import Weft.IVar
import Weft.JoinSet
import Weft.Mask (mask_)
import Weft.Scope
import Weft.Timeout (timeout)

scenarios :: [Scenario]
scenarios =
  [ small "broadcast/all" 1 "each subscriber gets all in order, or is told what it missed" everybody,
    drawn "broadcast/model" "random clients see the last messages" (crowd (pure model)),
    small "ivar/filled-once" 1 "the first that fills it wins, and all readers see that" filledOnce,
    small "ivar/abandoned" 1 "readers of what no thread will fill are told, whichever is cancelled" abandoned,
    small "joinset/once" 1 "each child's result is taken once, whichever thread is cancelled" takenOnce,
    small "joinset/order" 1 "results come in the order in which the children end" inOrder
  ]

everybody :: Thread Complaints
everybody = do
  b <- newBroadcast 2
  log' <- newLog
  subscriptions <- mapM (const (subscribe b)) "xy"
  _ <- spread [listen s >>= say log' | s <- subscriptions]
  _ <- forkOn 1 (mapM_ (publish b) [0 .. 3 :: Int] >> close b)
  quiet
  heard <- said log'
  pure (expectEqual "subscribers that heard the end" 2 (length heard) <> concatMap (complete 0) heard)
  where
    listen s = nextMessage s >>= maybe (pure []) (\m -> (m :) <$> listen s)
    complete n = \case
      [] -> expectEqual "messages heard or missed" 4 n
      Missed k : rest -> complete (n + k) rest
      Message m : rest -> expectEqual "message" n m <> complete (n + 1) rest

data Op = Publish Int | Next Int | Close
  deriving stock (Show)

data Answer = Done | Heard (Maybe (Message Int)) | Refused
  deriving stock (Eq, Show)

-- | Two messages are kept. Clients share two subscriptions, which a program must not do; a
-- simulation has no two workers in one step.
model :: Model (Broadcast Int, [Subscription Int]) Op Answer (Bool, Int, [Int], [Int])
model =
  Model
    { modelNew = newBroadcast 2 >>= \b -> (,) b <$> mapM (const (subscribe b)) "xy",
      modelDo = \(b, subscriptions) op ->
        ( case op of
            Publish n -> Done <$ publish b n
            Next i -> Heard <$> nextMessage (subscriptions !! i)
            Close -> Done <$ close b
        )
          `catches` [Handler (\(ChannelClosed _) -> pure Refused)],
      modelStart = (False, 0, [], [0, 0]),
      modelStep = \st@(shut, first, kept, at) _ -> \case
        Publish n
          | shut -> [(st, Refused)]
          | length kept == 2 -> [((shut, first + 1, drop 1 kept <> [n], at), Done)]
          | otherwise -> [((shut, first, kept <> [n], at), Done)]
        Next i
          | mine < first -> [((shut, first, kept, move first), Heard (Just (Missed (first - mine))))]
          | n : _ <- drop (mine - first) kept -> [((shut, first, kept, move (mine + 1)), Heard (Just (Message n)))]
          | otherwise -> [(st, Heard Nothing) | shut]
          where
            mine = at !! i
            move to = take i at <> [to] <> drop (i + 1) at
        Close -> [((True, first, kept, at), Done)],
      modelOps = weighted [(5, Publish <$> between 1 1000), (5, Next <$> between 0 1), (1, pure Close)],
      modelLast = [],
      modelWaits = NobodyWaits
    }

filledOnce :: Thread Complaints
filledOnce = do
  var <- newIVar
  log' <- newLog
  won <- newLog
  _ <- spread (replicate 2 (readIVar var >>= say log'))
  _ <- spread [fill var c >>= \first -> when first (say won c) | c <- "ab"]
  quiet
  winners <- said won
  heard <- said log'
  pure (expectEqual "winners" 1 (length winners) <> expectEqual "what the readers saw" (winners <> winners) heard)

abandoned :: Thread Complaints
abandoned = do
  var <- newIVar
  log' <- newLog
  filler <- mask_ (forkOn 1 (fillWithin var (void (try (yield >> yield >> fill var 'a') :: Thread (Either Cancelled Bool)))))
  _ <- spread (replicate 2 (try (readIVar var) >>= say log'))
  _ <- forkOn 0 (cancel filler)
  quiet
  heard <- said log'
  pure (expect (show heard) (heard == replicate 2 (Left Abandoned) || heard == replicate 2 (Right 'a')))

takenOnce :: Thread Complaints
takenOnce = do
  log' <- newLog
  left <- withScope $ \scope -> do
    set <- newJoinSet scope
    consumer <- forkOn 1 (mask_ (joinNext set >>= mapM_ (say log')))
    forM_ "ab" $ \c -> forkInSet set (c <$ yield)
    _ <- forkOn 0 (cancel consumer)
    quiet
    let rest = joinNext set >>= maybe (pure []) (\c -> (c :) <$> rest)
    timeout (seconds 1) rest
  taken <- said log'
  pure (expectEqual "results, and those that were left" (Just "ab") (sort . (taken <>) <$> left))

inOrder :: Thread Complaints
inOrder = withScope $ \scope -> do
  ended <- newLog
  set <- newJoinSet scope
  -- The last step of each tells the order; a child that comes between it and the end has ended later.
  forM_ [(3, 'c'), (1, 'a'), (2, 'b')] $ \(n, c) -> void (forkInSet set (sleep (seconds n) >> say ended c >> pure c))
  let rest = joinNext set >>= maybe (pure []) (\c -> (c :) <$> rest)
  results <- rest
  order <- said ended
  pure (expectEqual "results" ("abc", "abc") (results, order))
