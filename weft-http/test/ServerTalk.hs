-- | Conversations with a server in which nothing may be left unhandled.
module ServerTalk
  ( talking,
    talkingWith,
    echo,
  )
where

import ServerRig
import Test.Tasty.HUnit
import Weft
import Weft.Http.Server
import Weft.Http.Status

-- | Talk to a server with this handler; nothing may be left unhandled.
talking :: Handler -> (Rig -> Thread a) -> IO (a, Seen)
talking = talkingWith id

talkingWith :: (ServerSettings -> ServerSettings) -> Handler -> (Rig -> Thread a) -> IO (a, Seen)
talkingWith settings handler body = do
  (a, seen) <- withHandler settings handler body
  seenUncaught seen @?= []
  pure (a, seen)

-- | Answers with the body it was sent.
echo :: Handler
echo request = plain ok200 [] <$> readBody 1_000_000 request
