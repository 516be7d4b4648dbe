-- |
-- Description : Does a server answer, and rightly?
--
-- One GET on a new connection to 127.0.0.1, before anything is measured: a server
-- that answers quickly but wrongly must not get a figure.
module Weft.Bench.Http.Probe (probe, Answer (..), parseAnswer, freePort) where

import Control.Exception (bracket)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.Char (toLower)
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)

-- | A complete response.
data Answer = Answer
  { answerStatus :: !Int,
    -- | bytes before the body: what differs between servers that send the same page
    answerHeadBytes :: !Int,
    answerBody :: !ByteString
  }
  deriving stock (Eq, Show)

-- | Ask for a path and read the answer. Throws 'IOException' when the server does
-- not listen or breaks off; the answer is 'Left' when it is no response.
probe :: Int -> String -> IO (Either String Answer)
probe port path = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  connect s (loopback port)
  sendAll s (Bytes.pack ("GET " ++ path ++ " HTTP/1.1\r\nHost: 127.0.0.1:" ++ show port ++ "\r\n\r\n"))
  readAll s ""
  where
    readAll s have = case parseAnswer have of
      Just answer -> pure answer
      Nothing -> do
        more <- recv s 65536
        if Bytes.null more
          then pure (Left "the connection was closed before the response was complete")
          else readAll s (have <> more)

-- | 'Nothing' as long as more bytes are needed. Understands a response with a
-- Content-Length, which is what the servers here send.
parseAnswer :: ByteString -> Maybe (Either String Answer)
parseAnswer have
  | Bytes.null rest = Nothing
  | otherwise = case (status, lengths) of
      (Just code, [n])
        | Bytes.length body < n -> Nothing
        | otherwise -> Just (Right (Answer code headBytes (Bytes.take n body)))
      (Nothing, _) -> Just (Left "no status line")
      _ -> Just (Left "no Content-Length, or several")
  where
    (top, rest) = Bytes.breakSubstring "\r\n\r\n" have
    headBytes = Bytes.length top + 4
    body = Bytes.drop headBytes have
    headerLines = Bytes.lines top
    status = case headerLines of
      first : _
        | ["HTTP", version] <- Bytes.split '/' (Bytes.takeWhile (/= ' ') first),
          version `elem` ["1.1", "1.0"] ->
            fst <$> Bytes.readInt (Bytes.dropWhile (== ' ') (Bytes.dropWhile (/= ' ') first))
      _ -> Nothing
    lengths =
      [ n
        | line <- drop 1 headerLines,
          let (name, value) = Bytes.break (== ':') line,
          Bytes.map toLower name == "content-length",
          Just (n, _) <- [Bytes.readInt (Bytes.strip (Bytes.drop 1 value))]
      ]

-- | A port that is free at the moment. Another program may take it before
-- a server does; then that server says so and is left out.
freePort :: IO Int
freePort = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  bind s (loopback 0)
  fromIntegral <$> socketPort s

loopback :: Int -> SockAddr
loopback port = SockAddrInet (fromIntegral port) (tupleToHostAddress (127, 0, 0, 1))
