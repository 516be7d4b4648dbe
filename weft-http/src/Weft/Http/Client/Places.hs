-- |
-- Description : Who gets which connection
-- Stability   : not home
--
-- The bookkeeping of the client's pool as a pure value: how many connections are open to
-- which target, which of them are idle, and who waits. Every change ends with 'settle',
-- which serves those who wait in their order and says what is to be done. What waits (@w@)
-- and what a connection is (@c@) is the business of "Weft.Http.Client.Pool".
--
-- Invariant: nobody waits who could be served. So a newcomer that is served at once has
-- overtaken only those that wait for something that it does not take.
module Weft.Http.Client.Places
  ( Places,
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
    isClosed,
    openCount,
    idleCount,
    waitingCount,
    isSound,
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

-- | How many connections may be open.
data Bounds = Bounds
  { boundTotal :: !Int,
    boundEach :: !Int
  }

-- | All places.
data Places c w = Places
  { -- | Connections that are open or may be opened, idle ones included.
    placesOpen :: !Int,
    placesHosts :: !(Map Target (Host c w)),
    -- | Numbers for those who wait and for idle connections: later is larger.
    placesTurn :: !Int,
    placesClosed :: !Bool
  }

-- | The places of one target. One with nothing in it is left out of the map.
data Host c w = Host
  { hostOpen :: !Int,
    -- | Newest first: the one used last is the least likely to have been closed.
    hostIdle :: !(Seq (Int, c)),
    -- | Oldest first.
    hostWaiting :: !(Seq (Int, w))
  }

noPlaces :: Places c w
noPlaces = Places 0 Map.empty 0 False

-- | What somebody is given.
data Grant c
  = -- | An idle connection.
    Reuse !c
  | -- | The right to open one.
    Open

-- | What is to be done after a change: by whoever made it.
data Orders c w = Orders
  { ordersGranted :: [(w, Grant c)],
    -- | Idle connections that have lost their places.
    ordersClosing :: [c]
  }

-- | Ask for a connection; the number is for 'withdraw'.
ask :: Bounds -> Target -> w -> Places c w -> (Places c w, (Int, Orders c w))
ask bounds target w places = (places', (turn, orders))
  where
    turn = placesTurn places
    (places', orders) =
      settle bounds . atHost target (\h -> h {hostWaiting = hostWaiting h :|> (turn, w)}) $
        places {placesTurn = turn + 1}

-- | Do not wait any more: 'False' when something was granted already.
withdraw :: Target -> Int -> Places c w -> (Places c w, Bool)
withdraw target turn places = case Seq.findIndexL ((== turn) . fst) (hostWaiting (hostAt target places)) of
  Nothing -> (places, False)
  Just i -> (atHost target (\h -> h {hostWaiting = Seq.deleteAt i (hostWaiting h)}) places, True)

-- | A connection is idle from now on; the number is for 'removeIdle'.
giveBack :: Bounds -> Target -> c -> Places c w -> (Places c w, (Int, Orders c w))
giveBack bounds target c places
  | placesClosed places = (\orders -> (turn, orders {ordersClosing = c : ordersClosing orders})) <$> giveUp bounds target places
  | otherwise = (turn,) <$> settle bounds (atHost target (\h -> h {hostIdle = (turn, c) :<| hostIdle h}) places {placesTurn = turn + 1})
  where
    turn = placesTurn places

-- | A connection that was not idle is closed, or could not be opened.
giveUp :: Bounds -> Target -> Places c w -> (Places c w, Orders c w)
giveUp bounds target places = settle bounds (oneLess target places)

-- | An idle connection is of no use any more: 'Nothing' when it is not idle.
removeIdle :: Bounds -> Target -> Int -> Places c w -> (Places c w, Maybe (Orders c w))
removeIdle bounds target turn places = case Seq.findIndexL ((== turn) . fst) (hostIdle (hostAt target places)) of
  Nothing -> (places, Nothing)
  Just i -> Just <$> giveUp bounds target (atHost target (\h -> h {hostIdle = Seq.deleteAt i (hostIdle h)}) places)

-- | No connection is kept from now on; all that are idle are to be closed.
close :: Places c w -> (Places c w, [c])
close places =
  ( places
      { placesHosts = Map.mapMaybe (nonEmpty . (\h -> h {hostIdle = Seq.empty, hostOpen = hostOpen h - Seq.length (hostIdle h)})) (placesHosts places),
        placesOpen = placesOpen places - idleCount places,
        placesClosed = True
      },
    [c | h <- Map.elems (placesHosts places), (_, c) <- foldr (:) [] (hostIdle h)]
  )

isClosed :: Places c w -> Bool
isClosed = placesClosed

openCount, idleCount, waitingCount :: Places c w -> Int
openCount = placesOpen
idleCount = sum . map (Seq.length . hostIdle) . Map.elems . placesHosts
waitingCount = sum . map (Seq.length . hostWaiting) . Map.elems . placesHosts

-- | The invariants, for tests.
isSound :: Bounds -> Places c w -> Bool
isSound bounds places =
  placesOpen places == sum (map hostOpen hosts)
    && placesOpen places <= boundTotal bounds
    && all (\h -> hostOpen h <= boundEach bounds && Seq.length (hostIdle h) <= hostOpen h) hosts
    && null (candidates bounds places)
  where
    hosts = Map.elems (placesHosts places)

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

-- | Serve all who can be served, the one that has waited longest first.
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

-- | Of each target whose oldest waiter can be served: that waiter, and those behind.
candidates :: Bounds -> Places c w -> [(Target, Host c w, (Int, w), Seq (Int, w))]
candidates bounds places =
  [ (target, h, first, rest)
    | (target, h) <- Map.toList (placesHosts places),
      not (Seq.null (hostIdle h)) || (hostOpen h < boundEach bounds && roomy),
      first :<| rest <- [hostWaiting h]
  ]
  where
    roomy = placesOpen places < boundTotal bounds || not (all (Seq.null . hostIdle) (placesHosts places))

-- | Take the connection that has been idle for longest.
evict :: Places c w -> (Places c w, [c])
evict places = case [(turn, c, target, idle) | (target, h) <- Map.toList (placesHosts places), idle :|> (turn, c) <- [hostIdle h]] of
  [] -> (places, [])
  some ->
    let (_, c, target, idle) = List.minimumBy (comparing (\(turn, _, _, _) -> turn)) some
     in (oneLess target (atHost target (\h -> h {hostIdle = idle}) places), [c])
