{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The metrics of a program
-- Stability   : not home
--
-- Knows every metric of a program and asks all of them when somebody wants to see them.
-- Counting does not come here: whoever counts holds the metric itself.
module Weft.Http.Metrics.Registry
  ( -- * Registries
    Registry,
    newRegistry,
    register,
    gather,

    -- * Counters
    Counter,
    newCounter,
    newCounters,
    increment,
    addTo,
    counterValue,

    -- * Histograms
    Histogram,
    Unit (..),
    newHistogram,
    observe,
    observeIn,
    durationBuckets,

    -- * Others
    readGauge,
    readCounter,
  )
where

import Control.Exception (throwIO)
import Control.Monad (forM, zipWithM)
import Data.ByteString.Builder (toLazyByteString)
import Data.Foldable (for_)
import Data.IORef
import Data.Primitive.PrimArray
import Data.Set (Set)
import Data.Set qualified as Set
import Data.Text (Text)
import Data.Text.Lazy qualified as Lazy
import Data.Text.Lazy.Encoding (decodeUtf8)
import Weft.Http.Metrics.Cells
import Weft.Http.Metrics.Exposition (renderValue)
import Weft.Http.Metrics.Types

-- | The metrics that are known, newest first, and the names that are taken.
newtype Registry = Registry (IORef ([Collector], Set Text))

data Collector = Collector ![Description] (IO [[Sample]])

-- | Without metrics.
newRegistry :: IO Registry
newRegistry = Registry <$> newIORef ([], Set.empty)

-- | Add families whose samples are read when somebody wants to see them: the action gives
-- those of each family, in the same order. It runs on a pool of OS threads, and may block a
-- little. Throws 'MetricError'.
register :: Registry -> [Description] -> IO [[Sample]] -> IO ()
register (Registry ref) descriptions collect = do
  mapM_ (either throwIO pure . checkDescription) descriptions
  clash <- atomicModifyIORef' ref $ \(collectors, names) -> case firstTwice names (concatMap reservedNames descriptions) of
    Just name -> ((collectors, names), Just name)
    Nothing -> ((Collector descriptions collect : collectors, foldr Set.insert names (concatMap reservedNames descriptions)), Nothing)
  for_ clash (throwIO . DuplicateName)
  where
    firstTwice taken = \case
      [] -> Nothing
      name : rest
        | name `Set.member` taken -> Just name
        | otherwise -> firstTwice (Set.insert name taken) rest

-- | What all metrics say now, in the order in which they were registered.
gather :: Registry -> IO [Family]
gather (Registry ref) = do
  (collectors, _) <- readIORef ref
  concat <$> forM (reverse collectors) (\(Collector descriptions collect) -> zipWith Family descriptions <$> collect)

-- | A number that grows.
data Counter = Counter !Cells !Int

-- | A counter without labels. The name ends in @_total@.
newCounter :: Registry -> Text -> Text -> IO Counter
newCounter registry name help =
  newCounters registry name help [[]] >>= \case
    counter : _ -> pure counter
    [] -> throwIO (BadName name)

-- | A counter for each set of labels, in the same order. They are next to each other in
-- memory. All are shown from the beginning, with 0.
newCounters :: Registry -> Text -> Text -> [Labels] -> IO [Counter]
newCounters registry name help labels = do
  mapM_ (either throwIO pure . checkLabelName . fst) (concat labels)
  cells <- newCells (length labels)
  register registry [Description name help CounterKind] $
    (: []) <$> zipWithM (\l i -> sample l . Whole <$> total cells i) labels [0 ..]
  pure (map (Counter cells) [0 .. length labels - 1])

-- | By one. From any thread; costs some nanoseconds and allocates nothing.
increment :: Counter -> IO ()
increment counter = addTo counter 1
{-# INLINE increment #-}

-- | By so many, which must not be negative.
addTo :: Counter -> Int -> IO ()
addTo (Counter cells index) = add cells index
{-# INLINE addTo #-}

-- | What it has counted.
counterValue :: Counter -> IO Int
counterValue (Counter cells index) = total cells index

-- | How often something had which size: the upper bounds of the buckets, and for each one,
-- and for what is larger than all, how often; and the sum.
data Histogram = Histogram !(PrimArray Int) !Cells

-- | What is observed, and how it is shown.
data Unit
  = -- | Observed in nanoseconds, shown in seconds.
    Seconds
  | -- | Bytes and other things that are shown as they are.
    Units
  deriving stock (Eq, Show)

-- | With these upper bounds (inclusive), in what is observed.
newHistogram :: Registry -> Text -> Text -> Unit -> [Int] -> IO Histogram
newHistogram registry name help unit given = do
  cells <- newCells (count + 2)
  register registry [Description name help HistogramKind] $ do
    counts <- totals cells (count + 1)
    sum' <- total cells (count + 1)
    let upTo = scanl1 (+) counts
        buckets = zipWith (\bound n -> Sample "_bucket" [("le", bound)] (Whole n)) (map (shown . value) bounds <> ["+Inf"]) upTo
    -- The number of all is that of the last bucket, whatever was counted meanwhile.
    pure [buckets <> [Sample "_sum" [] (value sum'), Sample "_count" [] (Whole (sum counts))]]
  pure (Histogram (primArrayFromList bounds) cells)
  where
    bounds = Set.toAscList (Set.fromList given)
    count = length bounds
    value = case unit of
      Seconds -> Billionths
      Units -> Whole
    shown = Lazy.toStrict . decodeUtf8 . toLazyByteString . renderValue

-- | From any thread; costs some nanoseconds and allocates nothing.
observe :: Histogram -> Int -> IO ()
observe histogram n = myRow >>= \row -> observeIn histogram row n
{-# INLINE observe #-}

-- | The same, for somebody who knows the row.
observeIn :: Histogram -> Row -> Int -> IO ()
observeIn (Histogram bounds cells) row n = do
  addIn cells row (bucket 0) 1
  addIn cells row (count + 1) n
  where
    count = sizeofPrimArray bounds
    bucket !i
      | i < count, n > indexPrimArray bounds i = bucket (i + 1)
      | otherwise = i

-- | For the durations of requests, in nanoseconds: from 100 µs to 10 s.
durationBuckets :: [Int]
durationBuckets = [digit * power | power <- [100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000], digit <- [1, 2, 5]] <> [10_000_000_000]

-- | A number that is read when somebody wants to see it.
readGauge :: Registry -> Text -> Text -> IO Int -> IO ()
readGauge registry name help get = register registry [Description name help GaugeKind] ((\n -> [[sample [] (Whole n)]]) <$> get)

-- | The same of one that grows only and begins at 0.
readCounter :: Registry -> Text -> Text -> IO Int -> IO ()
readCounter registry name help get = register registry [Description name help CounterKind] ((\n -> [[sample [] (Whole n)]]) <$> get)
