{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : What options of sockets do
--
-- Two machines in virtual time. The link between them is cut two seconds after the beginning, where a test needs that.
module OptionsTest (tests) where

import Control.Monad (forM_, void)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (intercalate)
import Data.Maybe (isNothing)
import Foreign.C.Error
import GHC.IO.Exception (IOException (ioe_errno))
import Peers
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Weft
import Weft.Sim
import Weft.Socket
import Weft.Tcp.Options (congestionNamed)
import Weft.Tcp.Simulated
import Weft.Time
import Weft.Timeout

tests :: TestTree
tests =
  testGroup
    "options"
    [ cutting "TCP_USER_TIMEOUT ends a connection that gets no answer" $ talking $ \s -> do
        setOption s userTimeout 3000
        sleep (seconds 3)
        (lasted, r) <- timed (try (send s "lost" >> receive s 1))
        expect [("fails with ETIMEDOUT", failedWith eTIMEDOUT r), ("after 3 s: " <> show lasted, near 3 lasted)],
      cutting "keep-alive finds that the peer is gone, by its options" $ talking $ \s -> do
        -- The times come first, as programs may set them.
        forM_ [(keepIdle, 10), (keepInterval, 2), (keepCount, 3)] (uncurry (setOption s))
        setOption s KeepAlive 1
        (lasted, r) <- timed (try (receive s 1))
        expect [("fails with ETIMEDOUT", failedWith eTIMEDOUT r), ("after 10 and 3 times 2 s: " <> show lasted, near 16 lasted)],
      cutting "TCP_SYNCNT says how often a connection is asked for" $ do
        there <- newMachine "server"
        sleep (seconds 3)
        withSocket (openSocket AF_INET Stream) $ \s -> do
          setOption s synCount 2
          (lasted, r) <- timed (try (connect s (SockAddrInet 80 (machineAddress there))))
          expect [("fails with ETIMEDOUT", failedWith eTIMEDOUT r), ("after 1 + 2 + 4 s: " <> show lasted, near 7 lasted)],
      whole "a close with SO_LINGER waits for what is not acknowledged" $ talking $ \s -> do
        setOption s Linger 5
        sendAll s (content 50000 1)
        (lasted, ()) <- timed (closeSocket s)
        expect [("as long as it took: " <> show lasted, lasted > 0 && lasted < 1)],
      cutting "but no longer than it says" $ talking $ \s -> do
        setOption s Linger 5
        sleep (seconds 3)
        sendAll s "lost"
        (lasted, ()) <- timed (closeSocket s)
        expect [("5 s: " <> show lasted, near 5 lasted)],
      cutting "and not when it is cancelled" $ talking $ \s -> do
        setOption s Linger 5
        sleep (seconds 3)
        sendAll s "lost"
        (lasted, r) <- timed (timeout (seconds 1) (closeSocket s))
        expect [("1 s: " <> show lasted, near 1 lasted && isNothing r)],
      whole "TCP_CORK holds back what fills no segment, TCP_NODELAY nothing" $ do
        first <- newIORef' []
        talkingWith (\s -> sleep (milliseconds 50) >> receive s 10 >>= note first >> receive s 10 >>= note first) $ \s -> do
          setOption s cork 1
          sendAll s "a"
          sleep (milliseconds 100)
          sendAll s "b"
          setOption s cork 0
          sleep (milliseconds 100)
          setOption s NoDelay 1
          sendAll s "c"
          void (receive s 1)
        got <- liftIO (readIORef first)
        expect [("together, then the last: " <> show got, got == ["c", "ab"])],
      whole "TCP_MAXSEG bounds the segments of both" $ talking $ \_ -> do
        there <- newMachine "other"
        sizes <- newIORef' []
        boot there . withSocket (listenTcp Nothing "80" 1) $ \l -> withSocket (fst <$> accept l) $ \s -> do
          size <- getOption s maxSegment
          liftIO (modifyIORef' sizes (size :))
          void (receive s 1)
        sleep (milliseconds 100)
        withSocket (openSocket AF_INET Stream) $ \s -> do
          setOption s maxSegment 600
          connect s (SockAddrInet 80 (machineAddress there))
          mine <- getOption s maxSegment
          sleep (milliseconds 100)
          theirs <- liftIO (readIORef sizes)
          -- Timestamps take 12 bytes of it.
          expect [("both: " <> show (mine, theirs), mine == 588 && theirs == [588])],
      whole "TCP_DEFER_ACCEPT accepts a connection with its first bytes" $ do
        there <- newMachine "server"
        accepted <- newIORef' []
        boot there . withSocket (openSocket AF_INET Stream) $ \l -> do
          setOption l deferAccept 10
          bind l (SockAddrInet 80 0)
          listen l 16
          withSocket (fst <$> accept l) $ \s -> now >>= note accepted >> receive s 1 >>= sendAll s
        sleep (milliseconds 100)
        connected there $ \s -> do
          sleep (milliseconds 500)
          none <- liftIO (readIORef accepted)
          sendAll s "x"
          echo <- receive s 1
          expect [("not before", null none), ("then answered", echo == "x")],
      whole "SO_RCVLOWAT lets a read wait for that many bytes, or the end" $ do
        got <- newIORef' []
        talkingWith
          ( \s -> do
              setOption s lowWater 3
              receive s 10 >>= note got
              receive s 10 >>= note got
              sendAll s "x"
          )
          $ \s -> do
            setOption s NoDelay 1
            forM_ ["a", "b", "c", "d"] (\x -> sendAll s x >> sleep (milliseconds 50))
            shutdown s ShutdownSend
            void (receive s 1)
        pieces <- liftIO (readIORef got)
        expect [("three, then the rest: " <> show pieces, pieces == ["d", "abc"])],
      whole "data for a user that has shut down both directions are answered by a reset" $ do
        told <- newIORef' []
        talkingWith
          ( \s -> do
              void (receive s 1)
              sendAll s "x"
              sleep (milliseconds 100)
              try (sendAll s "y") >>= note told . failedWith ePIPE
          )
          $ \s -> do
            shutdown s ShutdownBoth
            sleep (seconds 1)
        reset <- liftIO (readIORef told)
        expect [(show reset, reset == [True])],
      whole "options are read as they were set, and what is not there is refused" $ talking $ \s -> do
        defaults <- mapM (getOption s) [userTimeout, keepIdle, keepInterval, keepCount, cork, synCount, linger2, deferAccept, quickAck, lowWater, Linger]
        forM_ [(keepIdle, 10), (quickAck, 0), (tos, 0x2b), (congestion, congestionNamed "reno"), (RecvBuffer, 10000), (SendBuffer, 10000), (Linger, 7)] (uncurry (setOption s))
        set <- mapM (getOption s) [keepIdle, quickAck, tos, congestion, RecvBuffer, SendBuffer, Linger]
        setOption s congestion (congestionNamed "cubic")
        refused <- mapM (\(o, v, e) -> failedWith e <$> try (setOption s o v)) [(SockOpt 6 9999, 1, eNOPROTOOPT), (SockOpt 1 60, 1, eNOPROTOOPT), (congestion, congestionNamed "bbr", eNOENT), (keepIdle, 0, eINVAL), (Type, 1, eNOPROTOOPT)]
        unread <- failedWith eNOPROTOOPT <$> try (getOption s (SockOpt 6 9999))
        expect
          [ (show defaults, defaults == [0, 7200, 75, 9, 0, 6, 60, 0, 1, 1, -1]),
            (show set, set == [10, 0, 0x28, congestionNamed "reno", 20000, 20000, 7]),
            (show refused, and (unread : refused))
          ]
    ]
  where
    whole name program = testCase name (check (over defaultConfig) [0, 1] program (flawlessAnd id))
    cutting name program = testCase name (check (over defaultConfig {configFaults = [At 2_000_000_000 (Cut ["home"] ["server"])]}) [0, 1] program (flawlessAnd id))
    over config = config {configLayer = overSegments calmIp}
    newIORef' = liftIO . newIORef
    note ref x = liftIO (modifyIORef' ref (x :))

-- | A connection to a server that reads.
talking :: (Socket -> Thread a) -> Thread a
talking = talkingWith toEnd'
  where
    toEnd' s = receive s 1000 >>= \b -> if B.null b then pure () else toEnd' s

talkingWith :: (Socket -> Thread ()) -> (Socket -> Thread a) -> Thread a
talkingWith serve body = do
  there <- newMachine "server"
  boot there . withSocket (listenTcp Nothing "80" 16) $ \l -> withSocket (fst <$> accept l) (void . (try :: Thread () -> Thread (Either IOError ())) . serve)
  sleep (milliseconds 100)
  connected there body

-- | How many seconds something took, and its answer.
timed :: Thread a -> Thread (Double, a)
timed body = do
  before <- now
  a <- body
  later <- now
  pure (toSeconds (before `since` later), a)

near :: Double -> Double -> Bool
near wanted lasted = abs (wanted - lasted) < 0.5

failedWith :: Errno -> Either IOError a -> Bool
failedWith (Errno e) = either ((== Just e) . ioe_errno) (const False)

-- | A complaint if something is not so.
expect :: [(String, Bool)] -> Thread (Maybe String)
expect things = pure (case [what | (what, False) <- things] of [] -> Nothing; wrong -> Just (intercalate "; " wrong))

userTimeout, keepIdle, keepInterval, keepCount, cork, synCount, linger2, deferAccept, quickAck, congestion, maxSegment, lowWater, tos :: SocketOption
userTimeout = SockOpt 6 18
keepIdle = SockOpt 6 4
keepInterval = SockOpt 6 5
keepCount = SockOpt 6 6
cork = SockOpt 6 3
synCount = SockOpt 6 7
linger2 = SockOpt 6 8
deferAccept = SockOpt 6 9
quickAck = SockOpt 6 12
congestion = SockOpt 6 13
maxSegment = SockOpt 6 2
lowWater = SockOpt 1 18
tos = SockOpt 0 1
