{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connected sockets, and what goes through them
--
-- Pairs over TCP and over names in a directory, made with the system calls that are
-- tested, and reading a certain number of bytes or all.
module Weft.Conformance.Connecting
  ( -- * Pairs
    connected,
    unixPair,
    fullPair,
    fillUp,
    listenLocal,
    listenUnix,
    localHost,

    -- * Reading
    receiveAll,
    receiveExactly,

    -- * Places
    beside,
  )
where

import Control.Monad (forever, unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Network.Socket (tupleToHostAddress)
import Weft
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File (removePath)
import Weft.Socket

-- | A connected pair over TCP: what connected, what was accepted.
connected :: Thread (Socket, Socket)
connected = withSocket (listenTcp (Just "127.0.0.1") "0" 16) $ \listener -> do
  address <- localAddress listener
  wait <- spawn (fst <$> accept listener)
  client <- openSocket AF_INET Stream
  connect client address
  server <- wait
  pure (client, server)

-- | A connected pair of Unix-domain sockets, made in this directory.
unixPair :: ByteString -> Thread (Socket, Socket)
unixPair dir = do
  name <- foldMap show . ByteString.unpack <$> randomBytes 8
  let path = Char8.unpack dir <> "/" <> name
  withSocket (listenUnix path) $ \listener -> do
    client <- openSocket AF_UNIX Stream
    connect client (SockAddrUnix path)
    server <- fst <$> accept listener
    removePath (Char8.pack path)
    pure (client, server)

-- | A 'unixPair' whose first socket takes nothing more.
fullPair :: ByteString -> Thread (Socket, Socket)
fullPair dir = do
  (a, b) <- unixPair dir
  fillUp (void (send a (ByteString.replicate 100_000 0)))
  pure (a, b)

-- | Repeat this until it waits, and goes on waiting: for one moment a thread also waits for
-- an answer that is known already.
fillUp :: Thread () -> Thread ()
fillUp act = do
  times <- liftIO (newIORef (0 :: Int))
  t <- fork (forever (act >> liftIO (modifyIORef' times (+ 1))))
  let settled = do
        eventually "it to wait" (waitsOrEnded t)
        before <- liftIO (readIORef times)
        sleep (milliseconds 1)
        now' <- liftIO (readIORef times)
        unless (before == now') settled
  settled
  cancelAndWait t

-- | A listener with this backlog on this machine, and its address.
listenLocal :: Int -> Thread (Socket, SockAddr)
listenLocal backlog = do
  l <- listenTcp (Just "127.0.0.1") "0" backlog
  (l,) <$> localAddress l

-- | A listener at this path.
listenUnix :: FilePath -> Thread Socket
listenUnix path = do
  s <- openSocket AF_UNIX Stream
  bind s (SockAddrUnix path)
  listen s 16
  pure s

-- | A port of this machine.
localHost :: PortNumber -> SockAddr
localHost port = SockAddrInet port (tupleToHostAddress (127, 0, 0, 1))

-- | Until the end.
receiveAll :: Socket -> Thread ByteString
receiveAll s = ByteString.concat <$> go
  where
    go = do
      bytes <- receive s 65536
      if ByteString.null bytes then pure [] else (bytes :) <$> go

-- | The given number of bytes, or less at the end.
receiveExactly :: Socket -> Int -> Thread ByteString
receiveExactly s n
  | n <= 0 = pure ByteString.empty
  | otherwise = do
      bytes <- receive s n
      if ByteString.null bytes then pure bytes else (bytes <>) <$> receiveExactly s (n - ByteString.length bytes)

-- | Fork on the other worker, where there is one.
beside :: World -> Thread a -> Thread (Thread a)
beside world = spawnOn (Just (worldWorkers world - 1))
