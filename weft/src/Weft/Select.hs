-- |
-- Waiting for the first of several things, of which exactly one happens.
--
-- >>> import Weft
-- >>> import Weft.Channel
-- >>> :{
-- run $ do
--   jobs <- newChannel 10
--   stop <- newChannel 1
--   send jobs "sweep" >> send jobs "wash" >> send stop ()
--   let worker = select [Nothing <$ onReceive stop, onReceive jobs]
--   (,) <$> worker <*> waitingValues jobs
-- :}
-- (Nothing,2)
--
-- This is what @select@ is in Go and @choose@ in Concurrent ML. In contrast to 'Weft.Concurrently.race'
-- it starts no threads, and loses nothing. The action after a choice is joined to it by 'fmap':
--
-- @
-- 'Control.Monad.join' ('select' [serve '<$>' 'onReceive' jobs, shutDown '<$' 'onSet' stop])
-- @
--
-- There is no choice for the passing of time: 'Weft.Timeout.timeout' around 'select' does the same. For
-- variables of 'Weft.STM.STM' there is 'Weft.STM.orElse'.
--
-- If several things are there, the first in the list is taken: so put what is to end a loop first. Or
-- let them take turns:
--
-- @
-- merge a b = 'select' [(,) a '<$>' 'onReceive' a, (,) b '<$>' 'onReceive' b] >>= \\(from, value) -> use value >> if from == a then merge b a else merge a b
-- @
module Weft.Select
  ( select,
    Choice,

    -- * What can be waited for
    onReceive,
    onSend,
    onTake,
    onRead,
    onFilled,
    onSet,
    onMessage,
    onChild,
  )
where

import Weft.Broadcast (onMessage)
import Weft.IVar (onFilled)
import Weft.Internal.Sync.Channel (onReceive, onSend)
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.Event (onSet)
import Weft.Internal.Sync.MVar (onRead, onTake)
import Weft.Scope (onChild)
