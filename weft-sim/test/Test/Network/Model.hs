-- |
-- Description : Random conversations in rough worlds, against a model
--
-- The model of each direction of a connection is the string of bytes that its sender was
-- told were sent: the receiver gets exactly these, in order, and then the end; however they
-- are cut, and whichever thread is cancelled at any moment.
module Test.Network.Model (tests) where

import Control.Monad (forM, forM_, unless, when)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf, sort)
import Data.Maybe (fromMaybe)
import Data.Word (Word64)
import Test.Network.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Mask (mask_)
import Weft.Pipe
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Network (LinkSettings (..), cut, cutOneWay, goodLink, heal, setLink)
import Weft.Sim.Internal.Random
import Weft.Socket
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Model"
    [ testCase "300 seeds: both directions, cancellations, half-close" (overSeeds 300 (conversation rough overTcp)),
      testCase "100 seeds: over links that come and go" (overSeeds 100 (conversation rough overBadLinks)),
      testCase "100 seeds: in the Unix domain" (overSeeds 100 (conversation rough overUnix)),
      testCase "100 seeds: through pipes" (overSeeds 100 (conversation rough overPipes)),
      testCase "50 seeds: in a calm world" (overSeeds 50 (conversation calm overTcp)),
      testCase "200 seeds: connections, cancelled at both ends" (overSeeds 200 connections),
      testCase "the same seed twice gives the same notes" sameNotes,
      testCase "other seeds give other notes" otherNotes
    ]

overSeeds :: Word64 -> (Seed -> IO (Int, [String])) -> Assertion
overSeeds n talk = do
  cancellations <- forM [1 .. n] $ \seed -> fst <$> talk (Seed seed)
  -- Otherwise it would test little.
  assertBool ("few were cancelled: " <> show (sum cancellations)) (4 * sum cancellations > fromIntegral n)

-- | One direction: how to send some bytes, and how many were sent; how to receive at
-- most a given number; how to end it, and to close each side.
data Direction = Direction
  { sendSome :: ByteString.ByteString -> Thread Int,
    receiveSome :: Int -> Thread ByteString.ByteString,
    endSending :: Thread ()
  }

-- | Open something with several directions, use them, close it.
type Medium = Rig -> Random -> ([Direction] -> Thread ()) -> Thread ()

conversation :: Conditions -> Medium -> Seed -> IO (Int, [String])
conversation conditions medium seed = do
  random <- newRandom seed 99
  cancellations <- newIORef 0
  (_, notes) <- inWorld conditions seed $ \rig ->
    medium rig random $ \directions -> do
      ends <- forM directions $ \d -> do
        total <- roll random 60_000
        sending <- spawn (sender random cancellations d total)
        receiving <- spawn (receiver random cancellations d total)
        pure (sending >> receiving)
      sequence_ ends
  n <- readIORef cancellations
  pure (n, notes)

roll :: Random -> Int -> Thread Int
roll random n = liftIO (below random n)

-- | Send the given number of bytes, in pieces, some of them by threads that are cancelled.
sender :: Random -> IORef Int -> Direction -> Int -> Thread ()
sender random cancellations d total = go 0
  where
    go at
      | at >= total = endSending d
      | otherwise = do
          size <- (1 +) <$> roll random 9_000
          n <- impatient random cancellations (sendSome d (patternBytes at (min size (total - at))))
          idle random
          go (at + fromMaybe 0 n)

-- | Receive to the end, some of it by threads that are cancelled.
receiver :: Random -> IORef Int -> Direction -> Int -> Thread ()
receiver random cancellations d total = go 0
  where
    go at = do
      size <- (1 +) <$> roll random 7_000
      got <- impatient random cancellations (receiveSome d size)
      idle random
      case got of
        Nothing -> go at
        Just bytes
          | ByteString.null bytes -> at `is` total
          | otherwise -> do
              unless (bytes == patternBytes at (ByteString.length bytes)) $ holds ("other bytes at " <> show at) False
              go (at + ByteString.length bytes)

idle :: Random -> Thread ()
idle random = do
  long <- roll random 4
  when (long == 0) (roll random 3_000 >>= sleep . microseconds)

