{-# OPTIONS_HADDOCK not-home #-}

-- | The event source on io_uring. Operations that would block become submissions on a ring shared with the
-- kernel; 'poll' hands over all that gathered and collects what has completed, in one system call. All but
-- 'wake' is called on the OS thread that runs the worker at the time, a bound one.
module Weft.Internal.Backend.Uring
  ( newUring,
    UringSettings (..),
    CompletionWork (..),
    defaultUringSettings,
    Uring,
    openUring,
    uringBackend,
    uringRing,
    uringPending,
  )
where

import Control.Monad (unless, void, when)
import Data.Foldable (for_)
import Data.IORef (modifyIORef', readIORef, writeIORef)
import Data.Sequence (Seq (..))
import Foreign.C.Error (Errno (..), errnoToIOError)
import Foreign.StablePtr (newStablePtr)
import GHC.Clock (getMonotonicTimeNSec)
import Weft.Internal.Backend
import Weft.Internal.Backend.Attempt (attempt)
import Weft.Internal.Backend.Uring.Descriptors qualified as Descriptors
import Weft.Internal.Backend.Uring.Ring (CompletionWork (..), Ring, UringSettings (..), defaultUringSettings)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.State
import Weft.Internal.Backend.Uring.Steps
import Weft.Internal.Backend.Uring.Watch (watched)
import Weft.Internal.Backend.Uring.Watches
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Slots (SlotKey (..))
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Sys qualified as Sys

-- Note [Life of an operation]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- 'submit' tries the operation first, unless it would likely block. If it has to wait it goes into the
-- table under a key, its token, and a submission with the key as @user_data@ is queued.
--
-- While a key is live, exactly one of these holds:
--   (queued)   it is in the backlog, because the submission queue was full
--   (flying)   one submission with this key is in the ring or in the kernel, or
--              its completion is in the ring
-- The completion of a stage either delivers a result, and the key dies, or queues the next stage under
-- the same key. So a token stays good over all stages, and a completion never finds a key dead.
--
-- Cancelling only marks the entry and queues a cancellation. The operation still retires through the
-- terminal completion of its own submission, and a result that came first is delivered. A cancellation
-- that finds nothing (ENOENT) most often comes after that. But the kernel also finds no request that it
-- is about to try again, which then waits. So when a cancellation has found nothing, and the key is still
-- live, it is queued again: completions are collected in their order.
--
-- There must not be two sends in flight on one stream socket (their bytes could mix), nor two receives:
-- callers take turns.
--
-- A receive that waits for a watched descriptor has no submission (Note [Watched descriptors] in
-- "Weft.Internal.Backend.Uring.Watch"); where it stands, its key lives on when its result is delivered.

-- Note [Another thread drives the ring]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A request belongs to the OS thread that submitted it. With deferred completion work (Linux 6.10 and later) that
-- thread alone may enter the ring, and the work is done where it does. So when another thread, B, takes over from
-- A, 'adopt' closes the ring, and B opens another with its next poll. The kernel cancels what is in flight in the
-- closed one, by a thread of its own, also while A computes. The completions come to memory that is ours, which
-- outlives the ring; B collects them beside its own. Each request completes there once more:
--
--   with ECANCELED   which nobody asked for: 'after' submits it again, a watch is made anew, both on the new ring
--   with a result    when it had an effect. So nothing is done twice, and no byte is lost
--   not at all       what A had queued and not handed over. The queue is ours, too: it counts as cancelled
--
-- That takes 0.2 milliseconds, with 8,000 requests 18. While A is in a wait that nothing interrupts (a disk, vfork)
-- A's requests wait for the end of it. Nothing wakes B when such a completion comes, so B looks each millisecond
-- while one is missing. What does not fit into the completion queue is lost here, so it is as large as it can be.
-- Where the kernel gives B no ring, operations stay in the backlog, and each poll asks again.
--
-- With 'Cooperative' work, on older kernels, the ring stays and A's requests with it:
--
--   A has ended   the kernel cancels what A had submitted, at A's end or (Linux 6.18) only when the descriptor is
--                 ready: ECANCELED, or EFAULT if it was about to be tried. 'after' submits it again.
--   A computes    it does the work at the next clock tick.
--   A sleeps      where signals can interrupt: it is woken and does the work at once.
--
-- Requests from then on are B's. Nothing is watched there, because a watch would stay A's.

-- | An event source on a new ring, or the reason why there is none. The post is not used: no pool is needed.
newUring :: UringSettings -> Post -> IO (Either String (Backend w))
newUring settings _ = fmap uringBackend <$> openUring settings

uringBackend :: Uring w -> Backend w
uringBackend u =
  Backend
    { backendName = "io_uring",
      submit = submitOperation u,
      stand = standIn u,
      cancel = \(Token k) -> cancelOperation u (SlotKey k),
      poll = pollRing u,
      wake = Ring.wake (ring u),
      forget = forgetDescriptor u,
      -- Queued or flying: a pending operation is in the table.
      pendingTokens = \wanted ->
        foldPending u [] $ \found key p -> pure (if wanted (completionFor (completion p)) then Token (keyNumber key) : found else found),
      visit = \f z -> foldPending u z $ \acc _ !p -> f (operation p) (completionFor (completion p)) acc,
      adopt = Ring.adopt (ring u),
      shutdown = shutdownRing u
    }

foldPending :: Uring w -> r -> (r -> SlotKey -> Pending w -> IO r) -> IO r
foldPending u z f =
  Slots.foldM (\acc key p -> isWaiting key p >>= \waits -> if waits then f acc key p else pure acc) z (table u)
{-# INLINE foldPending #-}

uringRing :: Uring w -> Ring
uringRing = ring

uringPending :: Uring w -> IO Int
uringPending u = foldPending u 0 (\n _ _ -> pure (n + 1))

submitOperation :: Uring w -> Operation -> Completion w -> IO Answer
submitOperation u op done =
  readIORef (isStopped u) >>= \case
    True -> pure Sys.canceled
    False -> withDescriptors op (start Sys.wouldBlock) $ \d file ->
      ifM (isShut u d file) (pure Sys.badDescriptor) (begin d)
  where
    begin d = case op of
      Receive _ p n ->
        Descriptors.watchOf (descriptors u) d >>= \case
          Nothing -> do
            tried <- tryFirst u d op
            stands <- if tried == Sys.wouldBlock then mayWatch u d else pure False
            if stands then beginWatch u d p n op done else answer tried
          Just key ->
            Slots.lookup (watches u) key >>= maybe (pure Nothing) (\w -> receiveWatched u w p n op done) >>= maybe (anyhow d) pure
      _ -> anyhow d
    anyhow d = tryFirst u d op >>= answer
    answer tried
      | tried >= -4095, tried /= Sys.wouldBlock = pure tried
      | otherwise = start tried
    start tried = do
      let s = firstStage op tried
      key <- Slots.insert (table u) (Pending Wanted s op done)
      retainAll u op
      queueOperation u key s op
      pure (pending (Token (keyNumber key)))

-- | Try the operation unless it would likely have to wait. A short read says that it took all there
-- was, a short write that it left no room; what happened since, the end of the stream included, the
-- ring sees as soon as it is asked.
tryFirst :: Uring w -> Descriptor -> Operation -> IO Int
tryFirst u d op = case op of
  -- An operation that only waits was most often tried already.
  Await {} -> pure Sys.wouldBlock
  _ -> withHint op (attempt op) $ \_ hint n -> do
    waits <- Descriptors.hasFlag hint (descriptors u) d
    if waits
      then pure Sys.wouldBlock
      else do
        r <- attempt op
        when (r > 0 && r < n) $ Descriptors.setFlag hint True (descriptors u) d
        pure r

-- | Remember what the result of a transfer that waited says about the next one.
learn :: Uring w -> Operation -> Int -> IO ()
learn u op r = withHint op (pure ()) $ \d hint n -> Descriptors.setFlag hint (r > 0 && r < n) (descriptors u) d

-- | The descriptor of a transfer, what may be remembered about it, and its length.
withHint :: Operation -> r -> (Descriptor -> Descriptors.Flag -> Int -> r) -> r
withHint op none f = case op of
  Receive d _ n -> f d Descriptors.Drained n
  ReadStream d _ n -> f d Descriptors.Drained n
  Send d _ n -> f d Descriptors.Filled n
  WriteStream d _ n -> f d Descriptors.Filled n
  _ -> none

queueOperation :: Uring w -> SlotKey -> Stage -> Operation -> IO ()
queueOperation u key s op =
  queue u (QueuedOperation key) (submission s op (ring u) key)

-- | Submit what is in the backlog, as far as there is room. Answers how many completions ran, of
-- cancelled operations.
drainBacklog :: Uring w -> IO Int
drainBacklog u = go 0
  where
    go !ran =
      readIORef (backlog u) >>= \case
        Empty -> pure ran
        q :<| rest -> do
          -- Taken off first: a completion may change the backlog.
          writeIORef (backlog u) rest
          submitQueued q >>= \case
            Just n -> go (ran + n)
            Nothing -> ran <$ modifyIORef' (backlog u) (q :<|)
    submitQueued = \case
      QueuedCancel key -> pushed (Ring.cancelOne key (ring u))
      QueuedCancelDescriptor fd -> pushed (Ring.cancelDescriptor fd (ring u))
      QueuedWatchEnd key -> pushed (Ring.cancelWatch key (ring u))
      QueuedWatch key ->
        Slots.lookup (watches u) key >>= \case
          Nothing -> pure (Just 0)
          Just w ->
            ifM (isOver u (watched w)) (Just <$> endWatch u key w Sys.canceled) (pushed (submitWatch u key w))
      QueuedOperation key ->
        Slots.lookup (table u) key >>= \case
          Nothing -> pure (Just 0)
          Just p -> do
            wanted <- presentCancelState u p
            case wanted of
              Cancelled -> Just 1 <$ retire u key p Sys.canceled
              Wanted -> pushed (submission (stage p) (operation p) (ring u) key)
    pushed act = (\ok -> if ok then Just 0 else Nothing) <$> act

pollRing :: Uring w -> PollLimit -> IO Int
pollRing u t = do
  ran <- readIORef (backlog u) >>= \waiting -> if null waiting then pure 0 else drainBacklog u
  stuck <- not . null <$> readIORef (backlog u)
  n <-
    if t == noWait || ran > 0 || stuck
      then Ring.turn (ring u)
      else Ring.wait (ring u) t
  collect u ran n

-- Note [Portions of completions]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A poll handles at most 16 completions, as with epoll (Note [Events in portions] in
-- "Weft.Internal.Backend.Readiness"). While there are completions in our memory, a poll enters the kernel
-- only to hand something over, and does not block.

-- | Handle the given number of events, after some completions.
collect :: Uring w -> Int -> Int -> IO Int
collect u before n
  | n < 0 = ioError (errnoToIOError "io_uring_enter" (Errno (fromIntegral (negate n))) Nothing Nothing)
  | otherwise = each 0 before
  where
    each !i !ran
      | i == n = pure ran
      | otherwise = do
          k <- Ring.event (ring u) i $ \case
            Ring.Completed key r -> advance u key r
            Ring.Seen key r flags -> seen u key r flags
            Ring.Missed key -> 0 <$ cancelAgain u key
            Ring.Swept number found -> 0 <$ swept u number found
          each (i + 1) (ran + k)

-- | A stage of an operation has completed. Answers how many completions ran.
advance :: Uring w -> SlotKey -> Int -> IO Int
advance u key result =
  Slots.lookup (table u) key >>= \case
    Nothing -> pure 0
    Just p -> do
      wanted <- presentCancelState u p
      after wanted (stage p) (operation p) result >>= \case
        Deliver r -> 1 <$ retire u key p r
        Continue s -> do
          _ <- Slots.replace (table u) key p {stage = s}
          queueOperation u key s (operation p)
          pure 0

-- | The operation has ended: its key dies, its completion runs, and what waited for it to end is done.
retire :: Uring w -> SlotKey -> Pending w -> Int -> IO ()
retire u key p r | Watching w <- stage p = endWait u w key p r
retire u key p r = do
  _ <- Slots.take (table u) key
  learn u (operation p) r
  complete (completion p) r
  withDescriptors (operation p) (pure ()) $ \d file -> do
    releaseOne u d
    for_ file (releaseOne u)
{-# INLINE retire #-}

-- | How long 'shutdown' waits for the kernel to give everything back: only disks and network file
-- systems take long.
patience :: Integer
patience = 5_000_000_000

shutdownRing :: Uring w -> IO ()
shutdownRing u = do
  unlessM (readIORef (isStopped u)) $ do
    writeIORef (isStopped u) True
    Ring.quiesce (ring u)
    start <- getMonotonicTimeNSec
    reaped <- reap (toInteger start + patience)
    -- The kernel may still write to memory that these operations own: it must never be reused.
    unless reaped $ void (newStablePtr (table u))
    Ring.close (ring u)
  where
    reap deadline = do
      _ <- drainBacklog u
      left <- (+) <$> Slots.size (table u) <*> Slots.size (watches u)
      quiet <- Ring.isQuiet (ring u)
      now <- toInteger <$> getMonotonicTimeNSec
      if
        | left == 0 && quiet -> pure True
        | now >= deadline -> pure False
        | otherwise -> do
            _ <- Ring.cancelAll (ring u)
            -- Asked again: a request that was being retried when all were cancelled may have been missed.
            n <- Ring.wait (ring u) 50_000_000
            if n < 0 then pure False else collect u 0 n >> reap deadline
