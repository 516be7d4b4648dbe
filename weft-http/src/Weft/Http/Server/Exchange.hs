{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A request, and everything that may still be done for it, as one word that every thread changes
-- atomically. The session makes an exchange for each request, and closes it before it goes on.
--
-- See Note [The owner of an exchange].
module Weft.Http.Server.Exchange
  ( Exchange,
    newExchange,

    -- * The response
    Claim (..),
    claim,
    claiming,
    settle,
    Progress (..),
    conclude,

    -- * Content that is made while it is sent
    beginContent,
    checkContent,
    takeContent,
    restContent,
    closeContent,
    failContent,

    -- * The body of the request
    beginInforming,
    endInforming,
    beginAnswer,
    beginReceiving,
    endReceiving,
    stopReceiving,
  )
where

import Control.Exception (throwIO)
import Control.Monad (void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (complement, (.&.), (.|.))
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Server.Types

-- Note [The owner of an exchange]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An application may give what it was given to other threads (the function that sends its response, the
-- sink, the body) and leave them running; the session goes on to the next request. So what a thread
-- does for a request it does as the owner of a stage that it has claimed in the word.
--
-- The stages, and what leaves each (s: the session, a: any thread of the application):
--
--   Unanswered --claim, a--> Sending --settle, a--> Kept | Ended
--   Sending --beginContent, a--> Resting --takeContent, a--> Sending --restContent, a--> Resting
--   Resting --closeContent, a--> Closing --settle, a--> Kept | Ended
--   Unanswered | Resting --beginInforming, a--> Informing --endInforming, a--> where it was
--   all before Ended --conclude, s--> Over          Resting | Sending --failContent, a--> Over
--
-- Only the owner of Sending, Closing or Informing writes to the connection; after 'conclude' the session.
--
--   (A) Two threads answer. One claims Unanswered; the other finds another stage, and is refused.
--   (B) The application ends while a thread of it begins to answer. Where 'conclude' comes first the
--       thread is refused, and the session answers in its place. Where the claim comes first the session
--       finds Sending: how much has gone out is not known, so the connection ends.
--   (C) Two threads use a sink. The second finds Sending, and the response fails.
--   (D) A sink is used when its response has ended, and the connection may be that of another request, or
--       closed: the thread finds Closing or later, and raises 'SinkEnded'.
--   (E) A thread is interrupted in the middle of sending. The stage stays Sending: nothing ever follows
--       what may be half of a chunk, and the connection ends.
--   (F) A body is asked for while the response begins, of a client that waits for 100 (Continue). Either
--       the 100 comes first, and the response waits for Informing to end; or the head has gone out (a
--       flag), and there is no 100.
--   (G) Two threads receive the body, or one does when the session goes on. A flag says that a thread
--       receives: a second is refused. Another says that the body is over: from then on every thread is
--       refused, and the session, which sets it, is told of one that receives: it would take the bytes of
--       the next request, so the connection ends.

-- | The stage of one request: the actions that are still allowed, and the thread that may take them.
newtype Exchange = Exchange (PrimVar RealWorld Int)

unanswered, informing, sending, resting, closing, ended, kept, over :: Int
unanswered = 0
informing = 1
sending = 2
resting = 3
closing = 4
ended = 5
kept = 6
over = 7

-- | Flags beside the stage: the head has gone out; a thread receives the body; no thread may any more.
headFlag, receivingFlag, bodyOverFlag :: Int
headFlag = 8
receivingFlag = 16
bodyOverFlag = 32

stageOf :: Int -> Int
stageOf word = word .&. 7

-- | Replace the stage and keep the flags.
at :: Int -> Int -> Int
at word stage = (word .&. complement 7) .|. stage

newExchange :: IO Exchange
newExchange = Exchange <$> newPrimVar unanswered

-- | Change the word in one step; what it was.
change :: Exchange -> (Int -> Int) -> IO Int
change (Exchange var) f = readPrimVar var >>= go
  where
    go before
      | after == before = pure before
      | otherwise = casInt var before after >>= \found -> if found == before then pure before else go found
      where
        after = f before
{-# INLINE change #-}

-- | From one stage to another, if it is in that; the stage in which it was.
advance :: Exchange -> Int -> Int -> IO Int
advance exchange from to = stageOf <$> change exchange (\word -> if stageOf word == from then word `at` to else word)

-- | To another stage, unless the exchange has ended; the stage in which it was.
proceed :: Exchange -> Int -> IO Int
proceed exchange to = stageOf <$> change exchange (\word -> if stageOf word < ended then word `at` to else word)

data Claim
  = Claimed
  | -- | Another thread sends a 100 (Continue): to be tried again.
    NotYet
  | Refused
  deriving stock (Eq)

claimOf :: Int -> Int -> Claim
claimOf from found
  | found == from = Claimed
  | found == informing = NotYet
  | otherwise = Refused

claim :: Exchange -> IO Claim
claim exchange = claimOf unanswered <$> advance exchange unanswered sending

-- | Wait for a claim: is it granted?
claiming :: IO Claim -> Thread Bool
claiming act =
  liftIO act >>= \case
    Claimed -> pure True
    Refused -> pure False
    -- The client has to take 25 octets.
    NotYet -> sleep (milliseconds 1) >> claiming act

-- | The response was sent: whether the connection goes on after it.
settle :: Exchange -> Bool -> IO ()
settle exchange goesOn = void (proceed exchange (if goesOn then kept else ended))

data Progress
  = Unsent
  | UnderWay
  | -- | It was sent; whether the connection goes on.
    Done !Bool

-- | From now on only the session sends.
conclude :: Exchange -> IO Progress
conclude exchange = do
  before <- proceed exchange over
  pure $
    if
      | before == kept -> Done True
      | before == ended -> Done False
      | before == unanswered -> Unsent
      | otherwise -> UnderWay

-- | The response has content that is made from now on; nothing of it was sent.
beginContent :: Exchange -> IO ()
beginContent exchange = void (proceed exchange resting)

-- | Raise 'SinkEnded' where there is no more content.
checkContent :: Exchange -> IO ()
checkContent (Exchange var) = readPrimVar var >>= \word -> when (stageOf word >= closing) (throwIO SinkEnded)

-- | Become the thread that sends a part of the content, or the head. Raises 'SinkEnded' at its end.
takeContent :: Exchange -> IO Claim
takeContent exchange = do
  before <- stageOf <$> change exchange (\word -> if stageOf word == resting then (word .|. headFlag) `at` sending else word)
  when (before >= closing) (throwIO SinkEnded)
  pure (claimOf resting before)

restContent :: Exchange -> IO ()
restContent exchange = void (advance exchange sending resting)

closeContent :: Exchange -> IO Claim
closeContent exchange = claimOf resting <$> advance exchange resting closing

failContent :: Exchange -> IO ()
failContent exchange = void (proceed exchange over)

-- | Become the thread that sends a 100 (Continue), if there is a place for it yet: the stage to go back to.
beginInforming :: Exchange -> IO (Maybe Int)
beginInforming exchange = do
  before <- change exchange (\word -> if mayInform word then word `at` informing else word)
  pure (if mayInform before then Just (stageOf before) else Nothing)
  where
    mayInform word = word .&. headFlag == 0 && (stageOf word == unanswered || stageOf word == resting)

endInforming :: Exchange -> Int -> IO ()
endInforming exchange before = void (advance exchange informing before)

beginAnswer :: Exchange -> IO ()
beginAnswer exchange = void (change exchange (.|. headFlag))

-- | Become the thread that receives the body, or raise an 'IOError'.
beginReceiving :: Exchange -> IO ()
beginReceiving exchange = do
  before <- change exchange (\word -> if word .&. (receivingFlag .|. bodyOverFlag) == 0 then word .|. receivingFlag else word)
  if
    | before .&. bodyOverFlag /= 0 -> ioError (userError "the request whose body was asked for was answered before")
    | before .&. receivingFlag /= 0 -> ioError (userError "two threads receive the body of a request at the same time")
    | otherwise -> pure ()

endReceiving :: Exchange -> IO ()
endReceiving exchange = void (change exchange (.&. complement receivingFlag))

-- | From now on only the session receives. Does another thread at the moment?
stopReceiving :: Exchange -> IO Bool
stopReceiving exchange = (\before -> before .&. receivingFlag /= 0) <$> change exchange (.|. bodyOverFlag)
