{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A stack is replaced in simulated worlds
--
-- A server's stack gives all that it has away, and takes it back, again and again in the middle of transfers in both
-- directions, over links that lose, double, reorder and corrupt.
module HandoverTest (tests) where

import Control.Monad (forM_, replicateM, replicateM_, unless, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.Maybe (isJust)
import Peers
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (forConcurrently)
import Weft.Sim
import Weft.Socket
import Weft.Tcp.Handover
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Simulated
import Weft.Tcp.Stack (TcpSettings (..))
import Weft.Test.Loopback (toEnd)
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "a stack is replaced"
    [ testCase "over good links" (worlds calmIp defaultConfig [0 .. 4]),
      testCase "over links that lose, double, reorder and corrupt" (worlds roughIp roughConfig [0 .. 39]),
      testCase "with what its users write to peers that read nothing meanwhile" (unreadWorlds id [0 .. 2] (== 4)),
      testCase "and with no more of it than there is memory for" (unreadWorlds (\s -> s {tcpSpareMemory = 800_000}) [0] (\taken -> taken > 0 && taken < 4))
    ]

worlds :: IpSettings -> Config -> [Seed] -> Assertion
worlds ip config seeds = forM_ seeds $ \seed -> inWorld ip config id seed transfers

-- | The server's stack is one that can be replaced, with other settings.
inWorld :: IpSettings -> Config -> (TcpSettings -> TcpSettings) -> Seed -> (Handover -> Thread (Maybe String)) -> Assertion
inWorld ip config settings seed program = do
  h <- newHandover Nothing
  let layer = overSegments ip {ipTcp = \s -> if serverAddress `elem` tcpAddresses s then movable h (settings s) else s}
  check config {configLayer = layer} [seed] (program h) (flawlessAnd id)

-- | Four clients read nothing until the stack was replaced, of what is several times the server's buffer. How many connections could go is
-- asked of the function; these get everything, and the others what the server wrote before it closed them.
unreadWorlds :: (TcpSettings -> TcpSettings) -> [Seed] -> (Int -> Bool) -> Assertion
unreadWorlds settings seeds enough = forM_ seeds $ \seed -> inWorld roughIp roughConfig settings seed $ \h -> do
  over <- liftIO (newIORef False)
  (taken, got) <- withServer (serving h over) $ \there ->
    forConcurrently [0 .. 3] $ \k -> connected there $ \s -> do
      sendAll s (B.singleton k)
      waitFor over
      bytes <- toEnd s
      pure (bytes `B.isPrefixOf` written k, B.length bytes == size)
  pure (if enough taken && all fst got && length (filter snd got) == taken then Nothing else Just (show taken <> " were taken, and these got all: " <> show got))
  where
    size = 700_000
    written = content size . fromIntegral
    serving h over l = do
      setOption l notSentLowAt 131_072
      accepted <- replicateM 4 (fst <$> accept l)
      _ <- takingMore h . forConcurrently accepted $ \s -> do
        k <- receive s 1
        sent <- timeout (seconds 60) (sendAll s (written (B.head k)))
        if isJust sent then release h s else False <$ closeSocket s
      came <- replaced h
      liftIO (writeIORef over True)
      came <$ replicateM_ came (accept l >>= closeSocket . fst)

-- | The stack takes over what it has given away: how many connections there are to accept.
replaced :: Handover -> Thread Int
replaced h = do
  kept <- liftIO (newIORef Nothing)
  gone <- handingOver h (\frames -> True <$ liftIO (writeIORef kept (mapM (uncurry readFrame . B.splitAt headerLength) frames >>= gathered))) (pure ())
  unless gone (throwM (userError "it was not handed over"))
  liftIO (readIORef kept) >>= maybe (throwM (userError "refused")) pure >>= takeOver h

-- | Of the first machine beside the one that a world begins on.
serverAddress :: Address
serverAddress = Address4 0x0a000002

-- | Two clients, each of which gets back what it sends. The server's stack is replaced after each 3,000 bytes of each. A
-- complaint if what comes back is something else.
transfers :: Handover -> Thread (Maybe String)
transfers h = do
  (times, got) <- withServer (`serving` 2) (\there -> forConcurrently [1, 2] (connected there . talk . content size))
  let wrong = [show k <> ": other bytes" | (k, bytes) <- zip [1 :: Int ..] got, bytes /= content size k] <> ["only " <> show times <> " times" | times < 6]
  pure (if null wrong then Nothing else Just (unlines wrong))
  where
    size = 20000
    -- How often the stack was replaced.
    serving :: Socket -> Int -> Thread Int
    serving _ 0 = pure 0
    serving l n = do
      accepted <- replicateM n (fst <$> accept l)
      left <- length . filter id <$> forConcurrently accepted session
      if left == 0
        then pure 0
        else do
          came <- replaced h
          when (came < left) (throwM (userError "one is missing"))
          (+ 1) <$> serving l left
    session s = do
      over <- echo s 3000
      if over
        then False <$ closeSocket s
        else release h s >>= \released -> True <$ unless released (throwM (userError "not released"))
    echo s left
      | left <= 0 = pure False
      | otherwise = do
          bytes <- receive s (min 700 left)
          if B.null bytes then pure True else sendAll s bytes >> echo s (left - B.length bytes)
