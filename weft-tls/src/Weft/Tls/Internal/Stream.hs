{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A 'Transport' over an established context: plain calls of the library, and waits between them (Note
-- [Where threads wait] in "Weft.Tls.Internal.Records").
module Weft.Tls.Internal.Stream (Side (..), streamTransport) where

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
import Weft.Tls.Internal.Library
import Weft.Tls.Internal.Records

-- | A client must know whether a response is complete: any unannounced end is a 'TlsFailure' for it. For
-- a server it is an end like another, and no reason not to send.
data Side = ServerSide | ClientSide
  deriving stock (Eq)

data Stream = Stream
  { side :: !Side,
    records :: !Records,
    engine :: !Engine,
    -- | Decrypted bytes, not yet delivered.
    plain :: !(IORef ByteString),
    -- | How the receiving direction ended. For a server an end that was not announced is not noted here.
    over :: !(IORef (Maybe (Maybe TlsFailure))),
    farewell :: !(IORef Bool),
    -- | Bytes to encrypt at a time.
    portion :: !(IORef Int)
  }

streamTransport :: Side -> Records -> Engine -> IO Transport
streamTransport whose rs library = do
  s <- Stream whose rs library <$> newIORef B.empty <*> newIORef Nothing <*> newIORef False <*> newIORef largePortion
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

-- | Can bytes be received without the socket?
pending :: Stream -> IO Bool
pending s = do
  left <- readIORef (plain s)
  readIORef (over s) >>= \case
    Nothing | B.null left -> isComplete (records s)
    _ -> pure True

receiveFrom :: Stream -> Buffer -> Int -> Int -> Thread Int
receiveFrom s buffer offset count = liftIO (receiveRoom buffer offset count) >>= next
  where
    next room =
      liftIO (advance s) >>= \case
        -- Not interruptible between taking the bytes and returning, so no bytes are lost.
        Ready -> liftIO (deliver s buffer offset room)
        Over Nothing -> 0 <$ sayFarewell s
        Over (Just failure) -> do
          sayFarewell s
          case side s of
            ServerSide -> pure 0
            ClientSide -> throwM failure
        Starved output -> do
          when output (flushAnswers (records s))
          fill (records s) >>= \case
            True -> next room
            -- As of a socket: it can still send, and announces its end afterwards.
            False | side s == ServerSide -> pure 0
            False -> liftIO (writeIORef (over s) (Just (Just Truncated))) >> next room

-- | Starving, there may be something to send: the answer to a key update, which may be late, but must
-- not fill the memory if a peer asks for many.
data Progress
  = Ready
  | Starved !Bool
  | Over !(Maybe TlsFailure)

-- | Decrypt a record unless decrypted bytes are here.
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
  E.try (recvData (engineContext (engine s))) >>= \case
    Right bytes
      | B.null bytes -> finish Nothing
      | otherwise -> Ready <$ writeIORef (plain s) bytes
    Left e
      | Just NeedMore <- fromException e -> Starved <$> hasOutput (records s)
      | otherwise -> finish (Just (failureOf (e :: SomeException)))
  where
    finish how = do
      -- In both cases the library has announced the end.
      writeIORef (farewell s) True
      writeIORef (over s) (Just how)
      pure (Over how)

deliver :: Stream -> Buffer -> Int -> Int -> IO Int
deliver s buffer offset room = do
  left <- readIORef (plain s)
  let n = min room (B.length left)
  withBuffer buffer $ \p -> unsafeUseAsCStringLen left $ \(q, _) -> copyBytes (p `plusPtr` offset) (castPtr q) n
  writeIORef (plain s) $! B.drop n left
  pure n

-- | As 'transportSend': encrypts some of the bytes and sends all of those.
sendTo :: Stream -> [ByteString] -> Thread Int
sendTo s pieces = do
  n <- liftIO $ do
    limit <- readIORef (portion s)
    -- Joins small pieces in one record.
    let bytes = B.concat (taken limit pieces)
    readIORef (over s) >>= \case
      Just (Just failure) -> throwIO (asIOError failure)
      _ -> sendData (engineContext (engine s)) (L.fromChunks (slices bytes)) `E.catch` \e -> throwIO (asIOError (failureOf (e :: SomeException)))
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

-- | Bytes to encrypt at a time. A slower peer gets single records, each of which resets the time limit.
largePortion :: Int
largePortion = 4 * recordSize

recordSize :: Int
recordSize = 16_384

-- | Announce the end, send the announcement, and end the direction.
end :: Stream -> Thread ()
end s = do
  announce s
  void (flush (records s))
  transportEnd (below (records s))

-- | Let the library announce the end, once, without waiting for the peer's.
announce :: Stream -> Thread ()
announce s = liftIO $ do
  done <- readIORef (farewell s)
  unless done $ do
    writeIORef (farewell s) True
    announceEnd (engine s) `E.catch` \(_ :: SomeException) -> pure ()

-- | The peer has ended: announce our end, within a second.
sayFarewell :: Stream -> Thread ()
sayFarewell s = do
  waiting <- liftIO (hasOutput (records s))
  done <- liftIO (readIORef (farewell s))
  when (waiting || not done) $ do
    announce s
    void . try @_ @E.IOException . timeout (seconds 1) $ flush (records s)
