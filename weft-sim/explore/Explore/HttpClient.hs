{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A small HTTP client, for those who do not believe servers
--
-- Sends bytes as it is told, in whatever pieces, and reads responses that say how long they
-- are. It knows no more of HTTP than that, and shares no code with the server.
module Explore.HttpClient
  ( -- * Clients
    Client,
    withClient,
    clientSocket,
    sendIn,
    finish,

    -- * Answers
    Answer (..),
    answerField,
    End (..),
    answer,
    answers,
    untilEnd,

    -- * Errors of connections
    attempt,
  )
where

import Control.Exception (IOException)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Char (isDigit, toLower)
import Data.IORef
import Weft
import Weft.Socket

-- | A connection, and what has come on it and was not read.
data Client = Client
  { clientSocket :: !Socket,
    _clientPending :: !(IORef ByteString)
  }

-- | Connect from the machine of this thread while the body runs.
withClient :: SockAddr -> (Client -> Thread a) -> Thread a
withClient address body = withSocket (openSocket AF_INET Stream) $ \socket -> do
  connect socket address
  pending <- liftIO (newIORef "")
  body (Client socket pending)

-- | Send bytes in pieces of these sizes, over and over; what happens between two pieces comes
-- first.
sendIn :: [Int] -> Thread () -> Client -> ByteString -> Thread ()
sendIn sizes between client = go (cycle sizes)
  where
    go (n : ns) bytes
      | not (ByteString.null bytes) = do
          let (now', later) = ByteString.splitAt (max 1 n) bytes
          sendAll (clientSocket client) now'
          if ByteString.null later then pure () else between >> go ns later
    go _ _ = pure ()

-- | Nothing more is sent.
finish :: Client -> Thread ()
finish client = shutdown (clientSocket client) ShutdownSend

-- | A response.
data Answer = Answer
  { answerStatus :: !Int,
    -- | Names in small letters.
    answerFields :: [(ByteString, ByteString)],
    answerBody :: !ByteString
  }
  deriving stock (Eq)

-- | In short.
instance Show Answer where
  show a = "an answer with status " <> show (answerStatus a) <> " and " <> show (ByteString.length (answerBody a)) <> " bytes"

-- | The value of a field, by its name in small letters.
answerField :: ByteString -> Answer -> Maybe ByteString
answerField name = lookup name . answerFields

-- | Why there is no answer.
data End
  = -- | The stream ended where an answer would have begun.
    Ended
  | -- | It ended within one.
    Truncated ByteString
  | -- | What has come is no answer.
    Strange ByteString
  deriving stock (Eq)

instance Show End where
  show = \case
    Ended -> "the end of the connection"
    Truncated bytes -> "the end of the connection after " <> show (ByteString.length bytes) <> " bytes of an answer"
    Strange bytes -> "what is no answer: " <> show (ByteString.take 200 bytes)

-- | Read one answer; whether it is to HEAD, and has no body whatever it says.
answer :: Bool -> Client -> Thread (Either End Answer)
answer bare client@(Client _ pending) = do
  bytes <- liftIO (readIORef pending)
  case ByteString.breakSubstring "\r\n\r\n" bytes of
    (_, rest) | ByteString.null rest -> more bytes
    (top, rest) -> case parseTop top of
      Nothing -> pure (Left (Strange top))
      Just (status, fields) -> do
        let body = ByteString.drop 4 rest
            bodiless = bare || status == 304 || status == 204
            size = if bodiless then Just 0 else lookup "content-length" fields >>= number
        case size of
          Nothing -> pure (Left (Strange top))
          Just n
            | ByteString.length body < n -> more bytes
            | otherwise -> do
                liftIO (writeIORef pending (ByteString.drop n body))
                pure (Right (Answer status fields (ByteString.take n body)))
  where
    more bytes = do
      piece <- receive (clientSocket client) 65_536
      if ByteString.null piece
        then pure (Left (if ByteString.null bytes then Ended else Truncated bytes))
        else liftIO (writeIORef pending (bytes <> piece)) >> answer bare client

-- | Read an answer for each flag; as many as there are, and why there are no more.
answers :: Client -> [Bool] -> Thread ([Answer], Maybe End)
answers client = go []
  where
    go done [] = pure (reverse done, Nothing)
    go done (bare : rest) =
      answer bare client >>= \case
        Left end -> pure (reverse done, Just end)
        Right a -> go (a : done) rest

-- | What else comes, until the server ends the connection.
untilEnd :: Client -> Thread ByteString
untilEnd (Client socket pending) = do
  first <- liftIO (readIORef pending)
  ByteString.concat . (first :) <$> go
  where
    go = receive socket 65_536 >>= \piece -> if ByteString.null piece then pure [] else (piece :) <$> go

parseTop :: ByteString -> Maybe (Int, [(ByteString, ByteString)])
parseTop top = case lines' top of
  first : fields
    | Just rest <- ByteString.stripPrefix "HTTP/1.1 " first,
      (code, _) <- ByteString.splitAt 3 rest,
      Just status <- number code ->
        (,) status <$> traverse field fields
  _ -> Nothing
  where
    field line = case Char8.break (== ':') line of
      (name, value)
        | not (ByteString.null value) -> Just (Char8.map toLower name, Char8.strip (ByteString.drop 1 value))
      _ -> Nothing
    lines' bytes = case ByteString.breakSubstring "\r\n" bytes of
      (line, rest)
        | ByteString.null rest -> [line]
        | otherwise -> line : lines' (ByteString.drop 2 rest)

number :: ByteString -> Maybe Int
number bytes
  | not (ByteString.null bytes), Char8.all isDigit bytes = fst <$> Char8.readInt bytes
  | otherwise = Nothing

-- | An error of a connection as a value.
attempt :: Thread a -> Thread (Either IOException a)
attempt = try
