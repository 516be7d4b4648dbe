{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A stack is replaced in simulated worlds
--
-- A server's stack gives all that it has away, and takes it back, again and again in the middle of transfers in both
-- directions, over links that lose, double, reorder and corrupt.
module HandoverTest (tests) where

import Control.Monad (forM_, replicateM, unless, when)
import Data.ByteString qualified as B
import Data.IORef
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

tests :: TestTree
tests =
  testGroup
    "a stack is replaced"
    [ testCase "over good links" (worlds calmIp defaultConfig [0 .. 4]),
      testCase "over links that lose, double, reorder and corrupt" (worlds roughIp roughConfig [0 .. 39])
    ]

worlds :: IpSettings -> Config -> [Seed] -> Assertion
worlds ip config seeds = forM_ seeds $ \seed -> do
  h <- newHandover Nothing
  let layer = overSegments ip {ipTcp = \s -> if serverAddress `elem` tcpAddresses s then movable h s else s}
  check config {configLayer = layer} [seed] (transfers h) (flawlessAnd id)

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
          kept <- liftIO (newIORef Nothing)
          gone <- handingOver h (\frames -> True <$ liftIO (writeIORef kept (mapM (uncurry readFrame . B.splitAt headerLength) frames >>= gathered))) (pure ())
          unless gone (throwM (userError "it was not handed over"))
          frozen <- liftIO (readIORef kept) >>= maybe (throwM (userError "refused")) pure
          came <- takeOver h frozen
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
