-- |
-- Description : Time limits under exploration
module Explore.Timeouts (scenarios) where

import Control.Monad (void)
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Mask (mask_, uninterruptibleMask_)
import Weft.Channel qualified as Channel
import Weft.MVar
import Weft.Mutex (newMutex, tryLock, withMutex)
import Weft.Time (now, since)
import Weft.Timeout

scenarios :: [Scenario]
scenarios =
  [ small "timeouts/value" 2 "a value that was taken within a limit is not lost" value,
    small "timeouts/nested" 2 "each limit ends its own body, whichever comes first" nested,
    small "timeouts/late" 2 "a limit whose body has ended interrupts nothing that comes later" late,
    small "timeouts/lock" 2 "a limit around a lock leaves the lock free" lockFree,
    small "timeouts/cancelled" 2 "a cancellation passes through a limit" cancelled,
    small "timeouts/uninterruptible" 2 "a limit whose body cannot be interrupted is gone when that has ended" uninterruptible,
    drawn "timeouts/clock" "limits in limits end when the clock says" clock,
    drawn "timeouts/channel" "receivers with limits lose nothing" channel
  ]

value :: Thread Complaints
value = do
  var <- newEmptyMVar
  log' <- newLog
  _ <- forkOn 1 (mask_ (timeout (milliseconds 1) (takeMVar var) >>= mapM_ (say log')))
  _ <- forkOn 0 (sleep (milliseconds 1) >> putMVar var 'a')
  quiet
  got <- said log'
  left <- tryTakeMVar var
  pure (expectEqual "taken or left" "a" (got <> maybe "" pure left))

nested :: Thread Complaints
nested = do
  outcome <- timeout (milliseconds 2) (timeout (milliseconds 1) (sleep (milliseconds 3)))
  other <- timeout (milliseconds 1) (timeout (milliseconds 2) (sleep (milliseconds 3)))
  both <- timeout (milliseconds 1) (timeout (milliseconds 1) (sleep (milliseconds 3)))
  pure (expectEqual "inner first" (Just Nothing) outcome <> expectEqual "outer first" Nothing other <> expect "at once" (both `elem` [Nothing, Just Nothing]))

late :: Thread Complaints
late = do
  first <- timeout (milliseconds 1) (sleep (milliseconds 1))
  begun <- now
  sleep (milliseconds 5)
  slept <- since begun <$> now
  pure (expect "a later sleep was interrupted" (slept >= milliseconds 5) <> expect "neither" (first `elem` [Nothing, Just ()]))

lockFree :: Thread Complaints
lockFree = do
  mutex <- newMutex
  _ <- spread [void (timeout (milliseconds 1) (withMutex mutex (sleep (milliseconds 1)))), void (timeout (milliseconds 1) (withMutex mutex yield))]
  quiet
  expect "it is held" <$> tryLock mutex

cancelled :: Thread Complaints
cancelled = do
  log' <- newLog
  t <- forkOn 1 ((timeout (milliseconds 1) (sleep (seconds 1)) >>= say log' . Just) `catch` \e -> say log' Nothing >> throwM (e :: Cancelled))
  _ <- forkOn 0 (sleep (milliseconds 1) >> cancel t)
  quiet
  got <- said log'
  pure (expect (show got) (got `elem` [[Nothing], [Just Nothing], [Just Nothing, Nothing]]))

uninterruptible :: Thread Complaints
uninterruptible = do
  begun <- now
  outcome <- uninterruptibleMask_ (timeout (seconds 3000) (pure 'a'))
  -- A thread that sleeps still is left over at the end of the run.
  took <- since begun <$> now
  pure (expectEqual "result" (Just 'a') outcome <> expect "it took time" (took < seconds 1))

-- | Limits in hundredths of a second around steps. In rough weather each is late, by a tenth of
-- a millisecond at most.
data Plan = Sleeps !Int | Limits !Int Plan | Behind Plan Plan

drawPlan :: Int -> Draw Plan
drawPlan depth = weighted ((2, Sleeps <$> between 1 20) : concat [[(3, Limits <$> between 1 20 <*> part), (2, Behind <$> part <*> part)] | depth > 0])
  where
    part = drawPlan (depth - 1)

-- | When it ends, if it begins at this time and something ends it at that one; with a step of
-- its own for each moment, so that no two things happen at once: 'Nothing' if they do.
ends :: Int -> Plan -> Maybe Int -> Maybe (Int, [Bool], Bool)
ends start plan limit = case plan of
  Sleeps n
    | Just l <- limit, l == start + n -> Nothing
    | Just l <- limit, l < start + n -> Just (l, [], False)
    | otherwise -> Just (start + n, [], True)
  Limits n part -> do
    let own = start + n
    if Just own == limit then Nothing else pure ()
    case limit of
      Just l | l < own -> ends start part limit >>= \(t, said', over) -> Just (t, if over then said' <> [True] else said', over)
      _ -> ends start part (Just own) >>= \(t, said', over) -> if over then Just (t, said' <> [True], True) else Just (t, said' <> [False], True)
  Behind a b -> do
    (t, said', over) <- ends start a limit
    if not over
      then Just (t, said', False)
      else if Just t == limit then Nothing else ends t b limit >>= \(t', more, over') -> Just (t', said' <> more, over')

clock :: Draw (Thread Complaints)
clock = do
  plan <- drawPlan 4
  pure $ case ends 0 plan Nothing of
    -- Two things happen at once: either may be first.
    Nothing -> pure []
    Just (end, limits, _) -> do
      begun <- now
      log' <- newLog
      runPlan log' plan
      took <- since begun <$> now
      got <- said log'
      pure (expect ("it ended after " <> show took <> ", and not " <> show (hundredths end)) (took >= hundredths end && took < hundredths end <> milliseconds 5) <> expectEqual "limits that were kept" limits got)
  where
    runPlan log' = \case
      Sleeps n -> sleep (hundredths n)
      Limits n part -> timeout (hundredths n) (runPlan log' part) >>= say log' . maybe False (const True)
      Behind a b -> runPlan log' a >> runPlan log' b
    hundredths = milliseconds . (* 10)

channel :: Draw (Thread Complaints)
channel = do
  sends <- several 1 4 (between 0 3)
  receivers <- several 1 3 (several 1 3 (between 0 3))
  room <- between 1 2
  pure $ do
    pipe <- Channel.newChannel room
    got <- newLog
    sent <- newLog
    _ <- forkOn 0 (mapM_ (\ms -> sleep (milliseconds ms) >> timeout (milliseconds 1) (Channel.send pipe ()) >>= mapM_ (say sent)) sends)
    _ <- spread [mapM_ (\ms -> timeout (milliseconds ms) (Channel.receive pipe) >>= mapM_ (say got)) limits | limits <- receivers]
    quiet
    taken <- length <$> said got
    given <- length <$> said sent
    left <- Channel.waitingValues pipe
    pure (expectEqual "received and left, of what was sent" given (taken + left))
