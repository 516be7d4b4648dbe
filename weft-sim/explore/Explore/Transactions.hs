-- |
-- Description : Transactions under exploration
module Explore.Transactions (scenarios) where

import Control.Monad (void)
import Data.Bifunctor (first)
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Mask (mask_)
import Weft.STM

scenarios :: [Scenario]
scenarios =
  [ small "stm/wakes" 2 "a transaction that waits goes on when its variable has changed" wakes,
    small "stm/cancelled" 2 "one that is cancelled while it waits has done nothing" cancelled,
    small "stm/waiting" 2 "transactions that wait for ever let time pass" waitingLong,
    drawn "stm/model" "random clients see two accounts" (crowd (pure model))
  ]

wakes :: Thread Complaints
wakes = do
  var <- liftIO (newTVarIO (0 :: Int))
  log' <- newLog
  _ <- spread (replicate 2 (atomically (readTVar var >>= check . (> 0) >> modifyTVar' var (subtract 1)) >> say log' ()))
  _ <- spread (replicate 2 (atomically (modifyTVar' var (+ 1))))
  quiet
  got <- said log'
  left <- liftIO (readTVarIO var)
  pure (expectEqual "how many went on, and what is left" (2, 0) (length got, left))

cancelled :: Thread Complaints
cancelled = do
  var <- liftIO (newTVarIO (0 :: Int))
  log' <- newLog
  t <- forkOn 1 (mask_ (atomically (readTVar var >>= check . (> 0) >> writeTVar var 0) >> say log' ()))
  _ <- forkOn 0 (atomically (writeTVar var 1))
  void (forkOn 1 (cancel t))
  quiet
  got <- said log'
  left <- liftIO (readTVarIO var)
  pure (expectEqual "taken and left together" 1 (length got + left))

waitingLong :: Thread Complaints
waitingLong = do
  var <- liftIO (newTVarIO (0 :: Int))
  _ <- spread (replicate 2 (atomically (readTVar var >>= check . (> 0))))
  [] <$ quiet

-- | One of two accounts, and an amount.
data Op = Deposit Bool Int | Withdraw Bool Int | Transfer Bool Int | Either Int | Look
  deriving stock (Show)

model :: Model (TVar Int, TVar Int) Op (Maybe (Int, Int)) (Int, Int)
model =
  Model
    { modelNew = liftIO ((,) <$> newTVarIO 0 <*> newTVarIO 2),
      modelDo = \(left, right) op ->
        let at side = if side then right else left
            take' side n = readTVar (at side) >>= \rest -> check (rest >= n) >> writeTVar (at side) (rest - n)
         in atomically $ case op of
              Deposit side n -> Nothing <$ modifyTVar' (at side) (+ n)
              Withdraw side n -> Nothing <$ take' side n
              Transfer side n -> Nothing <$ (take' side n >> modifyTVar' (at (not side)) (+ n))
              Either n -> Nothing <$ (take' False n `orElse` take' True n)
              Look -> curry Just <$> readTVar left <*> readTVar right,
      modelStart = (0, 2),
      modelStep = \st _ -> \case
        Deposit side n -> [(add side n st, Nothing)]
        Withdraw side n -> [(add side (-n) st, Nothing) | have side st >= n]
        Transfer side n -> [(add (not side) n (add side (-n) st), Nothing) | have side st >= n]
        Either n
          | have False st >= n -> [(add False (-n) st, Nothing)]
          | otherwise -> [(add True (-n) st, Nothing) | have True st >= n]
        Look -> [(st, Just st)],
      modelOps =
        weighted
          [ (3, Deposit <$> chance 50 <*> between 1 2),
            (3, Withdraw <$> chance 50 <*> between 1 3),
            (3, Transfer <$> chance 50 <*> between 1 3),
            (2, Either <$> between 1 3),
            (1, pure Look)
          ],
      modelLast = [Look],
      modelWaits = NobodyWaits
    }
  where
    add side n = if side then fmap (+ n) else first (+ n)
    have side = if side then snd else fst
