-- | Messages: there and back, and what is none.
module WireTest (tests) where

import Data.Binary (Binary)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Either (isLeft)
import Data.Text qualified as Text
import Entries
import Replicated.Entry
import Replicated.Message
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck

tests :: TestTree
tests =
  testGroup
    "wire"
    [ testProperty "requests, there and back" $ forAll request thereAndBack,
      testProperty "replies, there and back" $ forAll reply thereAndBack,
      testProperty "a message that is cut is none" $ forAll request $ \r ->
        conjoin [isLeft (decodeMessage @Request (ByteString.take n (body r))) | n <- [0 .. ByteString.length (body r) - 1]],
      testProperty "a message with more after it is none" $ forAll request $ \r ->
        isLeft (decodeMessage @Request (body r <> "x")),
      testProperty "any bytes are read or refused" $ \bytes ->
        let read' = decodeMessage @Request (ByteString.pack bytes)
         in either (not . Text.null) ((== ByteString.pack bytes) . body) read',
      testCase "an unknown request" $ decodeMessage @Request "\9" @?= Left "there is no request 9 at byte 1",
      testCase "a key that is too long" $
        decodeMessage @Request "\1\xff\xff\xff\xff" @?= Left "a key has 256 bytes at most at byte 5",
      testCase "the longest message is not longer than may be sent" $ do
        let longest = Store (ByteString.replicate longestKey 0) (Entry (Version maxBound maxBound) (ByteString.replicate longestValue 0))
        assertBool "too long" (ByteString.length (body longest) <= longestMessage)
    ]

thereAndBack :: (Eq a, Show a, Binary a) => a -> Property
thereAndBack message = decodeMessage (ByteString.drop 4 (encodeMessage message)) === Right message

body :: Request -> ByteString
body = ByteString.drop 4 . encodeMessage

request :: Gen Request
request = oneof [Read <$> key, Store <$> key <*> entry]

reply :: Gen Reply
reply = oneof [pure (Found Nothing), Found . Just <$> entry, pure Stored, Refused . Text.pack . take 200 <$> listOf (elements ['a' .. 'z'])]
