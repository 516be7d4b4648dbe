-- Or control blocks would be rebuilt wherever a thread parks ("Weft.Internal.Core.Scheduler").
{-# OPTIONS_GHC -O2 -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.Channel" works: Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.Sync.Channel
  ( Channel (..),
    ChannelState (..),
    newChannel,
    newChannelNamed,
    newUnboundedChannel,
    newUnboundedChannelNamed,
    send,
    receive,
    trySend,
    tryReceive,
    Received (..),
    onReceive,
    onSend,
    close,
    ChannelClosed (..),
    waitingValues,
  )
where

import Control.Exception (ErrorCall (..), Exception (..), toException)
import Control.Monad (when)
import Control.Monad.Catch (throwM)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync
import Weft.Internal.Sync.Choice

-- | A queue of values.
data Channel a = Channel
  { channelState :: {-# UNPACK #-} !(MutVar RealWorld (ChannelState a)),
    -- | How many values may wait.
    channelRoom :: {-# UNPACK #-} !Int,
    channelSend :: !(Primitive a ()),
    channelReceive :: !(Primitive () (Maybe a)),
    channelName :: !Name,
    -- | The objects of waits to send and to receive. Made when needed first.
    blockedSend, blockedReceive :: BlockedOn
  }

instance Eq (Channel a) where
  a == b = channelState a == channelState b

data ChannelState a
  = -- | Values (how many, the front, the back reversed); no waiter.
    Holding !Int [a] [a]
  | -- | No values; receivers, at least one (some may have been cancelled).
    Hungry !(WaitQueue () (Maybe a))
  | -- | As many values as there may be; at least one sender (perhaps cancelled).
    Crowded !Int [a] [a] !(WaitQueue a ())
  | -- | A sender is asked whether it still wants to: Note [Synchronization] in "Weft.Internal.Sync".
    Busy
  | -- | Closed, with what was sent before.
    Closed [a]

-- | Sent to a channel that was closed. The value was not sent.
newtype ChannelClosed = ChannelClosed String
  deriving stock (Eq)

instance Show ChannelClosed where
  show (ChannelClosed which) = "send to " <> which <> ", which is closed"

instance Exception ChannelClosed

-- | An empty channel in which the given number of values may wait; then senders wait.
--
-- Throws 'ErrorCall' if the number is less than 1.
newChannel :: Int -> Thread (Channel a)
newChannel = newChannelNamed mempty

-- | 'newChannel' with a label, for reports.
newChannelNamed :: Text -> Int -> Thread (Channel a)
newChannelNamed text room = do
  when (room < 1) $ throwM (ErrorCall "Weft.Channel.newChannel: there must be room for one value at least")
  internal (\home _ -> make home text room)

-- | An empty channel in which any number of values may wait. Senders never wait, so
-- nothing holds them back when receivers are slower: prefer a bound.
newUnboundedChannel :: Thread (Channel a)
newUnboundedChannel = newUnboundedChannelNamed mempty

-- | 'newUnboundedChannel' with a label, for reports.
newUnboundedChannelNamed :: Text -> Thread (Channel a)
newUnboundedChannelNamed text = internal (\home _ -> make home text maxBound)

make :: Home -> Text -> Int -> IO (Channel a)
make home text room = do
  name <- newName home text
  state <- newShared (Holding 0 [] [])
  let c =
        Channel
          state
          room
          (primitive (sendAct c) True (using "send to" (blockedSend c)))
          (primitive (receiveAct c) True (using "receive from" (blockedReceive c)))
          name
          (waiting "channel" name "to send")
          (waiting "channel" name "to receive")
  pure c

-- | Send a value; wait while there is no room. Cancellable while it waits; a cancelled
-- thread has sent nothing. The value is not evaluated.
--
-- Throws 'ChannelClosed' if the channel is closed, now or while this waits.
send :: Channel a -> a -> Thread ()
send c = Thread . Perform (channelSend c)
{-# INLINE send #-}

sendAct :: Channel a -> Here -> a -> Resume -> IO (Tried ())
sendAct c = \here a k -> look (channelState c) $ \seen -> \case
  Holding n front back
    | n < channelRoom c ->
        ifM (swapFor (hereHome here) (channelState c) seen (Holding (n + 1) front (a : back))) (pure (Got ())) (sendLater c here a k)
  _ -> sendLater c here a k

sendLater :: Channel a -> Here -> a -> Resume -> IO (Tried ())
sendLater c@Channel {channelState = var} here a k =
  sendNow c home a park (pure (Instead (throwTrace (closed c)))) (pure (Got ()))
  where
    home = hereHome here
    park = currentTcb here >>= \tcb -> waitFor home tcb (blockedSend c) a k queueUp
    join waiter =
      sendNow c home a (queueUp waiter) (pure () <$ refuse home waiter (toException (closed c))) (pure () <$ answer home waiter ())
    queueUp waiter = queueToSend c home waiter (pure (leaveCrowded var home)) (join waiter)

-- | Join those that wait to send; what to do when that is done, and if the state has changed.
queueToSend :: Channel a -> Home -> ParkedThread a () -> IO r -> IO r -> IO r
queueToSend Channel {channelState = var, channelRoom = room} home waiter joined changed = look var $ \seen -> \case
  Holding n front back | n >= room -> ifM (swapFor home var seen (Crowded n front back (enqueue waiter emptyQueue))) joined changed
  Crowded n front back senders -> ifM (swapFor home var seen (Crowded n front back (enqueue waiter senders))) joined changed
  _ -> changed

leaveCrowded :: MutVar RealWorld (ChannelState a) -> Home -> IO ()
leaveCrowded var here = leave
  where
    leave = look var $ \seen -> \case
      Crowded n front back senders -> do
        left <- afterRemoval senders
        unlessM (swapFor here var seen (if isEmpty left then Holding n front back else Crowded n front back left)) leave
      Busy -> relax >> leave
      _ -> pure ()

closed :: Channel a -> ChannelClosed
closed = ChannelClosed . describeName "channel" . channelName

-- | Send if there is room; what to do if there is none, if it is closed, and if it was sent.
sendNow :: Channel a -> Home -> a -> IO r -> IO r -> IO r -> IO r
sendNow Channel {channelState = var, channelRoom = room} here a full shut done = again
  where
    again = look var $ \seen -> \case
      Holding n front back
        | n < room -> ifM (swapFor here var seen (Holding (n + 1) front (a : back))) done again
        | otherwise -> full
      Hungry _ -> ifM (serve var here a) done again
      Crowded {} -> full
      Busy -> relax >> again
      Closed _ -> shut
{-# INLINE sendNow #-}

-- | Give the value to the first receiver that waits. False: try again, we still have it.
serve :: MutVar RealWorld (ChannelState a) -> Home -> a -> IO Bool
serve var here a = look var $ \seen -> \case
  -- False if the receiver was cancelled.
  Hungry receivers -> dequeue receivers (False <$ swapFor here var seen (Holding 0 [] [])) $ \waiter rest ->
    swapFor here var seen (if isEmpty rest then Holding 0 [] [] else Hungry rest) &&^ answer here waiter (Just a)
  _ -> pure False

-- | Receive the value that was sent first; wait for one while there is none.
-- 'Nothing' when the channel is closed and empty. Cancellable while it waits; a thread that is
-- cancelled has received nothing.
receive :: Channel a -> Thread (Maybe a)
receive c = Thread (Perform (channelReceive c) ())
{-# INLINE receive #-}

receiveAct :: Channel a -> Here -> () -> (Maybe a -> Trace) -> IO (Tried (Maybe a))
receiveAct c = \here _ k -> look (channelState c) $ \seen -> \case
  Holding n (a : front) back ->
    ifM (swapFor (hereHome here) (channelState c) seen (Holding (n - 1) front back)) (pure (Got (Just a))) (receiveLater c here k)
  _ -> receiveLater c here k

receiveLater :: Channel a -> Here -> (Maybe a -> Trace) -> IO (Tried (Maybe a))
receiveLater c@Channel {channelState = var} here k =
  receiveNow c home park (pure (Got Nothing)) (pure . Got . Just)
  where
    home = hereHome here
    park = currentTcb here >>= \tcb -> waitFor home tcb (blockedReceive c) () k queueUp
    join waiter = receiveNow c home (queueUp waiter) (reply waiter Nothing) (reply waiter . Just)
    reply waiter a = pure () <$ answer home waiter a
    queueUp waiter = queueToReceive var home waiter (pure (leaveHungry var home)) (join waiter)

-- | Join those that wait to receive; what to do when that is done, and if the state has changed.
queueToReceive :: MutVar RealWorld (ChannelState a) -> Home -> ParkedThread () (Maybe a) -> IO r -> IO r -> IO r
queueToReceive var home waiter joined changed = look var $ \seen -> \case
  Holding 0 _ _ -> ifM (swapFor home var seen (Hungry (enqueue waiter emptyQueue))) joined changed
  Hungry receivers -> ifM (swapFor home var seen (Hungry (enqueue waiter receivers))) joined changed
  _ -> changed
{-# INLINE queueToReceive #-}

leaveHungry :: MutVar RealWorld (ChannelState a) -> Home -> IO ()
leaveHungry var here = change here var $ \case
  Hungry receivers -> (\left -> if isEmpty left then Holding 0 [] [] else Hungry left) <$> afterRemoval receivers
  other -> pure other

-- | Receive; what to do if there is no value, if there never will be one, and with the value.
receiveNow :: Channel a -> Home -> IO r -> IO r -> (a -> IO r) -> IO r
receiveNow Channel {channelState = var, channelRoom = room} here none ended use = again
  where
    again = look var $ \seen -> \case
      Holding n front back -> first front back none $ \a front' back' ->
        ifM (swapFor here var seen (Holding (n - 1) front' back')) (use a) again
      Hungry _ -> none
      Crowded n front back senders -> first front back none $ \a front' back' ->
        ifM (swapFor here var seen Busy) (refill var room here (n - 1) front' back' senders >> use a) again
      Busy -> relax >> again
      Closed [] -> ended
      Closed (a : rest) -> ifM (swapFor here var seen (Closed rest)) (use a) again
{-# INLINE receiveNow #-}

-- | The first of a front and a back.
first :: [a] -> [a] -> r -> (a -> [a] -> [a] -> r) -> r
first front back none use = case front of
  a : front' -> use a front' back
  [] -> case reverse back of
    a : front' -> use a front' []
    [] -> none

-- | The channel is ours (Busy) and there is room: senders that still wait send.
refill :: MutVar RealWorld (ChannelState a) -> Int -> Home -> Int -> [a] -> [a] -> WaitQueue a () -> IO ()
refill var room here = go
  where
    go n front back senders
      | n >= room = publish var (if isEmpty senders then Holding n front back else Crowded n front back senders)
      | otherwise = dequeue senders (publish var (Holding n front back)) $ \waiter rest ->
          offered waiter >>= \case
            Nothing -> go n front back rest
            Just a -> ifM (answer here waiter ()) (go (n + 1) front (a : back) rest) (go n front back rest)

-- | Send a value if there is room: true. Never waits.
--
-- Throws 'ChannelClosed' if the channel is closed.
trySend :: Channel a -> a -> Thread Bool
trySend c a = attempt (using "try to send to" (blockedSend c)) $ \home _ _ ->
  sendNow c home a (pure (Got False)) (pure (Instead (throwTrace (closed c)))) (pure (Got True))

-- | The answer of 'tryReceive'.
data Received a
  = Received a
  | -- | Nothing yet.
    NotYet
  | -- | Nothing ever: the channel is closed and empty.
    EndOfChannel
  deriving stock (Eq, Show, Functor)

-- | Receive the value that was sent first, if there is one. Never waits.
tryReceive :: Channel a -> Thread (Received a)
tryReceive c = attempt (using "try to receive from" (blockedReceive c)) $ \home _ _ ->
  receiveNow c home (pure (Got NotYet)) (pure (Got EndOfChannel)) (pure . Got . Received)

-- | Close the channel. Receivers get the values that were sent before, and then 'Nothing', those
-- that wait at once. Senders fail, those that wait too. Closing again does nothing. Neither waits
-- nor notices a cancellation.
close :: Channel a -> Thread ()
close c@Channel {channelState = var} = immediate (using "close" (blockedSend c)) go
  where
    go here = look var $ \seen -> \case
      Holding _ front back -> shut here seen (front <> reverse back) (pure ())
      Hungry receivers -> shut here seen [] (wakeAll here Nothing receivers)
      Crowded _ front back senders -> shut here seen (front <> reverse back) (refuseAll here senders)
      Busy -> relax >> go here
      Closed _ -> pure ()
    shut here seen left after = ifM (swapFor here var seen (Closed left)) after (go here)
    refuseAll here senders = dequeue senders (pure ()) $ \waiter rest -> refuse here waiter (toException (closed c)) >> refuseAll here rest

-- | To receive, as 'receive' does.
onReceive :: Channel a -> Choice (Maybe a)
onReceive c@Channel {channelState = var} =
  choiceOf (blockedReceive c) "receive from" (\home -> receiveNow c home (pure Later) (pure (Got Nothing)) (pure . Got . Just)) () (queueToReceive var) (leaveHungry var)

-- | To send this value, as 'send' does. If another is chosen, it was not sent.
--
-- 'Weft.Select.select' throws 'ChannelClosed' if the channel is closed, now or while it waits.
onSend :: Channel a -> a -> Choice ()
onSend c@Channel {channelState = var} a =
  choiceOf (blockedSend c) "send to" (\home -> sendNow c home a (pure Later) (pure (Instead (throwTrace (closed c)))) (pure (Got ()))) a (queueToSend c) (leaveCrowded var)

-- | How many values wait to be received. Perhaps not any more when this returns.
waitingValues :: Channel a -> Thread Int
waitingValues c = immediate (using "look at" (blockedReceive c)) (const go)
  where
    go =
      readMutVar (channelState c) >>= \case
        Holding n _ _ -> pure n
        Crowded n _ _ _ -> pure n
        Hungry _ -> pure 0
        Closed left -> pure (length left)
        Busy -> relax >> go
