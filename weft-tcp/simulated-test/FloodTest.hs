{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A machine under floods
--
-- A server with a stack, a client that exchanges bytes with it and connects anew, and a third machine that floods the server's
-- ("Floods"). Beside each kind of flood the client is about as quick as alone; the server answers and allocates a bounded amount for
-- each packet, keeps a bounded amount for each connection and else nothing, and in the end has no connection.
module FloodTest (tests) where

import Control.Monad (forM_, replicateM_, unless, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Data.Word (Word16)
import Floods
import GHC.Stats
import Peers
import System.Mem (performMajorGC)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Scope
import Weft.Sim
import Weft.Socket
import Weft.Tcp.Device
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..))
import Weft.Tcp.Simulated
import Weft.Tcp.Stack (TcpSettings (..))
import Weft.Tcp.Stack.Calls (gauges)
import Weft.Time
import Weft.Timeout (timeout)

tests :: TestTree
tests = testGroup "floods" [testCase (floodName f) (withstands f) | f <- floods]

-- | What was seen of a run.
data Seen = Seen
  { -- | Of the client, in milliseconds.
    seenTime :: !Double,
    -- | Packets of the flood, and of the server.
    seenFlood, seenSent :: !Int,
    -- | Bytes allocated until the end of the flood; bytes that are alive then, bytes of buffers beyond their first sizes, connections.
    seenAllocated, seenAlive, seenBeyond, seenHeld :: !Int,
    -- | What the server's stack has at the end.
    seenLeft :: ![(String, Int)]
  }
  deriving stock (Show)

withstands :: Flood -> Assertion
withstands flood = do
  let none = flood {floodSends = \_ _ -> []}
  quiet <- under none short
  some <- under flood short
  peace <- under none long
  more <- under flood long
  let told = "\n" <> unlines (map show [quiet, some, peace, more])
      each :: (Seen -> Int) -> Seen -> Seen -> Double
      each f a b = fromIntegral (f b - f a) / fromIntegral (max 1 (seenFlood b - seenFlood a))
      cost a b = fromIntegral (seenAllocated b - seenAllocated a) / fromIntegral (max 1 (seenFlood b + seenSent b - seenSent a)) :: Double
  forM_ [(quiet, some), (peace, more)] $ \(alone, beside) -> do
    assertBool ("no flood" <> told) (seenFlood beside >= 40)
    assertBool ("the client is slow" <> told) (seenTime beside <= floodSlows flood * seenTime alone)
    assertBool ("too many answers" <> told) (each seenSent alone beside <= floodWorth flood)
    assertBool ("a packet costs much" <> told) (cost alone beside <= 40000)
    assertBool ("much is kept" <> told) (seenAlive beside - seenAlive alone <= 786432 + seenBeyond beside + 49152 * (seenHeld beside - seenHeld alone))
    assertBool ("something is left" <> told) (null (seenLeft beside))
  where
    short = 100_000
    long = 400_000

