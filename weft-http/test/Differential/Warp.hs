-- |
-- Warp's reading of a conversation: its server on connections that are made of memory,
-- with an application that notes what it is asked.
module Differential.Warp (withWarp) where

import Control.Concurrent
import Control.Exception (bracket)
import Control.Monad (forM, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.CaseInsensitive qualified as CI
import Data.IORef
import Differential.Reading
import Network.HTTP.Types (status200)
import Network.Socket (SockAddr (..))
import Network.Wai
import Network.Wai.Handler.Warp (defaultSettings, setHTTP2Disabled, setOnException, setTimeout)
import Network.Wai.Handler.Warp.Internal (Connection (..), runSettingsConnection)
import Network.Wai.Handler.Warp.Internal qualified as Warp
import Weft.Test.Loopback (untilEmpty)

-- | One connection: what is to come, whether its end was reached, and what was noted.
data Line = Line
  { lineInput :: IORef ByteString,
    lineEnded :: IORef Bool,
    lineSent :: IORef [ByteString],
    lineMessages :: IORef [Message],
    lineCut :: IORef Bool,
    lineClosed :: MVar ()
  }

withWarp :: (Peer -> IO a) -> IO a
withWarp use = do
  next <- newEmptyMVar
  current <- newEmptyMVar
  let settings = setHTTP2Disabled (setTimeout 3600 (setOnException (\_ _ -> pure ()) defaultSettings))
      accepted = do
        line <- takeMVar next
        putMVar current line
        c <- connection line
        pure (c, SockAddrInet 0 0)
  bracket (forkIO (runSettingsConnection settings accepted (application current))) killThread $ \_ ->
    use
      Peer
        { peerName = "warp",
          peerRead = \conversations -> forM conversations $ \text -> do
            line <- newLine text
            putMVar next line
            takeMVar (lineClosed line)
            _ <- takeMVar current
            reading line,
          peerView = \m -> m {messageTarget = "", messagePath = normal (messagePath m), messageTrailers = []},
          peerEndsTrailers = False
        }

newLine :: ByteString -> IO Line
newLine text = Line <$> newIORef text <*> newIORef False <*> newIORef [] <*> newIORef [] <*> newIORef False <*> newEmptyMVar

connection :: Line -> IO Connection
connection line = do
  buffer <- Warp.createWriteBuffer 4096
  written <- newIORef buffer
  http2 <- newIORef False
  let receive = do
        bytes <- atomicModifyIORef' (lineInput line) (B.empty,)
        when (B.null bytes) (writeIORef (lineEnded line) True)
        pure bytes
      note bytes = modifyIORef' (lineSent line) (bytes :)
  pure
    Connection
      { connSendMany = mapM_ note,
        connSendAll = note,
        connSendFile = \_ _ _ _ _ -> pure (),
        connClose = void (tryPutMVar (lineClosed line) ()),
        connRecv = receive,
        connRecvBuf = \_ _ -> pure False,
        connWriteBuffer = written,
        connHTTP2 = http2,
        connMySockAddr = SockAddrInet 0 0
      }

application :: MVar Line -> Application
application current request answer = do
  line <- readMVar current
  body <- untilEmpty (getRequestBodyChunk request)
  -- A body that the end of the connection has cut off is none.
  cut <- readIORef (lineEnded line)
  if cut
    then writeIORef (lineCut line) True
    else modifyIORef' (lineMessages line) (message body :)
  answer (responseLBS status200 [] "")
  where
    message body =
      Message
        { messageMethod = requestMethod request,
          messageTarget = "",
          messagePath = normal (rawPathInfo request <> rawQueryString request),
          messageFields = [(CI.original name, value) | (name, value) <- requestHeaders request],
          messageBody = body,
          messageTrailers = []
        }

-- | Where a target has no path, warp says so, and we say @/@.
normal :: ByteString -> ByteString
normal path = case C.uncons path of
  Nothing -> "/"
  Just ('?', _) -> C.cons '/' path
  _ -> path

-- | Of the last response, a status from 400 up is a refusal: the application has none.
reading :: Line -> IO (Reading String)
reading line = do
  messages <- reverse <$> readIORef (lineMessages line)
  sent <- B.concat . reverse <$> readIORef (lineSent line)
  cut <- readIORef (lineCut line)
  ended <- readIORef (lineEnded line)
  let refusals = [code | rest <- heads sent, let code = B.take 3 (B.drop 9 rest), code >= "400"]
  pure . Reading messages $ case refusals of
    why : _ -> Refused (C.unpack why)
    [] -> if cut || ended then Ended else Closed
  where
    heads bytes = case B.breakSubstring "HTTP/1." bytes of
      (_, rest)
        | B.null rest -> []
        | otherwise -> rest : heads (B.drop 7 rest)
