{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Knows every metric of a program and reads them for a scrape. Counting does not come here.
module Weft.Http.Metrics.Registry
  ( -- * Registries
    Registry,
    newRegistry,
    register,
    registerFamilies,
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

    -- * Values read on demand
    readGauge,
    readCounter,
    Cells,
    newCells,
    Row,
    myRow,
    addIn,
    add,
    sumOf,
  )
where

import Control.Exception (throwIO)
import Control.Monad (forM, zipWithM)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (countLeadingZeros, finiteBitSize, unsafeShiftL, (.&.))
import Data.ByteString.Builder (toLazyByteString)
import Data.Foldable (for_)
import Data.IORef
import Data.Primitive.ByteArray
import Data.Primitive.PrimArray
import Data.Set (Set)
import Data.Set qualified as Set
import Data.Text (Text)
import Data.Text.Lazy qualified as Lazy
import Data.Text.Lazy.Encoding (decodeUtf8)
import GHC.Conc (getNumCapabilities, getNumProcessors)
import GHC.Exts (Int (..), fetchAddIntArray#, myThreadId#, threadStatus#)
import GHC.IO (IO (..))
import Weft.Http.Metrics.Types

-- | The registered metrics, newest first, and the names in use.
newtype Registry = Registry (IORef ([Collector], Set Text))

data Collector = Collector ![Description] (IO [[Sample]])

-- | An empty registry.
newRegistry :: IO Registry
newRegistry = Registry <$> newIORef ([], Set.empty)

-- | Register families, whose samples the action returns, on a pool of OS threads. Throws 'MetricError'.
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

-- | Register what the function makes of the values read at a scrape. The descriptions, which do not depend
-- on these, are those that it makes of the first value.
registerFamilies :: Registry -> (a -> [(Description, [Sample])]) -> a -> IO a -> IO ()
registerFamilies registry families unread get = register registry (map fst (families unread)) (map snd . families <$> get)

-- | The samples of all metrics now, in the order of registration.
gather :: Registry -> IO [Family]
gather (Registry ref) = do
  (collectors, _) <- readIORef ref
  concat <$> forM (reverse collectors) (\(Collector descriptions collect) -> zipWith Family descriptions <$> collect)

-- | A number that only grows.
data Counter = Counter !Cells !Int

-- | A counter without labels. The name ends in @_total@. Throws 'MetricError'.
newCounter :: Registry -> Text -> Text -> IO Counter
newCounter registry name help = (`Counter` 0) <$> counterCells registry name help [[]]

-- | A counter for each set of labels, in the same order, exposed from the beginning. Throws 'MetricError'.
newCounters :: Registry -> Text -> Text -> [Labels] -> IO [Counter]
newCounters registry name help labels = (\cells -> zipWith (\i _ -> Counter cells i) [0 ..] labels) <$> counterCells registry name help labels

counterCells :: Registry -> Text -> Text -> [Labels] -> IO Cells
counterCells registry name help labels = do
  mapM_ (either throwIO pure . checkLabelName . fst) (concat labels)
  cells <- newCells (length labels)
  cells <$ register registry [counter name help] ((: []) <$> zipWithM (\l i -> sample l . Whole <$> sumOf cells i) labels [0 ..])

-- | Add one. From any thread; takes some nanoseconds and allocates nothing.
increment :: Counter -> IO ()
increment = (`addTo` 1)

-- | Add a number that must not be negative. From any thread.
addTo :: Counter -> Int -> IO ()
addTo (Counter cells index) = add cells index

-- | The current value.
counterValue :: Counter -> IO Int
counterValue (Counter cells index) = sumOf cells index

-- | The bounds of the buckets; for each, and for larger values, the observations; and their sum.
data Histogram = Histogram !(PrimArray Int) !Cells

-- | The unit of observations, and how they are exposed.
data Unit
  = -- | Observed in nanoseconds, exposed in seconds.
    Seconds
  | -- | Bytes and other units, exposed as observed.
    Units
  deriving stock (Eq, Show)

-- | A histogram with these inclusive upper bounds, in the observed unit. Throws 'MetricError'.
newHistogram :: Registry -> Text -> Text -> Unit -> [Int] -> IO Histogram
newHistogram registry name help unit given = do
  cells <- newCells (count + 2)
  register registry [Description name help HistogramKind] $ do
    counts <- mapM (sumOf cells) [0 .. count]
    sum' <- sumOf cells (count + 1)
    let upTo = scanl1 (+) counts
        buckets = zipWith (\bound n -> Sample "_bucket" [("le", bound)] (Whole n)) (map (shown . value) bounds <> ["+Inf"]) upTo
    -- The count equals the last bucket even during concurrent observations.
    pure [buckets <> [Sample "_sum" [] (value sum'), Sample "_count" [] (Whole (sum counts))]]
  pure (Histogram (primArrayFromList bounds) cells)
  where
    bounds = Set.toAscList (Set.fromList given)
    count = length bounds
    value = case unit of
      Seconds -> Billionths
      Units -> Whole
    shown = Lazy.toStrict . decodeUtf8 . toLazyByteString . renderValue

-- | Add an observation. From any thread; takes some nanoseconds and allocates nothing.
observe :: Histogram -> Int -> IO ()
observe histogram n = myRow >>= \row -> observeIn histogram row n

observeIn :: Histogram -> Row -> Int -> IO ()
observeIn (Histogram bounds cells) row n = do
  addIn cells row (bucket 0) 1
  addIn cells row (count + 1) n
  where
    count = sizeofPrimArray bounds
    bucket !i
      | i < count, n > indexPrimArray bounds i = bucket (i + 1)
      | otherwise = i

-- | Buckets for durations of requests in nanoseconds: from 100 µs to 10 s.
durationBuckets :: [Int]
durationBuckets = [digit * power | power <- [100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000], digit <- [1, 2, 5]] <> [10_000_000_000]

-- | A gauge that is read at each scrape. Throws 'MetricError'.
readGauge :: Registry -> Text -> Text -> IO Int -> IO ()
readGauge registry name help = registerFamilies registry (\n -> [(gauge name help, [sample [] (Whole n)])]) 0

-- | A counter that is read at each scrape; it begins at 0 and only grows. Throws 'MetricError'.
readCounter :: Registry -> Text -> Text -> IO Int -> IO ()
readCounter registry name help = registerFamilies registry (\n -> [(counter name help, [sample [] (Whole n)])]) 0

-- Note [Rows]
-- ~~~~~~~~~~~
-- A shared number moves between the workers' caches with each addition. So each GHC capability has its
-- own row, and rows share no cache lines (or pairs, hence 128 bytes). Additions are still atomic: during
-- a takeover two threads of one capability may be in the middle of one.

-- | Rows of numbers; the words from one row to the next, and the number of rows less one.
data Cells = Cells {-# UNPACK #-} !(MutableByteArray RealWorld) !Int !Int

-- | A row of the given number of zeros for each processor. Processors added later share rows.
newCells :: Int -> IO Cells
newCells count = do
  processors <- max <$> getNumProcessors <*> getNumCapabilities
  let rows = powerFrom (min 64 (max 1 processors))
      -- Whole blocks of 128 bytes.
      stride = (count + 15) `div` 16 * 16
      size = 8 * rows * stride
  cells <- newAlignedPinnedByteArray size 128
  fillByteArray cells 0 size 0
  pure (Cells cells stride (rows - 1))
  where
    -- The next power of two.
    powerFrom n = 1 `unsafeShiftL` (finiteBitSize n - countLeadingZeros (n - 1))

newtype Row = Row Int

-- | The row of the current capability. Another thread may use the row too, which is safe.
myRow :: IO Row
myRow = IO $ \s -> case myThreadId# s of
  (# s1, me #) -> case threadStatus# me s1 of
    (# s2, _, capability, _ #) -> (# s2, Row (I# capability) #)

-- | Add to the number of this index, unchecked.
addIn :: Cells -> Row -> Int -> Int -> IO ()
addIn (Cells (MutableByteArray cells) stride mask) (Row row) index (I# n) = IO $ \s ->
  case fetchAddIntArray# cells at n s of
    (# s', _ #) -> (# s', () #)
  where
    !(I# at) = (row .&. mask) * stride + index

add :: Cells -> Int -> Int -> IO ()
add cells index n = myRow >>= \row -> addIn cells row index n

-- | The sum of a number over all rows. May miss concurrent additions.
sumOf :: Cells -> Int -> IO Int
sumOf (Cells cells stride mask) index = go 0 0
  where
    go row !sum'
      | row > mask = pure sum'
      | otherwise = readByteArray cells (row * stride + index) >>= \n -> go (row + 1) (sum' + n)
