{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The thread of one connection of a load
--
-- Connects, sends requests, receives responses, and connects again when a connection has ended,
-- until nothing is left to send: a sequential thread over the state of "Weft.Cli.Load.Lane".
module Weft.Cli.Load.Driver (driveLane, Origin (..)) where

import Control.Exception (IOException)
import Control.Monad (void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft
import Weft.Cli.Load.Control
import Weft.Cli.Load.Dial
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Lane
import Weft.Cli.Load.Tally
import Weft.Http.Transport
import Weft.Socket (closeSocket)
import Weft.Time

-- | One moment as an instant and as a reading of the clock, to convert between the two.
data Origin = Origin !Instant !Int

driveLane :: Origin -> Dialer -> Lane -> Thread ()
driveLane origin dialer lane = connecting (milliseconds 10)
  where
    connecting pause = do
      before <- liftIO clockNow
      try (dial dialer) >>= \case
        Left (_ :: IOException) -> refused pause
        Right (socket, transport) -> do
          useful <- (connected before socket transport >>= finished) `finally` closeSocket socket
          case useful of
            Nothing -> pure ()
            Just True -> connecting (milliseconds 10)
            -- The connection closed without a response: do not hurry.
            Just False -> sleep pause >> connecting (longer pause)
    refused pause = do
      more <- liftIO (withoutConnection lane)
      when more (sleep pause >> connecting (longer pause))
    longer pause = min (seconds 1) (pause <> pause)

    -- How a connection ended; 'Nothing' when the lane is done.
    finished = maybe (pure Nothing) (fmap Just . liftIO . ended lane)

    connected before socket transport = do
      under <- liftIO $ do
        t <- clockNow
        record (tallyConnect (laneTally lane)) (t - before)
        opened lane socket
        outstanding lane
      try (if under > 0 then liftIO (sendAgain lane) >>= sending origin lane transport else beginning origin lane transport) >>= \case
        Right end -> pure end
        Left (_ :: IOException) -> pure (Just Lost)

beginning :: Origin -> Lane -> Transport -> Thread (Maybe End)
beginning origin lane transport = case sharedPace (laneShared lane) of
  Nothing -> liftIO (beginClosed lane) >>= next origin lane transport
  Just pace -> liftIO (schedule lane pace) >>= next origin lane transport

-- | Carry out a step.
next :: Origin -> Lane -> Transport -> Step -> Thread (Maybe End)
next origin lane transport = \case
  Send bytes -> sending origin lane transport bytes
  Receive -> receiving origin lane transport
  Next -> beginning origin lane transport
  SleepUntil due -> waiting origin lane transport due
  Finish -> pure Nothing
  Close -> pure (Just Agreed)
  Malformed -> pure (Just Nonsense)

sending :: Origin -> Lane -> Transport -> ByteString -> Thread (Maybe End)
sending origin lane transport bytes = do
  n <- transportSend transport [bytes]
  if n < B.length bytes then sending origin lane transport (B.drop n bytes) else receiving origin lane transport

receiving :: Origin -> Lane -> Transport -> Thread (Maybe End)
receiving origin lane transport = do
  have <- liftIO (unread lane)
  n <- transportReceive transport (laneInput lane) have maxBound
  if n == 0 then pure (Just Lost) else liftIO (received lane n) >>= next origin lane transport

-- | Wait until a request is due, and send it.
waiting :: Origin -> Lane -> Transport -> Int -> Thread (Maybe End)
waiting origin@(Origin instant zero) lane transport due = do
  t <- liftIO clockNow
  when (due > t) (void (sleepUntil (after (nanoseconds (due - zero)) instant)))
  liftIO (sendDue lane due) >>= sending origin lane transport
