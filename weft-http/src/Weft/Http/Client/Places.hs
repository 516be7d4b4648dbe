{-# OPTIONS_HADDOCK not-home #-}

-- | The client's pool as a pure value: the connections and waiters of each target. Every change ends
-- with 'settle', which serves the waiters in order and returns what the caller must do.
--
-- Invariant: no waiter could be served. So a newcomer served at once has overtaken none that could be.
module Weft.Http.Client.Places
  ( Places (..),
    Host (..),
    noPlaces,
    Bounds (..),

    -- * Changes
    Grant (..),
    Orders (..),
    ask,
    withdraw,
    giveBack,
    giveUp,
    removeIdle,
    close,

    -- * Looking
    idleCount,
    candidates,
  )
where

import Data.List qualified as List
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Ord (comparing)
import Data.Sequence (Seq (..))
import Data.Sequence qualified as Seq
import Weft.Http.Client.Types (Target)

data Bounds = Bounds
  { boundTotal :: !Int,
    boundEach :: !Int
  }

data Places c w = Places
  { -- | Connections open or being opened, idle ones included.
    placesOpen :: !Int,
    placesHosts :: !(Map Target (Host c w)),
    -- | The next number for waiters and idle connections.
    placesTurn :: !Int,
    placesClosed :: !Bool
  }

-- | The connections and waiters of one target. The map omits empty ones.
data Host c w = Host
  { hostOpen :: !Int,
    -- | Newest first: the most recently used is the least likely to be closed.
    hostIdle :: !(Seq (Int, c)),
    -- | Oldest first.
    hostWaiting :: !(Seq (Int, w))
  }

noPlaces :: Places c w
noPlaces = Places 0 Map.empty 0 False

-- | An idle connection, or permission to open one.
data Grant c = Reuse !c | Open

-- | Work for the caller after a change.
data Orders c w = Orders
  { ordersGranted :: [(w, Grant c)],
    ordersClosing :: [c]
  }

-- | Enqueue a waiter; the number identifies it to 'withdraw'.
ask :: Bounds -> Target -> w -> Places c w -> (Places c w, (Int, Orders c w))
ask bounds target w places = numbered places $ \turn -> settle bounds . atHost target (\h -> h {hostWaiting = hostWaiting h :|> (turn, w)})

-- | Make a change with the next number, and return that, too.
numbered :: Places c w -> (Int -> Places c w -> (Places c w, a)) -> (Places c w, (Int, a))
numbered places change = (turn,) <$> change turn places {placesTurn = turn + 1}
  where
    turn = placesTurn places

-- | Remove a waiter; 'False' if it was already served.
withdraw :: Target -> Int -> Places c w -> (Places c w, Bool)
withdraw target turn places = case Seq.findIndexL ((== turn) . fst) (hostWaiting (hostAt target places)) of
  Nothing -> (places, False)
  Just i -> (atHost target (\h -> h {hostWaiting = Seq.deleteAt i (hostWaiting h)}) places, True)

-- | Make a connection idle; the number identifies it to 'removeIdle'. If the pool is closed, the orders close
-- the connection, and 'removeIdle' finds none by any number.
giveBack :: Bounds -> Target -> c -> Places c w -> (Places c w, (Int, Orders c w))
giveBack bounds target c places
  | placesClosed places = (\orders -> (0, orders {ordersClosing = c : ordersClosing orders})) <$> giveUp bounds target places
  | otherwise = numbered places $ \turn -> settle bounds . atHost target (\h -> h {hostIdle = (turn, c) :<| hostIdle h})

-- | Release the place of a connection that is closed or was never opened.
giveUp :: Bounds -> Target -> Places c w -> (Places c w, Orders c w)
giveUp bounds target places = settle bounds (oneLess target places)

-- | Release the place of an idle connection; 'Nothing' if it is no longer idle.
removeIdle :: Bounds -> Target -> Int -> Places c w -> (Places c w, Maybe (Orders c w))
removeIdle bounds target turn places = case Seq.findIndexL ((== turn) . fst) (hostIdle (hostAt target places)) of
  Nothing -> (places, Nothing)
  Just i -> Just <$> giveUp bounds target (atHost target (\h -> h {hostIdle = Seq.deleteAt i (hostIdle h)}) places)

-- | Close the pool: it keeps no connection from now on, and returns the idle ones.
close :: Places c w -> (Places c w, [c])
close places = (places {placesHosts = Map.mapMaybe withoutIdle hosts, placesOpen = placesOpen places - idleCount places, placesClosed = True}, idle)
  where
    hosts = placesHosts places
    idle = [c | h <- Map.elems hosts, (_, c) <- foldr (:) [] (hostIdle h)]
    withoutIdle h = nonEmpty h {hostIdle = Seq.empty, hostOpen = hostOpen h - Seq.length (hostIdle h)}

idleCount :: Places c w -> Int
idleCount = sum . fmap (Seq.length . hostIdle) . placesHosts

hostAt :: Target -> Places c w -> Host c w
hostAt target = fromMaybe emptyHost . Map.lookup target . placesHosts

emptyHost :: Host c w
emptyHost = Host 0 Seq.empty Seq.empty

atHost :: Target -> (Host c w -> Host c w) -> Places c w -> Places c w
atHost target f places = places {placesHosts = Map.alter (nonEmpty . f . fromMaybe emptyHost) target (placesHosts places)}

nonEmpty :: Host c w -> Maybe (Host c w)
nonEmpty h = if hostOpen h == 0 && Seq.null (hostWaiting h) then Nothing else Just h

oneLess :: Target -> Places c w -> Places c w
oneLess target places = atHost target (\h -> h {hostOpen = hostOpen h - 1}) places {placesOpen = placesOpen places - 1}

-- | Serve all waiters that can be served, oldest first.
settle :: Bounds -> Places c w -> (Places c w, Orders c w)
settle bounds = go [] []
  where
    go granted closing places = case candidates bounds places of
      [] -> (places, Orders (reverse granted) closing)
      some ->
        let (target, h, (_, w), waiting) = List.minimumBy (comparing (\(_, _, (turn, _), _) -> turn)) some
            served = places {placesHosts = Map.insert target h {hostWaiting = waiting} (placesHosts places)}
         in case hostIdle h of
              (_, c) :<| idle -> go ((w, Reuse c) : granted) closing (atHost target (\x -> x {hostIdle = idle}) served)
              Empty ->
                let (roomy, evicted) = if placesOpen served < boundTotal bounds then (served, []) else evict served
                 in go ((w, Open) : granted) (evicted <> closing) (oneMore target roomy)
    oneMore target places = atHost target (\h -> h {hostOpen = hostOpen h + 1}) places {placesOpen = placesOpen places + 1}

-- | For each target whose oldest waiter can be served: that waiter, and those after it.
candidates :: Bounds -> Places c w -> [(Target, Host c w, (Int, w), Seq (Int, w))]
candidates bounds places =
  [ (target, h, first, rest)
    | (target, h) <- Map.toList (placesHosts places),
      not (Seq.null (hostIdle h)) || (hostOpen h < boundEach bounds && roomy),
      first :<| rest <- [hostWaiting h]
  ]
  where
    roomy = placesOpen places < boundTotal bounds || not (all (Seq.null . hostIdle) (placesHosts places))

evict :: Places c w -> (Places c w, [c])
evict places = case [(turn, c, target, idle) | (target, h) <- Map.toList (placesHosts places), idle :|> (turn, c) <- [hostIdle h]] of
  [] -> (places, [])
  some ->
    let (_, c, target, idle) = List.minimumBy (comparing (\(turn, _, _, _) -> turn)) some
     in (oneLess target (atHost target (\h -> h {hostIdle = idle}) places), [c])
