-- | A client that sends the bytes it is told to, and takes apart what comes.
module Client
  ( -- * Talking
    exchange,
    withClient,
    Connected,
    say,
    hear,
    hearUntil,
    hearAll,
    finish,
    reset,

    -- * Applications
    serving,
    servingWith,

    -- * Messages
    get,
    getWith,
    Reply (..),
    replies,
    replyTo,
    header,
    headerNames,
  )
where

import Control.Exception (bracket)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import Network.Wai (Application)
import Weft.Test.Loopback (untilEmpty)
import Weft.Test.Message (Reply (..), header, headerNames, replies, replyTo)
import Weft.Test.Message qualified as Message
import Weft.Wai

-- | A connection to a server on the loopback address.
newtype Connected = Connected Socket

-- | While this runs.
withClient :: Int -> (Connected -> IO a) -> IO a
withClient port act = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  connect s (SockAddrInet (fromIntegral port) (tupleToHostAddress (127, 0, 0, 1)))
  act (Connected s)

-- | Send bytes.
say :: Connected -> ByteString -> IO ()
say (Connected s) = sendAll s

-- | Some bytes; none at the end.
hear :: Connected -> IO ByteString
hear (Connected s) = recv s 65_536

-- | Received bytes, until they contain this or end.
hearUntil :: Connected -> ByteString -> IO ByteString
hearUntil c what = go B.empty
  where
    go got
      | what `B.isInfixOf` got = pure got
      | otherwise = hear c >>= \more -> if B.null more then pure got else go (got <> more)

-- | All that comes.
hearAll :: Connected -> IO ByteString
hearAll = untilEmpty . hear

-- | Say that no more is going to be sent.
finish :: Connected -> IO ()
finish (Connected s) = shutdown s ShutdownSend

-- | Close with a reset.
reset :: Connected -> IO ()
reset (Connected s) = setSockOpt s Linger (StructLinger 1 0) >> close s

-- | Send all of this at once, and take what comes until the server closes.
exchange :: Int -> ByteString -> IO ByteString
exchange port bytes = withClient port $ \c -> say c bytes >> hearAll c

-- | Serve an application of this style while the body runs, which is told the port. What the
-- application raises is not reported.
serving :: ApplicationStyle -> Application -> (Int -> IO a) -> IO a
serving = servingWith id

-- | 'serving', with other settings.
servingWith :: (Settings -> Settings) -> ApplicationStyle -> Application -> (Int -> IO a) -> IO a
servingWith change style application = withApplicationSettings (change (setApplicationStyle style (setOnException (\_ _ -> pure ()) defaultSettings))) (pure application)

-- | The last request of a connection.
get :: ByteString -> ByteString
get target = getWith target []

-- | The last request of a connection, with more fields.
getWith :: ByteString -> [ByteString] -> ByteString
getWith target fields = Message.request "GET" target ("Host: localhost" : "Connection: close" : fields)
