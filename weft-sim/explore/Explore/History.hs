-- |
-- Description : Is there an order in which it could have happened one by one?
--
-- A history is a list of operations with the time of their call and of their return. It is
-- linearizable (Herlihy & Wing 1990) if a sequential model can take them in an order that
-- respects these times and give the same answers. Found by search, which remembers what it
-- has refuted (Wing & Gong 1993, Lowe 2017).
module Explore.History
  ( Done (..),
    linearizations,
  )
where

import Data.List qualified as List
import Data.Map.Strict qualified as Map
import Data.Set qualified as Set

-- | An operation of a client that has returned.
data Done op res = Done
  { doneClient :: !Int,
    doneCalled, doneReturned :: !Int,
    doneOp :: op,
    doneResult :: res
  }
  deriving stock (Show)

-- | The states in which the model can be at the end; none if there is no such order. Clients are
-- sequential. The model says all that an operation of a client may come to; nothing if
-- it has to wait.
linearizations :: (Ord st, Eq res) => (st -> Int -> op -> [(st, res)]) -> st -> [Done op res] -> [st]
linearizations step start history = Set.toList (snd (explore (start, Map.map (const 0) clients) (Set.empty, Set.empty)))
  where
    clients = Map.fromListWith (flip (<>)) [(doneClient d, [d]) | d <- history]
    explore here@(st, at) (seen, ends)
      | here `Set.member` seen = (seen, ends)
      | null heads = (Set.insert here seen, Set.insert st ends)
      | otherwise = List.foldl' (flip explore) (Set.insert here seen, ends) successors
      where
        heads = [d | (c, ds) <- Map.toList clients, d : _ <- [drop (Map.findWithDefault 0 c at) ds]]
        -- An operation that was called after another had returned comes after it.
        limit = minimum (map doneReturned heads)
        successors =
          [ (st', Map.adjust (+ 1) (doneClient d) at)
            | d <- heads,
              doneCalled d < limit,
              (st', res) <- step st (doneClient d) (doneOp d),
              res == doneResult d
          ]
