{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Partitions, losses, resets and crashes
module Test.Network.Faults (tests) where

import Control.Monad (forM_, void, (>=>))
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.List (isInfixOf)
import Foreign.C.Error
import Test.Network.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Sim.Internal.Network (LinkSettings (..), Network, crashMachine, cut, cutOneWay, goodLink, heal, setLink)
import Weft.Sim.Internal.Network.Types (Link (..), Network (..), linkFrom)
import Weft.Sim.Internal.World
import Weft.Socket
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Faults"
    [ testCase "what a cut link holds back arrives after healing, in order" partition,
      testCase "a cut link in one direction" oneWay,
      testCase "a connection over a cut link fails in the end" patience,
      testCase "connecting over a cut link" connectCut,
      testCase "a link that loses segments only slows a connection" lossy,
      testCase "bandwidth and delay of a link" slow,
      testCase "connections that are reset on the way" broken,
      testCase "a crash is silent; the machine that is back answers with a reset" crash,
      testCase "a crash of the machine that sends" crashOfSender,
      testCase "what was sent before closing arrives, over a link that heals" closedOverCut
    ]

-- | The machines "a" and "b".
pair :: Rig -> Thread (Machine, Machine)
pair rig = (,) <$> machine rig "a" <*> machine rig "b"

-- | How the machines of one group are parted from, or joined with, those of another.
type Change = Network -> [Machine] -> [Machine] -> IO ()

-- | Change what is between "a" and "b".
change :: Rig -> Change -> Thread ()
change rig how = do
  (a, b) <- pair rig
  changing (how (rigNetwork rig) [a] [b])

-- | With the two sides exchanged.
backwards :: Change -> Change
backwards how net as bs = how net bs as

partition :: Assertion
partition = do
  (_, notes) <- inWorld calm 1 $ \rig ->
    connectedOver
      rig
      ( \s -> do
          -- The handshake must have come through.
          pause 1
          change rig cut
          forM_ [0 .. 9] (\i -> sendAll s (patternBytes (1000 * i) 1000) >> pause 1)
          -- The buffer is full at some time, and the sender waits.
          more <- spawn (sendAll s (patternBytes 10_000 500_000) >> shutdown s ShutdownSend)
          pause 2_000
          change rig heal
          more
      )
      ( \s -> do
          t <- now
          first <- receiveExactly s 1
          t' <- now
          holds (show (since t t')) (since t t' > seconds 2)
          rest <- receiveAll s
          holds "the bytes of the stream" (first <> rest == patternBytes 0 510_000)
      )
  assertBool (unlines notes) (any ("link from a to b is cut" `isInfixOf`) notes)
  assertBool (unlines notes) (any ("link from b to a is whole again" `isInfixOf`) notes)
  assertBool (unlines notes) (any ("it is sent again in 400 ms" `isInfixOf`) notes)

oneWay :: Assertion
oneWay = inCalm $ \rig ->
  void $
    connectedOver
      rig
      ( \s -> do
          change rig (backwards cutOneWay)
          sendAll s "this way"
          pause 500
          change rig heal
          t <- now
          receiveExactly s 8 >>= (`is` "that way")
          t' <- now
          holds (show (since t t')) (since t t' > milliseconds 10)
      )
      (\s -> receiveExactly s 8 >>= (`is` "this way") >> sendAll s "that way")

patience :: Assertion
patience = do
  _ <- inWorld calm {retransmissionPatience = seconds 60} 1 $ \rig ->
    connectedOver
      rig
      ( \s -> do
          -- The handshake must have come through.
          pause 1
          change rig cut
          sendAll s "lost"
          t <- now
          failsWith [eTIMEDOUT] (receive s 1)
          t' <- now
          holds (show (since t t')) (since t t' > seconds 59 && since t t' < seconds 61)
          receive s 1 >>= (`is` "")
          failsWith [ePIPE] (sendAll s "x")
          change rig heal
      )
      ( \s -> do
          -- It has sent nothing, so it does not know until it does.
          pause 100_000
          sendAll s "hello?"
          failsWith [eCONNRESET] (receive s 1)
      )
  pure ()

connectCut :: Assertion
connectCut = inCalm $ \rig -> do
  (a, b) <- pair rig
  l <- residingAt b (listenAt 80 5)
  change rig cut
  residingAt a $ do
    withSocket (openSocket AF_INET Stream) $ \s -> failsWith [eTIMEDOUT] (connectBefore (seconds 5) s (SockAddrInet 80 (addressOf b)))
    withSocket (openSocket AF_INET Stream) $ \s -> failsWith [eTIMEDOUT] (connect s (SockAddrInet 80 (addressOf b)))
  -- Repeated after 1, 2 and 4 seconds; the third finds the link healed.
  healing <- spawn (pause 2_000 >> change rig heal)
  t <- now
  s <- residingAt a (dial b 80)
  t' <- now
  healing
  holds (show (since t t')) (since t t' > seconds 3 && since t t' < milliseconds 3_001)
  -- The answer is lost: the attempt takes until that is sent again.
  change rig (backwards cutOneWay)
  healing' <- spawn (pause 300 >> change rig heal)
  u <- residingAt a (dial b 80)
  t'' <- now
  healing'
  holds (show (since t' t'')) (since t' t'' > milliseconds 300 && since t' t'' < seconds 1)
  accepted <- residingAt b (mapM (\_ -> fst <$> accept l) [s, u])
  residingAt a (mapM_ closeSocket [s, u])
  residingAt b (mapM_ closeSocket (l : accepted))

lossy :: Assertion
lossy = do
  (_, notes) <- inWorld calm 1 $ \rig -> do
    (a, b) <- pair rig
    changing (setLink (rigNetwork rig) a b (\l -> l {linkLoss = 0.3}))
    settings <- liftIO (linkFrom (netLinks (rigNetwork rig)) a b >>= readIORef . linkNow)
    settings `is` goodLink {linkLoss = 0.3}
    connectedOver
      rig
      (\s -> forM_ [0 .. 49] (\i -> sendAll s (patternBytes (100 * i) 100)))
      (receiveAll >=> \got -> holds "the bytes of the stream" (got == patternBytes 0 5_000))
  let n = length (filter ("segment of 100 bytes is lost" `isInfixOf`) notes)
  assertBool (show n) (n > 5 && n < 50)

slow :: Assertion
slow = inCalm $ \rig -> do
  (a, b) <- pair rig
  changing (setLink (rigNetwork rig) a b (\l -> l {linkRate = Just 1_000_000, linkExtraDelay = 1_000_000_000}))
  void $
    connectedOver
      rig
      (\s -> sendAll s (ByteString.replicate 2_000_000 1))
      ( \s -> do
          t <- now
          _ <- receiveAll s
          t' <- now
          -- Two seconds of bandwidth; and one of delay for each of eight full buffers.
          holds (show (since t t')) (since t t' > seconds 8 && since t t' < seconds 10)
      )

broken :: Assertion
broken = do
  (n, _) <- inWorld calm {connectionResets = 0.1} 1 $ \rig -> do
    resetsSeen <- liftIO (newIORef (0 :: Int))
    let count act =
          try act >>= \case
            Right () -> pure ()
            Left e -> holds (show e) ("reset" `isInfixOf` show (e :: IOError)) >> liftIO (modifyIORef' resetsSeen (+ 1))
    forM_ [1 .. 20 :: Int] $ \_ ->
      connectedOver
        rig
        (\s -> count (forM_ [1 .. 10 :: Int] (\_ -> sendAll s "a" >> void (receiveExactly s 1))))
        (\s -> count (forM_ [1 .. 10 :: Int] (\_ -> receiveExactly s 1 >>= sendAll s)))
    liftIO (readIORef resetsSeen)
  -- Both ends hear of each.
  assertBool (show n) (n > 20 && n <= 40)

-- | A machine loses its power, and everything that it knew of its connections.
powerOff, powerOn :: Rig -> Machine -> Thread ()
powerOff rig m = changing $ do
  writeIORef (machineUp m) False
  crashMachine (rigNetwork rig) m
powerOn _ m = changing $ do
  modifyIORef' (machineLife m) (+ 1)
  writeIORef (machineUp m) True

crash :: Assertion
crash = do
  (_, notes) <- inWorld calm 1 $ \rig -> do
    (a, b) <- pair rig
    l <- residingAt b (listenAt 80 5)
    s <- residingAt a (dial b 80)
    t <- residingAt a (dial b 80)
    waiting <- residingAt b (fst <$> accept l)
    -- The machine's threads end with it: this one is never answered.
    ghost <- fork (residingAt b (void (receive waiting 1)))
    silent <- spawnAt a (failsWith [eTIMEDOUT, eCONNRESET] (receive s 1))
    pause 1
    powerOff rig b
    pause 10
    residingAt a (sendAll s "are you there?")
    pause 1_000
    powerOn rig b
    -- It does not know the connection.
    silent
    residingAt a (failsWith [eCONNRESET] (sendAll t "and you?" >> receive t 1))
    failsWith [eCONNREFUSED] (residingAt a (dial b 80))
    -- Its numbers and ports are free.
    l' <- residingAt b (listenAt 80 5)
    show l' `is` show l
    u <- residingAt a (dial b 80)
    v <- residingAt b (fst <$> accept l')
    residingAt b (sendAll v "back again")
    residingAt a (receiveExactly u 10) >>= (`is` "back again")
    residingAt a (mapM_ closeSocket [s, t, u])
    residingAt b (mapM_ closeSocket [l', v])
    cancel ghost
  assertBool (unlines notes) (any ("for a connection that is gone" `isInfixOf`) notes)

crashOfSender :: Assertion
crashOfSender = inCalm $ \rig -> do
  (a, b) <- pair rig
  l <- residingAt b (listenAt 80 5)
  s <- residingAt a (dial b 80)
  t <- residingAt b (fst <$> accept l)
  change rig cut
  residingAt a (sendAll s "never arrives")
  pause 1
  powerOff rig a
  change rig heal
  powerOn rig a
  residingAt b $ do
    received <- spawnAt b (failsWith [eCONNRESET] (receive t 10))
    pause 10_000
    -- Nothing has come, and the receiver learns so only when it sends.
    sendAll t "hello?"
    received
    mapM_ closeSocket [l, t]

closedOverCut :: Assertion
closedOverCut = inCalm $ \rig ->
  void $
    connectedOver
      rig
      (\s -> pause 1 >> change rig cut >> sendAll s "the last words")
      ( \s -> do
          pause 700
          change rig heal
          receiveAll s >>= (`is` "the last words")
      )
