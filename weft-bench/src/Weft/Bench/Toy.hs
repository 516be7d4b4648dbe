-- |
-- Description : Toy servers in Haskell: a thread for each connection, a connection for each request
--
-- What @peers\/toy.c@ does with processes and the threads of C, with Weft's threads and GHC's:
-- one thread accepts and forks another for each connection, which reads one request, sends the
-- page and closes (Kerneis & Chroboczek 2009, section 3). Runs until it is killed.
module Weft.Bench.Toy
  ( serveToy,
    toyFlags,
  )
where

import Control.Concurrent (forkIO)
import Control.Exception (IOException, catch, finally)
import Control.Monad (forever, unless)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.Text qualified as Text
import Network.Socket qualified as Net
import Network.Socket.ByteString qualified as Net
import Weft hiding (catch, finally)
import Weft qualified
import Weft.Bench.Contest.Kind (Kind (..), kindName)
import Weft.Bench.Http.Page
import Weft.IO qualified as IO
import Weft.Socket

-- | Options of the run-time system: those of the program @weft@.
toyFlags :: [String]
toyFlags = ["-A4m", "-n256k", "-I0"]

-- | Serve on 127.0.0.1, on one worker or capability: the port, and the length of the listen
-- queue.
serveToy :: Kind -> Int -> Int -> IO ()
serveToy kind port backlog = case kind of
  Monadic source -> weft source $ \s -> fork_ (closing s (converse (receive s most) (sendAll s answer)))
  Direct source -> weft source $ \s ->
    fork_ . IO.direct $ (converse (IO.receive s most) (IO.sendAll s answer) `catch` gone) `finally` IO.closeSocket s
  Ghc -> ghc
  _ -> errorWithoutStackTrace (Text.unpack (kindName kind) <> " has no toy")
  where
    weft source begin =
      runWith defaultSettings {settingWorkers = Just 1, settingKernel = systemKernel defaultSystemSettings {systemBackend = source}} $ do
        listener <- listenTcp (Just "127.0.0.1") (show port) backlog
        forever (accept listener >>= begin . fst)
    closing s act = (act `Weft.catch` (liftIO . gone)) `Weft.finally` closeSocket s
    ghc = do
      listener <- Net.socket Net.AF_INET Net.Stream Net.defaultProtocol
      Net.setSocketOption listener Net.ReuseAddr 1
      Net.bind listener (Net.SockAddrInet (fromIntegral port) (Net.tupleToHostAddress (127, 0, 0, 1)))
      Net.listen listener backlog
      forever $ do
        (s, _) <- Net.accept listener
        forkIO ((converse (Net.recv s most) (Net.sendAll s answer) `catch` gone) `finally` Net.close s)
    gone :: IOException -> IO ()
    gone _ = pure ()

most :: Int
most = 4_096

-- What one connection does: read until an empty line, answer.
converse :: (Monad m) => m ByteString -> m () -> m ()
converse get put = go ""
  where
    go have = do
      new <- get
      unless (Bytes.null new) $ do
        let all' = if Bytes.null have then new else have <> new
        if "\r\n\r\n" `Bytes.isInfixOf` all' then put else unless (Bytes.length all' >= most) (go all')
{-# INLINE converse #-}

answer :: ByteString
answer =
  Bytes.concat
    [ "HTTP/1.1 200 OK\r\nServer: toy\r\nContent-Type: text/html\r\nContent-Length: ",
      Bytes.pack (show pageBytes),
      "\r\nConnection: close\r\n\r\n",
      page
    ]
