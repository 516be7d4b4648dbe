{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Content that is made while it is sent
-- Stability   : not home
--
-- What a handler writes is kept until it is worth while to send it, and framed. By the thread
-- of the connection, or, in plain 'IO', by those to whom the handler has given its sink: see
-- Note [The turn of a stream].
module Weft.Http.Server.Streaming
  ( Delimiting (..),
    Stream,
    newStream,
    streamSink,
    streamEnd,
    streamOver,
  )
where

import Control.Exception (displayException, throwIO)
import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder.Extra (safeStrategy, toLazyByteStringWith)
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Numeric (showHex)
import Weft
import Weft.Http.Internal.Trailers (isTrailer)
import Weft.Http.Request
import Weft.Http.Response (checkField)
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Http.Server.Wire

-- | How the end of the content is found.
data Delimiting
  = Chunked
  | Exactly !Int64
  | UntilClose

-- | What is kept until it is worth while to send it.
data Stream = OutStream
  { outDelimiting :: !Delimiting,
    outKept :: !(IORef Kept),
    -- | Who may send; changed atomically. Note [The turn of a stream].
    outTurn :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | Run before the head is sent.
    outBegins :: IO ()
  }

-- | The head if it was not sent yet; pieces, newest first; their size; octets of content
-- so far.
data Kept = Kept !ByteString [ByteString] !Int !Int64

-- Note [The turn of a stream]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A sink may be known to threads that its application has left behind, and they may use it when
-- the response has ended and the connection answers another request. So a stream is at rest, or
-- somebody is sending what it has kept, or it is over:
--
--   * Who wants to send makes of "at rest" "sending", and afterwards "at rest" again. It is never
--     made that when sending has failed or was interrupted: nobody knows then how much of
--     a chunk has gone out, and nothing must follow it.
--   * Who ends the stream makes of "at rest" "over". If somebody is sending the connection
--     ends, and with it what is being sent.
--   * When it is over, all that would use the sink raises 'SinkEnded', and touches neither the
--     connection nor its phase.

atRest, beingSent, over :: Int
atRest = 0
beingSent = 1
over = 2

-- | Behind this head, which was not sent. The action is run before that is.
newStream :: ByteString -> Delimiting -> IO () -> IO Stream
newStream h delimiting begins = do
  kept <- newIORef (Kept h [] 0 0)
  turn <- newPrimVar atRest
  pure (OutStream delimiting kept turn begins)

-- | The response has failed.
streamOver :: Stream -> IO ()
streamOver stream = writePrimVar (outTurn stream) over

-- | In octets: what is sent together.
worthSending :: Int
worthSending = 16_384

-- | What a handler writes to, given what each of its actions is to be done under.
streamSink :: Context -> Connection -> Stream -> (forall x. Thread x -> Thread x) -> Sink
streamSink context c stream guarded =
  Sink
    { sinkWrite = guarded . streamWrite context c stream,
      sinkFlush = guarded (streamFlush context c stream),
      sinkWriteNow = \builder -> do
        full <- streamKeep stream builder
        if full then fmap guarded <$> streamFlushNow context c stream else pure Nothing,
      sinkFlushNow = fmap guarded <$> streamFlushNow context c stream
    }

streamWrite :: Context -> Connection -> Stream -> Builder -> Thread ()
streamWrite context c stream builder = do
  full <- liftIO (streamKeep stream builder)
  when full (streamFlush context c stream)

-- | Keep content; is it worth sending now?
streamKeep :: Stream -> Builder -> IO Bool
streamKeep stream builder = do
  turn <- readPrimVar (outTurn stream)
  when (turn == over) (throwIO SinkEnded)
  -- First all of it, however long that takes: another thread may take what is kept meanwhile, and
  -- what was taken, with the head, must not be sent again.
  let new = filter (not . B.null) (Lazy.toChunks (toLazyByteStringWith (safeStrategy 512 worthSending) Lazy.empty builder))
      !added = sum (map B.length new)
  atomicModifyIORef' (outKept stream) $ \(Kept h pieces size total) ->
    (Kept h (reverse new <> pieces) (size + added) (total + fromIntegral added), size + added >= worthSending)

streamFlush :: Context -> Connection -> Stream -> Thread ()
streamFlush context c stream =
  liftIO (streamTake stream) >>= \case
    Wrong why -> abort context why
    Nothing' -> pure ()
    Ours pieces -> streamSend context c stream pieces

-- | The same without waiting, as far as possible; answers with what is left to be done.
streamFlushNow :: Context -> Connection -> Stream -> IO (Maybe (Thread ()))
streamFlushNow context c stream =
  streamTake stream >>= \case
    Wrong why -> pure (Just (abort context why))
    Nothing' -> pure Nothing
    Ours pieces
      | size <- sum (map B.length pieces),
        size <= 2 * worthSending -> do
          enter (contextServer context) c Sending
          let bytes = B.concat pieces
          n <- sendNow c bytes
          if n == size
            then Nothing <$ streamSent context c stream
            else pure (Just (streamSend context c stream [B.drop n bytes]))
      | otherwise -> pure (Just (streamSend context c stream pieces))

streamSend :: Context -> Connection -> Stream -> [ByteString] -> Thread ()
streamSend context c stream pieces = do
  sendPieces context c pieces
  liftIO (streamSent context c stream)

-- | All that was taken was sent.
streamSent :: Context -> Connection -> Stream -> IO ()
streamSent context c stream = do
  enter (contextServer context) c Streaming
  -- Where the response has failed meanwhile it stays over.
  void (casInt (outTurn stream) beingSent atRest)

-- | What is to be sent now.
data Take
  = Nothing'
  | -- | These, and nobody sends before they were sent.
    Ours [ByteString]
  | Wrong String

-- | Send these: as one piece in the same breath where they are small and the socket takes them.
sendTogether :: Context -> Connection -> [ByteString] -> Thread ()
sendTogether context c pieces
  | size <= 2 * worthSending = do
      let bytes = B.concat pieces
      n <- liftIO (enter (contextServer context) c Sending >> sendHere c bytes)
      unless (n == size) $ sendPieces context c [B.drop n bytes]
  | otherwise = sendPieces context c pieces
  where
    size = sum (map B.length pieces)

-- | Take what is kept, in its frame, to be sent now. Or what is wrong with it.
streamTake :: Stream -> IO Take
streamTake stream = do
  before <- casInt (outTurn stream) atRest beingSent
  if
    | before == over -> throwIO SinkEnded
    | before /= atRest -> pure (Wrong (displayException SinkBusy))
    | otherwise -> do
        Kept h pieces size total <- atomicModifyIORef' (outKept stream) (\kept@(Kept _ _ _ total) -> (Kept B.empty [] 0 total, kept))
        case outDelimiting stream of
          Exactly n | total > n -> pure (Wrong ("a handler sends more than the " <> show n <> " octets it has announced"))
          _ | B.null h && size == 0 -> Nothing' <$ casInt (outTurn stream) beingSent atRest
          delimiting -> do
            outBegins stream
            pure (Ours (h : framed delimiting size (reverse pieces)))

-- | Content of this size in the frame of a piece.
framed :: Delimiting -> Int -> [ByteString] -> [ByteString]
framed delimiting size content = case delimiting of
  Chunked | size > 0 -> chunkSize size : content <> ["\r\n"]
  _ -> content

-- | Send what is kept and the end; the octets of content.
streamEnd :: Context -> Connection -> Stream -> [Field] -> Thread Int64
streamEnd context c stream trailers = do
  (before, Kept h pieces size total) <- liftIO ((,) <$> casInt (outTurn stream) atRest over <*> readIORef (outKept stream))
  unless (before == atRest) $ abort context (displayException SinkBusy)
  let content = reverse pieces
  case outDelimiting stream of
    Exactly n | total /= n -> do
      -- What is right of it may go out; only the end of the connection can tell the rest.
      when (total < n) (sendPieces context c (h : content))
      abort context ("a handler sent " <> show total <> " octets and had announced " <> show n)
    _ -> pure ()
  end <- case outDelimiting stream of
    Chunked -> traverse trailer trailers >>= \section -> pure ["0\r\n", B.concat section, "\r\n"]
    _ -> pure []
  sendTogether context c (h : framed (outDelimiting stream) size content <> end)
  pure total
  where
    -- The content is right, and stays so without it.
    trailer field@(Field name value) = case trailerFault field of
      Nothing -> pure (B.concat [name, ": ", value, "\r\n"])
      Just why -> B.empty <$ report context ("a handler made a trailer field that cannot be sent: " <> why)

-- | Why a field cannot be sent behind the content.
trailerFault :: Field -> Maybe String
trailerFault field = case checkField field of
  Just bad -> Just (show bad)
  Nothing
    | isTrailer (fieldName field) -> Nothing
    | otherwise -> Just (show (fieldName field) <> " belongs before the content")

chunkSize :: Int -> ByteString
chunkSize size = C.pack (showHex size "\r\n")
