-- | Servers that treat each connection by a script, all threads of one run, on loopback.
module ClientRig
  ( -- * Servers
    serving,
    talk,
    hearHead,
    answer,
    ok,

    -- * Results
    content,
    failing,
  )
where

import Control.Exception (IOException)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Weft
import Weft.Http.Client (Client, ClientSettings (..), HttpError (..), Reply (..))
import Weft.Http.Client qualified as Client
import Weft.Http.Status
import Weft.Scope
import Weft.Socket
import Weft.Test.Loopback (loopbackListener, portOf)

-- | A listener whose connections are treated by these scripts, one after the other, and closed
-- at the end of each; then the body, given the beginning of a URL. Says also how many
-- connections there were.
serving :: [Socket -> Thread ()] -> (ByteString -> Thread a) -> Thread (a, Int)
serving scripts body = withScope $ \scope -> do
  listener <- loopbackListener
  count <- liftIO (newIORef 0)
  _ <- forkDaemonIn scope . quietly $ do
    for_ scripts $ \script -> do
      (socket, _) <- accept listener
      liftIO (modifyIORef' count (+ 1))
      -- A script may be left by its client at any time.
      forkDaemonIn scope (quietly (script socket) `finally` closeSocket socket)
    closeSocket listener
  port <- portOf <$> localAddress listener
  a <- body ("http://127.0.0.1:" <> C.pack (show port)) `finally` closeSocket listener
  (,) a <$> liftIO (readIORef count)
  where
    quietly act = act `catch` \(_ :: IOException) -> pure ()

-- | Run with a client of these settings, against these scripts.
talk :: (ClientSettings -> ClientSettings) -> [Socket -> Thread ()] -> (Client -> ByteString -> Thread a) -> IO (a, Int)
talk settings scripts body = run (serving scripts (\base -> Client.withClient (settings Client.defaultClientSettings) (`body` base)))

-- | Receive the head of a request.
hearHead :: Socket -> Thread ByteString
hearHead socket = go B.empty
  where
    go have
      | "\r\n\r\n" `B.isSuffixOf` have = pure have
      | otherwise = receive socket 1 >>= \b -> if B.null b then throwM (userError "no request") else go (have <> b)

-- | Answer one request with these bytes.
answer :: ByteString -> Socket -> Thread ()
answer bytes socket = hearHead socket >> sendAll socket bytes

ok :: ByteString -> ByteString
ok bytes = "HTTP/1.1 200 OK\r\nContent-Length: " <> C.pack (show (B.length bytes)) <> "\r\n\r\n" <> bytes

content :: Reply -> (Int, ByteString)
content r = (statusCode (replyStatus r), replyContent r)

-- | The error that ends it.
failing :: Thread a -> Thread HttpError
failing act = try act >>= either pure (\_ -> throwM (userError "it did not fail"))
