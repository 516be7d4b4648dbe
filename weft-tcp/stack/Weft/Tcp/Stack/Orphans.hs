{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections that their users have closed
--
-- Pure. The closed connections of a shard that still have something to send, or wait for the peer's FIN, oldest first, and how
-- many bytes they hold. Only the bounds on both end those whose peer acknowledges a byte now and then.
module Weft.Tcp.Stack.Orphans
  ( Orphans,
    noOrphans,
    enter,
    acknowledged,
    leave,
    oldestBeyond,
  )
where

import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap

-- | How many there are, how many bytes they hold, the number of the next, and each by its number with its bytes.
data Orphans a = Orphans !Int !Int !Int !(IntMap (Orphan a))

data Orphan a = Orphan !Int a

-- | There are none. Numbers begin with 1.
noOrphans :: Orphans a
noOrphans = Orphans 0 0 1 IntMap.empty

-- | One more, which holds this number of bytes; and its number.
enter :: Int -> a -> Orphans a -> (Int, Orphans a)
enter held a (Orphans count bytes next m) = (next, Orphans (count + 1) (bytes + held) (next + 1) (IntMap.insert next (Orphan held a) m))

-- | The one with this number holds fewer bytes, by the second.
acknowledged :: Int -> Int -> Orphans a -> Orphans a
acknowledged number n o@(Orphans count bytes next m) = case IntMap.lookup number m of
  Just (Orphan held a) -> let less = min held n in Orphans count (bytes - less) next (IntMap.insert number (Orphan (held - less) a) m)
  Nothing -> o

-- | Without the one that has this number, if it is there.
leave :: Int -> Orphans a -> Orphans a
leave number o@(Orphans count bytes next m) = case IntMap.lookup number m of
  Just (Orphan held _) -> Orphans (count - 1) (bytes - held) next (IntMap.delete number m)
  Nothing -> o

-- | The oldest and the others, if there are more than this number, or hold more than this number of bytes.
oldestBeyond :: Int -> Int -> Orphans a -> Maybe (a, Orphans a)
oldestBeyond most mostBytes o@(Orphans count bytes _ m)
  | count > most || bytes > mostBytes, Just (number, Orphan _ a) <- IntMap.lookupMin m = Just (a, leave number o)
  | otherwise = Nothing