-- | Do it in a thread that is cancelled at some moment, or in this one. What it did if
-- it did it; a thread that has done it is not interrupted before it has said so.
impatient :: Random -> IORef Int -> Thread a -> Thread (Maybe a)
impatient random cancellations act = do
  dice <- roll random 3
  if dice > 0
    then Just <$> act
    else do
      result <- liftIO (newIORef Nothing)
      over <- liftIO (newIORef False)
      t <- fork (mask_ ((act >>= liftIO . writeIORef result . Just) `finally` liftIO (writeIORef over True)))
      moment <- roll random 1_000
      sleep (microseconds moment)
      cancel t
      let wait = liftIO (readIORef over) >>= \done -> unless done (sleep (microseconds 10) >> wait)
      wait
      r <- liftIO (readIORef result)
      maybe (liftIO (modifyIORef' cancellations (+ 1))) (const (pure ())) r
      pure r

overTcp :: Medium
overTcp rig random use = do
  loopbackOnly <- roll random 3
  a <- machine rig "a"
  b <- machine rig (if loopbackOnly == 0 then "a" else "b")
  l <- residingAt b (listenAt 80 5)
  s <- residingAt a (dial b 80)
  t <- residingAt b (fst <$> accept l)
  use
    [ Direction (residingAt a . send s) (residingAt b . receive t) (residingAt a (shutdown s ShutdownSend)),
      Direction (residingAt b . send t) (residingAt a . receive s) (residingAt b (shutdown t ShutdownSend))
    ]
  residingAt a (closeSocket s)
  residingAt b (mapM_ closeSocket [l, t])

-- | 'overTcp', while links are cut, heal, and lose.
overBadLinks :: Medium
overBadLinks rig random use = do
  a <- machine rig "a"
  b <- machine rig "b"
  let net = rigNetwork rig
      weather = do
        roll random 50_000 >>= sleep . microseconds
        kind <- roll random 4
        changing $ case kind of
          0 -> cut net [a] [b]
          1 -> cutOneWay net [b] [a]
          2 -> setLink net a b (\l -> l {linkLoss = 0.2})
          _ -> heal net [a] [b]
        weather
  t <- fork weather
  overTcp rig random (\ds -> use ds >> cancel t >> changing (heal net [a] [b]) >> changing (setLink net a b (const goodLink)))

overUnix :: Medium
overUnix _ _ use = do
  l <- openSocket AF_UNIX Stream
  bind l (SockAddrUnix "/s")
  listen l 5
  s <- openSocket AF_UNIX Stream
  connect s (SockAddrUnix "/s")
  (t, _) <- accept l
  use
    [ Direction (send s) (receive t) (shutdown s ShutdownSend),
      Direction (send t) (receive s) (shutdown t ShutdownSend)
    ]
  mapM_ closeSocket [l, s, t]

overPipes :: Medium
overPipes _ _ use = do
  (r, w) <- openPipe
  use [Direction (writeSome w) (readPipe r) (closePipe w)]
  closePipe r
  where
    -- In one piece, so that a cancelled write has written nothing.
    writeSome w b = let piece = ByteString.take 4_096 b in ByteString.length piece <$ writePipe w piece

-- | Clients that connect and say a number; connects and accepts are cancelled. Each number of a
-- client that was connected is heard once, and no other.
connections :: Seed -> IO (Int, [String])
connections seed = do
  random <- newRandom seed 98
  cancellations <- newIORef 0
  said <- newIORef []
  heard <- newIORef []
  (_, notes) <- inWorld rough {acceptErrors = 0.1} seed $ \rig -> do
    a <- machine rig "a"
    b <- machine rig "b"
    l <- residingAt b (listenAt 80 2)
    over <- liftIO (newIORef False)
    let hear t = flip finally (closeSocket t) $ do
          got <- try (receiveAll t)
          case got of
            -- The client was cancelled, and has closed it.
            Left e -> holds (show e) ("reset" `isInfixOf` show (e :: IOError))
            Right bytes -> unless (ByteString.null bytes) (liftIO (modifyIORef' heard (bytes :)))
        acceptor = do
          stop <- liftIO (readIORef over)
          unless stop $ do
            impatient random cancellations (acceptBefore (milliseconds 20) l) >>= mapM_ (mapM_ (hear . fst))
            acceptor
        client i = residingAt a . withSocket (openSocket AF_INET Stream) $ \s -> do
          idle random
          r <- impatient random cancellations (connect s (SockAddrInet 80 (addressOf b)))
          case r of
            Nothing -> pure ()
            Just () -> do
              let number = Char8.pack (show (i :: Int))
              liftIO (modifyIORef' said (number :))
              sendAll s number
              shutdown s ShutdownSend
              receive s 1 >>= (`is` ByteString.empty)
    acceptors <- forM [1 :: Int, 2] $ \_ -> spawnAt b acceptor
    clients <- forM [1 .. 12] (spawn . client)
    sequence_ clients
    liftIO (writeIORef over True)
    sequence_ acceptors
    residingAt b (closeSocket l)
  (,) <$> (sort <$> readIORef said) <*> (sort <$> readIORef heard) >>= \(s, h) -> h @?= s
  n <- readIORef cancellations
  pure (n, notes)

sameNotes :: Assertion
sameNotes = forM_ [1 .. 10] $ \seed -> do
  (_, first) <- conversation rough overBadLinks (Seed seed)
  (_, second) <- conversation rough overBadLinks (Seed seed)
  assertBool "there is something to compare" (length first > 20 && any ("segment" `isInfixOf`) first)
  second @?= first

otherNotes :: Assertion
otherNotes = do
  (_, first) <- conversation rough overTcp (Seed 1)
  (_, second) <- conversation rough overTcp (Seed 2)
  assertBool "they differ" (first /= second)
