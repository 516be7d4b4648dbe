{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Machines that talk in segments
--
-- Bytes between two machines, a machine without a service, one that crashes and comes back, a link
-- that is cut; and that a run is a function of its seed.
module MachinesTest (tests) where

import Control.Monad (forM_, replicateM, replicateM_, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (isInfixOf)
import Peers
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Weft
import Weft.Attempt
import Weft.Scope
import Weft.Sim
import Weft.Socket
import Weft.Tcp.Simulated
import Weft.Test.Loopback (toEnd)
import Weft.Time
import Weft.Timeout

tests :: TestTree
tests =
  testGroup
    "machines"
    [ testCase "bytes arrive once, in order, unchanged" $
        check (over calmIp defaultConfig) [0 .. 4] (exchange 20000) (flawlessAnd id),
      testCase "also over links that lose, double, reorder and corrupt" $
        check (over roughIp roughConfig) [0 .. 9] (exchange 20000) (flawlessAnd id),
      testCase "such links are used" $ do
        told <- timelineOf (over roughIp {ipDuplication = 0.1, ipCorruption = 0.1} roughConfig) (exchange 20000)
        forM_ [" is lost", " is doubled", " is overtaken", " is corrupted"] $ \what ->
          assertBool what (any (what `isInfixOf`) told),
      testCase "a run is a function of its seed" $
        isDeterministic (over roughIp roughConfig) 3 (exchange 5000) >>= (@?= Nothing),
      testCase "nothing of it is outside of the world" $
        audit (over roughIp roughConfig) 4 (exchange 5000) >>= (@?= []),
      testCase "a machine without a server refuses" . check (over calmIp defaultConfig) [0 .. 4] refused $
        flawlessAnd (\e -> if "refused" `isInfixOf` e then Nothing else Just e),
      testCase "after a crash the old connection is reset and a new one is served" $
        check (over calmIp defaultConfig) [0 .. 9] crashed (flawlessAnd id),
      testCase "what a cut link loses is sent again" $
        check (over calmIp defaultConfig {configFaults = cutFor}) [0 .. 1] (exchange 200000) (flawlessAnd id),
      testGroup
        "connections are reset on the way, at both ends"
        [ testCase (ipName ip) $
            check (over ip defaultConfig {configConditions = calm {connectionResets = 0.1}}) [0 .. 4] resetting (flawlessAnd (\(there, here) -> if here > 5 && abs (here - there) <= 3 then Nothing else Just (show (there, here))))
          | ip <- [calmIp, calmIp {ipName = "Ethernet", ipEthernet = True}]
        ],
      testCase "very many waits that end at one time end" $
        check (over calmIp defaultConfig) [0 .. 1] limits (flawlessAnd id),
      testCase "a socket that is left open is told" $ do
        r <- simulate 0 (over calmIp defaultConfig) (void (listenTcp Nothing "80" 1))
        resultDescriptors r @?= 1,
      testCase "a port in TIME-WAIT connects again to the same service after a second" $
        check (over calmIp defaultConfig) [0 .. 4] onePort (flawlessAnd id),
      testCase "datagrams that are asked for until they are there" $
        check (over roughIp roughConfig) [0 .. 9] (questions 100) (flawlessAnd id),
      testCase "datagrams on the way are lost, doubled and overtaken" $ do
        told <- timelineOf (over roughIp {ipDuplication = 0.1, ipCorruption = 0.1} roughConfig) (questions 100)
        forM_ [" is lost", " is doubled", " is overtaken"] $ \what ->
          assertBool what (any (\line -> ": datagram, " `isInfixOf` line && what `isInfixOf` line) told),
      testCase "what an attempt sends after an hour is sent once" $ do
        told <- timelineOf (over calmIp defaultConfig) patient
        length (filter (", 1 bytes" `isInfixOf`) told) @?= 2
    ]
  where
    cutFor = [At 101_000_000 (Cut ["home"] ["server"]), At 3_000_000_000 Heal]

over :: IpSettings -> Config -> Config
over ip config = config {configLayer = overSegments ip}

-- | Both send the given number of bytes at once; a complaint if what comes is something else.
exchange :: Int -> Thread (Maybe String)
exchange size = do
  (other, got) <- withServer (\l -> withSocket (fst <$> accept l) (talk (content size 2))) (\there -> connected there (talk (content size 1)))
  let wrong = [name :: String | (name, one, two) <- [("the client", got, content size 2), ("the server", other, content size 1)], one /= two]
  pure (if null wrong then Nothing else Just (show wrong <> " read something else"))

-- | Of twenty conversations of ten bytes each way, how many are reset: for the server, and for the client.
resetting :: Thread (Int, Int)
resetting = withServer (\l -> count (withSocket (fst <$> accept l) (\s -> replicateM_ 10 (one s >> sendAll s "y")))) (\there -> count (connected there (\s -> replicateM_ 10 (sendAll s "x" >> one s))))
  where
    one s = receive s 1 >>= \b -> when (B.null b) (throwM (userError "it has ended"))
    count :: Thread () -> Thread Int
    count act = length . filter (either (\e -> "reset" `isInfixOf` show (e :: IOError)) (const False)) <$> replicateM 20 (try act)

-- | Wait for connections that do not come.
limits :: Thread (Maybe String)
limits = withSocket (listenTcp Nothing "80" 16) $ \l -> withScope $ \scope -> do
  waiting <- replicateM 600 (forkIn scope (acceptBefore (seconds 1) l))
  came <- mapM awaitChild waiting
  pure (if all null came then Nothing else Just "a connection came")

-- | Three conversations from one port, the second one too early.
onePort :: Thread (Maybe String)
onePort = do
  (served, (one, early, two)) <- withServer (\l -> replicateM 2 (withSocket (fst <$> accept l) (talk "y"))) $ \there -> do
    let conversation = withSocket (openSocket AF_INET Stream) $ \s -> do
          bind s (SockAddrInet 5000 0)
          connect s (SockAddrInet 80 (machineAddress there))
          -- This end is the first to close.
          sendAll s "x" >> shutdown s ShutdownSend >> toEnd s
    one <- conversation
    sleep (milliseconds 900)
    early <- try conversation
    sleep (milliseconds 200)
    (one,either (\e -> show (e :: IOError)) show early,) <$> conversation
  pure (if (served, one, two) == (["x", "x"], "y", "y") && "in use" `isInfixOf` early then Nothing else Just (show (served, one, early, two)))

-- | Ask the given number of questions, each until its answer is there; a complaint if a datagram is no answer
-- to a question that was asked. Answers to earlier questions may be late, and come twice.
questions :: Int -> Thread (Maybe String)
questions count = do
  there <- newMachine "server"
  ready <- liftIO (newIORef False)
  boot there . withSocket (openSocket AF_INET Datagram) $ \s -> do
    bind s (SockAddrInet 53 0)
    liftIO (writeIORef ready True)
    let go = receiveFrom s 2000 >>= \(bytes, from) -> sendTo s (B.reverse bytes) from >> go in go
  waitFor ready
  withSocket (openSocket AF_INET Datagram) $ \s -> do
    connect s (SockAddrInet 53 (machineAddress there))
    let ask i = do
          void (send s (question i))
          timeout (milliseconds 100) (await i) >>= maybe (ask i) pure
        await i = do
          answer <- receive s 2000
          if
            | answer == B.reverse (question i) -> pure Nothing
            | answer `elem` map (B.reverse . question) [1 .. i - 1] -> await i
            | otherwise -> pure (Just ("a strange answer to question " <> show i))
        go i = if i > count then pure Nothing else ask i >>= maybe (go (i + 1)) (pure . Just)
    go 1
  where
    question i = content (7 * i) i

refused :: Thread String
refused = do
  there <- newMachine "server"
  r <- try (connected there pure)
  pure (either (\e -> show (e :: IOError)) (const "connected") r)

-- | A server that answers each byte with itself, for as long as its machine lives.
crashed :: Thread (Maybe String)
crashed = do
  there <- newMachine "server"
  let served = withSocket (listenTcp Nothing "80" 16) $ \l ->
        let go = accept l >>= \(s, _) -> fork_ (withSocket (pure s) echo) >> go in go
      echo s = do
        bytes <- receive s 10
        when (bytes /= B.empty) (sendAll s bytes >> echo s)
      asked s = sendAll s "x" >> receive s 1
      open = do
        s <- openSocket AF_INET Stream
        s <$ connect s (SockAddrInet 80 (machineAddress there))
  boot there served
  sleep (milliseconds 10)
  withSocket open $ \old -> do
    one <- asked old
    crash there
    sleep (seconds 1)
    restart there
    sleep (seconds 1)
    two <- try (asked old)
    three <- withSocket open asked
    pure $ case two of
      Left e | "reset" `isInfixOf` show (e :: IOError), one == "x", three == "x" -> Nothing
      _ -> Just (show (one, two, three))

-- | A byte by an attempt now, and one an hour later, whose timer must not go by the clock of an hour
-- ago.
patient :: Thread ()
patient = void . withServer (\l -> withSocket (fst <$> accept l) toEnd) $ \there -> do
  tries <- attempts
  connected there $ \s -> replicateM_ 2 (liftIO (trySend tries s "x") >> sleep (minutes 60))

timelineOf :: Config -> Thread a -> IO [String]
timelineOf config program = renderTimeline . resultTimeline <$> simulateRecorded 1 config program
