{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Content that is made while it is sent: kept until sending is worth while, and framed. By the
-- connection's thread, or those that have its sink (Note [The owner of an exchange] in
-- "Weft.Http.Server.Exchange").
module Weft.Http.Server.Streaming (Delimiting (..), Stream, newStream, streamSink, streamEnd) where

import Control.Exception (displayException)
import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder.Extra (safeStrategy, toLazyByteStringWith)
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.Int (Int64)
import Numeric (showHex)
import Weft
import Weft.Http.Internal.Framing (isTrailer)
import Weft.Http.Response (checkField)
import Weft.Http.Server.Exchange
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Http.Server.Wire

data Delimiting
  = Chunked
  | Exactly !Int64
  | UntilClose

-- | The thread that sends what is kept owns the exchange.
data Stream = OutStream
  { outDelimiting :: !Delimiting,
    outKept :: !(IORef Kept),
    outExchange :: !Exchange
  }

-- | The unsent head; pieces, newest first; their size; octets of content so far.
data Kept = Kept !ByteString [ByteString] !Int !Int64

newStream :: ByteString -> Delimiting -> Exchange -> IO Stream
newStream h delimiting exchange = do
  kept <- newIORef (Kept h [] 0 0)
  beginContent exchange
  pure (OutStream delimiting kept exchange)

worthSending :: Int
worthSending = 16_384

-- | The sink of a handler, whose actions run under the given function.
streamSink :: Context -> Connection -> Stream -> (forall x. Thread x -> Thread x) -> Sink
streamSink context c stream guarded =
  Sink
    { sinkWrite = \builder -> guarded $ do
        full <- liftIO (streamKeep stream builder)
        when full (streamFlush context c stream),
      sinkFlush = guarded (streamFlush context c stream),
      sinkWriteNow = \builder -> do
        full <- streamKeep stream builder
        if full then fmap guarded <$> streamFlushNow context c stream else pure Nothing,
      sinkFlushNow = fmap guarded <$> streamFlushNow context c stream
    }

-- | Keep content; is it worth sending now? What is kept after the end of the content is not sent.
streamKeep :: Stream -> Builder -> IO Bool
streamKeep stream builder = do
  checkContent (outExchange stream)
  -- First all of it: another thread may take what is kept meanwhile, and it must not be sent again.
  let new = filter (not . B.null) (Lazy.toChunks (toLazyByteStringWith (safeStrategy 512 worthSending) Lazy.empty builder))
      !added = sum (map B.length new)
  atomicModifyIORef' (outKept stream) $ \(Kept h pieces size total) ->
    (Kept h (reverse new <> pieces) (size + added) (total + fromIntegral added), size + added >= worthSending)

streamFlush :: Context -> Connection -> Stream -> Thread ()
streamFlush context c stream = do
  mine <- claiming (takeContent (outExchange stream))
  unless mine $ abort context (displayException SinkBusy)
  pieces <- liftIO (streamTake context stream)
  unless (null pieces) (write context c pieces)
  liftIO (streamSent context c stream)

-- | 'streamFlush' without waiting, as far as possible; answers with what is left to be done.
streamFlushNow :: Context -> Connection -> Stream -> IO (Maybe (Thread ()))
streamFlushNow context c stream =
  takeContent (outExchange stream) >>= \case
    Refused -> abortNow context (displayException SinkBusy)
    NotYet -> pure (Just (streamFlush context c stream))
    Claimed -> do
      left <- streamTake context stream >>= tryWriteAll context c
      if null left
        then Nothing <$ streamSent context c stream
        else pure (Just (write context c left >> liftIO (streamSent context c stream)))

streamSent :: Context -> Connection -> Stream -> IO ()
streamSent context c stream = do
  enter (contextServer context) c Streaming
  restContent (outExchange stream)

-- | Take what is kept, in its frame, to be sent now.
streamTake :: Context -> Stream -> IO [ByteString]
streamTake context stream = do
  Kept h pieces size total <- atomicModifyIORef' (outKept stream) (\kept@(Kept _ _ _ total) -> (Kept B.empty [] 0 total, kept))
  case outDelimiting stream of
    Exactly n | total > n -> abortNow context ("a handler sends more than the " <> show n <> " octets it has announced")
    delimiting -> pure (h : framed delimiting size (reverse pieces))

-- | Content of this size in the frame of a piece.
framed :: Delimiting -> Int -> [ByteString] -> [ByteString]
framed delimiting size content = case delimiting of
  Chunked | size > 0 -> C.pack (showHex size "\r\n") : content <> ["\r\n"]
  _ -> content

-- | Send what is kept and the end; the octets of content.
streamEnd :: Context -> Connection -> Stream -> [Field] -> Thread Int64
streamEnd context c stream trailers = do
  mine <- claiming (closeContent (outExchange stream))
  unless mine $ abort context (displayException SinkBusy)
  Kept h pieces size total <- liftIO (readIORef (outKept stream))
  let content = reverse pieces
  end <- case outDelimiting stream of
    Exactly n | total /= n -> do
      -- Content that is too short may go out; only the end of the connection can tell the rest.
      when (total < n) (write context c (h : content))
      abort context ("a handler sent " <> show total <> " octets and had announced " <> show n)
    Chunked -> traverse trailer trailers >>= \section -> pure ["0\r\n", B.concat section, "\r\n"]
    _ -> pure []
  write context c (h : framed (outDelimiting stream) size content <> end)
  pure total
  where
    -- The content is right, and stays so without it.
    trailer field@(Field name value)
      | Just bad <- checkField field = faulty (show bad)
      | not (isTrailer name) = faulty (show name <> " belongs before the content")
      | otherwise = pure (B.concat [name, ": ", value, "\r\n"])
    faulty why = B.empty <$ report context ("a handler made a trailer field that cannot be sent: " <> why)
