{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Which thread answers a request, and what comes too late
--
-- Applications give what they were given to threads, and leave these running when they end: several
-- answer at once, answer late, write to a sink that has ended, receive a body of before. Whatever
-- they do, an answer is of its own request and whole, and every request has at most one.
module Explore.HttpExchange (scenarios) where

import Control.Exception (SomeException)
import Control.Monad (replicateM_, unless, void, when)
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Char (chr, ord)
import Data.Either (isRight)
import Explore.Draw
import Explore.HttpAnswers (pieces)
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Server hiding (Sent)
import Weft.Http.Server.Types (Sent (Sent))
import Weft.Http.Status
import Weft.IO (await, direct)
import Weft.Scope

scenarios :: [Scenario]
scenarios =
  [ weathered "http/strays" "threads that an application leaves behind reach no other request" $ \seed ->
      strays (weatherOf seed) (draw seed (oneOf [pure False, pure True])) (draw seed pieces) (draw seed (several 1 8 deed)),
    small "http/answer-twice" 2 "of threads that answer at the same time one does" $
      strays Calm False [1_000] [AnswersTwice 0, Answers],
    small "http/answer-late" 2 "an application that ends while a thread of it answers" $
      strays Calm False [1_000] [AnswersLate 0, Answers],
    small "http/sink-late" 2 "a sink that is used while and after its response ends" $
      strays Calm False [1_000] [WritesLate 0, Answers],
    small "http/continue-late" 2 "a 100 (Continue) comes before the response or not at all" $
      strays Calm False [1_000] [ExpectsLate 0, Answers]
  ]

-- | The behaviour of an application; threads begin after the given number of yields.
data Deed
  = Answers
  | -- | Several threads answer.
    AnswersTwice Int
  | -- | A thread answers, and the application ends.
    AnswersLate Int
  | -- | A thread writes to the sink of a response.
    WritesLate Int
  | -- | A thread receives the body.
    ReadsLate Int
  | -- | A thread receives the body of a client that waits for 100 (Continue).
    ExpectsLate Int
  deriving stock (Eq, Show)

deed :: Draw Deed
deed = do
  moment <- oneOf [pure 0, between 0 5, between 0 200]
  oneOf (map pure [Answers, AnswersTwice moment, AnswersLate moment, WritesLate moment, ReadsLate moment, ExpectsLate moment])

-- | One client, whose requests are for these deeds. What belongs to the request with a number
-- consists of a letter of its own.
strays :: Weather -> Bool -> [Int] -> [Deed] -> Thread Complaints
strays weather inIO sizes deeds = do
  twice <- newLog
  let application request respond = Sent <$ perform (numberIn request) request (void . respond)
      perform n request respond = do
        let content = letters n 300
            answered = respond (plain ok200 [] content)
            later moment = fork_ . void . try @_ @SomeException . (replicateM_ moment yield >>)
        case deeds !! n of
          Answers -> answered
          AnswersTwice moment -> do
            won <- withScope $ \scope -> do
              children <- mapM (\i -> forkIn scope (replicateM_ (i * moment) yield >> attempt answered)) [0, 1, 2]
              mapM awaitChild children
            let winners = length (filter isRight won)
            -- A thread that is cut off in the middle does not know.
            when (winners > 1 || (winners == 0 && weather /= Stormy)) $ say twice (winners, n)
          AnswersLate moment -> later moment answered >> yield
          WritesLate moment -> respond . streamed ok200 [] $ \sink -> do
            sinkWrite sink (byteString content)
            later moment (replicateM_ 3 (sinkWrite sink (byteString content) >> sinkFlush sink))
            yield
            sinkWrite sink (byteString content) >> sinkFlush sink
          ReadsLate moment -> later moment (replicateM_ 3 (receiveBody request)) >> yield >> answered
          ExpectsLate moment -> later moment (replicateM_ 3 (receiveBody request)) >> yield >> answered
      plainly _ = pure . PlainAnswer (\first body -> direct (first >> body ())) $ \() request respond ->
        await (perform (numberIn request) request (\response -> liftIO (respond response) >>= sequence_))
      setup
        | inIO = (answering (\_ -> pure (plain ok200 [] ""))) {setupPlain = Just plainly}
        | otherwise = (answering (\_ -> pure (plain ok200 [] ""))) {setupApplication = Just application}
  wrong <- serving setup $ \rig ->
    onNewMachine "client" $
      attempt (withClient (rigAddress rig) (\client -> talk client [] (zip [0 ..] deeds))) >>= \case
        Right wrong -> pure wrong
        -- A late answer that has begun is cut off, and a client that still sends sees a reset.
        Left e -> pure (expect (show e) (weather == Stormy || any mayCut deeds))
  several' <- said twice
  pure (wrong <> expect ("answered by several, or by none: " <> show several') (null several'))
  where
    talk _ _ [] = pure []
    talk client before ((n, d) : rest) = do
      let expects = case d of ExpectsLate _ -> True; _ -> False
          body = letters n 10
      sendIn sizes (pure ()) client (askWith "POST" ("/" <> Char8.pack (show n)) ("Content-Length: 10" : ["Expect: 100-continue" | expects]))
      unless expects $ sendIn sizes (pure ()) client body
      said100 <- if expects then announced client else pure Nothing
      when (said100 == Just 100) $ void (answer True client) >> sendIn sizes (pure ()) client body
      answer False client >>= \case
        Right a | right n d a -> talk client (d : before) rest
        Right a -> pure [show (n, d) <> " is answered with " <> show a]
        Left (Strange bytes) -> pure [show (n, d) <> " is answered with " <> show bytes]
        Left end -> pure (expect (show (n, d) <> ": " <> show end) (weather == Stormy || any mayCut (d : before)))
    right n d a = case answerStatus a of
      200 -> ByteString.all (== ByteString.head (letters n 1)) (answerBody a) && (lasts d || ByteString.length (answerBody a) == 300)
      500 -> late d
      408 -> weather == Stormy
      _ -> False
    -- It is not known how much of the response a thread adds to, or when it answers.
    lasts = \case WritesLate _ -> True; _ -> False
    late = \case AnswersLate _ -> True; _ -> False
    mayCut = \case Answers -> False; AnswersTwice _ -> False; _ -> True
    numberIn request = read (Char8.unpack (ByteString.drop 1 (requestPath request)))
    letters n count = Char8.replicate count (chr (ord 'a' + n))
