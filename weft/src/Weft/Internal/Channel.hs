{-# OPTIONS_GHC -O2 #-}
-- Taking control blocks apart, to pass their fields, builds them anew wherever a thread
-- is parked: 80 bytes. (As in "Weft.Internal.Scheduler".)
{-# OPTIONS_GHC -fno-spec-constr #-}

-- |
-- Description : How "Weft.Channel" works
-- Stability   : not home
--
-- The states of a variable, and the operations, each a change of one. See
-- Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.Channel
  ( Channel (..),
    State (..),
    newChannel,
    newChannelNamed,
    newUnboundedChannel,
    newUnboundedChannelNamed,

    -- * Sending and receiving
    send,
    receive,

    -- ** Without waiting
    trySend,
    tryReceive,
    Received (..),

    -- * The end
    close,
    ChannelClosed (..),

    -- * Looking
    waitingValues,
  )
where

import Control.Exception (ErrorCall (..), Exception (..), toException)
import Control.Monad (unless, when)
import Control.Monad.Catch (throwM)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Atomic
import Weft.Internal.Park
import Weft.Internal.Sync
import Weft.Internal.Trace
import Weft.Internal.WaitQueue

-- | A queue of values.
data Channel a = Channel
  { channelState :: {-# UNPACK #-} !(MutVar RealWorld (State a)),
    -- | How many values may wait.
    channelRoom :: {-# UNPACK #-} !Int,
    channelName :: !Name
  }

-- | The same channel.
instance Eq (Channel a) where
  a == b = channelState a == channelState b

-- | The values that wait, and who waits.
data State a
  = -- | Values (how many, the front, the back reversed); nobody waits.
    Holding !Int [a] [a]
  | -- | No values; receivers, at least one (some may have been cancelled).
    Hungry !(Queue (Waiter (Maybe a)))
  | -- | As many values as there may be; senders, at least one (some may have been
    -- cancelled).
    Crowded !Int [a] [a] !(Queue (Sender a))
  | -- | A sender is being asked whether it still wants to. Note [Synchronization] in
    -- "Weft.Internal.Sync".
    Busy
  | -- | Closed, with what was sent before.
    Closed [a]

-- | Who waits to send a value.
data Sender a = Sender a !(Waiter ())

-- | Sent to a channel that was closed. The value was not sent.
newtype ChannelClosed = ChannelClosed String
  deriving stock (Eq, Show)

instance Exception ChannelClosed where
  displayException (ChannelClosed which) = "send to " <> which <> ", which is closed"

-- | An empty channel in which so many values may wait; then senders wait.
--
-- Throws 'ErrorCall' if the number is less than 1.
newChannel :: Int -> Thread (Channel a)
newChannel = newChannelNamed mempty

-- | The same with a label, for reports.
newChannelNamed :: Text -> Int -> Thread (Channel a)
newChannelNamed text room = do
  when (room < 1) $ throwM (ErrorCall "Weft.Channel.newChannel: there must be room for one value at least")
  effect (make text room)

-- | An empty channel in which any number of values may wait. Senders never wait, so
-- nothing holds them back when receivers are slower: prefer a bound.
newUnboundedChannel :: Thread (Channel a)
newUnboundedChannel = newUnboundedChannelNamed mempty

-- | The same with a label, for reports.
newUnboundedChannelNamed :: Text -> Thread (Channel a)
newUnboundedChannelNamed text = effect (make text maxBound)

make :: Text -> Int -> IO (Channel a)
make text room = do
  name <- newName text
  state <- newShared (Holding 0 [] [])
  pure (Channel state room name)

-- | Send a value; wait while there is no room. Cancellable while it waits; who is
-- cancelled has sent nothing. The value is not evaluated.
--
-- Throws 'ChannelClosed' if the channel is closed, now or while this waits.
send :: Channel a -> a -> Thread ()
send c a = attempt $ \home tcb k ->
  sendNow c (homeWorker home) a (sendLater c a home tcb k) (pure (throwTrace (closed c))) (pure (k ()))

sendLater :: Channel a -> a -> Home -> Tcb -> (() -> Trace) -> IO Trace
sendLater c@(Channel var _ name) a home tcb k =
  waitFor home tcb (waiting "channel" name "to send") k (\waiter -> newEntry (Sender a waiter) >>= queueUp (homeWorker home) waiter)
  where
    join here waiter entry =
      sendNow c here a (queueUp here waiter entry) (answer here waiter (Failed (toException (closed c)))) (answer here waiter (Answered ()))
    answer here waiter outcome = pure () <$ deliverFrom waiter here outcome
    queueUp here waiter entry = look var $ \seen -> \case
      Holding n front back | n >= channelRoom c -> swapFor var seen (Crowded n front back (enqueue entry emptyQueue)) >>= done
      Crowded n front back senders -> swapFor var seen (Crowded n front back (enqueue entry senders)) >>= done
      _ -> join here waiter entry
      where
        done ours = if ours then pure (bury entry >> leave) else join here waiter entry
    leave = look var $ \seen -> \case
      Crowded n front back senders -> do
        left <- afterBurial senders
        ours <- swapFor var seen (if isEmpty left then Holding n front back else Crowded n front back left)
        unless ours leave
      Busy -> relax >> leave
      _ -> pure ()
{-# OPAQUE sendLater #-}

closed :: Channel a -> ChannelClosed
closed = ChannelClosed . describeName "channel" . channelName

-- | Send if there is room; the worker's index, the value, what to do if there is no
-- room, if the channel is closed, and if it was sent.
sendNow :: Channel a -> Int -> a -> IO r -> IO r -> IO r -> IO r
sendNow (Channel var room _) here a full shut done = again
  where
    again = look var $ \seen -> \case
      Holding n front back
        | n < room -> do
            ours <- swapFor var seen (Holding (n + 1) front (a : back))
            if ours then done else again
        | otherwise -> full
      Hungry _ -> do
        served <- serve var here a
        if served then done else again
      Crowded {} -> full
      Busy -> relax >> again
      Closed _ -> shut
{-# INLINE sendNow #-}

-- | Give the value to the first receiver that waits. False: try again, we still have
-- it.
serve :: MutVar RealWorld (State a) -> Int -> a -> IO Bool
serve var here a = look var $ \seen -> \case
  Hungry receivers -> dequeue receivers (False <$ swapFor var seen (Holding 0 [] [])) $ \entry rest -> do
    ours <- swapFor var seen (if isEmpty rest then Holding 0 [] [] else Hungry rest)
    -- False if the receiver was cancelled.
    if ours then wake here (Just a) entry else pure False
  _ -> pure False
{-# OPAQUE serve #-}

-- | Receive the value that was sent first; wait for one while there is none.
-- 'Nothing' when the channel is closed and empty. Cancellable while it waits; who is
-- cancelled has received nothing.
receive :: Channel a -> Thread (Maybe a)
receive c = attempt $ \home tcb k ->
  receiveNow c (homeWorker home) (receiveLater c home tcb k) (pure (k Nothing)) (pure . k . Just)

receiveLater :: Channel a -> Home -> Tcb -> (Maybe a -> Trace) -> IO Trace
receiveLater c@(Channel var _ name) home tcb k =
  waitFor home tcb (waiting "channel" name "to receive") k (\waiter -> newEntry waiter >>= queueUp (homeWorker home) waiter)
  where
    join here waiter entry =
      receiveNow c here (queueUp here waiter entry) (answer here waiter Nothing) (answer here waiter . Just)
    answer here waiter a = pure () <$ deliverFrom waiter here (Answered a)
    queueUp here waiter entry = look var $ \seen -> \case
      Holding 0 _ _ -> swapFor var seen (Hungry (enqueue entry emptyQueue)) >>= done
      Hungry receivers -> swapFor var seen (Hungry (enqueue entry receivers)) >>= done
      _ -> join here waiter entry
      where
        done ours = if ours then pure (bury entry >> leave) else join here waiter entry
    leave = look var $ \seen -> \case
      Hungry receivers -> do
        left <- afterBurial receivers
        ours <- swapFor var seen (if isEmpty left then Holding 0 [] [] else Hungry left)
        unless ours leave
      _ -> pure ()
{-# OPAQUE receiveLater #-}

-- | Receive if there is a value; what to do if there is none, if there never will be
-- one, and with the value.
receiveNow :: Channel a -> Int -> IO r -> IO r -> (a -> IO r) -> IO r
receiveNow (Channel var room _) here none ended use = again
  where
    again = look var $ \seen -> \case
      Holding n front back -> first front back none $ \a front' back' -> do
        ours <- swapFor var seen (Holding (n - 1) front' back')
        if ours then use a else again
      Hungry _ -> none
      Crowded n front back senders -> first front back none $ \a front' back' -> do
        ours <- swapFor var seen Busy
        if ours then refill var room here (n - 1) front' back' senders >> use a else again
      Busy -> relax >> again
      Closed [] -> ended
      Closed (a : rest) -> do
        ours <- swapFor var seen (Closed rest)
        if ours then use a else again
{-# INLINE receiveNow #-}

-- | The first of a front and a back.
first :: [a] -> [a] -> r -> (a -> [a] -> [a] -> r) -> r
first front back none use = case front of
  a : front' -> use a front' back
  [] -> case reverse back of
    a : front' -> use a front' []
    [] -> none
{-# INLINE first #-}

-- | The channel is ours (Busy) and there is room: senders that still wait send.
refill :: MutVar RealWorld (State a) -> Int -> Int -> Int -> [a] -> [a] -> Queue (Sender a) -> IO ()
refill var room here = go
  where
    go n front back senders
      | n >= room = publish var (if isEmpty senders then Holding n front back else Crowded n front back senders)
      | otherwise = dequeue senders (publish var (Holding n front back)) $ \entry rest ->
          occupant entry >>= \case
            Nothing -> go n front back rest
            Just (Sender a waiter) -> do
              delivered <- deliverFrom waiter here (Answered ())
              if delivered then go (n + 1) front (a : back) rest else go n front back rest
{-# OPAQUE refill #-}

-- | Send a value if there is room: true. Never waits.
--
-- Throws 'ChannelClosed' if the channel is closed.
trySend :: Channel a -> a -> Thread Bool
trySend c a = attempt $ \home _ k ->
  sendNow c (homeWorker home) a (pure (k False)) (pure (throwTrace (closed c))) (pure (k True))

-- | What there was to receive.
data Received a
  = Received a
  | -- | Nothing yet.
    NotYet
  | -- | Nothing ever: the channel is closed and empty.
    EndOfChannel
  deriving stock (Eq, Show, Functor)

-- | Receive the value that was sent first, if there is one. Never waits.
tryReceive :: Channel a -> Thread (Received a)
tryReceive c = attempt $ \home _ k ->
  receiveNow c (homeWorker home) (pure (k NotYet)) (pure (k EndOfChannel)) (pure . k . Received)

-- | Close the channel. What was sent before can be received; then receivers get
-- 'Nothing', those that wait at once. Senders fail, those that wait at once too.
-- Closing again does nothing. Neither waits nor notices a cancellation.
close :: Channel a -> Thread ()
close c@(Channel var _ _) = immediate (\home _ k -> k () <$ go (homeWorker home))
  where
    go here = look var $ \seen -> \case
      Holding _ front back -> shut here seen (front <> reverse back) (pure ())
      Hungry receivers -> shut here seen [] (wakeAll here Nothing receivers)
      Crowded _ front back senders -> shut here seen (front <> reverse back) (refuse here senders)
      Busy -> relax >> go here
      Closed _ -> pure ()
    shut here seen left after = do
      ours <- swapFor var seen (Closed left)
      if ours then after else go here
    refuse here senders = dequeue senders (pure ()) $ \entry rest -> do
      occupant entry >>= mapM_ (\(Sender _ waiter) -> deliverFrom waiter here (Failed (toException (closed c))))
      refuse here rest

-- | How many values wait to be received. Perhaps not any more when this returns.
waitingValues :: Channel a -> Thread Int
waitingValues (Channel var _ _) = effect go
  where
    go =
      readMutVar var >>= \case
        Holding n _ _ -> pure n
        Crowded n _ _ _ -> pure n
        Hungry _ -> pure 0
        Closed left -> pure (length left)
        Busy -> relax >> go
