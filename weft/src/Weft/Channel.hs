-- |
-- Channels: queues of values between threads, bounded or not, that can be closed.
--
-- @
-- jobs <- 'newChannel' 100
-- fork_ (mapM_ ('send' jobs) work \`finally\` 'close' jobs)
-- let worker = 'receive' jobs >>= maybe (pure ()) (\\job -> run job >> worker)
-- @
--
-- Values come out in the order in which they went in; threads that wait are served in the order in
-- which they came, and hold up no worker. A channel belongs to one run; "Weft.Outside" is the way to it
-- from other OS threads.
module Weft.Channel
  ( Channel,
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

import Weft.Internal.Sync.Channel
