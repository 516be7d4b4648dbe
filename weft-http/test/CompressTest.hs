-- | Compressing what handlers answer with.
module CompressTest (tests) where

import Codec.Compression.GZip qualified as GZip
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Lazy qualified as L
import Site
import Test.QuickCheck
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft
import Weft.Http.Compress
import Weft.Http.Server
import Weft.Http.Status
import Weft.Test.Message (Reply (..), header)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "compress"
      [ testProperty "unpacking gives back what was packed" $ \bytes -> forAll (chooseInt (0, 10)) $ \level ->
          unpacked (gzip level (B.pack bytes)) === B.pack bytes,
        testCase "the same is always packed the same: without a time" $ B.take 4 (B.drop 4 (gzip 6 page)) @?= B.replicate 4 0,
        testCase "for who accepts it" $ answering [html] (Bytes [B.take 100 page, B.drop 100 page]) $ \fetch' -> do
          packed <- fetch' "GET" "/" ["Accept-Encoding: gzip"]
          liftIO $ do
            header "content-encoding" packed @?= Just "gzip"
            header "vary" packed @?= Just "Accept-Encoding"
            header "content-length" packed @?= Just (number (B.length (replyBody packed)))
            assertBool "it is smaller" (B.length (replyBody packed) < B.length page)
            unpacked (replyBody packed) @?= page
          asItIs <- fetch' "GET" "/" ["Accept-Encoding: br"]
          liftIO $ do
            header "content-encoding" asItIs @?= Nothing
            header "vary" asItIs @?= Just "Accept-Encoding"
            replyBody asItIs @?= page,
        testCase "what takes longer is done elsewhere, with the same result" $ do
          let large = B.concat (replicate 40 page)
          answering [html] (Bytes [large]) $ \fetch' -> do
            packed <- fetch' "GET" "/" ["Accept-Encoding: gzip"]
            liftIO (unpacked (replyBody packed) @?= large),
        testCase "an entity tag becomes weak, ranges are not offered" $ answering [html, Field "ETag" "\"a\"", Field "Accept-Ranges" "bytes"] (Bytes [page]) $ \fetch' -> do
          packed <- fetch' "GET" "/" ["Accept-Encoding: gzip"]
          liftIO ((header "etag" packed, header "accept-ranges" packed) @?= (Just "W/\"a\"", Nothing))
          asItIs <- fetch' "GET" "/" []
          liftIO ((header "etag" asItIs, header "accept-ranges" asItIs) @?= (Just "\"a\"", Just "bytes")),
        testGroup
          "left alone"
          [ untouched "an image" ok200 [Field "Content-Type" "image/png"] page,
            untouched "what has no type" ok200 [] page,
            untouched "what is small" ok200 [html] (B.take 255 page),
            untouched "what is too large" ok200 [html] (B.replicate (1024 * 1024 + 1) 0x61),
            untouched "what is packed already" ok200 [html, Field "Content-Encoding" "br"] page,
            untouched "what must not be changed" ok200 [html, Field "Cache-Control" "private, no-transform"] page,
            untouched "a part" partialContent206 [html, Field "Content-Range" "bytes 0-1/3"] page
          ]
      ]
  where
    untouched what status fields body = testCase what . run . overHandler (handler status fields (Bytes [body])) $ \fetch' -> do
      reply <- fetch' "GET" "/" ["Accept-Encoding: gzip"]
      liftIO $ do
        replyBody reply @?= body
        header "vary" reply @?= Nothing

html :: Field
html = Field "Content-Type" "text/html; charset=utf-8"

page :: ByteString
page = B.concat ["<p>paragraph " <> number n <> "</p>\n" | n <- [1 .. 100]]

handler :: Status -> [Field] -> Body -> Handler
handler status fields body = compress defaultCompressSettings (\_ -> pure (Response status fields body Nothing))

answering :: [Field] -> Body -> ((ByteString -> ByteString -> [ByteString] -> Thread Reply) -> Thread ()) -> Assertion
answering fields body = run . overHandler (handler ok200 fields body)

unpacked :: ByteString -> ByteString
unpacked = L.toStrict . GZip.decompress . L.fromStrict

number :: Int -> ByteString
number = fieldValueOf . show
  where
    fieldValueOf = B.pack . map (fromIntegral . fromEnum)
