-- |
-- What the server makes of a conversation: the requests that its handler sees, and the
-- statuses that the client gets. It must be what the parser and the decoder of bodies read
-- ("Differential.Weft"), although the server has its buffers, its phases and its skipping of
-- bodies between them and the socket.
module Differential.Engine
  ( engineReads,
    expectedOf,
    Answers (..),
  )
where

import Control.Exception (evaluate)
import Control.Monad (forM, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Differential.Reading
import Differential.Weft (message)
import Weft
import Weft.Http.RequestHead (Fault, faultStatus)
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket

-- | What was seen at both ends.
data Answers = Answers
  { answersMessages :: [Message],
    -- | Without interim responses.
    answersStatuses :: [Int]
  }
  deriving stock (Eq, Show)

-- | Have these conversations, each on a connection.
engineReads :: [ByteString] -> IO [Answers]
engineReads conversations = do
  seen <- newIORef []
  run $ do
    server <- newServer defaultServerSettings {serverReport = \_ -> pure ()} (const (noting seen))
    listener <- listenTcp (Just "127.0.0.1") "0" 16
    fork_ (serve server listener)
    address <- localAddress listener
    answers <- forM conversations $ \text -> do
      liftIO (writeIORef seen [])
      said <- withSocket (openSocket AF_INET Stream) $ \client -> do
        connect client address
        -- The server may be gone before everything is sent.
        quietly (sendAll client text)
        quietly (shutdown client ShutdownSend)
        toEnd client
      messages <- liftIO (readIORef seen)
      pure (Answers (reverse messages) (filter (>= 200) (statuses said)))
    ended <- drain server [listener]
    if ended then pure answers else throwM (userError "a connection was left over")
  where
    noting seen request = do
      body <- readBody 100_000_000 request
      trailers <- requestTrailers request
      -- The strings of a head are valid as long as it is handled, and not for longer.
      let noted = copied (message (requestHead request) body trailers)
      _ <- liftIO (evaluate (length (show noted)))
      liftIO (modifyIORef' seen (noted :))
      pure (plain ok200 [] "")
    quietly act = void (try @_ @IOError act)
    toEnd client =
      try @_ @IOError (receive client 65536) >>= \case
        Right piece | not (B.null piece) -> (piece <>) <$> toEnd client
        _ -> pure B.empty

copied :: Message -> Message
copied m =
  m
    { messageMethod = B.copy (messageMethod m),
      messageTarget = B.copy (messageTarget m),
      messagePath = B.copy (messagePath m),
      messageFields = [(B.copy name, B.copy value) | (name, value) <- messageFields m]
    }

-- | The codes of the status lines in what came.
statuses :: ByteString -> [Int]
statuses bytes = case B.breakSubstring "HTTP/1.1 " bytes of
  (_, rest)
    | B.null rest -> []
    | otherwise -> maybe 0 fst (C.readInt (B.drop 9 rest)) : statuses (B.drop 9 rest)

-- | What the engine has to answer to what was read: everything that may be right.
expectedOf :: Reading Fault -> [Answers]
expectedOf (Reading messages ending) = case ending of
  Refused fault -> [Answers messages (good <> [statusCode (faultStatus fault)])]
  -- A body that is announced to be larger than the limit is refused at once.
  Partial -> [Answers messages good, Answers messages (good <> [413])]
  _ -> [Answers messages good]
  where
    good = 200 <$ messages
