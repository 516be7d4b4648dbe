{-# LANGUAGE RankNTypes #-}

-- | A server and its clients as threads of one run, with loopback connections between
-- them, and all that the server has said of itself.
module ServerRig
  ( -- * Running
    Seen (..),
    Rig (..),
    withHandler,
    withAtHand,
    withApplication,

    -- * Talking
    conversation,
    essence,
  )
where

import Control.Exception (displayException)
import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket
import Weft.Test.Loopback (connected, servingListener, tryToEnd)
import Weft.Test.Observing (recorder)

-- | The log and the observations of a server, oldest first.
data Seen = Seen
  { -- | Status and octets of each response.
    seenEntries :: [(Int, Int)],
    seenObserved :: [String],
    seenReports :: [String],
    -- | Exceptions that were not handled.
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

-- | Serve with a handler while the body runs; then drain, with no connection left over.
withHandler :: (ServerSettings -> ServerSettings) -> Handler -> (Rig -> Thread a) -> IO (a, Seen)
withHandler settings handler = serving settings (\s -> newServer s (const handler))

-- | 'withHandler' with what is at hand before that.
withAtHand :: (ServerSettings -> ServerSettings) -> AtHand -> Handler -> (Rig -> Thread a) -> IO (a, Seen)
withAtHand settings atHand handler = serving settings (\s -> newServerAtHand s (const (atHand, handler)))

-- | 'withHandler' with an application.
withApplication :: (ServerSettings -> ServerSettings) -> Application -> (Rig -> Thread a) -> IO (a, Seen)
withApplication settings application = serving settings (\s -> newServerWith s (const application))

serving :: (ServerSettings -> ServerSettings) -> (ServerSettings -> Thread Server) -> (Rig -> Thread a) -> IO (a, Seen)
serving settings new body = do
  (noteEntry, entries) <- recorder
  (noteObserved, observed) <- recorder
  (noteReport, reports) <- recorder
  (noteUncaught, uncaught) <- recorder
  let told =
        defaultServerSettings
          { serverName = "",
            serverAccessLog = Just (\e -> noteEntry (statusCode (entryStatus e), fromIntegral (entryBytes e))),
            serverObserver = Just (noteObserved . observation),
            serverReport = noteReport
          }
  a <- runWith defaultSettings {settingUncaught = \_ _ e -> noteUncaught (displayException e)} $ do
    server <- new (settings told)
    a <- servingListener (serve server) (drain server . pure) $ \listener address ->
      body (Rig server listener (connected address))
    left <- liftIO (connectionCount server)
    unless (left == 0) (throwM (userError "a connection was left over"))
    pure a
  seen <- Seen <$> entries <*> observed <*> reports <*> uncaught
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
  tryToEnd client
  where
    -- On one worker the server has looked at it then.
    pause = mapM_ (const yield) [1 :: Int .. 6]

-- | Without the lines of @Date@ and what is about pages of errors.
essence :: ByteString -> ByteString
essence bytes = case B.breakSubstring "\r\n" bytes of
  (line, rest)
    | B.null rest -> line
    | any (`B.isPrefixOf` line) ["Date: ", "Content-Security-Policy: "] -> essence (B.drop 2 rest)
    | otherwise -> line <> "\r\n" <> essence (B.drop 2 rest)
