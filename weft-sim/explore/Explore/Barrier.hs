-- |
-- Description : Barriers under exploration
module Explore.Barrier (scenarios) where

import Control.Monad (forM_, replicateM_)
import Data.List (sort)
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Barrier
import Weft.Mask (mask_)

scenarios :: [Scenario]
scenarios =
  [ small "barrier/numbers" 2 "three go on together, and each has a number" (numbers 3 []),
    small "barrier/cancelled" 2 "a thread that is cancelled before all have arrived has not arrived" (numbers 2 [0]),
    drawn "barrier/random" "each goes on in a full turn, and fewer wait than would do" random
  ]

-- | The given number arrive, and one more for each that is cancelled.
numbers :: Int -> [Int] -> Thread Complaints
numbers n doomed = do
  barrier <- newBarrier n
  log' <- newLog
  threads <- spread (replicate (n + length doomed) (mask_ (arrive barrier >>= say log')))
  forM_ doomed $ \i -> forkOn i (cancel (threads !! i))
  quiet
  expectEqual "numbers of those that went on" [0 .. n - 1] . sort <$> said log'

random :: Draw (Thread Complaints)
random = do
  n <- between 1 3
  clients <- several 2 5 (between 1 3)
  blows <- several 0 3 ((,) <$> between 0 (length clients - 1) <*> between 0 10)
  pure $ do
    barrier <- newBarrier n
    log' <- newLog
    over <- newLog
    threads <- mask_ (spread [replicateM_ turns (arrive barrier >>= say log') `finally` say over () | turns <- clients])
    forM_ (zip [0 ..] blows) $ \(w, (target, turns)) -> forkOn w (replicateM_ turns yield >> cancel (threads !! target))
    quiet
    got <- said log'
    ended <- length <$> said over
    mapM_ cancel threads
    quiet
    later <- said log'
    -- The barrier still works with the remaining parties.
    again <- newLog
    _ <- spread (replicate n (arrive barrier >>= say again))
    quiet
    turn <- said again
    pure . concat $
      [ expectEqual "numbers of those that went on" (sort (concat (replicate (length got `div` n) [0 .. n - 1]))) (sort got),
        expect "as many wait as would do" (length clients - ended < n),
        expectEqual "how many went on because others were cancelled" (length got) (length later),
        expectEqual "numbers in one more turn" [0 .. n - 1] (sort turn)
      ]
