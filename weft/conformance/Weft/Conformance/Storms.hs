{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Masses of random cancellations
--
-- Threads that send, receive, accept, connect and more, cancelled at random from every
-- worker, over and over. What could be lost is counted: bytes, connections,
-- descriptors, finalizers.
module Weft.Conformance.Storms (storms) where

import Control.Monad (forM, forM_, replicateM, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef
import Foreign.C.Error (Errno (..), eCONNRESET)
import GHC.IO.Exception (ioe_errno)
import Network.Socket qualified as Network
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File
import Weft.Mask (allowInterrupt, mask_, uninterruptibleMask_)
import Weft.Pipe
import Weft.Socket
import Weft.Time (microseconds, minutes)

-- | A hundred thousand cancellations in six worlds, if all rounds are run.
storms :: World -> TestTree
storms world =
  testGroup
    "random cancellations lose nothing"
    [ inDirectory world "bytes" (bytesStorm world (worldRounds world 25_000)),
      conforms world "connections" (connectionStorm world (worldRounds world 5_000)),
      inDirectory world "all kinds of calls" (mixedStorm world (worldRounds world 20_000))
    ]

-- | Cancel these threads at random, the given number of times, from every worker. A cancellation
-- that finds the last one still on its way would only make the list longer, so it
-- goes elsewhere.
storm :: World -> Int -> [ThreadId] -> Thread ()
storm world total targets = do
  waitsFor <- forM [0 .. workers - 1] $ \w -> newDice (17 + w) >>= \dice -> spawnOn (Just w) (go dice (total `div` workers))
  sequence_ waitsFor
  where
    workers = worldWorkers world
    go :: Dice -> Int -> Thread ()
    go _ 0 = pure ()
    go dice left = do
      target <- (targets !!) <$> roll dice (length targets)
      pause <- roll dice 4
      condemned <- liftIO (isCondemned target)
      if condemned
        then breathe world >> go dice left
        else do
          cancel target
          when (pause == 0) yield
          go dice (left - 1)

-- | Wait until a quarter of the cancellations have ended a round. Those on their way to a
-- worker that does not run just now wait there, one after the other, and none is lost.
arrived :: Int -> IORef Int -> Thread ()
arrived total hits = eventually "a quarter of the interruptions" ((> total `div` 4) <$> readIORef hits)

-- | Do this again and again; a cancellation ends one round. Masked: a call that has
-- succeeded is counted before the next can be interrupted. At the end of a round there
-- is a place to be interrupted in any case: calls that succeed at once never wait. There time
-- passes, too: where it does not while threads are ready, a cancellation might never arrive.
rounds :: World -> IORef Bool -> IORef Int -> Thread () -> Thread ()
rounds world over hits act = mask_ loop
  where
    end = if worldTimePasses world then allowInterrupt else breathe world
    loop = do
      stop <- liftIO (readIORef over)
      unless stop (((act >> end) `catch` \Cancelled -> liftIO (atomicModifyIORef' hits (\n -> (n + 1, ())))) >> loop)

-- | Let others run, and time pass.
breathe :: World -> Thread ()
breathe world = if worldTimePasses world then yield else sleep (microseconds 1)

-- | Writers and readers of socket pairs with small pieces and full buffers.
bytesStorm :: World -> Int -> ByteString -> Thread ()
bytesStorm world total dir = do
  over <- liftIO (newIORef False)
  hits <- liftIO (newIORef 0)
  made <- forM [1 .. 12 :: Int] $ \i -> (i,) <$> unixPair dir
  pairs <- forM made $ \(i, (a, b)) -> do
    setOption a Network.SendBuffer 4096
    sent <- liftIO (newIORef (0 :: Int))
    got <- liftIO (newIORef (0 :: Int))
    writerDone <- newGate
    readerDone <- newGate
    let piece = ByteString.replicate (500 * i) 7
        count ref n = liftIO (modifyIORef' ref (+ n))
    writer <- forkWith defaultForkOptions {forkWorker = Just i} $ do
      rounds world over hits (if even i then send a piece >>= count sent else sendVector a [piece, piece] >>= count sent)
      uninterruptibleMask_ (closeSocket a >> openGate writerDone ())
    -- A reader goes on until the end of the stream, and only then minds no more.
    ended <- liftIO (newIORef False)
    reader <- forkWith defaultForkOptions {forkWorker = Just (i `div` 2)} $ do
      rounds world ended hits $ do
        bytes <- receive b 3000
        if ByteString.null bytes then liftIO (writeIORef ended True) else count got (ByteString.length bytes)
      uninterruptibleMask_ (closeSocket b >> openGate readerDone ())
    pure ([writer, reader], writer, waitGate writerDone >> waitGate readerDone, (,) <$> readIORef sent <*> readIORef got)
  storm world total (concat [ts | (ts, _, _, _) <- pairs])
  arrived total hits
  liftIO (writeIORef over True)
  -- Those that wait with a full buffer need one more.
  forM_ pairs $ \(_, writer, _, _) -> cancel writer
  forM_ pairs $ \(_, _, wait, _) -> wait
  forM_ pairs $ \(_, _, _, counts) -> do
    (sent, got) <- liftIO counts
    got `is` sent

-- | Accepting and connecting threads, both cancelled.
connectionStorm :: World -> Int -> Thread ()
connectionStorm world total = do
  over <- liftIO (newIORef False)
  hits <- liftIO (newIORef 0)
  (l, address) <- listenLocal 64
  worldLeaveNoPort world l
  accepted <- liftIO (newIORef (0 :: Int))
  made <- liftIO (newIORef (0 :: Int))
  failures <- liftIO (newIORef [])
  let count ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
      -- The other side may have closed it already.
      refused e = unless (ioe_errno e `elem` [Just n | Errno n <- [eCONNRESET]]) $ liftIO (atomicModifyIORef' failures (\es -> (show (e :: IOError) : es, ())))
      close = uninterruptibleMask_ . closeSocket
  done <- replicateM 8 newGate
  ts <- forM (zip [0 ..] done) $ \(i, gate) ->
    forkWith defaultForkOptions {forkWorker = Just i} $ do
      rounds world over hits $
        if even i
          then accept l >>= \(s, _) -> count accepted >> worldLeaveNoPort world s >> close s
          else bracket (openSocket AF_INET Stream) close (\s -> worldLeaveNoPort world s >> try (connect s address) >>= either refused (\() -> count made))
      uninterruptibleMask_ (openGate gate ())
  storm world total ts
  liftIO (writeIORef over True)
  forM_ (zip ts done) $ \(t, gate) -> cancel t >> waitGate gate
  -- Connections that were not accepted still wait.
  let drain n = acceptBefore (milliseconds 20) l >>= maybe (pure n) (\(s, _) -> close s >> drain (n + 1))
  left <- drain (0 :: Int)
  (a, k) <- liftIO ((,) <$> readIORef accepted <*> readIORef made)
  holds (show (a, left, k)) (a + left >= k)
  liftIO (readIORef failures) >>= (`is` [])
  closeSocket l

-- | Threads that choose among all kinds of calls; every round is a bracket.
mixedStorm :: World -> Int -> ByteString -> Thread ()
mixedStorm world total dir = do
  over <- liftIO (newIORef False)
  hits <- liftIO (newIORef 0)
  entered <- liftIO (newIORef (0 :: Int))
  left <- liftIO (newIORef (0 :: Int))
  (silent, peer) <- unixPair dir
  (r, w) <- openPipe
  s <- openSocket AF_INET Datagram
  bind s (localHost 0)
  let count ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
      path = dir <> "/f"
      calls :: [Thread ()]
      calls =
        [ sleep (minutes 60),
          void (receive silent 10),
          awaitReadable silent,
          void (readPipe r 1),
          void (receiveFrom s 10),
          block,
          mask_ (bracket (openFile path ReadWrite) (uninterruptibleMask_ . closeFile) (\f -> writeAt f 0 "abc" >> void (readAt f 0 3))),
          blocking (pure ()),
          void (pathStatus dir),
          yield
        ]
  done <- replicateM 20 newGate
  ts <- forM (zip [0 ..] done) $ \(i, gate) -> do
    dice <- newDice i
    forkWith defaultForkOptions {forkWorker = Just i} $ do
      rounds world over hits $ do
        k <- roll dice (length calls)
        bracket_ (count entered) (count left) (calls !! k)
      uninterruptibleMask_ (openGate gate ())
  storm world total ts
  arrived total hits
  liftIO (writeIORef over True)
  forM_ (zip ts done) $ \(t, gate) -> cancel t >> waitGate gate
  (e, l) <- liftIO ((,) <$> readIORef entered <*> readIORef left)
  l `is` e
  mapM_ closeSocket [silent, peer, s]
  mapM_ closePipe [r, w]
