-- |
-- Description : Where an application runs
-- Stability   : not home
--
-- A WAI application is plain 'IO' that now and then wants something of its connection. It
-- runs as a direct thread, or on a thread of GHC's own; either way it is given a function
-- that performs operations of threads.
module Weft.Wai.Internal.Perform
  ( -- * Styles
    ApplicationStyle (..),
    Way (..),
    Place (..),
    Host,
    hostOf,

    -- * The choice
    Chooser,
    newChooser,
    newChooserWith,
    chosen,

    -- * What an application tells the chooser
    Watch,
    beginWatch,
    endWatch,
    misdirected,
  )
where

import Control.Concurrent (isCurrentThreadBound)
import Control.Exception (throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (unsafeShiftR)
import Data.IORef
import Data.Primitive.PrimArray
import GHC.Clock (getMonotonicTimeNSec)
import Weft
import Weft.Counters (Counters, WorkerCounters (..), counterReader, total)
import Weft.Http.Server.State (Interruption (..), Reason (BufferUnused))
import Weft.IO (CannotSuspend (..), await, direct)
import Weft.Outside (Runner, onGhcThread, runThread)

-- | What runs an application.
data ApplicationStyle
  = -- | As 'Direct', until the application is seen to hold up its workers, or an
    -- asynchronous exception of GHC's has gone astray: from then on as 'OwnThread'. Back
    -- again when its requests have been quick for a while, unless it was an exception.
    Automatic
  | -- | The thread of the connection, on its worker, as a direct thread ("Weft.IO"): the
    -- cheapest. An application that blocks holds up the worker (others take it over after
    -- some milliseconds), and GHC's asynchronous exceptions (@System.Timeout.timeout@)
    -- do not reach one that waits for its client: they may hit another request.
    Direct
  | -- | A thread of GHC's own for each request, as under Warp: an application may block as
    -- it likes, and @timeout@, @throwTo@ and @myThreadId@ mean what they always do.
    OwnThread
  deriving stock (Eq, Show, Enum, Bounded)

-- | Which way an application runs at the moment.
data Way = OnWorker | OnItsOwn
  deriving stock (Eq, Show)

-- | Where an application runs: which way, and what performs operations of a thread there.
data Place = Place
  { placeWay :: !Way,
    performIn :: forall a. Thread a -> IO a
  }

-- | Performs plain 'IO' as a part of a thread.
type Host = forall a. (Place -> IO a) -> Thread a

-- | What hosts applications where the chooser says; the runner takes in what cannot be
-- awaited.
hostOf :: Chooser -> Runner -> Host
hostOf chooser runner = case chooser of
  Always OnWorker -> \run' -> direct (run' onWorker)
  Always OnItsOwn -> onItsOwn
  -- The choice is made by the direct thread: a node of the trace less.
  ByEvidence evidence -> \run' ->
    direct
      ( chosenBy evidence >>= \case
          OnWorker -> Just <$> run' onWorker
          OnItsOwn -> pure Nothing
      )
      >>= maybe (onItsOwn run') pure
  where
    onWorker = Place OnWorker (awaitOrHandOver runner)
    onItsOwn :: Host
    onItsOwn run' = do
      result <- liftIO (newIORef Nothing)
      onGhcThread runner (\perform -> run' (Place OnItsOwn (performHere perform)) >>= \a -> a <$ writeIORef result (Just a))
        -- The server has interrupted the application. What that has made of it decides, as on a
        -- worker: the client may yet be told that its request has taken too long.
        `catch` \e@(Interruption reason _) ->
          if reason == BufferUnused then throwM e else liftIO (readIORef result) >>= maybe (throwM e) pure
    -- What it has begun with "Weft.IO" runs on a worker.
    performHere :: (forall a. Thread a -> IO a) -> Thread b -> IO b
    performHere perform operation = do
      carried <- isCurrentThreadBound
      if carried then awaitOrHandOver runner operation else perform operation

-- Operations -----------------------------------------------------------------------

-- Note [Where nothing can be suspended]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A direct thread cannot be suspended inside the evaluation of a value, as when the body is
-- read lazily (`lazyRequestBody`), nor outside of itself, as when an application has its
-- response sent by a thread it has forked (`race`). There the operation is handed to a
-- thread of Weft's own, and GHC's waits for it. In the first case it holds up the worker,
-- which others then take over (within 20 ms); in the second the connection's thread waits
-- for the forked one, with the same effect.
--
-- `await` says that it cannot before it has begun. An exception of the operation itself may
-- say the same, hence the flag.

-- | Inside a direct thread.
awaitOrHandOver :: Runner -> Thread a -> IO a
awaitOrHandOver runner operation = do
  begun <- newIORef False
  E.try (await (liftIO (writeIORef begun True) >> operation)) >>= \case
    Right a -> pure a
    Left e -> do
      inside <- readIORef begun
      if inside || e /= NothingToSuspend then throwIO e else runThread runner operation

-- The choice -----------------------------------------------------------------------

-- Note [The choice of a way]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- On a worker an application costs least, and while it blocks, or computes for long, all
-- connections of the worker wait. On a thread of its own it costs some microseconds more,
-- and only its client waits. So what decides is how long applications take from their
-- beginning to their response:
--
--   * One request in eight is timed, and all while one of the last ones was slow. One that
--     has taken long counts 16, a quick one takes 1 back; at 64 applications leave the
--     worker. That is one slow request in seventeen, or four in a row: more than the pauses
--     of a collector or of a busy machine make, and what a database query in every request
--     comes to at once.
--   * Fewer that are very slow show as takeovers of workers, which are looked at every
--     quarter of a second. Eight in a few seconds are enough.
--   * An asynchronous exception that found nobody, or the wrong one, is reason enough, and
--     for good: the application uses `timeout`, or `throwTo`.
--
-- On threads of their own they are timed in the same way. When the count has come down from
-- 1,024 they go back, but not sooner than after ten seconds, which double every time.
--
-- The words are written without locks by all workers. A count may be lost, and no more.

-- | Which way applications run.
data Chooser
  = -- | The style says so: nothing is timed.
    Always !Way
  | ByEvidence !Evidence

-- | What speaks for a way.
data Evidence = Evidence
  { evidenceWords :: !(MutablePrimArray RealWorld Int),
    -- | In nanoseconds.
    evidenceClock :: !(IO Int),
    evidenceCounters :: !(IO Counters)
  }

-- | The words.
wayWord, scoreWord, samplesWord, lookedWord, takeoversWord, heldWord, backWord, patienceWord, barredWord, lastWord' :: Int
wayWord = 0 -- 0: on workers
scoreWord = 1
samplesWord = 2
lookedWord = 3 -- when the counters were looked at, in nanoseconds
takeoversWord = 4 -- as they were then
heldWord = 5 -- takeovers, forgotten little by little; times 16
backWord = 6 -- not before this time
patienceWord = 7 -- for how long, the next time
barredWord = 8 -- 1: never
lastWord' = 9

-- | The chooser of a style.
newChooser :: ApplicationStyle -> Thread Chooser
newChooser = \case
  Automatic -> counterReader >>= liftIO . newChooserWith (fromIntegral <$> getMonotonicTimeNSec)
  Direct -> pure (Always OnWorker)
  OwnThread -> pure (Always OnItsOwn)

-- | One that goes by this clock, in nanoseconds, and these counters. Applications run on
-- workers to begin with.
newChooserWith :: IO Int -> IO Counters -> IO Chooser
newChooserWith clock reader = do
  words' <- newPrimArray lastWord'
  setPrimArray words' 0 lastWord' 0
  writePrimArray words' patienceWord 10_000_000_000
  pure (ByEvidence (Evidence words' clock reader))

-- | The way of the next request.
chosen :: Chooser -> IO Way
chosen = \case
  Always way -> pure way
  ByEvidence evidence -> chosenBy evidence

chosenBy :: Evidence -> IO Way
chosenBy evidence = (\w -> if w == 0 then OnWorker else OnItsOwn) <$> readPrimArray (evidenceWords evidence) wayWord
{-# INLINE chosenBy #-}

-- | When a request that is timed began; 0 for others.
newtype Watch = Watch Int

-- | An application begins.
beginWatch :: Chooser -> IO Watch
beginWatch = \case
  Always _ -> pure (Watch 0)
  ByEvidence evidence -> do
    let words' = evidenceWords evidence
    n <- readPrimArray words' samplesWord
    writePrimArray words' samplesWord (n + 1)
    score <- readPrimArray words' scoreWord
    if timed n || score /= 0 then Watch <$> evidenceClock evidence else pure (Watch 0)
  where
    -- One in eight, in no regular order: Knuth's multiplicative hash.
    timed :: Int -> Bool
    timed n = (fromIntegral n * 0x9E37_79B9_7F4A_7C15 :: Word) `unsafeShiftR` 61 == 0
{-# INLINE beginWatch #-}

-- | It has a response, or has failed. Once for each watch.
endWatch :: Chooser -> Way -> Watch -> IO ()
endWatch chooser way (Watch began) = case chooser of
  ByEvidence evidence | began /= 0 -> judge evidence way began
  _ -> pure ()
{-# INLINE endWatch #-}

judge :: Evidence -> Way -> Int -> IO ()
judge evidence way began = do
  time <- evidenceClock evidence
  score <- get scoreWord
  let score'
        | time - began > slow = min 1_024 (score + 16)
        | otherwise = max 0 (score - 1)
  put scoreWord score'
  looked <- get lookedWord
  when (time - looked > 250_000_000) $ look time looked
  held <- get heldWord
  now' <- get wayWord
  case way of
    OnWorker | now' == 0, score' >= 64 || held >= 8 * 16 -> leave time
    OnItsOwn
      | now' /= 0,
        score' == 0 -> do
          back <- get backWord
          barred <- get barredWord
          when (time > back && barred == 0) $ put heldWord 0 >> put wayWord 0
    _ -> pure ()
  where
    words' = evidenceWords evidence
    get = readPrimArray words'
    put = writePrimArray words'
    -- Nanoseconds. A thread of its own costs a twentieth of it.
    slow = 250_000
    look time looked = do
      put lookedWord time
      counted <- total <$> evidenceCounters evidence
      before <- get takeoversWord
      put takeoversWord (countedTakeovers counted)
      held <- get heldWord
      -- What was long ago says nothing.
      let kept = if time - looked > 8_000_000_000 then 0 else held * 31 `div` 32
      unless (looked == 0) $ put heldWord (kept + 16 * (countedTakeovers counted - before))
      when (countedStrays counted > 0) $ forGood words'
    leave time = do
      put wayWord 1
      put scoreWord 1_024
      put heldWord 0
      patience <- get patienceWord
      put backWord (time + patience)
      put patienceWord (min 600_000_000_000 (2 * patience))

-- | An asynchronous exception of GHC's has come to the wrong request, or is likely to.
misdirected :: Chooser -> IO ()
misdirected = \case
  Always _ -> pure ()
  ByEvidence evidence -> forGood (evidenceWords evidence)

forGood :: MutablePrimArray RealWorld Int -> IO ()
forGood words' = do
  writePrimArray words' barredWord 1
  writePrimArray words' wayWord 1
