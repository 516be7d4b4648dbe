{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Loops that receive in the same place again and again
--
-- They mean the same as a loop around 'receive', whatever a kernel keeps of their waits: with
-- several readers of a socket, a thread that moves, cancellation, closing, and a body that
-- changes the thread's state.
module Weft.Conformance.Standing (standingReceives) where

import Control.Monad (forM, forM_, join, replicateM, replicateM_, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (sort)
import Foreign.C.Error
import GHC.Stack (HasCallStack)
import Test.Tasty
import Weft
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.StandingPrograms
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Mask
import Weft.Socket

-- | 'receiveEach' and 'receiveEachInto'.
standingReceives :: World -> TestTree
standingReceives world =
  testGroup
    "standing receives"
    [ conforms world "an echo of many rounds, and its end" (echoes world),
      conforms world "a body that masks, catches, sleeps, forks and receives by itself" (restless world),
      conforms world "what is there already is received without waiting" eager,
      conforms world "several loops on one socket: each byte is one's" (several world),
      conforms world "a loop and a receive take turns" (mixed world),
      conforms world "two loops, one after the other, on one socket" successors,
      conforms world "cancelled while it waits, again and again, nothing is lost" (cancelled world),
      conforms world "cancelled in its body, it does not wait again" (condemned id),
      -- The cancellation finds it where it waits, and nowhere before.
      conforms world "cancelled in its body and masked, it does not wait again" (condemned mask_),
      conforms world "masked uninterruptibly it waits, and is not interrupted" uninterruptible,
      conforms world "closed while it waits, in the first round and in a later one" (closedWaiting world),
      conforms world "closed in its body, it is refused" closedInside,
      conforms world "closed, and the number in use again: the loop does not read from it" reused,
      conforms world "the peer ends, in the first round and in a later one" ended,
      conforms world "without room" roomless,
      randomReaders world
    ]

-- | These bytes come.
expect :: (HasCallStack) => Socket -> ByteString -> Thread ()
expect s bytes = receiveExactly s (ByteString.length bytes) ===> bytes

-- | Send back what comes.
echo :: Socket -> Thread ()
echo s = receiveEach s 64 $ \bytes ->
  if ByteString.null bytes then pure (Just ()) else Nothing <$ sendAll s bytes

echoes :: World -> Thread ()
echoes world = do
  pairs <- replicateM 3 connected
  waits <- forM pairs (\(_, b) -> beside world (echo b))
  forM_ [1 .. 40 :: Int] $ \i -> forM_ pairs $ \(a, _) -> do
    let bytes = Char8.pack (take (i * 3) (cycle (show i)))
    sendAll a bytes
    receiveExactly a (ByteString.length bytes) ===> bytes
  forM_ pairs (\(a, _) -> shutdown a ShutdownSend)
  sequence_ waits
  forM_ pairs (\(a, b) -> closeSocket b >> receive a 1 >>= (`is` "") >> closeSocket a)

restless :: World -> Thread ()
restless world = do
  (a, b) <- connected
  round' <- liftIO (newIORef (0 :: Int))
  wait <- beside world . receiveEachInto' b $ \n -> do
    i <- liftIO (atomicModifyIORef' round' (\i -> (i + 1, i)))
    case i `mod` 6 of
      0 -> mask_ yield
      1 -> void (try (throwM (userError "caught")) :: Thread (Either IOError ()))
      2 -> sleep (milliseconds 1)
      3 -> join (spawn yield)
      4 -> yield
      -- Another receive, in another place.
      _ -> sendAll b "more?" >> expect b "yes"
    if n == 0 then pure (Just i) else Nothing <$ sendAll b "."
  forM_ [0 .. 17 :: Int] $ \i -> do
    sendAll a "x"
    when (i `mod` 6 == 5) $ expect a "more?" >> sendAll a "yes"
    receiveExactly a 1 ===> "."
  shutdown a ShutdownSend
  wait ===> 18
  closeSocket a >> closeSocket b

receiveEachInto' :: Socket -> (Int -> Thread (Maybe a)) -> Thread a
receiveEachInto' s body = liftIO (newBuffer 64) >>= \buffer -> receiveEachInto s buffer body

eager :: Thread ()
eager = do
  (a, b) <- connected
  sendAll a "abcde"
  shutdown a ShutdownSend
  got <- liftIO (newIORef [])
  receiveEach b 2 $ \bytes -> do
    liftIO (modifyIORef' got (bytes :))
    pure (if ByteString.null bytes then Just () else Nothing)
  (ByteString.concat . reverse <$> liftIO (readIORef got)) ===> "abcde"
  closeSocket a >> closeSocket b

-- | Collect bytes until the end.
collecting :: Socket -> Thread ByteString
collecting s = do
  got <- liftIO (newIORef [])
  receiveEach s 3 $ \bytes -> do
    liftIO (modifyIORef' got (bytes :))
    if ByteString.null bytes then Just . ByteString.concat . reverse <$> liftIO (readIORef got) else Nothing <$ yield

several :: World -> Thread ()
several world = do
  (a, b) <- connected
  waits <- sequence [if even i then spawn (collecting b) else beside world (collecting b) | i <- [1 .. 4 :: Int]]
  let bytes = ByteString.pack [1 .. 200]
  forM_ (ByteString.unpack bytes) $ \x -> do
    sendAll a (ByteString.singleton x)
    when (x `mod` 7 == 0) $ sleep (milliseconds 1)
  shutdown a ShutdownSend
  got <- sequence waits
  sort (concatMap ByteString.unpack got) `is` ByteString.unpack bytes
  closeSocket a >> closeSocket b

mixed :: World -> Thread ()
mixed world = do
  (a, b) <- connected
  loop <- spawn (collecting b)
  once <- forM [1 .. 5 :: Int] $ \i -> (if even i then spawn else beside world) (receive b 3)
  forM_ [1 .. 30 :: Int] $ \i -> sendAll a (Char8.pack (show (i `mod` 10))) >> when (even i) (sleep (milliseconds 1))
  shutdown a ShutdownSend
  got <- sequence (loop : once)
  sort (concatMap Char8.unpack got) `is` sort (concatMap (show . (`mod` 10)) [1 .. 30 :: Int])
  closeSocket a >> closeSocket b

successors :: Thread ()
successors = do
  (a, b) <- connected
  let until' c = receiveEach b 1 (\bytes -> pure (if bytes == c then Just () else Nothing))
  wait <- spawn (mapM_ until' ["x", "y", "x", "y"])
  forM_ ["x", "q", "y", "q", "q", "x", "y"] (\c -> sendAll a c >> sleep (milliseconds 1))
  wait
  closeSocket a >> closeSocket b

cancelled :: World -> Thread ()
cancelled world = do
  (a, b) <- connected
  got <- liftIO (newIORef [])
  let reading = receiveEach b 4 $ \bytes -> do
        liftIO (atomicModifyIORef' got (\bs -> (bytes : bs, ())))
        pure (if ByteString.null bytes then Just () else Nothing)
      sent = [Char8.pack (show i <> ";") | i <- [1 .. 24 :: Int]]
  forM_ sent $ \bytes -> do
    t <- forkWith defaultForkOptions {forkWorker = Just (worldWorkers world - 1)} reading
    yield
    sendAll a bytes
    -- In some rounds it waits already, in others not: either is allowed.
    yield
    cancelAndWait t
  shutdown a ShutdownSend
  reading
  all' <- ByteString.concat . reverse <$> liftIO (readIORef got)
  all' `is` ByteString.concat sent
  closeSocket a >> closeSocket b

condemned :: (Thread () -> Thread ()) -> Thread ()
condemned around = do
  (a, b) <- connected
  inside <- newGate
  goOn <- newGate
  rounds <- liftIO (newIORef (0 :: Int))
  -- With room for more than comes: what fills its room is followed by a receive that does not wait.
  t <- fork . around . receiveEach b 64 $ \_ -> do
    n <- liftIO (atomicModifyIORef' rounds (\n -> (n + 1, n + 1)))
    -- The first rounds make the wait one that stands.
    if n < 3 then sendAll b "." else mask_ (openGate inside () >> uninterruptibleMask_ (waitGate goOn))
    pure (Nothing :: Maybe ())
  replicateM_ 2 (sendAll a "x" >> expect a ".")
  sendAll a "x"
  waitGate inside
  cancel t
  eventually "its cancellation" (isCondemned t)
  openGate goOn ()
  eventually "its end" (hasEnded t)
  liftIO (readIORef rounds) >>= (`is` 3)
  -- The socket is as it was.
  sendAll a "y"
  receiveExactly b 1 ===> "y"
  closeSocket a >> closeSocket b

uninterruptible :: Thread ()
uninterruptible = do
  (a, b) <- connected
  t <- fork . uninterruptibleMask_ $ echo b
  replicateM_ 3 (sendAll a "x" >> expect a "x")
  cancel t
  sendAll a "z"
  receiveExactly a 1 ===> "z"
  shutdown a ShutdownSend
  eventually "its end" (hasEnded t)
  closeSocket a >> closeSocket b

closedWaiting :: World -> Thread ()
closedWaiting world = forM_ [0, 1, 4 :: Int] $ \rounds -> do
  (a, b) <- connected
  wait <- beside world (failsWith [eCANCELED, eBADF] (echo b))
  replicateM_ rounds (sendAll a "x" >> expect a "x")
  sleep (milliseconds 1)
  closeSocket b
  wait
  closeSocket a

closedInside :: Thread ()
closedInside = forM_ [0, 1, 4 :: Int] $ \rounds -> do
  (a, b) <- connected
  count <- liftIO (newIORef rounds)
  wait <- spawn . failsWith [eBADF] . receiveEach b 64 $ \_ -> do
    n <- liftIO (readIORef count)
    liftIO (writeIORef count (n - 1))
    if n == 0 then closeSocket b else sendAll b "."
    pure (Nothing :: Maybe ())
  replicateM_ rounds (sendAll a "x" >> expect a ".")
  sendAll a "x"
  wait
  closeSocket a

reused :: Thread ()
reused = do
  (a, b) <- connected
  next <- liftIO (newIORef Nothing)
  wait <- spawn . failsWith [eBADF] . receiveEach b 64 $ \bytes ->
    if bytes == "c"
      then do
        closeSocket b
        -- One of these has the number.
        pair@(p, q) <- connected
        forM_ [p, q] (`sendAll` "not for you")
        liftIO (writeIORef next (Just pair))
        pure Nothing
      else (Nothing :: Maybe ()) <$ sendAll b "."
  replicateM_ 3 (sendAll a "x" >> expect a ".")
  sendAll a "c"
  wait
  liftIO (readIORef next) >>= mapM_ (\(p, q) -> forM_ [p, q] (\s -> expect s "not for you" >> closeSocket s))
  closeSocket a

ended :: Thread ()
ended = forM_ [0, 1, 4 :: Int] $ \rounds -> do
  (a, b) <- connected
  wait <- spawn (echo b)
  replicateM_ rounds (sendAll a "x" >> expect a "x")
  sleep (milliseconds 1)
  closeSocket a
  wait
  -- The end is there as often as one asks.
  receiveEach b 1 (pure . Just) ===> ""
  closeSocket b

roomless :: Thread ()
roomless = do
  (a, b) <- connected
  sendAll a "x"
  failsWith [eINVAL] (receiveEach b 0 (pure . Just))
  receive b 1 ===> "x"
  closeSocket a >> closeSocket b
