-- |
-- Description : Variables that are full or empty, under exploration
module Explore.MVar (scenarios) where

import Control.Monad (forM_, replicateM)
import Data.Maybe (isNothing)
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.MVar
import Weft.Mask (mask_)

scenarios :: [Scenario]
scenarios =
  [ small "mvar/handover" 2 "a value is taken once, whichever thread is cancelled" handover,
    small "mvar/putters" 2 "putters that wait put in the order in which they came" putters,
    small "mvar/takers" 2 "takers that wait take in the order in which they came" takers,
    small "mvar/modify" 2 "modifyMVar_ loses nothing, and restores when it is cancelled" modify,
    small "mvar/readers" 2 "a put serves all readers that wait and one taker" readers,
    drawn "mvar/model" "random clients see one place for a value" (crowd model)
  ]

handover :: Thread Complaints
handover = do
  var <- newEmptyMVar
  log' <- newLog
  threads <- spread (replicate 2 (mask_ (takeMVar var >>= say log')))
  _ <- forkOn 0 (putMVar var 'a')
  _ <- forkOn 1 (mapM_ cancel (take 1 threads))
  quiet
  taken <- said log'
  left <- tryTakeMVar var
  pure (expectEqual "values that were taken or are left" "a" (taken <> maybe "" pure left) <> expectEqual "values taken" 1 (length taken))

putters :: Thread Complaints
putters = do
  var <- newMVar (0 :: Int)
  threads <- sequence [forkOn i (putMVar var i) <* quiet | i <- [1 .. 3]]
  _ <- forkOn 1 (mapM_ cancel (take 1 (drop 1 threads)))
  values <- replicateM 3 (takeMVar var)
  quiet
  rest <- tryTakeMVar var
  pure (expect ("values in another order, or lost: " <> show (values, rest)) ((values, rest) `elem` [([0, 1, 2], Just 3), ([0, 1, 3], Nothing)]))

takers :: Thread Complaints
takers = do
  var <- newEmptyMVar
  log' <- newLog
  forM_ [1 .. 3 :: Int] $ \i -> forkOn i (takeMVar var >>= \a -> say log' (i, a)) >> quiet
  forM_ "abc" (putMVar var)
  quiet
  got <- said log'
  pure (expect ("who got what: " <> show got) (all (`elem` got) (zip [1 .. 3] "abc")))

modify :: Thread Complaints
modify = do
  var <- newMVar (0 :: Int)
  log' <- newLog
  threads <- spread (replicate 2 (mask_ (modifyMVar_ var (\n -> (n + 1) <$ yield) >> say log' ())))
  _ <- forkOn 0 (mapM_ cancel (take 1 threads))
  victim <- forkOn 1 (modifyMVar_ var (\n -> (n + 100) <$ sleep (seconds 100)))
  quiet
  cancel victim
  quiet
  done <- length <$> said log'
  left <- tryReadMVar var
  pure (expectEqual "the variable, to which each finished thread added 1" (Just done) left)

readers :: Thread Complaints
readers = do
  var <- newEmptyMVar
  log' <- newLog
  _ <- spread [readMVar var >>= say log', takeMVar var >>= say log', readMVar var >>= say log']
  quiet
  putMVar var 'a'
  quiet
  got <- said log'
  left <- tryReadMVar var
  pure (expectEqual "what three got, and what is left" ("aaa", Nothing) (got, left))

data Op = Take | Put Int | Read | TryTake | TryPut Int | TryRead | IsEmpty
  deriving stock (Show)

data Answer = Done | Got (Maybe Int) | Is Bool
  deriving stock (Eq, Show)

model :: Draw (Model (MVar Int) Op Answer (Maybe Int))
model = do
  full <- chance 30
  let start = if full then Just 0 else Nothing
  pure
    Model
      { modelNew = maybe newEmptyMVar newMVar start,
        modelDo = \var -> \case
          Take -> Got . Just <$> takeMVar var
          Put n -> Done <$ putMVar var n
          Read -> Got . Just <$> readMVar var
          TryTake -> Got <$> tryTakeMVar var
          TryPut n -> Is <$> tryPutMVar var n
          TryRead -> Got <$> tryReadMVar var
          IsEmpty -> Is <$> isEmptyMVar var,
        modelStart = start,
        modelStep = \st _ op -> case (op, st) of
          (Take, Just n) -> [(Nothing, Got (Just n))]
          (Take, Nothing) -> []
          (Put n, Nothing) -> [(Just n, Done)]
          (Put _, Just _) -> []
          (Read, Just n) -> [(st, Got (Just n))]
          (Read, Nothing) -> []
          (TryTake, _) -> [(Nothing, Got st)]
          (TryPut n, Nothing) -> [(Just n, Is True)]
          (TryPut _, Just _) -> [(st, Is False)]
          (TryRead, _) -> [(st, Got st)]
          (IsEmpty, _) -> [(st, Is (isNothing st))],
        modelOps =
          weighted
            [ (5, pure Take),
              (5, Put <$> value),
              (2, pure Read),
              (1, pure TryTake),
              (1, TryPut <$> value),
              (1, pure TryRead),
              (1, pure IsEmpty)
            ],
        modelLast = [TryTake, TryTake],
        modelWaits = NobodyWaits
      }
  where
    value = between 1 1000