-- | What is seen while the client sends this number of bytes and receives them, and four turns of a flood come in each
-- millisecond.
under :: Flood -> Int -> IO Seen
under flood size = do
  sent <- newIORef (0 :: Int)
  flooded <- newIORef (0 :: Int)
  attacking <- newIORef (\_ -> pure ())
  scene <- newIORef nowhere
  stacks <- newIORef []
  let hostile packets = modifyIORef' flooded (+ length packets) >> readIORef attacking >>= (`mapM_` packets)
      settings s
        | server `elem` tcpAddresses s = s {tcpDevice = watched <$> tcpDevice s, tcpSpareMemory = 2_000_000, tcpOpened = \st -> modifyIORef' stacks (st :)}
        | attacker `elem` tcpAddresses s = s {tcpDevice = tcpDevice s >>= \d -> hearing d <$ writeIORef attacking (deviceSend d)}
        | otherwise = s
      watched d = d {deviceSend = \packet -> modifyIORef' sent (+ 1) >> mapM_ overheard (tcpOf packet) >> deviceSend d packet}
      -- The victim's first connection is the one that lasts.
      overheard (to, p, s) = when (to == victim) . modifyIORef' scene $ \x ->
        let Scene (known, _, _) _ = x in if known `elem` [0, p] then x {sceneVictim = (p, segmentEnd s, segmentAck s)} else x
      -- The attacker's stack is told nothing.
      hearing d = d {deviceRead = [] <$ (deviceRead d >>= mapM_ (mapM_ heard . tcpOf))}
      heard (_, p, s) = unless (segmentFlags s `has` rst) $ do
        modifyIORef' scene (\x -> x {sceneOwn = Map.insertWith (\_ (first, _) -> (if segmentFlags s `has` syn then s else first, s)) p (s, s) (sceneOwn x)})
        hostile (floodAnswers flood p s)
      attack over n = do
        done <- liftIO (readIORef over)
        unless done $ do
          forM_ [n .. n + 3] $ \k -> liftIO (readIORef scene >>= \x -> hostile (floodSends flood x k))
          sleep (milliseconds 1)
          attack over (n + 4)
  performMajorGC
  before <- getRTSStats
  let passed = do
        held <- mapM gauges =<< readIORef stacks
        -- What the attacker knows is not the server's memory.
        writeIORef scene nowhere
        now' <- getRTSStats
        performMajorGC
        end <- getRTSStats
        n <- readIORef flooded
        m <- readIORef sent
        let total what = sum (map (Map.findWithDefault 0 what) held)
            alive s = fromIntegral (gcdetails_live_bytes (gc s))
        pure (\time -> Seen time n m (fromIntegral (allocated_bytes now' - allocated_bytes before)) (alive end - alive before) (total "tcp bytes beyond buffers") (total "tcp connections"))
  r <- simulate 1 config {configLayer = overSegments calmIp {ipTcp = settings}} (program size attack passed (writeIORef attacking (\_ -> pure ())) (mapM gauges =<< readIORef stacks))
  case resultOutcome r of
    Value seen -> pure seen
    other -> assertFailure (floodName flood <> ": " <> show other)
  where
    nowhere = Scene (0, Seq 0, Seq 0) Map.empty
    -- 10 Mbit/s, ten milliseconds there and back.
    config = defaultConfig {configRaces = False, configConditions = (configConditions defaultConfig) {linkDelay = (milliseconds 5, milliseconds 5), linkBandwidth = 1_250_000}}

program :: Int -> (IORef Bool -> Int -> Thread ()) -> IO (Double -> [(String, Int)] -> Seen) -> IO () -> IO [Map.Map Text.Text Int] -> Thread Seen
program size attack passed silence looked = do
  there <- newMachine "server"
  boot there . withSocket (listenTcp Nothing "80" 64) $ \l ->
    let go = accept l >>= \(s, _) -> fork_ (withSocket (pure s) service) >> go
     in go
  hostile <- newMachine "attacker"
  over <- liftIO (newIORef False)
  sleep (milliseconds 100)
  withScope $ \scope -> do
    flooding <- forkIn scope . onMachine hostile . withSocket (openSocket AF_INET Stream) $ \_ -> sleep (milliseconds 40) >> attack over 0
    begun <- now
    long <- forkIn scope (connected there $ \s -> sendAll s "e" >> talk (content size 1) s >>= \got -> unless (got == content size 1) (throwM (userError "other bytes")))
    connecting <- forkIn scope (replicateM_ 2 (sleep (milliseconds 20) >> connected there (\s -> sendAll s "e!" >> receive s 1)))
    awaitChild long
    ended <- now
    liftIO (writeIORef over True)
    awaitChild connecting
    awaitChild flooding
    -- What is on the way arrives.
    sleep (milliseconds 200)
    seen <- liftIO passed
    -- It answers for a while.
    sleep (minutes 6)
    liftIO silence
    sleep (minutes 20)
    left <- liftIO looked
    pure (seen (1000 * toSeconds (begun `since` ended)) [(Text.unpack k, n) | (k, n) <- concatMap Map.toList left, k `elem` ["tcp connections", "tcp bytes beyond buffers"], n /= 0])

-- | A user that loses its patience, as a server should.
service :: Socket -> Thread ()
service s = void . try @_ @IOError . timeout (seconds 30) $ do
  what <- receive s 1
  when (what == "d") (sendAll s (B.replicate 400_000 7))
  when (what == "u") (each (\_ -> pure ()))
  when (what == "e") (each (sendAll s))
  where
    each act = receive s 65536 >>= \bytes -> unless (B.null bytes) (act bytes >> each act)

-- | Of a packet of TCP: the address and port it is for, and the segment.
tcpOf :: B.ByteString -> Maybe (Address, Word16, Segment)
tcpOf packet = case parsePacket packet of
  Right p | packetProtocol p == protocolTcp, Right (ports, s, _) <- parseSegment (packetSource p) (packetTarget p) (packetPayload p) -> Just (packetTarget p, targetPort ports, s)
  _ -> Nothing
