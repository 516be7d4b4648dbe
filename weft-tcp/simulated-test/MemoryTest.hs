{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Buffers that grow, and what bounds them
--
-- A long path between two machines: both buffers of a connection grow until the path is filled, unless their sizes were
-- given; and a stack whose memory is used up drops what it does not need to take, and loses nothing.
module MemoryTest (tests) where

import Control.Monad (forM, replicateM)
import Data.ByteString qualified as B
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Peers
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Scope
import Weft.Sim
import Weft.Socket
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Simulated
import Weft.Tcp.Stack (TcpSettings (..))
import Weft.Tcp.Stack.Calls (gauges)
import Weft.Test.Loopback (toEnd)
import Weft.Time
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "memory"
    [ testCase "buffers grow with the path, unless their sizes are given" $ do
        (growing, grown) <- result (long calmIp) (upload (\_ -> pure ()))
        (fixed, same) <- result (long calmIp) (upload (\s -> setOption s SendBuffer 131072 >> setOption s RecvBuffer 262144))
        (_, small) <- result (long calmIp) (upload (\s -> setOption s RecvBuffer 20000))
        assertBool (show (growing, fixed)) (3 * growing <= fixed)
        assertBool (show grown) (all (>= 1048576) grown)
        -- They are read twice as large as they were set.
        same @?= [524288, 262144]
        take 1 small @?= [40000],
      testCase "memory that is used up bounds what is taken, and nothing is lost" shortage,
      testCase "a connection that is half closed holds nothing" halfClosed,
      testCase "what is read after a reset is counted once" readAfterReset
    ]

-- 100 Mbit/s, a tenth of a second there and back.
long :: IpSettings -> Config
long ip =
  defaultConfig
    { configLayer = overSegments ip {ipQueue = milliseconds 200},
      configConditions = (configConditions defaultConfig) {linkDelay = (milliseconds 50, milliseconds 50), linkBandwidth = 12_500_000}
    }

result :: (Show a) => Config -> Thread a -> IO a
result config program = do
  r <- simulate 1 config program
  case resultOutcome r of
    Value a -> pure a
    other -> assertFailure (show other)

-- | How many milliseconds it takes to send eight megabytes, with options that are set on both sockets; and the sizes of the
-- server's buffer for receiving, and of the client's for sending, in the end.
upload :: (Socket -> Thread ()) -> Thread (Int, [Int])
upload options = do
  (receiving, (begun, sending)) <- withServer serve (`connected` (\s -> options s >> talking s))
  ended <- now
  pure (durationMilliseconds (begun `since` ended), [receiving, sending])
  where
    size = 8_000_000
    durationMilliseconds d = fromIntegral (durationNanoseconds d `div` 1_000_000)
    serve l = options l >> withSocket (fst <$> accept l) (\s -> receiveAll s size >> getOption s RecvBuffer <* sendAll s "x")
    talking s = do
      begun <- now
      sendAll s (B.replicate size 7)
      got <- getOption s SendBuffer
      _ <- receive s 1
      pure (begun, got)

receiveAll :: Socket -> Int -> Thread ()
receiveAll s n
  | n <= 0 = pure ()
  | otherwise = receive s 65536 >>= \bytes -> if B.null bytes then throwM (userError "it has ended") else receiveAll s (n - B.length bytes)

-- | Its FIN is acknowledged, which has a number after the last byte.
halfClosed :: IO ()
halfClosed = do
  stacks <- newIORef []
  let watched s = s {tcpOpened = \st -> modifyIORef' stacks (st :)}
  (seen, _) <-
    result (long calmIp {ipTcp = watched}) $
      withServer
        (\l -> withSocket (fst <$> accept l) $ \s -> toEnd s >> sleep (seconds 1) >> liftIO (readIORef stacks >>= mapM gauges))
        (\there -> connected there (\s -> sendAll s "x" >> shutdown s ShutdownSend >> toEnd s))
  map (Map.lookup "tcp bytes beyond buffers") seen @?= [Just 0, Just 0]

-- | Its buffer has grown and is full when the peer resets it. What has come is read afterwards.
readAfterReset :: IO ()
readAfterReset = do
  stacks <- newIORef []
  let opened s = s {tcpOpened = \st -> modifyIORef' stacks (st :)}
      beyond = sum . map (fromMaybe 0 . Map.lookup "tcp bytes beyond buffers") <$> (readIORef stacks >>= mapM gauges)
  ((while, after'), _) <-
    result (long calmIp {ipTcp = opened}) $
      withServer
        ( \l -> withSocket (fst <$> accept l) $ \s -> do
            receiveAll s 2_000_000
            sleep (seconds 30)
            while <- liftIO beyond
            _ <- try @_ @IOError (receiveAll s maxBound)
            (,) while <$> liftIO beyond
        )
        (\there -> connected there (\s -> timeout (seconds 20) (sendAll s (B.replicate 40_000_000 7)) >> setOption s Linger 0))
  assertBool (show while) (while > 0)
  after' @?= 0

-- | Two connections, whose buffers grow before the server's users stop reading for a while.
shortage :: IO ()
shortage = do
  stacks <- newIORef []
  let opened s
        | Address4 0x0a000002 `elem` tcpAddresses s = s {tcpSpareMemory = spare, tcpOpened = \st -> modifyIORef' stacks (st :)}
        | otherwise = s
      held = fmap (Map.unionsWith (+)) . mapM gauges =<< readIORef stacks
  (while, after') <- result (long calmIp {ipTcp = opened}) $ do
    (seen, _) <- withServer (serve (liftIO held)) $ \there ->
      withScope $ \scope -> replicateM flows (forkIn scope (connected there (\s -> sendAll s (content size 3) >> shutdown s ShutdownSend >> toEnd s))) >>= mapM awaitChild
    (,) seen <$> liftIO held
  let of' name = fromMaybe 0 . Map.lookup (name :: Text)
  assertBool (show while) (of' "tcp payloads dropped" while > 0 && of' "tcp bytes beyond buffers" while `elem` [spare .. spare + 65536])
  of' "tcp bytes beyond buffers" after' @?= 0
  where
    spare = 500_000
    flows = 2
    size = 4_000_000
    serve look l = do
      sockets <- replicateM flows (fst <$> accept l)
      withScope $ \scope -> do
        quick <- mapM (\s -> forkIn scope (receiveSome s 2_000_000)) sockets
        begun <- mapM awaitChild quick
        sleep (seconds 30)
        seen <- look
        rest <- forM (zip sockets begun) $ \(s, b) -> forkIn scope ((b <>) <$> toEnd s)
        all' <- mapM awaitChild rest
        mapM_ closeSocket sockets
        seen <$ (if all (== content size 3) all' then pure () else throwM (userError "other bytes"))
    receiveSome s n
      | n <= 0 = pure B.empty
      | otherwise = receive s 65536 >>= \bytes -> (bytes <>) <$> receiveSome s (n - B.length bytes)
