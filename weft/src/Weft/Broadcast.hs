{-# OPTIONS_GHC -O2 #-}

-- |
-- Broadcasts: every subscriber gets every message, for news, changes of configuration, chat rooms.
--
-- >>> import Weft
-- >>> :{
-- run $ do
--   news <- newBroadcast 2
--   quick <- subscribe news
--   publish news "one"
--   one <- nextMessage quick
--   mapM_ (publish news) ["two", "three", "four"]
--   late <- nextMessage quick
--   two <- nextMessage quick
--   pure (one, late, two)
-- :}
-- (Just (Message "one"),Just (Missed 1),Just (Message "three"))
--
-- Publishing never waits, and memory is bounded: the last messages are kept, as many as 'newBroadcast' says,
-- with or without listeners, and a subscriber that is further back misses the oldest and is told how many
-- ('Missed'). Where none may miss anything, use a 'Weft.Channel.Channel' for each.
--
-- A subscription costs a word. A broadcast belongs to one run.
module Weft.Broadcast
  ( Broadcast,
    newBroadcast,
    newBroadcastNamed,
    publish,
    close,
    ChannelClosed (..),

    -- * Subscribing
    Subscription,
    subscribe,
    Message (..),
    nextMessage,
    onMessage,
  )
where

import Control.Exception (ErrorCall (..))
import Control.Monad (when)
import Control.Monad.Catch (throwM)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import Data.Sequence (Seq, ViewL (..), viewl, (|>))
import Data.Sequence qualified as Seq
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync hiding (publish)
import Weft.Internal.Sync.Channel (ChannelClosed (..))
import Weft.Internal.Sync.Choice

-- A subscription is the number of its next message: a broadcast does not know it, and it needs no clean-up.

-- | Sends every message to all that have subscribed.
data Broadcast a = Broadcast
  { broadcastState :: {-# UNPACK #-} !(MutVar RealWorld (BroadcastState a)),
    -- | How many messages are kept.
    _broadcastRoom :: {-# UNPACK #-} !Int,
    _broadcastName :: !Name,
    broadcastBlockedOn :: !BlockedOn
  }

instance Eq (Broadcast a) where
  a == b = broadcastState a == broadcastState b

-- | The number of the oldest message that is kept, and these; the threads that wait for the next one.
data BroadcastState a
  = Open !Int !(Seq a) !(WaitQueue () (NextMessage a))
  | Closed !Int !(Seq a)

-- | A subscriber's next message; 'Nothing' within for the end, 'Nothing' for "look again", as waiters do.
type NextMessage a = Maybe (Maybe (Message a))

-- | The number of the message that comes next.
upcoming :: BroadcastState a -> Int
upcoming = \case
  Open first kept _ -> first + Seq.length kept
  Closed first kept -> first + Seq.length kept

-- | The view of one thread on a broadcast, for one thread at a time.
data Subscription a = Subscription !(Broadcast a) {-# UNPACK #-} !(PrimVar RealWorld Int)

-- | A message, for a subscriber.
data Message a
  = -- | The next message.
    Message a
  | -- | So many messages were dropped because this subscriber was slower; next comes the oldest that is kept.
    Missed !Int
  deriving stock (Eq, Show, Functor)

-- | A broadcast that keeps the given number of messages for slow subscribers.
--
-- Throws 'ErrorCall' if the number is less than 1.
newBroadcast :: Int -> Thread (Broadcast a)
newBroadcast = newBroadcastNamed mempty

-- | A broadcast with a label, for reports.
newBroadcastNamed :: Text -> Int -> Thread (Broadcast a)
newBroadcastNamed text room = do
  when (room < 1) $ throwM (ErrorCall "Weft.Broadcast.newBroadcast: there must be room for one message at least")
  internal $ \home _ -> do
    name <- newName home text
    state <- newShared (Open 0 Seq.empty emptyQueue)
    pure (Broadcast state room name (waiting "broadcast" name "for the next message"))

-- | Send a message to all that have subscribed. Never waits. The message is not evaluated.
--
-- Throws 'ChannelClosed' if the broadcast is closed.
publish :: Broadcast a -> a -> Thread ()
publish (Broadcast var room name blockedOn) a = attempt (using "publish to" blockedOn) $ \home _ _ -> go home
  where
    go here = look var $ \seen -> \case
      Closed _ _ -> pure (Instead (throwTrace (ChannelClosed (describeName "broadcast" name))))
      Open first kept waiters -> do
        let new = case viewl kept of
              _ :< rest | Seq.length kept >= room -> Open (first + 1) (rest |> a) emptyQueue
              _ -> Open first (kept |> a) emptyQueue
        ifM (swapFor here var seen new) (Got () <$ wakeAll here Nothing waiters) (go here)

-- | Close it. Subscribers get what was published before, and then the end, those that wait at once.
-- Closing again does nothing. Neither waits nor notices a cancellation.
close :: Broadcast a -> Thread ()
close (Broadcast var _ _ blockedOn) = immediate (using "close" blockedOn) $ \here ->
  changing here var shut >>= wakeAll here Nothing
  where
    shut = \case
      Open first kept waiters -> (Closed first kept, waiters)
      closed -> (closed, emptyQueue)

-- | Hear what is published from now on.
subscribe :: Broadcast a -> Thread (Subscription a)
subscribe b = immediate (using "subscribe to" (broadcastBlockedOn b)) $ \_ -> do
  state <- readMutVar (broadcastState b)
  Subscription b <$> newPrimVar (upcoming state)

-- | The next message, or how many were missed; wait until there is one. 'Nothing' when the broadcast is
-- closed and all was read. Cancellable; a thread that is cancelled has read nothing.
nextMessage :: Subscription a -> Thread (Maybe (Message a))
nextMessage subscription = select [onMessage subscription]

-- | To get the next message, as 'nextMessage' does.
onMessage :: Subscription a -> Choice (Maybe (Message a))
onMessage subscription@(Subscription (Broadcast var _ _ blockedOn) position) =
  -- It is there, unless the subscription is shared against the rule.
  Choice blockedOn "listen to" (const now) () join (maybe (nextMessage subscription) pure)
  where
    -- Only the subscriber changes its position.
    now = do
      mine <- readPrimVar position
      readMutVar var >>= \case
        Open first kept _ -> found mine first kept Later
        Closed first kept -> found mine first kept (Got (Just Nothing))
    found mine first kept none
      | mine < first = Got (Just (Just (Missed (first - mine)))) <$ writePrimVar position first
      | Just a <- Seq.lookup (mine - first) kept = Got (Just (Just (Message a))) <$ writePrimVar position (mine + 1)
      | otherwise = pure none
    join home waiter = do
      mine <- readPrimVar position
      look var $ \seen -> \case
        Open first kept waiters
          | mine == first + Seq.length kept ->
              ifM (swapFor home var seen (Open first kept (enqueue waiter waiters))) (pure (Just leave)) (pure Nothing)
        _ -> pure Nothing
    leave here = change here var $ \case
      Open first kept waiters -> Open first kept <$> afterRemoval waiters
      closed -> pure closed
