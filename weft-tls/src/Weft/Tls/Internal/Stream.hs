{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : An encrypted connection after its handshake
-- Stability   : not home
--
-- Gives an established context the interface of a connection. See Note [Who waits] in
-- "Weft.Tls.Internal.Records": the library is called in plain IO, and what waits is between
-- the calls.
module Weft.Tls.Internal.Stream
  ( Side (..),
    streamTransport,
  )
where

import Control.Exception (SomeException, fromException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Lazy qualified as L
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Network.TLS
import Weft
import Weft.Buffer
import Weft.File (readAt)
import Weft.Http.Server (Transport (..), receiveRoom)
import Weft.Timeout (timeout)
import Weft.Tls.Internal.Failure
import Weft.Tls.Internal.Records

-- | Whose end it is. A server takes whatever ends a connection for its end: what it does then
-- does not depend on how. A client must know whether a response is complete, so there
-- everything but a close that was announced is an exception ('TlsFailure').
data Side = ServerSide | ClientSide
  deriving stock (Eq)

-- | An established connection.
data Stream = Stream
  { side :: !Side,
    records :: !Records,
    context :: !Context,
    -- | Decrypted, and not given yet.
    plain :: !(IORef ByteString),
    -- | How the receiving direction has ended.
    over :: !(IORef (Maybe (Maybe TlsFailure))),
    -- | Has the end been announced from here?
    farewell :: !(IORef Bool),
    -- | How much is encrypted at a time.
    portion :: !(IORef Int)
  }

-- | The connection as bytes that are received and sent.
streamTransport :: Side -> Records -> Context -> IO Transport
streamTransport whose rs ctx = do
  s <- Stream whose rs ctx <$> newIORef B.empty <*> newIORef Nothing <*> newIORef False <*> newIORef largePortion
  pure
    Transport
      { transportReceive = receiveFrom s,
        transportSend = sendTo s,
        transportSendFile = \file offset count -> do
          limit <- liftIO (readIORef (portion s))
          bytes <- readAt file offset (min count limit)
          if B.null bytes then pure 0 else sendTo s [bytes],
        transportEnd = end s,
        transportPending = pending s
      }

-- | Is there something to be received without the socket?
pending :: Stream -> IO Bool
pending s = do
  left <- readIORef (plain s)
  finished <- readIORef (over s)
  case finished of
    Nothing | B.null left -> isComplete (records s)
    _ -> pure True

-- | As 'transportReceive'.
receiveFrom :: Stream -> Buffer -> Int -> Int -> Thread Int
receiveFrom s buffer offset count = liftIO (receiveRoom buffer offset count) >>= next
  where
    next room =
      liftIO (advance s) >>= \case
        -- Nothing comes between taking the bytes and the return: no thread that is
        -- interrupted loses any.
        Ready -> liftIO (deliver s buffer offset room)
        Over Nothing -> 0 <$ sayFarewell s
        Over (Just failure) -> do
          sayFarewell s
          case side s of
            ServerSide -> pure 0
            ClientSide -> throwM failure
        Starved output -> do
          when output (void (flush (records s)))
          more <- fill (records s)
          unless more (liftIO (writeIORef (over s) (Just (Just Truncated))))
          next room

-- | How far receiving has come. When it starves there may be something to be sent: an answer
-- to a change of keys, which may come late, but a peer that asks for many must not fill the
-- memory.
data Progress
  = Ready
  | Starved !Bool
  | Over !(Maybe TlsFailure)

-- | Have something decrypted, if there is nothing yet.
advance :: Stream -> IO Progress
advance s = do
  left <- readIORef (plain s)
  if not (B.null left)
    then pure Ready
    else
      readIORef (over s) >>= \case
        Just how -> pure (Over how)
        Nothing -> do
          whole <- isComplete (records s)
          if not whole then Starved <$> hasOutput (records s) else decrypt s

decrypt :: Stream -> IO Progress
decrypt s =
  E.try (recvData (context s)) >>= \case
    Right bytes
      | B.null bytes -> finish Nothing
      | otherwise -> Ready <$ writeIORef (plain s) bytes
    Left e
      | Just NeedMore <- fromException e -> Starved <$> hasOutput (records s)
      | otherwise -> finish (Just (failureOf (e :: SomeException)))
  where
    finish how = do
      -- In both cases the library has said farewell itself.
      writeIORef (farewell s) True
      writeIORef (over s) (Just how)
      pure (Over how)

-- | Copy what is there to its place.
deliver :: Stream -> Buffer -> Int -> Int -> IO Int
deliver s buffer offset room = do
  left <- readIORef (plain s)
  let n = min room (B.length left)
  withBuffer buffer $ \p -> unsafeUseAsCStringLen left $ \(q, _) -> copyBytes (p `plusPtr` offset) (castPtr q) n
  writeIORef (plain s) $! B.drop n left
  pure n

-- | As 'transportSend': encrypts some of it, all of which is sent.
sendTo :: Stream -> [ByteString] -> Thread Int
sendTo s pieces = do
  n <- liftIO $ do
    limit <- readIORef (portion s)
    -- Small pieces become one record.
    let bytes = B.concat (taken limit pieces)
    done <- readIORef (over s)
    case done of
      Just (Just failure) -> throwIO (asIOError failure)
      _ -> sendData (context s) (L.fromChunks (slices bytes)) `E.catch` \e -> throwIO (asIOError (failureOf (e :: SomeException)))
    pure (B.length bytes)
  quick <- flush (records s)
  liftIO (writeIORef (portion s) (if quick then largePortion else recordSize))
  pure n
  where
    slices bytes
      | B.length bytes <= recordSize = [bytes]
      | otherwise = let (one, others) = B.splitAt recordSize bytes in one : slices others
    taken _ [] = []
    taken limit (p : ps)
      | B.length p >= limit = [B.take limit p]
      | otherwise = p : taken (limit - B.length p) ps

-- | What is encrypted at a time for a peer that takes it as it comes; four records.
--
-- A peer that is slower has one record at a time: that it has taken a portion is the sign
-- of life that the server's time limit for sending looks at.
largePortion :: Int
largePortion = 4 * recordSize

-- | The most that a record holds.
recordSize :: Int
recordSize = 16_384

-- | Announce the end, send that, and end the direction.
end :: Stream -> Thread ()
end s = do
  announce s
  void (flush (records s))
  transportEnd (below (records s))

-- | Have the library announce the end, once. It may want to hear of the peer first, which
-- it then does not.
announce :: Stream -> Thread ()
announce s = liftIO $ do
  done <- readIORef (farewell s)
  unless done $ do
    writeIORef (farewell s) True
    bye (context s) `E.catch` \(_ :: SomeException) -> pure ()

-- | The peer has ended: announce the end as well, if it takes that within a second.
sayFarewell :: Stream -> Thread ()
sayFarewell s = do
  waiting <- liftIO (hasOutput (records s))
  done <- liftIO (readIORef (farewell s))
  when (waiting || not done) $ do
    announce s
    void . try @_ @E.IOException . timeout (seconds 1) $ flush (records s)
