{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connections and pipes in a calm world
module Test.Network.Streams (tests) where

import Control.Monad (forM, forM_, replicateM, replicateM_, unless, void, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Either (fromRight)
import Data.IORef
import Data.Int (Int64)
import Data.List (isInfixOf)
import Data.Maybe (isNothing)
import Foreign.C.Error
import Foreign.Storable (pokeElemOff)
import Network.Socket qualified as Network
import System.IO.Error (ioeGetErrorString, isUserError)
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
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk (newDisks)
import Weft.Sim.Internal.Network (describeWait, newNetwork)
import Weft.Sim.Internal.Network.Links (Path (..))
import Weft.Sim.Internal.Network.Streams (sendFileToEnd)
import Weft.Sim.Internal.Network.Types (End (..), Flow (..), Phase (..), newEnd, newFlow)
import Weft.Sim.Internal.World
import Weft.Socket
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Streams"
    [ testCase "an echo from machine to machine takes the links' time" echo,
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
      testCase "Unix domain: within a machine, by path" unixDomain,
      testCase "Unix domain: a full backlog makes connect wait" unixBacklog,
      testCase "pipes" pipes,
      testCase "pipes: small writes stay together" atomicWrites,
      testCase "who stood behind one that gives up is served" giveUp,
      testCase "waiting is described with the peer" described
    ]

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
    Left e -> do
      holds (show e) (isUserError e && "of the operating system" `isInfixOf` ioeGetErrorString e)
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
  home <- homeMachine world
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
  readIORef (flowHeld outgoing) >>= (@?= 10)

unixDomain :: Assertion
unixDomain = inCalm $ \rig -> do
  l <- openSocket AF_UNIX Stream
  failsWith [eINVAL] (listen l 5)
  bind l (SockAddrUnix "/s")
  listen l 5
  other <- openSocket AF_UNIX Stream
  failsWith [eADDRINUSE] (bind other (SockAddrUnix "/s"))
  failsWith [eNOENT] (connect other (SockAddrUnix "/nobody"))
  failsWith [eNOTCONN] (send other "x")
  failsWith [eINVAL] (receive other 1)
  a <- machine rig "a"
  residingAt a (withSocket (openSocket AF_UNIX Stream) (\s -> failsWith [eNOENT] (connect s (SockAddrUnix "/s"))))
  connect other (SockAddrUnix "/s")
  (s, _) <- accept l
  peerAddress other >>= (`is` SockAddrUnix "/s")
  sendAll other "there" >> receiveExactly s 5 >>= (`is` "there")
  sendAll s "back" >> receiveExactly other 4 >>= (`is` "back")
  closeSocket s
  receive other 1 >>= (`is` "")
  failsWith [ePIPE] (sendAll other "x")
  closeSocket l
  again <- openSocket AF_UNIX Stream
  failsWith [eCONNREFUSED] (connect again (SockAddrUnix "/s"))
  mapM_ closeSocket [other, again]

unixBacklog :: Assertion
unixBacklog = inCalm $ \_ -> do
  l <- openSocket AF_UNIX Stream
  bind l (SockAddrUnix "/s")
  listen l 1
  socks <- replicateM 3 (openSocket AF_UNIX Stream)
  waits <- forM socks $ \s -> spawn (connect s (SockAddrUnix "/s")) <* yield
  fourth <- openSocket AF_UNIX Stream
  failsWith [eTIMEDOUT] (connectBefore (milliseconds 5) fourth (SockAddrUnix "/s"))
  fifth <- openSocket AF_UNIX Stream
  closing <- spawn (failsWith [eCANCELED] (connect fifth (SockAddrUnix "/s")))
  pause 1
  closeSocket fifth
  closing
  accepted <- replicateM 3 (fst <$> accept l)
  sequence_ waits
  acceptBefore (milliseconds 1) l >>= holds "nobody else came" . isNothing
  mapM_ closeSocket (l : fourth : socks <> accepted)

pipes :: Assertion
pipes = inCalm $ \_ -> do
  (r, w) <- openPipe
  writer <- spawn (writePipe w (patternBytes 0 300_000) >> closePipe w)
  let readAll = do
        bytes <- readPipe r 7_000
        if ByteString.null bytes then pure [] else (bytes :) <$> readAll
  got <- ByteString.concat <$> readAll
  writer
  holds "the pipe's bytes" (got == patternBytes 0 300_000)
  failsWith [eINVAL] (readPipe r 0)
  failsWith [eBADF] (writePipe r "x")
  closePipe r
  (r', w') <- openPipe
  failsWith [eBADF] (readPipe w' 1)
  stuck <- spawn (failsWith [ePIPE] (writePipe w' (ByteString.replicate 100_000 0)))
  pause 1
  closePipe r'
  stuck
  closePipe w'
  failsWith [eNOENT] (openFifo "/fifo" Call.ReadOnly)

atomicWrites :: Assertion
atomicWrites = do
  _ <- inWorld rough 5 $ \_ -> do
    (r, w) <- openPipe
    writers <- forM [1 .. 8] $ \i -> spawn (replicateM_ 40 (writePipe w (ByteString.replicate 3_000 i)))
    let blocks n = unless (n == (0 :: Int)) $ do
          block <- exactly 3_000
          holds "one writer's bytes" (ByteString.all (== ByteString.head block) block)
          blocks (n - 1)
        exactly n
          | n == 0 = pure ""
          | otherwise = readPipe r n >>= \b -> (b <>) <$> exactly (n - ByteString.length b)
    blocks 320
    sequence_ writers
    mapM_ closePipe [r, w]
  pure ()

giveUp :: Assertion
giveUp = inCalm $ \_ -> do
  (r, w) <- openPipe
  writePipe w (ByteString.replicate 65_000 0)
  large <- fork (writePipe w (ByteString.replicate 4_000 1))
  yield
  small <- spawn (writePipe w (ByteString.replicate 100 2) >> now)
  pause 1
  cancel large
  t <- now
  t' <- small
  since t t' `is` milliseconds 0
  mapM_ closePipe [r, w]

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
