-- | The memo of heads: it is the parser, it refers to copies, and its memory is fixed.
module HeadsTest (tests) where

import Control.Exception (evaluate)
import Control.Monad (forM, forM_, replicateM, replicateM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe (unsafeUseAsCString)
import Data.IORef
import Foreign.Marshal.Utils (copyBytes, fillBytes)
import Foreign.Ptr (castPtr)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Buffer
import Weft.Http.Internal.Hash
import Weft.Http.RequestHead
import Weft.Http.Server.Heads
import Weft.Internal.Core.Buffer (unsafeSlice)
import Weft.Test.Message (get, request)

tests :: TestTree
tests =
  testGroup
    "heads that have come before"
    [ testProperty "all that is read is what the parser says" prop_parser,
      testCase "bytes are kept when they come for the second time" $ do
        heads <- newHeads defaultLimits secret nothing
        copied <- forM ["/a", "/a", "/b", "/a", "/b", "/a", "/b"] (isCopied heads . get)
        copied @?= [False, True, False, True, True, True, True],
      testCase "what is kept refers to no memory of others" $ do
        heads <- newHeads defaultLimits secret nothing
        _ <- isCopied heads (get "/a")
        let size = B.length (get "/a")
        buffer <- newBuffer size
        withBuffer buffer $ \p -> unsafeUseAsCString (get "/a") $ \from -> copyBytes p (castPtr from) size
        reading <- evaluate (readHead heads 0 (unsafeSlice buffer 0 size))
        withBuffer buffer $ \p -> fillBytes p 0 size
        (readingIsCopied reading, readingParsed reading) @?= (True, parseRequest defaultLimits 0 (get "/a")),
      testCase "what is kept with a head goes with its entry" $ do
        let size = B.length (get "/a")
            parsed = parseRequest defaultLimits 0 (get "/a")
        heads <- newHeads defaultLimits secret (curry newIORef)
        readings <- replicateM 3 (findHead heads (get "/a"))
        case readings of
          [Fresh _, Known _ first, Known _ second] -> do
            readIORef first >>= (@?= (size, parsed))
            writeIORef first (0, parsed)
            readIORef second >>= (@?= (0, parsed))
            forM_ (numbered 2_000) $ \h -> replicateM_ 2 (findHead heads h)
            anew <- replicateM 2 (findHead heads (get "/a"))
            case anew of
              [_, Known _ kept] -> readIORef kept >>= (@?= (size, parsed))
              _ -> assertFailure "it was not made again"
          _ -> assertFailure (show (map readingIsCopied readings)),
      testCase "what comes once throws nothing out" $ do
        heads <- newHeads defaultLimits secret nothing
        replicateM_ 2 (isCopied heads (get "/a"))
        forM_ (numbered 2_000) (isCopied heads)
        isCopied heads (get "/a") >>= (@?= True),
      testCase "others that come twice throw out no head that comes between, and at last one that does not" $ do
        heads <- newHeads defaultLimits secret nothing
        replicateM_ 2 (isCopied heads (get "/a"))
        still <- forM (numbered 2_000) $ \h -> isCopied heads (get "/a") <* replicateM_ 2 (isCopied heads h)
        assertBool "thrown out" (and still)
        forM_ (numbered 2_000) $ \h -> replicateM_ 2 (isCopied heads h)
        isCopied heads (get "/a") >>= (@?= False),
      testCase "heads that differ in the middle only are known beside each other" $ do
        heads <- newHeads defaultLimits secret nothing
        let browser cookie = request "GET" "/a" ["User-Agent: " <> C.replicate 300 'a', "Cookie: " <> cookie, "Accept: " <> C.replicate 100 'b']
        copied <- forM (concat (replicate 3 ["id=1111", "id=2222"])) (isCopied heads . browser)
        copied @?= [False, False, True, True, True, True],
      testProperty "the hash is of all bytes and their number" prop_hash,
      testCase "there are 128 places" $ do
        heads <- newHeads defaultLimits secret nothing
        forM_ (numbered 2_000) $ \h -> replicateM_ 2 (isCopied heads h)
        left <- length . filter id <$> mapM (isCopied heads) (numbered 2_000)
        assertBool (show left) (left > 100 && left <= 128),
      testCase "long heads, and the rest of one, are for the parser" $ do
        heads <- newHeads defaultLimits secret nothing
        copied <- forM [(0, long), (0, long), (5, get "/a"), (5, get "/a")] (\(n, h) -> readingIsCopied <$> evaluate (readHead heads n h))
        copied @?= replicate 4 False
    ]
  where
    long = get ("/" <> C.replicate 1_024 'a')
    numbered n = [get ("/" <> C.pack (show i)) | i <- [1 .. n :: Int]]

-- | One byte more or less, or another one, makes another hash; and so does another secret.
prop_hash :: Property
prop_hash = forAll (C.pack <$> (chooseInt (0, 100) >>= flip vectorOf arbitraryASCIIChar)) $ \bytes ->
  forAll (chooseInt (0, B.length bytes)) $ \i ->
    let of' = hashOf secret
        (before, rest) = B.splitAt i bytes
        others = [before <> "x" <> rest, before <> B.drop 1 rest, before <> B.map (+ 128) (B.take 1 rest) <> B.drop 1 rest]
     in conjoin [of' other =/= of' bytes | other <- others, other /= bytes]
          .&&. (hashOf (Secret 3 0xbf58476d1ce4e5b9) bytes =/= of' bytes)
          .&&. (hashOf (Secret 0x2545f4914f6cdd1d 3) bytes =/= of' bytes)

secret :: Secret
secret = Secret 0x2545f4914f6cdd1d 0xbf58476d1ce4e5b9

-- | Nothing is kept with a head.
nothing :: Int -> Parsed -> IO ()
nothing _ _ = pure ()

-- | Does it refer to no memory but a copy?
readingIsCopied :: Reading k -> Bool
readingIsCopied = \case
  Fresh _ -> False
  Known _ _ -> True

isCopied :: Heads k -> ByteString -> IO Bool
isCopied heads bytes = readingIsCopied <$> evaluate (readHead heads 0 bytes)

-- | Of few strings, so that they come again: requests alone, with what follows them, halves of
-- some, and what is none.
prop_parser :: Property
prop_parser = forAll (listOf (elements strings)) $ \chosen -> ioProperty $ do
  heads <- newHeads defaultLimits secret nothing
  readings <- forM chosen (evaluate . readHead heads 0)
  pure
    . cover 50 (any readingIsCopied readings) "some were known"
    $ map readingParsed readings === map (parseRequest defaultLimits 0) chosen
  where
    strings =
      [get "/a", get "/b", get "/a" <> get "/b", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP", "GET /", "\r\n", "\SYN\ETX\SOH 12345"]
        <> [get ("/" <> C.replicate n 'a') | n <- [100, 128, 900, 1_100]]
