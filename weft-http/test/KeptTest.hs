-- | A program may keep its values: all that a handler can reach of a request, and all that
-- a client receives, is compared when the connection has carried hundreds of other messages.
module KeptTest (tests) where

import Control.Monad (forM, forM_, void, zipWithM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes, mapMaybe)
import Foreign.Storable (pokeElemOff)
import Network.Socket (tupleToHostAddress)
import Numeric (showHex)
import ServerRig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Http.Client qualified as Client
import Weft.Http.Proxy
import Weft.Http.Server
import Weft.Http.Status
import Weft.Internal.Core.Buffer (memoryOf)
import Weft.Socket
import Weft.Test.Loopback (toEnd)
import Weft.Test.Message (get, post, statuses)

tests :: TestTree
tests =
  localOption (mkTimeout 60_000_000) $
    testGroup
      "what is kept does not change"
      [ testGroup
          "requests"
          [ testCase "of a handler" $ requestsOf (\settings -> withHandler (settings . quiet) . keeping),
            testCase "of a handler, and of the observer" $ requestsOf (\settings -> withHandler settings . keeping),
            testCase "of an application" $ requestsOf (\settings note -> withApplication (settings . quiet) (\request respond -> keeping note request >>= respond)),
            testCase "under a layer" $ requestsOf (\settings -> withHandler (\s -> settings (quiet s) {serverLayers = [\_ below client -> pure (below, client)]}) . keeping)
          ],
        testCase "a small body keeps no large buffer in memory" smallBodies,
        testCase "entries of the log" entries,
        testCase "a counter of hits has as many keys as there are paths" hits,
        testCase "responses and pieces of their content" responses,
        testCase "what the PROXY protocol says" proxied
      ]
  where
    -- No log and no observer: then a response that is small is sent with the step to the next request.
    quiet s = s {serverAccessLog = Nothing, serverObserver = Nothing}

-- Requests -----------------------------------------------------------------------------

-- | A request as it is sent, and what a handler is to find in it.
data SentRequest = SentRequest
  { sentBytes :: ByteString,
    sentStrings :: [ByteString],
    sentBody :: ByteString,
    sentTrailers :: [Field]
  }

