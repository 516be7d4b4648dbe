-- |
-- The server's reading of a conversation: the requests that its handler sees, and the
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
import Control.Monad (forM)
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
import Weft.Test.Loopback (connected, serving, tryConverse)
import Weft.Test.Message (statuses)

-- | The observations at both ends.
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
    serving (serve server) (drain server . pure) $ \address ->
      forM conversations $ \text -> do
        liftIO (writeIORef seen [])
        said <- connected address (tryConverse [text])
        messages <- liftIO (readIORef seen)
        pure (Answers (reverse messages) (filter (>= 200) (map (maybe 0 fst . C.readInt) (statuses said))))
  where
    noting seen request = do
      body <- readBody 100_000_000 request
      trailers <- requestTrailers request
      -- The strings of a head are valid as long as it is handled, and not for longer.
      let noted = copied (message (requestHead request) body trailers)
      _ <- liftIO (evaluate (length (show noted)))
      liftIO (modifyIORef' seen (noted :))
      pure (plain ok200 [] "")

copied :: Message -> Message
copied m =
  m
    { messageMethod = B.copy (messageMethod m),
      messageTarget = B.copy (messageTarget m),
      messagePath = B.copy (messagePath m),
      messageFields = [(B.copy name, B.copy value) | (name, value) <- messageFields m]
    }

-- | All answers of the engine that are right for a reading.
expectedOf :: Reading Fault -> [Answers]
expectedOf (Reading messages ending) = case ending of
  Refused fault -> [Answers messages (good <> [statusCode (faultStatus fault)])]
  -- A body that is announced to be larger than the limit is refused at once.
  Partial -> [Answers messages good, Answers messages (good <> [413])]
  _ -> [Answers messages good]
  where
    good = 200 <$ messages
