{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connections from machine to machine in a calm world
module Test.Network.Streams (tests) where

import Control.Monad (forM_, replicateM, void, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Either (fromRight)
import Data.IORef
import Data.Int (Int64)
import Data.List (isInfixOf)
import Foreign.C.Error
import Foreign.Storable (pokeElemOff)
import GHC.IO.Exception (ioe_errno)
import Network.Socket qualified as Network
import Test.Network.Local (local)
import Test.Network.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Internal.Core.Buffer (unsafeSlice)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.SystemCall qualified as Call
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Pipe
import Weft.Sim.Internal.Disk.Device (newDisks)
import Weft.Sim.Internal.Network (describeWait, newNetwork)
import Weft.Sim.Internal.Network.Links (Path (..))
import Weft.Sim.Internal.Network.Streams (sendFileToEnd)
import Weft.Sim.Internal.Network.Types (End (..), Flow (..), FlowWord (Held), Phase (..), newEnd, newFlow)
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World
import Weft.Socket
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Streams"
    $ [ testCase "an echo from machine to machine takes the links' time" echo,
        testCase "half-close either way" halfClose,
        testCase "a full buffer makes the sender wait, and only as long" backPressure,
        testCase "nothing and no room" emptyOnes,
        testCase "several pieces at once" vectors,
        testCase "a reset comes after what was sent, is told once, then the end" resetOnce,
        testCase "closing with unread bytes resets, and so does SO_LINGER 0" resets,
        testCase "several threads on one socket are served in order" inOrder,
        testCase "closing while others wait" closeWaiting,
        testCase "what was cancelled has taken nothing" cancelled,
        testCase "a descriptor of the operating system is refused" realDescriptor,
        testCase "a descriptor of another machine is refused" foreignDescriptor,
        testCase "numbers are used again, serials are not" numbers,
        testCase "the memory of what was sent is free at once" copied,
        testCase "files: pieces, the end, errors, no room" files,
        testCase "waiting is described with the peer" described
      ]
      <> local

echo :: Assertion
echo = do
  (_, notes) <- inWorld calm 1 $ \rig -> do
    t <- now
    (got, peer) <-
      connectedOver
        rig
        (\s -> sendAll s "hello" >> receiveExactly s 5 <* peerAddress s)
        (\s -> peerAddress s <* (receiveExactly s 5 >>= sendAll s))
    got `is` "hello"
    a <- machine rig "a"
    peer `is` SockAddrInet 49152 (addressOf a)
    t' <- now
    -- A pause of 1 ms, three ways for the handshake (the third with the bytes), one back.
    since t t' `is` microseconds 1_400
  notes @?= filter (not . null) notes
  assertBool (unlines notes) (any ("a 10.0.0.2:49152: connected to 10.0.0.3:7000" `isInfixOf`) notes)
  assertBool (unlines notes) (any ("a 10.0.0.2:49152 -> b 10.0.0.3:7000: segment of 5 bytes" `isInfixOf`) notes)

halfClose :: Assertion
halfClose = inCalm $ \rig ->
  void $
    connectedOver
      rig
      ( \s -> do
          sendAll s "question"
          shutdown s ShutdownSend
          receiveAll s >>= (`is` "you said: question")
          failsWith [ePIPE] (sendAll s "more")
          failsWith [ePIPE] (send s "")
          receive s 10 >>= (`is` "")
      )
      ( \s -> do
          asked <- receiveAll s
          sendMany s ["you said: ", asked]
          shutdown s ShutdownReceive
          receive s 10 >>= (`is` "")
          shutdown s ShutdownSend
          pause 5
      )

backPressure :: Assertion
backPressure = inCalm $ \rig ->
  void $
    connectedOver
      rig
      ( \s -> do
          sent <- fillUp s
          sent `is` streamBuffer calm
          writable <- spawn (awaitWritable s >> now)
          t <- now
          t' <- writable
          -- The receiver sleeps for 10 ms and its news take 100 µs.
          holds (show (since t t')) (since t t' > milliseconds 5)
          sendAll s (patternBytes sent 1_000_000)
          shutdown s ShutdownSend
          pure ()
      )
      ( \s -> do
          pause 10
          bytes <- receiveAll s
          holds "the bytes of the stream" (bytes == patternBytes 0 (streamBuffer calm + 1_000_000))
      )
  where
    fillUp s = go 0
      where
        go n =
          timeoutSend s (patternBytes n 100_000) >>= \case
            Nothing -> pure n
            Just m -> go (n + m)

-- Send, or give up after a millisecond.
timeoutSend :: Socket -> ByteString -> Thread (Maybe Int)
timeoutSend s bytes = do
  outcome <- liftIO (newIORef Nothing)
  t <- fork (send s bytes >>= liftIO . writeIORef outcome . Just)
  pause 1
  cancel t
  yield
  liftIO (readIORef outcome)

emptyOnes :: Assertion
emptyOnes = inCalm $ \rig ->
  void $
    connectedOver
      rig
      (\s -> send s "" >>= (`is` 0) >> pause 2 >> sendAll s "x" >> pause 2)
      ( \s -> do
          t <- now
          -- It does not wait, and is not told that the stream has ended.
          failsWith [eINVAL] (receive s 0)
          t' <- now
          since t t' `is` mempty
          receive s 10 >>= (`is` "x")
      )

vectors :: Assertion
vectors = inCalm $ \rig ->
  void $
    connectedOver
      rig
      (\s -> sendMany s parts >> sendMany s [] >> shutdown s ShutdownSend)
      (receiveAll >=> \got -> holds "pieces in order" (got == ByteString.concat parts))
  where
    parts = concat [[Char8.pack (show i), ""] | i <- [1 .. 200 :: Int]] <> [ByteString.replicate 500_000 120]

resetOnce :: Assertion
resetOnce = inCalm $ \rig ->
  void $
    connectedOver
      rig
      (\s -> sendAll s "before" >> setOption s Linger 0)
      ( \s -> do
          pause 5
          receiveExactly s 6 >>= (`is` "before")
          failsWith [eCONNRESET] (receive s 10)
          receive s 10 >>= (`is` "")
          failsWith [ePIPE] (sendAll s "x")
          failsWith [eNOTCONN] (peerAddress s)
          failsWith [eNOTCONN] (shutdown s ShutdownBoth)
      )

resets :: Assertion
resets = inCalm $ \rig -> do
  -- Unread bytes.
  _ <- connectedOver rig awaitReadable (\s -> sendAll s "unread" >> failsWith [eCONNRESET] (receive s 10))
  -- SO_ERROR takes the error.
  _ <-
    connectedOver
      rig
      (\s -> setOption s Linger 0)
      (\s -> pause 5 >> getOption s SoError >>= (`is` 104) >> receive s 10 >>= (`is` ""))
  -- Data for a closed socket.
  void $
    connectedOver
      rig
      (\_ -> pure ())
      ( \s -> do
          receive s 10 >>= (`is` "")
          -- The peer has closed it, as we know, but sending is allowed.
          sendAll s "too late"
          pause 5
          failsWith [ePIPE] (sendAll s "x")
          receive s 10 >>= (`is` "")
      )

inOrder :: Assertion
inOrder = inCalm $ \rig ->
  void $
    connectedOver
      rig
      (\s -> forM_ ["1", "2", "3", "4" :: ByteString] (\b -> sendAll s b >> pause 1))
      ( \s -> do
          waits <- replicateM 4 (spawn (receive s 10) <* yield)
          sequence waits >>= (`is` ["1", "2", "3", "4"])
      )

closeWaiting :: Assertion
closeWaiting = inCalm $ \_ -> do
  l <- listenAt 80 5
  let pair = do
        wait <- spawn (fst <$> accept l)
        s <- openSocket AF_INET Stream
        connect s (SockAddrInet 80 (Network.tupleToHostAddress (127, 0, 0, 1)))
        (,) s <$> wait
  (a, b) <- pair
  (p, q) <- pair
  (r, w) <- openPipe
  u <- openSocket AF_INET Datagram
  bind u (SockAddrInet 99 0)
  waits <-
    mapM
      (spawn . failsWith [eCANCELED])
      [ void (accept l),
        void (acceptBefore (seconds 60) l),
        awaitReadable l,
        awaitWritable l,
        void (receive a 10),
        void (awaitReadable a),
        sendAll p (ByteString.replicate 3_000_000 0),
        void (readPipe r 10),
        void (receiveFrom u 10),
        awaitReadable u
      ]
  sleep (milliseconds 2)
  mapM_ closeSocket [l, a, p, u]
  closePipe r
  sequence_ waits
  failsWith [ePIPE] (writePipe w "x")
  mapM_ closeSocket [b, q, b, q]
  closePipe w >> closePipe w
  failsWith [eBADF] (receive a 10)
  failsWith [eBADF] (readPipe r 10)

cancelled :: Assertion
cancelled = inCalm $ \rig ->
  void $
    connectedOver
      rig
      (\s -> pause 10 >> sendAll s "all of it" >> pause 10)
      ( \s -> do
          t <- fork (void (receive s 3))
          u <- fork (awaitReadable s)
          pause 2
          cancel t >> cancel u
          receiveExactly s 9 >>= (`is` "all of it")
      )

realDescriptor :: Assertion
realDescriptor = inCalm $ \rig -> do
  d <- liftIO (newDescriptor 3)
  r <- try (receive (Socket d AF_INET Stream) 10)
  case r of
    Right _ -> liftIO (assertFailure "it should have failed")
    Left (e :: IOError) -> do
      holds (show e) ("of the operating system" `isInfixOf` show e)
      holds "the errno" (fmap Errno (ioe_errno e) == Just eBADF)
      told <- liftIO (readIORef (rigWarnings rig))
      length told `is` 1

foreignDescriptor :: Assertion
foreignDescriptor = inCalm $ \rig -> do
  a <- machine rig "a"
  s <- openSocket AF_INET Stream
  residingAt a (failsWith [eBADF] (listen s 1))
  told <- liftIO (readIORef (rigWarnings rig))
  holds (show told) (any ("is of machine home" `isInfixOf`) told)
  closeSocket s

numbers :: Assertion
numbers = inCalm $ \_ -> do
  old <- openSocket AF_INET Stream
  closeSocket old
  new <- openSocket AF_INET Stream
  show new `is` show old
  failsWith [eBADF] (listen old 1)
  failsWith [eBADF] (bind old (SockAddrInet 0 0))
  failsWith [eBADF] (connect old (SockAddrInet 1 0))
  failsWith [eBADF] (accept old)
  failsWith [eBADF] (getOption old NoDelay)
  failsWith [eBADF] (awaitReadable old)
  closeSocket old
  listen new 1
  closeSocket new

copied :: Assertion
copied = inCalm $ \rig ->
  void $
    connectedOver
      rig
      ( \s -> do
          buffer <- liftIO (newBuffer 8)
          liftIO (withBuffer buffer (`copyTo` "original"))
          sendAll s (unsafeSlice buffer 0 8)
          liftIO (withBuffer buffer (`copyTo` "changed!"))
          pause 1
      )
      (\s -> receiveExactly s 8 >>= (`is` "original"))
  where
    copyTo p bytes = sequence_ [pokeElemOff p i b | (i, b) <- zip [0 ..] (ByteString.unpack bytes)]

files :: Assertion
files = do
  world <- newWorld calm 1 byChance (\_ -> pure ())
  net <- newDisks world >>= newNetwork world
  let home = worldHome world
  outgoing <- newFlow Through 10
  incoming <- newFlow Through 10
  let here = SockAddrUnix "x"
  a <- newEnd home here here incoming outgoing Nothing Established
  b <- newEnd home here here outgoing incoming (Just a) Established
  writeIORef (endPeer a) (Just b)
  let content = "0123456789abcdefghij" :: ByteString
      file o n = pure (Right (ByteString.take n (ByteString.drop (fromIntegral o) content)))
      attempt f o n = shown <$> sendFileToEnd net a f (o :: Int64) n
      shown = fmap (fromRight (-1))
  attempt file 3 4 >>= (@?= Just 4)
  attempt file 18 50 >>= (@?= Just 2)
  attempt file 20 50 >>= (@?= Just 0)
  attempt file 0 50 >>= (@?= Just 4)
  -- Full, but the end of the file is the end of the file.
  attempt file 0 50 >>= (@?= Nothing)
  attempt file 20 1 >>= (@?= Just 0)
  attempt (\_ _ -> pure (Left eBADF)) 0 1 >>= (@?= Just (-1))
  wordOf (flowWords outgoing) Held >>= (@?= 10)

described :: Assertion
described = inCalm $ \rig -> do
  l <- listenAt 80 5
  describing rig (Call.Accept l Nothing) (Just ", listening on 0.0.0.0:80")
  u <- openSocket AF_INET Datagram
  bind u (SockAddrInet 53 0)
  buffer <- liftIO (newBuffer 10)
  describing rig (Call.ReceiveFrom u buffer) (Just ", bound to 0.0.0.0:53")
  describing rig Call.Now Nothing
  _ <- connectedOver rig (\s -> describing rig (Call.Receive s buffer 0 1) (Just ", peer 10.0.0.3:7000")) pure
  mapM_ closeSocket [l, u]
  where
    describing :: Rig -> Call.SystemCall a -> Maybe String -> Thread ()
    describing rig request wanted = liftIO (describeWait (rigNetwork rig) request) >>= (`is` wanted)