-- | Bodies that come with their head, or in a chunk with the end of the body.
smallBodies :: Assertion
smallBodies = do
  kept <- newIORef []
  (answers, _) <- withHandler id (\request -> plain ok200 [] "" <$ (receiveBody request >>= \piece -> liftIO (modifyIORef' kept (piece :)))) $ \rig ->
    conversation rig $
      concat [[post "/" ["Content-Length: 10", padding] "0123456789"] | padding <- ["X: " <> C.replicate 15_000 'x', "X: y", "X: " <> C.replicate 700 'x']]
        <> [post "/" ["Transfer-Encoding: chunked"] "", "a\r\n0123456789\r\n0\r\n\r\n"]
  length (statuses answers) @?= 4
  pieces <- readIORef kept
  pieces @?= replicate 4 "0123456789"
  sizes <- mapM memoryOf pieces
  assertBool (show sizes) (all (<= 20) sizes)

-- | The requests of this test differ in all lengths, and in whether what came before ends in
-- the middle of the same memory: short ones, long ones, bodies of every framing.
numbered :: Int -> SentRequest
numbered i =
  SentRequest
    { sentBytes = B.concat ([method, " ", target, " HTTP/1.1\r\n"] <> map line (fields <> framing) <> ["\r\n", content]),
      sentStrings = [method, target, path, query, host] <> concat [[n, v] | (n, v) <- fields <> framing] <> [B.intercalate ", " tags, range],
      sentBody = body,
      sentTrailers = trailers
    }
  where
    number = C.pack (show i)
    text size = C.take size (C.concat (replicate (size `div` B.length number + 1) number))
    method = ["GET", "POST", "PATCH", "FROB" <> number] !! (i `mod` 4)
    path = "/" <> text (i * 7 `mod` 61)
    query = if i `mod` 3 == 0 then "" else "?" <> text (i * 5 `mod` 37)
    target = path <> query
    host = "h" <> number <> ".example"
    tags = ["\"" <> text 9 <> "\"", "\"" <> text 3 <> "\""]
    range = "bytes=" <> number <> "-"
    fields =
      [("Host", host)]
        <> [("X-" <> text (j + 1), text (i * j `mod` 53)) | j <- [1 .. i `mod` 11]]
        <> [("If-None-Match", tag) | tag <- tags]
        <> [("Range", range)]
        -- Longer than the buffer of a connection is at first.
        <> [("Cookie", text (600 + i)) | i `mod` 37 == 0]
    (framing, content, body, trailers) = case i `mod` 5 of
      1 -> let b = text (i `mod` 700) in ([("Content-Length", C.pack (show (B.length b)))], b, b, [])
      2 ->
        let b = [text 10, text (i `mod` 300 + 1)]
            ends = [Field ("X-Sum" <> number) (text 12), Field "ETag" (text 5)]
         in ( [("Transfer-Encoding", "chunked")],
              B.concat (map chunk b <> ["0\r\n"] <> [line (n, v) | Field n v <- ends] <> ["\r\n"]),
              B.concat b,
              ends
            )
      _ -> ([], "", "", [])
    chunk b = C.pack (showHex (B.length b) "\r\n") <> b <> "\r\n"
    line (n, v) = n <> ": " <> v <> "\r\n"

-- | All strings of a request, as 'sentStrings'.
strings :: Request -> [ByteString]
strings request =
  [methodName (requestMethod request), requestTarget request, requestPath request, requestQuery request]
    <> catMaybes [requestHost request]
    <> concat [[n, v] | Field n v <- requestFields request]
    <> catMaybes [conditionIfNoneMatch (requestConditions request), conditionRange (requestConditions request)]

-- | The parts of a request that a handler has kept. Not strict: parts that it has not looked at may be made late.
data Kept = Kept Request [ByteString] [ByteString] [Field]

keeping :: IORef [Kept] -> Handler
keeping kept request = do
  pieces <- piecesOf request
  trailers <- requestTrailers request
  plain ok200 [] "fin" <$ liftIO (modifyIORef' kept (Kept request (strings request) pieces trailers :))
  where
    piecesOf r = receiveBody r >>= \piece -> if B.null piece then pure [] else (piece :) <$> piecesOf r

-- | A thousand requests on five connections: each for itself, cut in two, and several together.
-- Every second one is known, because it has come before, and refers to none of the memory between
-- its neighbours.
requestsOf :: ((ServerSettings -> ServerSettings) -> IORef [Kept] -> (Rig -> Thread ()) -> IO ((), Seen)) -> Assertion
requestsOf serving = do
  kept <- newIORef []
  _ <- serving extended kept $ \rig ->
    forM_ (inGroups 200 numbers) (conversing rig)
  found <- reverse <$> readIORef kept
  length found @?= 1000
  forM_ (zip found (map numbered numbers)) $ \(Kept request at pieces trailers, sent) -> do
    strings request @?= sentStrings sent
    at @?= sentStrings sent
    B.concat pieces @?= sentBody sent
    trailers @?= sentTrailers sent
    (show (clientAddress (requestClient request)) /= "", clientSecurity (requestClient request)) @?= (True, Nothing)
  where
    numbers = [if even i then 4 else i | i <- [0 .. 999]]

extended :: ServerSettings -> ServerSettings
extended s = s {serverLimits = (serverLimits s) {limitExtensionMethods = True}}

-- | These requests on one connection.
conversing :: Rig -> [Int] -> Thread ()
conversing rig numbers = rigClient rig $ \client -> do
  setOption client NoDelay 1
  forM_ (zip (cycle [1, 1, 7, 2, 1]) (inGroups 10 numbers)) $ \(together, ten) ->
    forM_ (inGroups together ten) $ \group -> do
      let bytes = B.concat (map (sentBytes . numbered) group)
          cut = if together == 2 then B.length bytes `div` 3 else 0
      sendAll client (B.take cut bytes)
      sendAll client (B.drop cut bytes)
      heard client (length group)
  shutdown client ShutdownSend
  void (toEnd client)

-- | Take the given number of responses that end in "fin".
heard :: Socket -> Int -> Thread ()
heard client = go ""
  where
    go got n = case B.breakSubstring "\r\n\r\nfin" got of
      (_, rest)
        | n == 0 -> pure ()
        | not (B.null rest) -> go (B.drop 7 rest) (n - 1)
        | otherwise -> receive client 65_536 >>= \piece -> if B.null piece then throwM (userError "the connection ended") else go (got <> piece) n

inGroups :: Int -> [a] -> [[a]]
inGroups n = \case
  [] -> []
  some -> let (group, rest) = splitAt n some in group : inGroups n rest

-- | Entries of an access log may be written later, by another thread.
entries :: Assertion
entries = do
  logged <- newIORef []
  kept <- newIORef []
  _ <- withHandler (\s -> extended s {serverAccessLog = Just (\e -> modifyIORef' logged (e :))}) (keeping kept) $ \rig ->
    conversing rig [0 .. 199]
  found <- reverse <$> readIORef logged
  map strings (mapMaybe entryRequest found) @?= map (sentStrings . numbered) [0 .. 199]

hits :: Assertion
hits = do
  counts <- newIORef Map.empty
  let counting request = plain ok200 [] "fin" <$ liftIO (modifyIORef' counts (Map.insertWith (+) (requestPath request) (1 :: Int)))
      paths = ["/" <> C.replicate (i `mod` 13) 'p' <> C.pack (show i) | i <- [1 .. 300 :: Int]]
  _ <- withHandler (\s -> s {serverAccessLog = Nothing, serverObserver = Nothing}) counting $ \rig ->
    rigClient rig $ \client -> do
      forM_ (paths <> reverse paths <> paths) $ \path -> sendAll client (get path) >> heard client 1
      shutdown client ShutdownSend
      void (toEnd client)
  readIORef counts >>= (@?= Map.fromList [(path, 3) | path <- paths])

-- The client ---------------------------------------------------------------------------

-- | Replies as a whole and in pieces, all over one connection.
responses :: Assertion
responses = do
  let fieldsOf' i = [Field ("X-" <> text i (j + 1)) (text i (i * j `mod` 53)) | j <- [1 .. i `mod` 7]]
      contentOf i = text i (i * 31 `mod` 3_000)
      text i size = C.take size (C.concat (replicate (size + 1) (C.pack (show (i :: Int)))))
      numberOf request = maybe 0 fst (C.readInt (B.drop 1 (requestPath request)))
      handler request = pure $ case numberOf request of
        i
          | even i -> plain ok200 (fieldsOf' i) (contentOf i)
          | otherwise -> streamed ok200 (fieldsOf' i) (\sink -> forM_ (inPieces (contentOf i)) (\piece -> sinkWrite sink piece >> sinkFlush sink))
      inPieces bytes = [byteString (B.take 500 (B.drop at bytes)) | at <- [0, 500 .. B.length bytes]]
      own = filter (("X-" `B.isPrefixOf`) . fieldName)
  (found, _) <- withHandler id handler $ \rig -> do
    port <- localAddress (rigListener rig)
    let at i = "http://" <> C.pack (show port) <> "/" <> C.pack (show (i :: Int))
    Client.withClient Client.defaultClientSettings {Client.clientConnections = 1} $ \client -> forM [0 .. 299] $ \i ->
      if i `mod` 3 == 0
        then (\reply -> (Client.replyFields reply, [Client.replyContent reply], Client.replyUrl reply)) <$> Client.get client (at i)
        else do
          to <- Client.url (at i)
          Client.withResponse client (Client.requestTo Client.Get to) $ \response -> do
            let pieces = Client.receivePiece response >>= \piece -> if B.null piece then pure [] else (piece :) <$> pieces
            got <- pieces
            pure (Client.responseFields response, got, Client.responseUrl response)
  forM_ (zip [0 ..] found) $ \(i, (fields, pieces, to)) -> do
    own fields @?= fieldsOf' i
    B.concat pieces @?= contentOf i
    Client.urlPath to @?= "/" <> C.pack (show i)

-- The PROXY protocol -------------------------------------------------------------------

-- | Of connections one after the other, whose headers are received into the same memory.
proxied :: Assertion
proxied = do
  buffer <- newBuffer 512
  found <- run . forM [0 .. 299] $ \i -> do
    let (bytes, _) = header i
        -- Received, as far as this goes.
        next = liftIO $ do
          withBuffer buffer (\p -> zipWithM_ (pokeElemOff p) [0 ..] (B.unpack bytes))
          copyBuffer buffer 0 (B.length bytes)
    receiveProxyHeader defaultProxyLimit next
  zipWithM_ (\i (got, rest) -> (got, rest) @?= (snd (header i), "next" <> C.pack (show i))) [0 :: Int ..] found
  where
    header :: Int -> (ByteString, ProxyHeader)
    header i =
      let name = C.replicate (i `mod` 40 + 1) 'n' <> C.pack (show i)
          values = value 0x02 name
          bytes = "\r\n\r\n\0\r\nQUIT\n\x21\x11" <> sixteen (12 + B.length values) <> B.pack [192, 0, 2, fromIntegral (i `mod` 250), 198, 51, 100, fromIntegral (i `mod` 200)] <> sixteen 4711 <> sixteen 443 <> values
       in ( bytes <> "next" <> C.pack (show i),
            Proxied
              (SockAddrInet 4711 (tupleToHostAddress (192, 0, 2, fromIntegral (i `mod` 250))))
              (SockAddrInet 443 (tupleToHostAddress (198, 51, 100, fromIntegral (i `mod` 200))))
          )
    value kind bytes = B.cons kind (sixteen (B.length bytes)) <> bytes
    sixteen :: Int -> ByteString
    sixteen n = B.pack [fromIntegral (n `div` 256), fromIntegral (n `mod` 256)]
