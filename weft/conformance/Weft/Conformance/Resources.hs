{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : When there is nothing left
--
-- Without a free descriptor, what opens one fails, and an accept waits until there is
-- one again: the connection stays in the backlog, and is not lost.
module Weft.Conformance.Resources (resources) where

import Control.Exception (SomeException)
import Control.Monad (forM_, join, replicateM)
import Data.ByteString (ByteString)
import Data.IORef
import Foreign.C.Error
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File
import Weft.Pipe
import Weft.Socket

-- | Lack of descriptors.
resources :: World -> TestTree
resources world =
  testGroup
    "resources"
    [ testCase "no descriptor left: accept waits, tells once, goes on" (starved world),
      testCase "an accept that waits for a free descriptor is cancelled" (cancelled world),
      inDirectory world "no descriptor left: what would open one fails" (nothingOpens world)
    ]

-- | No descriptor is free within.
without :: World -> (Thread () -> Thread a) -> Thread a
without world body = do
  -- Let every worker and the pool have started, with what they need.
  join (beside world (blocking (pure ())))
  bracket (worldTakeDescriptors world) id body

starved :: World -> Assertion
starved world = keepingDescriptors world $ do
  told <- newIORef (0 :: Int)
  listening world (\_ -> atomicModifyIORef' told (\n -> (n + 1, ()))) $ do
    (listener, address) <- listenLocal 16
    clients <- replicateM 2 (openSocket AF_INET Stream)
    forM_ clients (`connect` address)
    server <- without world $ \giveBack -> do
      server <- beside world (replicateM 2 (fst <$> accept listener))
      eventually "the operator to be told" ((> 0) <$> readIORef told)
      sleep (milliseconds 100)
      liftIO (readIORef told) >>= (`is` 1)
      server <$ giveBack
    accepted <- server
    mapM_ closeSocket (listener : clients <> accepted)

-- | No descriptor is left for the connection that is there.
cancelled :: World -> Assertion
cancelled world = keepingDescriptors world $ do
  told <- newIORef (0 :: Int)
  listening world (\_ -> atomicModifyIORef' told (\n -> (n + 1, ()))) $ do
    (l, address) <- listenLocal 16
    client <- openSocket AF_INET Stream
    connect client address
    without world $ \_ -> do
      result <- newGate
      t <- forkWith defaultForkOptions {forkWorker = Just 1} (try (accept l) >>= openGate result . either (\e -> show (e :: SomeException)) (const "accepted"))
      eventually "the operator to be told" ((> 0) <$> readIORef told)
      cancel t
      waitGate result >>= (`is` show Cancelled)
    -- No thread took the connection.
    (s, _) <- accept l
    mapM_ closeSocket [s, client, l]

nothingOpens :: World -> ByteString -> Thread ()
nothingOpens world dir = do
  withFile path WriteOnly (\f -> writeAt f 0 "x")
  without world $ \giveBack -> do
    failsWith [eMFILE] (openSocket AF_INET Stream)
    failsWith [eMFILE] (openFile path ReadOnly)
    failsWith [eMFILE] openPipe
    -- An operation that needs no descriptor works.
    (statusSize <$> pathStatus path) ===> 1
    sleep (milliseconds 1)
    giveBack
    withSocket (openSocket AF_INET Stream) (\_ -> pure ())
  readWhole 10 path ===> "x"
  where
    path = dir <> "/f"
