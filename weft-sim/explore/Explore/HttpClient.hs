{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A small HTTP client, that does not trust servers
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
    announced,
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
import Data.Char (digitToInt, isDigit, isHexDigit, toLower)
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
    answerBody :: !ByteString,
    -- | Of a body in chunks.
    answerTrailers :: [(ByteString, ByteString)]
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
            bodiless = bare || status < 200 || status == 304 || status == 204
            done content trailers others = do
              liftIO (writeIORef pending others)
              pure (Right (Answer status fields content trailers))
        case (lookup "transfer-encoding" fields, lookup "content-length" fields >>= number) of
          _ | bodiless -> done "" [] body
          (Just "chunked", Nothing) -> case unchunked body of
            Unfinished -> more bytes
            NoChunks -> pure (Left (Strange bytes))
            Chunks content trailers others -> done content trailers others
          (Nothing, Just n)
            | ByteString.length body < n -> more bytes
            | otherwise -> done (ByteString.take n body) [] (ByteString.drop n body)
          _ -> pure (Left (Strange top))
  where
    more bytes = do
      piece <- receive (clientSocket client) 65_536
      if ByteString.null piece
        then pure (Left (if ByteString.null bytes then Ended else Truncated bytes))
        else liftIO (writeIORef pending (bytes <> piece)) >> answer bare client

-- | Wait for the head of an answer, and leave it where it is: its status.
announced :: Client -> Thread (Maybe Int)
announced client@(Client socket pending) = do
  bytes <- liftIO (readIORef pending)
  if "\r\n\r\n" `ByteString.isInfixOf` bytes
    then pure (number (ByteString.take 3 (ByteString.drop 9 bytes)))
    else do
      piece <- receive socket 65_536
      if ByteString.null piece then pure Nothing else liftIO (writeIORef pending (bytes <> piece)) >> announced client

-- | A body in chunks, decoded.
data Unchunked
  = Unfinished
  | NoChunks
  | -- | The content, the trailers, and what comes after them.
    Chunks ByteString [(ByteString, ByteString)] ByteString

unchunked :: ByteString -> Unchunked
unchunked = go []
  where
    go done bytes = case ByteString.breakSubstring "\r\n" bytes of
      (_, rest) | ByteString.null rest -> Unfinished
      (size, rest) -> case hexadecimal size of
        Nothing -> NoChunks
        Just 0 -> ending (ByteString.concat (reverse done)) (ByteString.drop 2 rest)
        Just n
          | ByteString.length rest < n + 4 -> Unfinished
          | ByteString.take 2 (ByteString.drop (n + 2) rest) /= "\r\n" -> NoChunks
          | otherwise -> go (ByteString.take n (ByteString.drop 2 rest) : done) (ByteString.drop (n + 4) rest)
    ending content rest
      | "\r\n" `ByteString.isPrefixOf` rest = Chunks content [] (ByteString.drop 2 rest)
      | otherwise = case ByteString.breakSubstring "\r\n\r\n" rest of
          (_, more) | ByteString.null more -> Unfinished
          (section, more) -> maybe NoChunks (\trailers -> Chunks content trailers (ByteString.drop 4 more)) (fieldsOf section)
    hexadecimal digits
      | not (ByteString.null digits), Char8.all isHexDigit digits = Just (Char8.foldl' (\n d -> 16 * n + digitToInt d) 0 digits)
      | otherwise = Nothing

-- | Read an answer for each flag; as many as there are, and why there are no more.
answers :: Client -> [Bool] -> Thread ([Answer], Maybe End)
answers client = go []
  where
    go done [] = pure (reverse done, Nothing)
    go done (bare : rest) =
      answer bare client >>= \case
        Left end -> pure (reverse done, Just end)
        Right a -> go (a : done) rest

-- | The remaining bytes, until the server ends the connection.
untilEnd :: Client -> Thread ByteString
untilEnd (Client socket pending) = do
  first <- liftIO (readIORef pending)
  ByteString.concat . (first :) <$> go
  where
    go = receive socket 65_536 >>= \piece -> if ByteString.null piece then pure [] else (piece :) <$> go

parseTop :: ByteString -> Maybe (Int, [(ByteString, ByteString)])
parseTop top = case linesOf top of
  first : fields
    | Just rest <- ByteString.stripPrefix "HTTP/1.1 " first,
      (code, _) <- ByteString.splitAt 3 rest,
      Just status <- number code ->
        (,) status <$> traverse fieldOf fields
  _ -> Nothing

-- | Fields, one in a line.
fieldsOf :: ByteString -> Maybe [(ByteString, ByteString)]
fieldsOf = traverse fieldOf . linesOf

fieldOf :: ByteString -> Maybe (ByteString, ByteString)
fieldOf line = case Char8.break (== ':') line of
  (name, value)
    | not (ByteString.null value) -> Just (Char8.map toLower name, Char8.strip (ByteString.drop 1 value))
  _ -> Nothing

linesOf :: ByteString -> [ByteString]
linesOf bytes = case ByteString.breakSubstring "\r\n" bytes of
  (line, rest)
    | ByteString.null rest -> [line]
    | otherwise -> line : linesOf (ByteString.drop 2 rest)

number :: ByteString -> Maybe Int
number bytes
  | not (ByteString.null bytes), Char8.all isDigit bytes = fst <$> Char8.readInt bytes
  | otherwise = Nothing

-- | An error of a connection as a value.
attempt :: Thread a -> Thread (Either IOException a)
attempt = try
