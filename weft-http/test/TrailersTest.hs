-- | Trailer fields: which are taken, which are left out, which are refused; and those of
-- handlers.
module TrailersTest (tests) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (toUpper)
import Data.IORef
import Data.List (isInfixOf)
import ServerRig
import Test.QuickCheck
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft
import Weft.Http.Body
import Weft.Http.Internal.Framing (isTrailer)
import Weft.Http.RequestHead
import Weft.Http.Server
import Weft.Http.Status (ok200)
import Weft.Test.Message (get, post, statuses)

tests :: TestTree
tests =
  localOption (mkTimeout 20_000_000) $
    testGroup
      "trailers"
      [ testCase "what must be known before the content is left out" leftOut,
        testCase "what says where the message ends is refused" refused,
        testCase "they are counted" counted,
        testProperty "whatever comes is taken apart, and nothing is taken that may not be" anything,
        testCase "a handler has them apart from the fields of the head" apart,
        testCase "they count with the fields of the head" countedTogether,
        testCase "those of a handler that may not be sent are left out, and the operator is told" sent
      ]

ending :: ByteString -> Step
ending section = decode (bodyDecoder defaultLimits ChunkedBody) ("0\r\n" <> section <> "\r\nnext")

forbidden :: [ByteString]
forbidden =
  ["Host", "Authorization", "Cookie", "Set-Cookie", "Content-Type", "Content-Encoding", "Content-Range", "Trailer", "Connection", "TE", "Upgrade", "Expect", "Cache-Control", "Pragma"]
    <> ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range", "Max-Forwards", "Proxy-Authorization", "Proxy-Connection", "Proxy-Authenticate"]
    <> ["Keep-Alive", "WWW-Authenticate", "Forwarded", "X-Forwarded-For", "Via", "Date", "Age", "Expires", "Location", "Vary", "Retry-After", "Warning"]

leftOut :: Assertion
leftOut = forM_ forbidden $ \name -> forM_ [name, C.map toUpper name] $ \n -> do
  isTrailer n @?= False
  ending ("A: 1\r\n" <> n <> ": x\r\nETag: \"2\"\r\n") @?= End [Field "A" "1", Field "ETag" "\"2\""] "next"

refused :: Assertion
refused = forM_ ["Content-Length", "Transfer-Encoding", "content-length", "TRANSFER-ENCODING"] $ \name ->
  ending ("A: 1\r\n" <> name <> ": 3\r\n") @?= Broken FramingInTrailer

counted :: Assertion
counted = do
  ending (many 100) @?= End (replicate 100 (Field "a" "")) "next"
  ending (many 101) @?= Broken TooManyFields
  -- In bytes, too, also those that are left out.
  ending ("Cookie: " <> B.replicate 9_000 0x61 <> "\r\n") @?= Broken ChunkOverhead
  where
    many n = B.concat (replicate n "a:\r\n")

anything :: Property
anything = forAll (listOf line) $ \lines' -> forAll (choose (0, 40)) $ \n ->
  let text = "0\r\n" <> B.concat lines' <> "\r\n"
      feed decoder input = case decode decoder (B.take n input) of
        More next | B.length input > n -> feed next (B.drop n input)
        answer -> answer
      whole = decode (bodyDecoder defaultLimits ChunkedBody) text
      pieces = if n == 0 then whole else feed (bodyDecoder defaultLimits ChunkedBody) text
   in cover 20 (isEnd whole) "taken" . cover 20 (isBroken whole) "refused" $
        conjoin
          [ case whole of
              End fields _ -> counterexample (show fields) (all (isTrailer . fieldName) fields)
              _ -> property True,
            essence' pieces === essence' whole
          ]
  where
    line =
      frequency
        [ (8, (\name value -> name <> ": " <> value <> "\r\n") <$> elements ("X-Sum" : "Server-Timing" : "ETag" : forbidden) <*> (C.pack <$> listOf (elements "ab ;\t\xe9"))),
          (1, pure "Content-Length: 4\r\n"),
          (1, C.pack <$> resize 6 (listOf (elements "ab:\r\n \0")))
        ]
    isEnd = \case
      End _ _ -> True
      _ -> False
    isBroken = \case
      Broken _ -> True
      _ -> False
    essence' = \case
      End fields _ -> Right fields
      Broken fault -> Left (Just fault)
      _ -> Left Nothing

apart :: Assertion
apart = do
  got <- newIORef Nothing
  let handler request = do
        trailers <- requestTrailers request
        plain ok200 [] "" <$ liftIO (writeIORef got (Just (trailers, map (B.copy . fieldName) (requestFields request), B.copy <$> requestHost request)))
  (answer, _) <- withHandler id handler $ \rig ->
    conversation rig [post "/" ["Transfer-Encoding: chunked"] "2\r\nab\r\n0\r\nX-Sum: 5\r\nAuthorization: Basic QQ==\r\nHost: other\r\n\r\n", get "/"]
  statuses answer @?= ["200", "200"]
  -- The second request has written its own.
  (answer', _) <- withHandler id handler $ \rig ->
    conversation rig [post "/" ["Transfer-Encoding: chunked"] "2\r\nab\r\n0\r\nX-Sum: 5\r\nAuthorization: Basic QQ==\r\nHost: other\r\n\r\n"]
  statuses answer' @?= ["200"]
  readIORef got >>= (@?= Just ([Field "X-Sum" "5"], ["Host", "Transfer-Encoding"], Just "t"))
  (answer'', _) <- withHandler id handler $ \rig ->
    conversation rig [post "/" ["Transfer-Encoding: chunked"] "0\r\nContent-Length: 5\r\n\r\n", get "/"]
  statuses answer'' @?= ["400"]

countedTogether :: Assertion
countedTogether = do
  let handler request = requestTrailers request >> pure (plain ok200 [] "")
      body n = "0\r\n" <> B.concat (replicate n "a: b\r\n") <> "\r\n"
  forM_ [(48, ["200"]), (49, ["431"])] $ \(n, expected) -> do
    -- Of a hundred: 50 and two of the rig.
    (answer, _) <- withHandler id handler (\rig -> conversation rig [post "/" ("Transfer-Encoding: chunked" : replicate 50 "B: c") (body n)])
    statuses answer @?= expected

sent :: Assertion
sent = do
  let trailers = [Field "X-Sum" "5", Field "Content-Length" "9", Field "Set-Cookie" "a=b", Field "Bad Name" "x", Field "X-Split" "a\r\nb: c", Field "X-Last" "6"]
      handler _ = pure (Response ok200 [] (Streamed Nothing (\sink -> trailers <$ sinkWrite sink "ab")) Nothing)
  (answer, seen) <- withHandler id handler (\rig -> conversation rig [get "/", get "/"])
  statuses answer @?= ["200", "200"]
  assertBool (show answer) ("2\r\nab\r\n0\r\nX-Sum: 5\r\nX-Last: 6\r\n\r\n" `B.isSuffixOf` answer)
  length (seenReports seen) @?= 8
  forM_ ["Content-Length", "Set-Cookie", "Bad Name", "X-Split"] $ \name ->
    assertBool (name <> " is not in " <> show (seenReports seen)) (any (name `isInfixOf`) (seenReports seen))
