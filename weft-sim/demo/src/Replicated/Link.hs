-- |
-- Description : From a client to one replica
--
-- One thread that keeps a connection, and asks one thing after the other. A request on
-- a connection that broke is sent again on the next: no request does harm when it is
-- repeated.
module Replicated.Link (Job (..), link) where

import Control.Monad (forever, when)
import Replicated.Message
import Replicated.Wire
import Weft
import Weft.Channel (Channel)
import Weft.Channel qualified as Channel
import Weft.Socket
import Weft.Time (Instant, now)
import Weft.Timeout

-- | A request, its deadline, and where its reply goes.
data Job = Job
  { jobRequest :: !Request,
    jobLimit :: !Instant,
    jobReplies :: !(Channel Reply)
  }

-- | Talk to one replica for ever: connect when there is something to ask, and when the
-- connection does not hold, or no reply comes in time, connect again and ask again. The
-- pauses grow while there is no connection.
link :: Duration -> SockAddr -> Channel Job -> Thread ()
link patience address jobs = forever (nextJob >>= connected shortest)
  where
    connected pause job = do
      outcome <- tryConnection (withSocket (openSocket (familyOf address) Stream) (\connection -> dial connection >> talk job connection))
      let (unanswered, wait) = either (const (job, pause)) (,shortest) outcome
      sleep wait
      again <- isWanted unanswered
      when again $ connected (min longest (wait <> wait)) unanswered
    dial connection = do
      connectBefore patience connection address
      setOption connection NoDelay 1
    -- Ends with the request that got no answer.
    talk job connection =
      tryConnection (timeout patience (exchange job connection)) >>= \case
        Right (Just (Just reply)) -> do
          Channel.send (jobReplies job) reply
          next <- nextJob
          talk next connection
        _ -> pure job
    exchange job connection = sendMessage connection (jobRequest job) >> receiveMessage connection
    nextJob = do
      job <- Channel.receive jobs >>= maybe exit pure
      wanted <- isWanted job
      if wanted then pure job else nextJob
    isWanted job = (< jobLimit job) <$> now
    shortest = milliseconds 10
    longest = milliseconds 500
