{-# LANGUAGE OverloadedStrings #-}

-- |
-- One small application under either server, to measure what a request costs:
--
-- > weft-wai-hello weft 8080
-- > weft-wai-hello warp 8081
--
-- A third argument names the application (@hello@, @headers@, @stream@, @echo@, @file PATH@), and
-- @weft-own@ is the style with a thread of GHC's for each request. It ends, with what
-- @+RTS -s@ prints, when its standard input does.
module Main (main) where

import Control.Concurrent (forkIO, killThread)
import Data.ByteString.Builder (byteString)
import Data.ByteString.Lazy qualified as Lazy
import Network.HTTP.Types (status200)
import Network.Wai
import Network.Wai.Handler.Warp qualified as Warp
import System.Environment (getArgs)
import System.Exit (die)
import Weft.Wai qualified as Wai

main :: IO ()
main =
  getArgs >>= \case
    server : port : what -> do
      application <- chosen what
      thread <- forkIO $ case server of
        "weft" -> Wai.run (read port) application
        "weft-own" -> Wai.runSettings (Wai.setApplicationStyle Wai.OwnThread (Wai.setPort (read port) Wai.defaultSettings)) application
        _ -> Warp.run (read port) application
      text <- getContents
      length text `seq` killThread thread
    _ -> die "usage: weft-wai-hello (weft|weft-own|warp) PORT [hello|headers|stream|echo|file PATH]"

-- | The application of this name.
chosen :: [String] -> IO Application
chosen = \case
  [] -> pure hello
  ["hello"] -> pure hello
  ["headers"] -> pure $ \request respond ->
    respond (responseLBS status200 [("Content-Type", "text/plain")] (Lazy.fromStrict (foldMap snd (requestHeaders request))))
  ["stream"] -> pure $ \_ respond ->
    respond (responseStream status200 [("Content-Type", "text/plain")] (\write flush -> mapM_ (write . byteString) ["Hello", ", ", "World", "!"] >> flush))
  ["echo"] -> pure $ \request respond ->
    strictRequestBody request >>= respond . responseLBS status200 [("Content-Type", "text/plain")]
  ["file", path] -> pure $ \_ respond -> respond (responseFile status200 [("Content-Type", "text/plain")] path Nothing)
  other -> die ("no such application: " <> unwords other)
  where
    hello _ respond = respond (responseLBS status200 [("Content-Type", "text/plain")] "Hello, World!")
