-- |
-- Description : Is a history what registers would have done?
--
-- A history is linearizable if each operation can be given one instant between its
-- beginning and its end, such that every get finds what the last put before it has put.
-- In general that is hard to decide. Where no value is put twice it is easy (Gibbons &
-- Korach 1997), for each register by itself:
--
-- A put and the gets that found its value are a cluster. In an order that explains the
-- history the operations of a cluster are next to each other, the put first. Let cluster
-- A /have to precede/ B if some operation of A had ended before one of B began. If no
-- get had ended before its put began, there is such an order if and only if no two
-- clusters have to precede each other.
--
-- Why to look at two is enough: take clusters that precede each other in a longer circle,
-- and of them A, which has the operation that ended first of all. In each of them an
-- operation began after one of the cluster before it had ended, and so after that one of
-- A. Thus A has to precede them all, also the one that has to precede A.
module Replicated.Linearizability
  ( check,
    Violation (..),
    Reason (..),
    Precedence (..),
    explain,
  )
where

import Control.Monad (forM_, when)
import Data.ByteString.Char8 qualified as Char8
import Data.List (maximumBy, minimumBy, nub, sortOn)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes, mapMaybe)
import Data.Ord (comparing)
import Data.Text qualified as Text
import Replicated.Client (Outcome (..))
import Replicated.Entry
import Replicated.History
import Replicated.Picture

-- | Operations on one register for which there is no order.
data Violation = Violation
  { violationReason :: !Reason,
    -- | The operations of the reason, and the puts of their values.
    violationOperations :: ![Operation]
  }
  deriving stock (Eq, Show)

-- | Why there is none.
data Reason
  = -- | This get found a value that was never put.
    OutOfNothing !Operation
  | -- | This get had ended before the put of its value began.
    OutOfTheFuture !Operation
  | -- | One value has to precede another, and that one the first.
    Crossed !Precedence !Precedence
  deriving stock (Eq, Show)

-- | An operation that had ended when another began. Nothing stands for the beginning,
-- which had ended before everything.
data Precedence = Precedence !(Maybe Operation) !(Maybe Operation)
  deriving stock (Eq, Show)

-- | An operation as it matters here. None: the beginning, which is like a put of nothing.
data Span = Span {spanBegin, spanEnd :: !Bound, spanOperation :: !(Maybe Operation)}

data Bound = Start | At !Moment | Never
  deriving stock (Eq, Ord)

-- | All about one value.
data Cluster = Cluster
  { clusterPut :: !Span,
    -- | Its operation that ended first, and the one that began last.
    firstEnded, lastBegun :: !Span
  }

-- | Is there an order of the operations that explains what they found? An operation of
-- unknown outcome may have its effect at any time after it began, or never. No value may
-- be put twice.
check :: History -> Either Violation ()
check history = mapM_ checkRegister (Map.fromListWith (flip (<>)) [(operationKey o, [o]) | o <- history])

checkRegister :: [Operation] -> Either Violation ()
checkRegister operations = do
  forM_ gets $ \(value, get) -> case Map.lookup value puts of
    Nothing -> violation (OutOfNothing get) [Just get]
    Just put -> when (At (operationEnded get) < spanBegin put) $ violation (OutOfTheFuture get) [Just get, spanOperation put]
  forM_ (crossing (Map.elems clusters)) $ \(a, b) ->
    violation (Crossed (precedence a b) (precedence b a)) $
      concat [map spanOperation [clusterPut c, firstEnded c, lastBegun c] | c <- [a, b]]
  where
    violation reason = Left . Violation reason . nub . sortOn operationBegan . catMaybes
    precedence a b = Precedence (spanOperation (firstEnded a)) (spanOperation (lastBegun b))
    puts = Map.fromList ((Nothing, Span Start Start Nothing) : mapMaybe putSpan operations)
    gets = [(value, o) | o@Operation {operationAction = Get (Done value)} <- operations]
    clusters = Map.mapWithKey (\value put -> cluster put (Map.findWithDefault [] value getsOf)) puts
    getsOf = Map.fromListWith (<>) [(value, [Span (At (operationBegan o)) (At (operationEnded o)) (Just o)]) | (value, o) <- gets]
    cluster put others = Cluster put (minimumBy (comparing spanEnd) (put : others)) (maximumBy (comparing spanBegin) (put : others))

-- | The put of an operation that has, or may have, put a value.
putSpan :: Operation -> Maybe (Maybe Value, Span)
putSpan o = case operationAction o of
  Put value (Done ()) -> Just (Just value, Span (At (operationBegan o)) (At (operationEnded o)) (Just o))
  Put value (Unknown _) -> Just (Just value, Span (At (operationBegan o)) Never (Just o))
  _ -> Nothing

-- | Two clusters that have to precede each other, if there are any.
--
-- In the order of their first ends, it is enough to compare each with that one before it
-- which began an operation last. For if another before it crossed it, those two would
-- cross each other, and have been found already.
crossing :: [Cluster] -> Maybe (Cluster, Cluster)
crossing clusters = case sortOn (spanEnd . firstEnded) clusters of
  [] -> Nothing
  first : others -> go first others
  where
    go _ [] = Nothing
    go latest (c : rest)
      | latest `precedes` c, c `precedes` latest = Just (latest, c)
      | otherwise = go (maximumBy (comparing (spanBegin . lastBegun)) [latest, c]) rest
    a `precedes` b = spanEnd (firstEnded a) < spanBegin (lastBegun b)

-- | Why there is no order, in words and as a picture.
explain :: Violation -> String
explain (Violation reason operations) = unlines $ sentences <> ["", draw operations]
  where
    sentences = case reason of
      OutOfNothing get -> [inWords get <> ": nobody has put that, or its put had failed for certain."]
      OutOfTheFuture get -> [inWords get <> ", and had ended before the put of that began."]
      Crossed p q -> ["No order explains this:", "  " <> because p, "  " <> because q]
    because (Precedence a b) =
      maybe "the beginning" inWords a <> " had ended when " <> maybe "it" inWords b <> " began; so " <> valueIn a <> " came before " <> valueIn b <> "."
    inWords o = Text.unpack (operationClient o) <> "'s \"" <> describeAction (operationAction o) <> "\""
    valueIn o = maybe "nothing" Char8.unpack (o >>= valueOf . operationAction)

-- | The value that was put or found.
valueOf :: Action -> Maybe Value
valueOf = \case
  Put value _ -> Just value
  Get (Done value) -> value
  Get _ -> Nothing
