{-# LANGUAGE RankNTypes #-}

-- | A server and its clients as threads of one run, with loopback connections between
-- them, and all that the server has said of itself.
module ServerRig
  ( -- * Running
    Seen (..),
    Rig (..),
    withHandler,
    withApplication,

    -- * Talking
    conversation,
    toEnd,
    untilFound,

    -- * Requests
    get,
    getLast,
    post,

    -- * Looking at answers
    statuses,
    essence,
    has,
    lacks,
  )
where

import Control.Exception (displayException)
import Control.Monad (replicateM, unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Test.Tasty.HUnit
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket

-- | What a server has told those who watch it, the first first.
data Seen = Seen
  { -- | Status and octets of each response.
    seenEntries :: [(Int, Int)],
    seenObserved :: [String],
    seenReports :: [String],
    -- | Exceptions that nobody has handled.
    seenUncaught :: [String]
  }
  deriving stock (Eq, Show)

-- | A running server.
data Rig = Rig
  { rigServer :: Server,
    rigListener :: Socket,
    -- | A connection to it.
    rigClient :: forall a. (Socket -> Thread a) -> Thread a
  }

-- | Serve with a handler while the body runs; then drain, with nobody left over.
withHandler :: (ServerSettings -> ServerSettings) -> Handler -> (Rig -> Thread a) -> IO (a, Seen)
withHandler settings handler = serving settings (\s -> newServer s (const handler))

-- | The same with an application.
withApplication :: (ServerSettings -> ServerSettings) -> Application -> (Rig -> Thread a) -> IO (a, Seen)
withApplication settings application = serving settings (\s -> newServerWith s (const application))

serving :: (ServerSettings -> ServerSettings) -> (ServerSettings -> Thread Server) -> (Rig -> Thread a) -> IO (a, Seen)
serving settings new body = do
  [entries, observed, reports, uncaught] <- replicateM 4 (newIORef [])
  let note ref what = atomicModifyIORef' ref (\all' -> (what : all', ()))
      told =
        defaultServerSettings
          { serverName = "",
            serverAccessLog = Just (\e -> note entries (show (statusCode (entryStatus e), entryBytes e))),
            serverObserver = Just (note observed . observation),
            serverReport = note reports
          }
  a <- runWith defaultSettings {settingUncaught = \_ _ e -> note uncaught (displayException e)} $ do
    server <- new (settings told)
    listener <- listenTcp (Just "127.0.0.1") "0" 64
    fork_ (serve server listener)
    address <- localAddress listener
    a <- body (Rig server listener (\act -> withSocket (openSocket AF_INET Stream) (\client -> connect client address >> act client)))
    ended <- drain server [listener]
    left <- liftIO (connectionCount server)
    unless (ended && left == 0) (throwM (userError "a connection was left over"))
    pure a
  let sorted ref = reverse <$> readIORef ref
  seen <- Seen . map read <$> sorted entries <*> sorted observed <*> sorted reports <*> sorted uncaught
  pure (a, seen)

observation :: Observation -> String
observation = \case
  ConnectionOpened -> "opened"
  ConnectionClosed -> "closed"
  ConnectionRefused -> "refused"
  LimitReached -> "limit"
  LayerFailed -> "layer failed"
  ResponseSent _ -> "sent"
  HandlerFailed -> "failed"
  RequestShed -> "shed"
  TimedOut expiry -> show expiry
  ClientLost -> "lost"

-- | Send these pieces, the second when the first has had its effect, and so on; then end our
-- direction: all that comes.
conversation :: Rig -> [ByteString] -> Thread ByteString
conversation rig parts = rigClient rig $ \client -> do
  mapM_ (\part -> sendAll client part >> pause) parts
  -- A server may have closed already.
  _ <- try @_ @IOError (shutdown client ShutdownSend)
  toEnd client
  where
    -- On one worker the server has looked at it then.
    pause = mapM_ (const yield) [1 :: Int .. 6]

-- | All that comes, until the other end says that there is no more or is gone.
toEnd :: Socket -> Thread ByteString
toEnd client = B.concat <$> go
  where
    go =
      try @_ @IOError (receive client 65536) >>= \case
        Right piece | not (B.null piece) -> (piece :) <$> go
        _ -> pure []

-- | What comes until these bytes have come, or the end.
untilFound :: Socket -> ByteString -> Thread ByteString
untilFound client wanted = go ""
  where
    go got
      | wanted `B.isInfixOf` got = pure got
      | otherwise = receive client 65536 >>= \piece -> if B.null piece then pure got else go (got <> piece)

get, getLast :: ByteString -> ByteString
get target = "GET " <> target <> " HTTP/1.1\r\nHost: t\r\n\r\n"
getLast target = "GET " <> target <> " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"

-- | With these fields and what follows the head.
post :: ByteString -> [ByteString] -> ByteString -> ByteString
post target fields body = "POST " <> target <> " HTTP/1.1\r\nHost: t\r\n" <> B.concat (map (<> "\r\n") fields) <> "\r\n" <> body

-- | The codes of the status lines in what came.
statuses :: ByteString -> [ByteString]
statuses bytes = case B.breakSubstring "HTTP/1.1 " bytes of
  (_, rest)
    | B.null rest -> []
    | otherwise -> B.take 3 (B.drop 9 rest) : statuses (B.drop 9 rest)

-- | Without the lines of @Date@ and what is about pages of errors.
essence :: ByteString -> ByteString
essence bytes = case B.breakSubstring "\r\n" bytes of
  (line, rest)
    | B.null rest -> line
    | any (`B.isPrefixOf` line) ["Date: ", "Content-Security-Policy: "] -> essence (B.drop 2 rest)
    | otherwise -> line <> "\r\n" <> essence (B.drop 2 rest)

has, lacks :: (HasCallStack) => ByteString -> ByteString -> Assertion
has part whole = assertBool (C.unpack part <> " is not in " <> show whole) (part `B.isInfixOf` whole)
lacks part whole = assertBool (C.unpack part <> " is in " <> show whole) (not (part `B.isInfixOf` whole))
