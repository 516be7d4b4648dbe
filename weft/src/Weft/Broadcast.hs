-- |
-- Broadcasts: every subscriber gets every message, for news, changes of configuration,
-- chat rooms.
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
-- == Slow subscribers
--
-- Publishing never waits, and memory is bounded: the last messages are kept, as many as
-- 'newBroadcast' says, and a subscriber that is further back misses the oldest and is told how
-- many ('Missed'). If the publisher waited instead, the slowest subscriber would set the pace of all,
-- and one that is stuck would stop them. Where no subscriber may miss anything, use a channel for each
-- subscriber: @mapM_ (\`'Weft.Channel.send'\` message) subscribers@.
--
-- Messages are kept for later subscribers to be slow, too: the memory of a broadcast is that of
-- its last messages, with or without listeners. A subscription costs a word there, and is dropped
-- at once. A broadcast belongs to one run.
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

import Weft.Internal.Sync.Broadcast
import Weft.Internal.Sync.Channel (ChannelClosed (..))
