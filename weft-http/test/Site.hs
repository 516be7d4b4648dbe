-- | A directory with files in it, served by a server of the same run whose clock the
-- test moves on: nothing has to be waited for.
module Site
  ( Site (..),
    withSite,
    withSiteAt,
    overHandler,
    fetchFrom,
    fetchEach,
  )
where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Int (Int64)
import System.IO.Temp (withSystemTempDirectory)
import Weft
import Weft.Http.Date
import Weft.Http.Server
import Weft.Http.Server.Types (Tick (..))
import Weft.Http.Static
import Weft.Socket
import Weft.Test.Loopback (connected, serving, toEnd)
import Weft.Test.Message (Reply (..), get, replyTo, request)

-- | The site and server of a test.
data Site = Site
  { -- | Method, target and more fields.
    fetch :: ByteString -> ByteString -> [ByteString] -> Thread Reply,
    -- | A second goes by.
    tick :: Thread (),
    directory :: FilePath,
    opened :: Static,
    -- | Reports to the operator.
    reports :: IORef [String],
    address :: SockAddr
  }

-- | Fill a directory, and serve it.
withSite :: (FilePath -> IO ()) -> (StaticSettings -> StaticSettings) -> (Site -> Thread ()) -> IO ()
withSite = withSiteAt 1_700_000_000

-- | 'withSite' when it is this second for the server.
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
  serving (serve server) (drain server . pure) use

-- | One request on a connection of its own.
fetchFrom :: SockAddr -> ByteString -> ByteString -> [ByteString] -> Thread Reply
fetchFrom at method target fields = connected at $ \client -> do
  sendAll client (request method target ("Connection: close" : fields))
  replyTo method <$> toEnd client

-- | GET each target, one after the other on one connection: how many bytes a whole
-- response has at least is known by how it ends.
fetchEach :: SockAddr -> [(ByteString, ByteString)] -> Thread ()
fetchEach at asked = connected at $ \client -> do
  let upTo end got
        | end `B.isSuffixOf` got = pure ()
        | otherwise = do
            piece <- receive client 65536
            if B.null piece then liftIO (fail ("the connection ended after " <> show got)) else upTo end (got <> piece)
  forM_ asked $ \(target, end) -> do
    sendAll client (get target)
    upTo ("\r\n\r\n" <> end) B.empty
