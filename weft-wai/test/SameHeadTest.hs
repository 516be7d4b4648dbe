-- | Requests with one head share what it says, and nothing else; and their responses are what the
-- application answers, whatever came before.
module SameHeadTest (tests) where

import Client
import Control.Monad (forM, replicateM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.List (nub)
import Data.Maybe (isJust, isNothing)
import Data.Text qualified as Text
import Data.Vault.Lazy qualified as Vault
import Network.HTTP.Types
import Network.Wai
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Wai

tests :: TestTree
tests =
  testGroup
    "requests with one head"
    [ each "see nothing of what an application has changed" $ \style -> do
        key <- Vault.newKey
        let inner request respond = respond (saying (C.pack (show (pathInfo request, length (requestHeaders request), Vault.lookup key (vault request), isJust (requestClient request), remoteHost request))))
            application request respond = do
              assertBool "the vault is new" (isNothing (Vault.lookup key (vault request)))
              inner request {vault = Vault.insert key 'v' (vault request), pathInfo = drop 1 (pathInfo request), requestHeaders = ("X-Added", "1") : requestHeaders request} respond
        bodies <- serving style application $ \port ->
          replicateM 2 . withClient port $ \c -> replicateM 4 (replyBody <$> ask c "GET /a/b HTTP/1.1\r\nHost: h\r\n\r\n")
        let expected = C.pack (init (show ([Text.pack "b"], 2 :: Int, Just 'v', True)))
        map (nub . map (B.take (B.length expected))) bodies @?= [[expected], [expected]]
        -- Every connection has its own client.
        length (nub (concat bodies)) @?= 2,
      each "have their own bodies" $ \style -> do
        let application request respond = strictRequestBody request >>= respond . saying . Lazy.toStrict
            contents = ["abc", "def", "ghi", "jkl"]
        bodies <- serving style application $ \port -> withClient port $ \c -> forM contents $ \content -> do
          say c "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
          _ <- hearUntil c "100 Continue\r\n\r\n"
          replyBody <$> ask c content
        bodies @?= contents,
      each "are answered with the fields of each response" $ \style -> do
        let constant = [("X-Kind", "constant"), ("Content-Type", "text/plain")]
            -- Not literals.
            made n = [("X-Kind", C.pack ("made " <> show (n :: Int))), ("Content-Type", "text/plain")]
            renamed = [("x-kind", "constant"), ("Content-Type", "text/plain")]
            ours = [("X-Kind", "ours"), ("Date", "today"), ("Server", "mine"), ("Content-Length", "77")]
            turns = concat [replicate 3 constant, replicate 3 (made 1), [made 2, made 2, made 3], replicate 3 constant, replicate 3 renamed, replicate 3 ours, replicate 3 [], concatMap (\n -> [made n, constant]) [1 .. 6], replicate 3 constant]
        left <- newIORef turns
        let application _ respond = do
              fields <- atomicModifyIORef' left (\case [] -> ([], []); fields : rest -> (rest, fields))
              respond (responseLBS status200 fields "content#")
        answers <- serving style application $ \port -> withClient port $ \c -> mapM (const (ask c (kept "/"))) turns
        [(header "x-kind" r, header "content-type" r, header "content-length" r, replyBody r) | r <- answers]
          @?= [(lookup "x-kind" fields, lookup "content-type" fields, Just "8", "content") | fields <- turns]
        [(header "date" r, header "server" r) | (r, fields) <- zip answers turns, fields == ours] @?= replicate 3 (Just "today", Just "mine")
        [header "server" r | (r, fields) <- zip answers turns, fields /= ours] @?= map (const (Just "weft")) (filter (/= ours) turns),
      each "have Alt-Svc, if it is set" $ \style -> do
        answers <- servingWith (setAltSvc "h3") style (\_ respond -> respond (saying "content")) $ \port -> withClient port $ \c -> replicateM 4 (ask c (kept "/"))
        [(header "alt-svc" r, header "content-type" r) | r <- answers] @?= replicate 4 (Just "h3", Just "text/plain"),
      each "go on until a response ends the connection" $ \style -> do
        left <- newIORef (replicate 4 [("X-Kind", "constant")] <> [[("X-Kind", "constant"), ("Connection", "close")]])
        let application _ respond = atomicModifyIORef' left (\case [] -> ([], []); fields : rest -> (rest, fields)) >>= \fields -> respond (responseLBS status200 fields "content#")
        (before, end) <- serving style application $ \port -> withClient port $ \c -> do
          before <- replicateM 4 (ask c (kept "/"))
          say c (kept "/")
          (,) before <$> hearAll c
        map (header "connection") before @?= replicate 4 Nothing
        header "connection" (replyTo "GET" end) @?= Just "close",
      each "cannot get a field that is none" $ \style -> do
        let application _ respond = respond (responseLBS status200 [("X-Kind", "a\r\nX-Forged: b")] "content#")
        answers <- serving style application $ \port -> replicateM 4 (replyTo "GET" <$> exchange port (get "/"))
        map (\r -> (replyStatus r, header "x-forged" r)) answers @?= replicate 4 (500, Nothing),
      each "are answered as their method and version say" $ \style -> do
        let application _ respond = respond (saying "content")
        old <- serving style application $ \port -> withClient port $ \c -> replicateM 4 (ask c "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        map (\r -> (header "connection" r, replyBody r)) old @?= replicate 4 (Just "keep-alive", "content")
        heads <- serving style application $ \port -> withClient port $ \c -> replicateM 4 $ do
          say c "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
          replyTo "HEAD" <$> hearUntil c "\r\n\r\n"
        map (\r -> (replyStatus r, replyBody r)) heads @?= replicate 4 (200, "")
        gone <- serving style (\_ respond -> respond (responseLBS status304 [("ETag", "\"a\"")] "")) $ \port -> withClient port $ \c -> replicateM 4 $ do
          say c (kept "/")
          replyTo "GET" <$> hearUntil c "\r\n\r\n"
        map (\r -> (replyStatus r, header "content-length" r, header "etag" r)) gone @?= replicate 4 (304, Nothing, Just "\"a\"")
    ]
  where
    each name body = testGroup name [testCase (show style) (body style) | style <- [minBound ..]]
    kept target = "GET " <> target <> " HTTP/1.1\r\nHost: h\r\n\r\n"
    saying body = responseLBS status200 [("Content-Type", "text/plain")] (Lazy.fromStrict (body <> "#"))

-- | The response to a request, without the mark at the end of its content.
ask :: Connected -> ByteString -> IO Reply
ask c bytes = say c bytes >> unmarked . replyTo "GET" <$> hearUntil c "#"
  where
    unmarked r = r {replyBody = B.dropEnd 1 (replyBody r)}
