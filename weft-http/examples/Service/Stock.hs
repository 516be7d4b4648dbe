-- |
-- A service with routes: what it receives and sends is streamed, one of its answers has no
-- end, and one connection changes its protocol.
module Service.Stock (stock, counted) where

import Control.Monad (forM_, unless)
import Data.ByteString qualified as B
import Data.ByteString.Builder
import Data.IORef
import Weft
import Weft.Http.Server
import Weft.Http.Status

stock :: Handler
stock request = case (requestMethod request, requestPath request) of
  (Get, "/") -> pure (plain ok200 [text] "stock\n")
  (Post, "/length") -> do
    -- Piece by piece: the body may be larger than memory.
    total <- liftIO (newIORef (0 :: Int))
    forBody_ request (\piece -> liftIO (modifyIORef' total (+ B.length piece)))
    size <- liftIO (readIORef total)
    pure (streamed ok200 [text] (\sink -> sinkWrite sink (intDec size <> "\n")))
  (Post, "/upper") -> do
    -- All of it, and no more than this.
    body <- readBody 100_000 request
    pure (plain ok200 [text] (B.map upper body))
  (Post, "/echo") ->
    -- The body goes back while more of it is coming: the slower of the two sides sets the pace.
    pure . streamed ok200 [text] $ \sink ->
      forBody_ request (\piece -> sinkWrite sink (byteString piece) >> sinkFlush sink)
  (Get, "/prices") ->
    pure . streamed ok200 [Field "Content-Type" "text/event-stream"] $ \sink ->
      forM_ [100 ..] $ \price -> do
        sinkWrite sink ("data: " <> intDec price <> "\n\n")
        sinkFlush sink
        sleep (seconds 1)
  (Get, "/line")
    | requestField "upgrade" request == Just "line" ->
        pure (Response switchingProtocols101 [Field "Upgrade" "line"] (Switch line) Nothing)
  _ -> pure (errorResponse notFound404 "")
  where
    text = Field "Content-Type" "text/plain"
    upper byte = if byte >= 0x61 && byte <= 0x7a then byte - 32 else byte

-- | The other protocol: what comes goes back.
line :: Duplex -> Thread ()
line connection = do
  bytes <- duplexReceive connection
  unless (B.null bytes) $ duplexSend connection [bytes] >> line connection

-- | Counts what a handler is asked.
counted :: IORef Int -> Middleware
counted count handler request = do
  liftIO (atomicModifyIORef' count (\n -> (n + 1, ())))
  handler request
