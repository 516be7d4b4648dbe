{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A web service written for GHC's threads
--
-- scotty and http-client as they are released; nothing of Weft. The gateway asks another service for
-- each request, and that one takes its time.
module Gateway
  ( gateway,
    store,
  )
where

import Control.Concurrent (threadDelay)
import Control.Monad.IO.Class qualified as Class
import Data.Text.Lazy qualified as Text
import Data.Text.Lazy.Encoding qualified as Text
import Network.HTTP.Client qualified as Client
import Network.Wai (Application)
import Web.Scotty

-- | Says what a number of things costs. The argument is the port of the store.
gateway :: Int -> IO Application
gateway port = do
  manager <-
    Client.newManager
      Client.defaultManagerSettings
        { Client.managerConnCount = 10_000,
          Client.managerIdleConnectionCount = 10_000
        }
  let price item = do
        query <- Client.parseUrlThrow ("http://127.0.0.1:" <> show port <> "/price/" <> Text.unpack item)
        read . Text.unpack . Text.decodeUtf8 . Client.responseBody <$> Client.httpLbs query manager
  scottyApp . get "/cost/:item/:count" $ do
    item <- captureParam "item"
    count <- captureParam "count"
    each <- Class.liftIO (price item)
    text (Text.pack (show (count * each :: Int)))

-- | Knows the price of everything, after a millisecond in which it does something first.
store :: IO () -> IO Application
store first = scottyApp . get "/price/:item" $ do
  item <- captureParam "item"
  Class.liftIO (threadDelay 1000 >> first)
  text (Text.pack (show (Text.length item)))
