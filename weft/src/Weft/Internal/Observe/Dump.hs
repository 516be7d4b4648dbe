{-# LANGUAGE GADTs #-}
{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | All threads of a run, as they are at one moment. Each worker looks at its own threads, between two
-- slices, without locks. One whose thread is stuck answers when it has been taken over; of one that does not
-- answer, only the threads that hold OS threads are seen. Called on ordinary GHC threads: it waits.
module Weft.Internal.Observe.Dump
  ( Snapshot (..),
    Entry (..),
    ThreadActivity (..),
    snapshot,
    renderSnapshot,
    renderHeld,
    Outside (..),
    awayState,
    outsideText,
    seemDeadlocked,
    deadlocked,
    renderDeadlock,
  )
where

import Control.Concurrent (forkIO)
import Control.Concurrent.MVar
import Control.Exception (SomeException, throwIO, try)
import Control.Monad (forM, void)
import Data.ByteString.Short qualified as ShortByteString
import Data.Char (isDigit)
import Data.Foldable (toList)
import Data.Graph (SCC (..), stronglyConnComp)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (sort)
import Data.List.NonEmpty (NonEmpty (..))
import Data.List.NonEmpty qualified as NonEmpty
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe, mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import Numeric (showFFloat)
import System.Mem.Weak (deRefWeak)
import System.Timeout (timeout)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.CreationTimes
import Weft.Internal.Data.Time (Instant (..))
import Weft.Internal.Kernel.Peer (withPeer)
import Weft.Internal.Os.Sys (monotonicNow)

data Snapshot = Snapshot
  { -- | On the monotonic clock, in nanoseconds.
    snapshotTime :: !Int,
    snapshotThreads :: [Entry],
    -- | Indices of the workers that have not answered in time.
    snapshotMissing :: [Int]
  }

data Entry = Entry
  { -- | 0 for an anonymous thread.
    entryNumber :: !Int,
    entryLabel :: !Label,
    -- | The number of the thread that forked it; 0 for the main thread.
    entryParent :: !Int,
    -- | The number of its scope; 0 for none, 'limitScope' for a time limit's alarm.
    entryScope :: !Int,
    entryWorker :: !Int,
    -- | In nanoseconds, at least; not known of anonymous threads.
    entryAge :: !(Maybe Int),
    entryState :: ThreadActivity
  }

data ThreadActivity
  = -- | It could run.
    IsReady
  | -- | It holds an OS thread, and has for this number of nanoseconds.
    IsAway !Outside !Int
  | -- | It waits, since a time that may not be known, for what the thread with this number holds, or 0.
    forall a. IsWaiting !(SystemCall a) !(Maybe Int) !Int

-- | The state of a thread that holds an OS thread, as GHC sees it.
data Outside
  = -- | It runs, or could.
    Running
  | Blocked !BlockReason
  | -- | GHC does not know.
    Unknown
  deriving stock (Eq, Ord)

-- | From any OS thread.
awayState :: Away -> IO Outside
awayState away =
  deRefWeak (awayCarrier away) >>= \case
    Nothing -> pure Unknown
    Just carrier ->
      threadStatus carrier >>= \case
        ThreadRunning -> pure Running
        ThreadBlocked why -> pure (Blocked why)
        _ -> pure Unknown

outsideText :: Outside -> Text
outsideText = \case
  Running -> "running"
  Unknown -> "running, or blocked outside Weft"
  Blocked why -> case why of
    BlockedOnMVar -> "blocked on an MVar of GHC's"
    BlockedOnSTM -> "blocked in a transaction of GHC's"
    BlockedOnForeignCall -> "in a foreign call"
    BlockedOnBlackHole -> "blocked on a value that another thread evaluates"
    BlockedOnException -> "blocked in throwTo to a thread of GHC's"
    BlockedOnOther -> "blocked outside Weft"

-- | Ask every worker for its threads. Waits for a second at most.
snapshot :: [Home] -> IO Snapshot
snapshot homes = do
  found <- ask homes $ \home -> do
    entries <- homeVisit home (\seen known -> (: known) <$> entryOf home seen) []
    (entries,) <$> copyCreationTimes (homeCreationTimes home)
  -- A worker that does not answer can be looked at only from outside.
  unheard <- concat <$> mapM heldEntries [home | (home, (_, Nothing)) <- zip homes found]
  now <- fromIntegral <$> monotonicNow
  let notes = IntMap.fromList [(worker, created) | (worker, Just (_, created)) <- found]
      -- A thread that has waited has lived, and a note of its creation may be from later.
      aged e = e {entryAge = max (stateTime now (entryState e)) <$> ageAt now notes (length homes) (entryNumber e)}
  pure
    Snapshot
      { snapshotTime = now,
        snapshotThreads = [aged e | e <- unheard <> concat [entries | (_, Just (entries, _)) <- found]],
        snapshotMissing = [worker | (worker, Nothing) <- found]
      }

-- | The age of the thread with this number. The notes of its creation are with the worker that gave
-- the number, not with its home: worker w gives w + 1 modulo their number.
ageAt :: Int -> IntMap Notes -> Int -> Int -> Maybe Int
ageAt now notes workers n
  | n <= 0 = Nothing
  | otherwise = (\created -> maybe 0 (now -) (createdBefore created n)) <$> IntMap.lookup ((n - 1) `mod` workers) notes

-- | Have every worker answer a question, between two slices, and wait for a second at
-- most. What a question raises (a user's ready queue cannot be visited) is raised here.
ask :: [Home] -> (Home -> IO a) -> IO [(Int, Maybe a)]
ask homes question = do
  answers <- forM homes $ \home -> do
    box <- newEmptyMVar
    homePost home (try (question home) >>= putMVar box)
    pure (homeWorker home, box)
  everybody <- newEmptyMVar
  -- One limit for all of them.
  void . forkIO $ mapM_ (readMVar . snd) answers >> putMVar everybody ()
  void (timeout patience (readMVar everybody))
  forM answers $ \(worker, box) ->
    tryReadMVar box >>= \case
      Nothing -> pure (worker, Nothing)
      Just answer -> either (throwIO :: SomeException -> IO b) (pure . (worker,) . Just) answer
  where
    patience = 1_000_000

-- | On the worker. The age is not known there.
entryOf :: Home -> SeenThread -> IO Entry
entryOf home seen = case seen of
  SeenReady tcb -> entry tcb (pure IsReady)
  SeenAway away -> entry (awayThread away) $ do
    now <- monotonicNow
    (`IsAway` (fromIntegral now - awaySince away)) <$> awayState away
  SeenWaiting (Wait tcb request since) -> entry tcb $ do
    holder <- case request of
      Suspend reason _ -> reasonHolder reason
      _ -> pure 0
    pure (IsWaiting request (if since == 0 then Nothing else Just since) holder)
  where
    entry tcb state = do
      let context = stateContext (tcbState tcb)
      Entry (tcbNumber tcb) (contextLabel context) (contextParent context) (contextScope context) (homeWorker home) Nothing <$> state

-- | The threads of a worker that hold OS threads. From any OS thread.
heldEntries :: Home -> IO [Entry]
heldEntries home = homeHeld home >>= mapM (entryOf home . SeenAway)

-- | For how long it has been in this state, in nanoseconds; 0 if that is not known.
stateTime :: Int -> ThreadActivity -> Int
stateTime now = \case
  IsAway _ time -> time
  IsWaiting _ (Just since) _ -> now - since
  _ -> 0

-- | For people: a line of numbers, then the threads, those that are alike on one line.
renderSnapshot :: Snapshot -> IO Text
renderSnapshot = render (const True)

-- | A line for each thread that holds an OS thread, or for several alike. Waits for no worker.
renderHeld :: [Home] -> IO [Text]
renderHeld homes = do
  entries <- concat <$> mapM heldEntries homes
  now <- fromIntegral <$> monotonicNow
  groupLines (const True) now entries

-- | 'renderSnapshot', given whether the thread with a number lives, as far as is known.
render :: (Int -> Bool) -> Snapshot -> IO Text
render lives s = do
  groups <- groupLines lives (snapshotTime s) (snapshotThreads s)
  pure . Text.unlines $ header : missing <> groups
  where
    header =
      Text.unwords
        [ counted (length (snapshotThreads s)) "thread" <> ":",
          Text.intercalate ", " [number n <> " " <> what | (n, what) <- states, n > 0]
        ]
    states =
      [ (length [() | Entry {entryState = IsReady} <- snapshotThreads s], "ready"),
        (length [() | Entry {entryState = IsAway _ _} <- snapshotThreads s], "running for long or blocked outside Weft"),
        (length [() | Entry {entryState = IsWaiting {}} <- snapshotThreads s], "waiting")
      ]
    missing = ["worker " <> showText w <> " has not answered: a thread holds it and no OS thread is left to take it over, or the machine is very busy. Of its threads only those are known that hold OS threads" | w <- snapshotMissing s]

-- | A line for each thread, or for several that are alike.
groupLines :: (Int -> Bool) -> Int -> [Entry] -> IO [Text]
groupLines lives now everybody = concat <$> mapM group (Map.elems (grouped everybody))
  where
    -- Many that are alike are shown by a few of them.
    group :: NonEmpty Entry -> IO [Text]
    group entries
      | length entries <= 4 = mapM (line . NonEmpty.singleton) (toList entries)
      | otherwise = pure <$> line entries

    line :: NonEmpty Entry -> IO Text
    line entries@(first :| _) = do
      what <- mapM (stateText lives now) (NonEmpty.take (if several then 2 else 1) entries)
      let who =
            [if several then number (length entries) <> " threads" else name first]
              <> [quoted (entryLabel first) | not (ShortByteString.null (entryLabel first))]
              <> ["parent " <> showText (entryParent first) | entryParent first /= 0]
              <> [if entryScope first == limitScope then "time limit" else "scope " <> showText (entryScope first) | entryScope first /= 0]
              <> ["age " <> ages (mapMaybe entryAge (toList entries)) | Just _ <- [entryAge first]]
              <> ["worker " <> showText (entryWorker first) | not several]
              <> ["(" <> Text.intercalate ", " (map (showText . entryNumber) (NonEmpty.take 3 entries)) <> ", ...)" | several, entryNumber first /= 0]
      pure (Text.unwords who <> ": " <> Text.intercalate "; " what <> (if several then "; ..." else ""))
      where
        several = length entries > 1

-- | Threads that differ only in numbers.
grouped :: [Entry] -> Map.Map (Label, Int, Int, Text) (NonEmpty Entry)
grouped entries = NonEmpty.sortWith entryNumber <$> Map.fromListWith (<>) [(key e, NonEmpty.singleton e) | e <- entries]
  where
    key e = (entryLabel e, entryParent e, entryScope e, shape e)
    shape e = case entryState e of
      IsReady -> "ready"
      IsAway what _ -> outsideText what
      IsWaiting request _ _ -> Text.map (\c -> if isDigit c then '0' else c) (Text.pack (takeWhile (/= '"') (describe request)))

stateText :: (Int -> Bool) -> Int -> Entry -> IO Text
stateText lives now e = case entryState e of
  IsReady -> pure "ready"
  IsAway what t -> pure (outsideText what <> ", for " <> duration t)
  IsWaiting request since holder -> do
    what <- case request of
      SleepUntil (Instant t) -> pure ("sleep, " <> duration (max 0 (fromIntegral t - now)) <> " left")
      _ -> Text.pack <$> withPeer request (describe request)
    pure . Text.unwords $
      ["waiting" <> maybe ":" (\t -> " for " <> duration (now - t) <> ":") since, heldBy lives what holder]

-- | The object of a wait, and its holder unless that is said already.
heldBy :: (Int -> Bool) -> Text -> Int -> Text
heldBy lives what holder
  | holder == 0 || who `Text.isSuffixOf` what = what
  | otherwise = what <> " held by " <> who <> (if lives holder then "" else ", which has ended")
  where
    who = "thread " <> showText holder

name :: Entry -> Text
name e
  | entryNumber e == 0 = "a thread without a number"
  | otherwise = "thread " <> showText (entryNumber e)

quoted :: Label -> Text
quoted label = "\"" <> Text.map printable (labelText label) <> "\""
  where
    printable c = if c < ' ' then '?' else c

ages :: [Int] -> Text
ages several = case sort several of
  [] -> "unknown"
  [one] -> duration one
  few -> duration (minimum few) <> " to " <> duration (maximum few)

-- | Nanoseconds with three digits and a unit.
duration :: Int -> Text
duration t
  | t < 1_000_000 = scaled 1e3 "us"
  | t < 1_000_000_000 = scaled 1e6 "ms"
  | otherwise = scaled 1e9 "s"
  where
    scaled :: Double -> Text -> Text
    scaled unit text = Text.pack (showFFloat (Just 1) (fromIntegral t / unit) "") <> text

counted :: Int -> Text -> Text
counted n what = number n <> " " <> what <> (if n == 1 then "" else "s")

-- | With a comma at every third digit.
number :: Int -> Text
number = Text.reverse . Text.intercalate "," . Text.chunksOf 3 . Text.reverse . showText

showText :: Int -> Text
showText = Text.pack . show

-- | Does every thread seem to wait for another of them? Retains no threads, and so costs a worker
-- with a million of them some milliseconds. A worker that does not answer speaks for nothing.
seemDeadlocked :: [Home] -> IO Bool
seemDeadlocked homes = do
  answers <- ask homes $ \home -> homeVisit home (\seen known -> pure $! known && stuck seen) True
  pure (and [fromMaybe True answer | (_, answer) <- answers])
  where
    stuck = \case
      SeenWaiting (Wait _ (Suspend reason _) _) -> reasonEnds reason == ByThreads
      _ -> False

-- | Does every thread wait for another of them, so that none can ever go on?
deadlocked :: Snapshot -> Bool
deadlocked s = null (snapshotMissing s) && not (null threads) && all stuck threads
  where
    threads = snapshotThreads s
    stuck e = case entryState e of
      IsWaiting (Suspend reason _) _ _ -> reasonEnds reason == ByThreads
      _ -> False

-- | By lines: the cycles of threads that wait for what the next one holds, and then all threads.
renderDeadlock :: Snapshot -> IO [Text]
renderDeadlock s = do
  everything <- render (`IntMap.member` byNumber) s
  pure $
    ("deadlock: nothing can run any more, and " <> whoWaits)
      : map cycleText (cycles s)
        <> Text.lines everything
  where
    whoWaits = case snapshotThreads s of
      [_] -> "the only thread waits for another"
      several -> counted (length several) "thread" <> " wait for each other"
    byNumber = IntMap.fromList [(entryNumber e, e) | e <- snapshotThreads s]
    cycleText members = "cycle: " <> Text.intercalate "; " (map step members)
      where
        step n = maybe ("thread " <> showText n) (\e -> name e <> labelled e <> " waits for " <> waitsFor e) (IntMap.lookup n byNumber)
    labelled e = if ShortByteString.null (entryLabel e) then "" else " " <> quoted (entryLabel e)
    waitsFor e = case entryState e of
      IsWaiting request _ holder -> heldBy (const True) (Text.pack (describe request)) holder
      _ -> ""

-- | The cycles among threads that wait for a holder, each from its smallest number on.
cycles :: Snapshot -> [[Int]]
cycles s = sort [inOrder members | CyclicSCC members <- stronglyConnComp [(n, n, [holder]) | (n, holder) <- IntMap.toList waitsOn]]
  where
    inOrder members = take (length members) (iterate (waitsOn IntMap.!) (minimum members))
    waitsOn :: IntMap Int
    waitsOn =
      IntMap.fromList
        [(entryNumber e, holder) | e <- snapshotThreads s, IsWaiting _ _ holder <- [entryState e], holder /= 0, entryNumber e /= 0]
