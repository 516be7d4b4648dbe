{-# OPTIONS_HADDOCK not-home #-}

-- | Where an application in plain 'IO' runs: as a direct thread, or on a GHC thread.
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

-- | The way in which an application runs.
data ApplicationStyle
  = -- | 'Direct' until the application blocks its workers, or an asynchronous exception of GHC hits the
    -- wrong thread; then 'OwnThread', until requests are quick again.
    Automatic
  | -- | The connection's thread, as a direct thread: the cheapest. A blocking application blocks the
    -- worker for some milliseconds, and asynchronous exceptions (@System.Timeout.timeout@) may hit
    -- another request.
    Direct
  | -- | A GHC thread for each request, as under Warp: @timeout@, @throwTo@ and @myThreadId@ work as
    -- usual.
    OwnThread
  deriving stock (Eq, Show, Enum, Bounded)

data Way = OnWorker | OnItsOwn
  deriving stock (Eq, Show)

-- | The way of a request, and its function to perform thread operations.
data Place = Place
  { placeWay :: !Way,
    performIn :: forall a. Thread a -> IO a
  }

-- | Performs plain 'IO' as a part of a thread, after a first action on the worker.
type Host = forall a. IO () -> (Place -> IO a) -> Thread a

-- | Host applications as the chooser decides. The runner performs what cannot be awaited.
hostOf :: Chooser -> Runner -> Host
hostOf chooser runner = case chooser of
  Always OnWorker -> \first run' -> direct (first >> run' onWorker)
  Always OnItsOwn -> onItsOwn
  -- The direct thread chooses, which saves a node of the trace.
  ByEvidence _ -> \first run' ->
    direct
      ( first >> chosen chooser >>= \case
          OnWorker -> Just <$> run' onWorker
          OnItsOwn -> pure Nothing
      )
      >>= maybe (onItsOwn (pure ()) run') pure
  where
    onWorker = Place OnWorker (awaitOrHandOver runner)
    onItsOwn :: Host
    onItsOwn first run' = do
      result <- liftIO (first >> newIORef Nothing)
      onGhcThread runner (\perform -> run' (Place OnItsOwn (performHere perform)) >>= \a -> a <$ writeIORef result (Just a))
        -- The server interrupted the application, whose result decides, as on a worker.
        `catch` \e@(Interruption reason _) ->
          if reason == BufferUnused then throwM e else liftIO (readIORef result) >>= maybe (throwM e) pure
    -- Forks by "Weft.IO" run on a worker.
    performHere :: (forall a. Thread a -> IO a) -> Thread b -> IO b
    performHere perform operation = do
      carried <- isCurrentThreadBound
      if carried then awaitOrHandOver runner operation else perform operation

-- Note [Where nothing can be suspended]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A direct thread cannot be suspended inside the evaluation of a value (`lazyRequestBody`), nor from
-- another GHC thread (a response sent from inside `race`). There a new Weft thread performs the
-- operation, and the GHC thread waits: in the first case it blocks the worker until a takeover, in the
-- second the connection's thread does.
--
-- `await` reports this before the operation begins, which may raise the same exception: hence the flag.

-- | Inside a direct thread.
awaitOrHandOver :: Runner -> Thread a -> IO a
awaitOrHandOver runner operation = do
  begun <- newIORef False
  E.try (await (liftIO (writeIORef begun True) >> operation)) >>= \case
    Right a -> pure a
    Left e -> do
      inside <- readIORef begun
      if inside || e /= NothingToSuspend then throwIO e else runThread runner operation

-- Note [The choice of a way]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- On a worker an application costs least, but its blocking and long computations delay all connections
-- there. On its own thread it costs some microseconds more. The time until its response decides:
--
--   * One request in eight is timed, and all while a recent one was slow. A slow one adds 16, a
--     quick one subtracts 1; at 64 applications leave the worker. One slow request in seventeen,
--     or four in a row, exceed the pauses of a collector or busy machine.
--   * Fewer but very slow requests show as takeovers of workers, checked every quarter of a
--     second. Eight in a few seconds are enough.
--   * An asynchronous exception that hit no thread or the wrong one decides for good: the
--     application uses `timeout` or `throwTo`.
--
-- On GHC threads the timing continues. When the count has fallen from 1,024, applications return, but
-- not before ten seconds, which double each time. Workers write without locks: a count may be lost.

data Chooser
  = -- | The style says so: nothing is timed.
    Always !Way
  | ByEvidence !Evidence

data Evidence = Evidence
  { evidenceWords :: !(MutablePrimArray RealWorld Int),
    -- | In nanoseconds.
    evidenceClock :: !(IO Int),
    evidenceCounters :: !(IO Counters)
  }

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

newChooser :: ApplicationStyle -> Thread Chooser
newChooser = \case
  Automatic -> counterReader >>= liftIO . newChooserWith (fromIntegral <$> getMonotonicTimeNSec)
  Direct -> pure (Always OnWorker)
  OwnThread -> pure (Always OnItsOwn)

-- | A chooser with this clock, in nanoseconds, and counters. Begins on workers.
newChooserWith :: IO Int -> IO Counters -> IO Chooser
newChooserWith clock reader = do
  words' <- newPrimArray lastWord'
  setPrimArray words' 0 lastWord' 0
  writePrimArray words' patienceWord 10_000_000_000
  pure (ByEvidence (Evidence words' clock reader))

chosen :: Chooser -> IO Way
chosen = \case
  Always way -> pure way
  ByEvidence evidence -> (\w -> if w == 0 then OnWorker else OnItsOwn) <$> readPrimArray (evidenceWords evidence) wayWord

-- | When a timed request began; 0 for others.
newtype Watch = Watch Int

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

-- | Note its response or failure, once for each watch.
endWatch :: Chooser -> Way -> Watch -> IO ()
endWatch chooser way (Watch began) = case chooser of
  ByEvidence evidence | began /= 0 -> judge evidence way began
  _ -> pure ()

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
    -- Nanoseconds; a GHC thread costs a twentieth of it.
    slow = 250_000
    look time looked = do
      put lookedWord time
      counted <- total <$> evidenceCounters evidence
      before <- get takeoversWord
      put takeoversWord (countedTakeovers counted)
      held <- get heldWord
      -- Old counts decay.
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

-- | Note that an asynchronous exception of GHC hit, or probably hit, the wrong request.
misdirected :: Chooser -> IO ()
misdirected = \case
  Always _ -> pure ()
  ByEvidence evidence -> forGood (evidenceWords evidence)

forGood :: MutablePrimArray RealWorld Int -> IO ()
forGood words' = do
  writePrimArray words' barredWord 1
  writePrimArray words' wayWord 1
