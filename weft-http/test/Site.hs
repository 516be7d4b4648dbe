-- | A directory with files in it, served by a server of the same run whose clock the
-- test moves on: nothing has to be waited for.
module Site
  ( Site (..),
    withSite,
    withSiteAt,
    overHandler,
    Reply (..),
    header,
    fetchFrom,
    fetchEach,
  )
where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (toLower)
import Data.IORef
import Data.Int (Int64)
import System.IO.Temp (withSystemTempDirectory)
import Weft
import Weft.Http.Date
import Weft.Http.Server
import Weft.Http.Server.Types (Tick (..))
import Weft.Http.Static
import Weft.Socket

-- | What a test works with.
data Site = Site
  { -- | Method, target and more fields.
    fetch :: ByteString -> ByteString -> [ByteString] -> Thread Reply,
    -- | A second goes by.
    tick :: Thread (),
    directory :: FilePath,
    opened :: Static,
    -- | What an operator was told.
    reports :: IORef [String],
    address :: SockAddr
  }

-- | A response.
data Reply = Reply
  { replyStatus :: Int,
    replyFields :: [(ByteString, ByteString)],
    replyBody :: ByteString
  }
  deriving stock (Eq, Show)

-- | All values of a field, which is named in lower case, joined.
header :: ByteString -> Reply -> Maybe ByteString
header name reply = case [v | (n, v) <- replyFields reply, n == name] of
  [] -> Nothing
  values -> Just (B.intercalate ", " values)

-- | Fill a directory, and serve it.
withSite :: (FilePath -> IO ()) -> (StaticSettings -> StaticSettings) -> (Site -> Thread ()) -> IO ()
withSite = withSiteAt 1_700_000_000

-- | The same when it is this second for the server.
withSiteAt :: Int64 -> (FilePath -> IO ()) -> (StaticSettings -> StaticSettings) -> (Site -> Thread ()) -> IO ()
withSiteAt start fill change use = withSystemTempDirectory "weft-http" $ \path -> do
  fill path
  said <- newIORef []
  clock <- newIORef (second start)
  run $ do
    static <- openStatic (change (defaultStaticSettings (C.pack path)) {staticReport = \s -> modifyIORef' said (s :)})
    let next = liftIO (modifyIORef' clock (second . (+ 1) . tickSecond))
    overHandlerAt (staticHandler static clock) $ \at -> use (Site (fetchFrom at) next path static said at)
    closeStatic static
  where
    second s = Tick s (formatDate (HttpTime s)) 0

-- | A server with this handler, and how to ask it.
overHandler :: Handler -> ((ByteString -> ByteString -> [ByteString] -> Thread Reply) -> Thread ()) -> Thread ()
overHandler handler use = overHandlerAt handler (use . fetchFrom)

-- | A server with this handler, and where it is.
overHandlerAt :: Handler -> (SockAddr -> Thread ()) -> Thread ()
overHandlerAt handler use = do
  server <- newServer defaultServerSettings (const handler)
  listener <- listenTcp (Just "127.0.0.1") "0" 16
  fork_ (serve server listener)
  localAddress listener >>= use
  _ <- drain server [listener]
  pure ()

-- | One request on a connection of its own.
fetchFrom :: SockAddr -> ByteString -> ByteString -> [ByteString] -> Thread Reply
fetchFrom at method target fields = withSocket (openSocket AF_INET Stream) $ \client -> do
  connect client at
  sendAll client (B.concat ([method, " ", target, " HTTP/1.1\r\nConnection: close\r\n"] <> map (<> "\r\n") (["Host: t" | not (any ("Host:" `B.isPrefixOf`) fields)] <> fields) <> ["\r\n"]))
  parse . B.concat <$> toEnd client
  where
    toEnd client = receive client 65536 >>= \piece -> if B.null piece then pure [] else (piece :) <$> toEnd client
    parse bytes =
      let (head', rest) = B.breakSubstring "\r\n\r\n" bytes
       in case C.lines (C.filter (/= '\r') head') of
            line : others -> Reply (maybe 0 fst (C.readInt (B.drop 9 line))) (map field others) (B.drop 4 rest)
            [] -> Reply 0 [] bytes
    field line = let (name, value) = C.break (== ':') line in (C.map toLower name, B.drop 2 value)

-- | GET each target, one after the other on one connection: how many bytes a whole
-- response has at least is known by how it ends.
fetchEach :: SockAddr -> [(ByteString, ByteString)] -> Thread ()
fetchEach at asked = withSocket (openSocket AF_INET Stream) $ \client -> do
  connect client at
  let upTo end got
        | end `B.isSuffixOf` got = pure ()
        | otherwise = do
            piece <- receive client 65536
            if B.null piece then liftIO (fail ("the connection ended after " <> show got)) else upTo end (got <> piece)
  forM_ asked $ \(target, end) -> do
    sendAll client (B.concat ["GET ", target, " HTTP/1.1\r\nHost: t\r\n\r\n"])
    upTo ("\r\n\r\n" <> end) B.empty
