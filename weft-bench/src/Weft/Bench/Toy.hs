-- |
-- Description : Toy servers in Haskell: a thread for each connection, a connection for each request
--
-- The server of @peers\/toy.c@, written with Weft's threads instead of processes and threads of C: one thread
-- accepts and forks another for each connection, which reads one request, sends the page and closes
-- (Kerneis & Chroboczek 2009, section 3). GHC's threads and the concurrency libraries run
-- "Weft.Bench.Web" instead, which also serves files. Runs until it is killed.
module Weft.Bench.Toy (serveToy, toyFlags) where

import Control.Exception (IOException, catch, finally)
import Control.Monad (forever, unless)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.Maybe (isJust)
import Data.Text qualified as Text
import Network.Socket qualified as Net
import Weft hiding (catch, finally)
import Weft qualified
import Weft.Bench.Contest.Kind (Kind (..), kindName, onHecs)
import Weft.Bench.Http.Page
import Weft.Bench.Web (serveWeb)
import Weft.IO qualified as IO
import Weft.Socket

-- | Options of the run-time system: those of the program @weft@.
toyFlags :: [String]
toyFlags = ["-A4m", "-n256k", "-I0"]

-- | Serve on a port of 127.0.0.1, on one worker, capability or HEC, with a listen queue of this length. Serves the
-- page, or the files under the directory if one is given, which Weft's kinds refuse.
serveToy :: Kind -> Int -> Int -> Maybe ByteString -> IO ()
serveToy kind port backlog root = case kind of
  Monadic source -> weft (settingsOf source) monadic
  MonadicOnHecs source -> weft (onHecs (settingsOf source)) monadic
  Direct source -> weft (settingsOf source) $ \s ->
    fork_ . IO.direct $ (converse (IO.receive s most) (IO.sendAll s answer) `catch` gone) `finally` IO.closeSocket s
  Ghc -> web
  ConcOs -> web
  ConcMp _ -> web
  Bound -> none
  Stacks -> none
  where
    none = errorWithoutStackTrace (Text.unpack (kindName kind) <> " serves nothing")
    settingsOf source = defaultSettings {settingWorkers = Just 1, settingKernel = systemKernel defaultSystemSettings {systemBackend = source}}
    weft settings begin
      | isJust root = errorWithoutStackTrace (Text.unpack (kindName kind) <> " serves no files here; weft serve does")
      | otherwise = runWith settings $ do
          listener <- listenTcp (Just "127.0.0.1") (show port) backlog
          forever (accept listener >>= begin . fst)
    monadic s = fork_ (closing s (converse (receive s most) (sendAll s answer)))
    closing s act = (act `Weft.catch` (liftIO . gone)) `Weft.finally` closeSocket s
    web = do
      listener <- Net.socket Net.AF_INET Net.Stream Net.defaultProtocol
      Net.setSocketOption listener Net.ReuseAddr 1
      Net.bind listener (Net.SockAddrInet (fromIntegral port) (Net.tupleToHostAddress (127, 0, 0, 1)))
      Net.listen listener backlog
      serveWeb kind root listener
    gone :: IOException -> IO ()
    gone _ = pure ()

most :: Int
most = 4_096

-- One connection: read until an empty line, answer.
converse :: (Monad m) => m ByteString -> m () -> m ()
converse get put = go ""
  where
    go have = do
      new <- get
      unless (Bytes.null new) $ do
        let all' = if Bytes.null have then new else have <> new
        if "\r\n\r\n" `Bytes.isInfixOf` all' then put else unless (Bytes.length all' >= most) (go all')

answer :: ByteString
answer =
  Bytes.concat
    [ "HTTP/1.1 200 OK\r\nServer: toy\r\nContent-Type: text/html\r\nContent-Length: ",
      Bytes.pack (show pageBytes),
      "\r\nConnection: close\r\n\r\n",
      page
    ]
