-- | Messages and records of all sizes: greetings of clients, certificates of servers, and
-- what is longer than a record may be.
module SizesTest (tests) where

import Control.Monad (forM, forM_, unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Data.Maybe (fromMaybe)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (castPtr, plusPtr)
import System.Exit (ExitCode (..))
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Http.Server
import Weft.Socket
import Weft.Test.Loopback (connected)
import Weft.Test.Waiting (eventually)
import Weft.Tls
import Weft.Tls.Internal.Records
import World

tests :: World -> TestTree
tests w =
  testGroup
    "sizes"
    [ testCase "a message of 200 to 20,000 bytes, byte by byte, in one segment" . run $
        forM_ (zip [200 .. 20_000] (cycle fillings)) $
          \(size, kind) -> let bytes = kind size in passes bytes [message bytes],
      testCase "messages of some sizes, split at every byte" . run $
        forM_ [1024, 1029, 1787, 4100] $ \size -> forM_ (take 2 fillings) $ \kind -> do
          let bytes = kind size
              whole = message bytes
          forM_ [1 .. B.length whole - 1] $ \at -> passes bytes (let (one, two) = B.splitAt at whole in [one, two]),
      testCase "records of all sizes that are allowed, after the handshake" . run $
        forM_ [0 .. largest] $ \size -> do
          let bytes = record (B.replicate size 0)
          rs <- recordsFrom [bytes, bytes]
          forM_ [1, 2 :: Int] $ \_ -> do
            first <- filling rs (B.copy <$> takeComplete rs 5)
            rest <- filling rs (takeComplete rs size)
            liftIO ((first, B.length rest) @?= (B.take 5 bytes, size)),
      testCase "greetings of many sizes, in one segment" $ world id $ \served -> do
        tls <- trusting
        sizes <- forM ([0, 300, 600] <> [750 .. 790] <> [900, 937 .. 1900] <> [2500, 3499 .. 19_500]) (greeting served tls)
        liftIO (assertBool (show sizes) (minimum sizes < 300 && maximum sizes > 18_000 && all (`elem` sizes) [1019 .. 1035])),
      testCase "a greeting that is split at any of its bytes" $ do
        at <- newIORef 0
        world (splitting at) $ \served -> do
          tls <- trusting
          forM_ ([1 .. 12] <> [15, 34 .. 1000] <> [1015 .. 1035] <> [1040, 1081 .. 1500]) $ \n -> do
            liftIO (writeIORef at n)
            greeting served tls 1300,
      testCase "certificates of servers, of 1 to 16 KB" $ do
        let lengths = [600, 1600 .. 15_600] :: [Int]
        run $ do
          (status, _, said) <- program "sh" ["-e", "-c", issuing, "sh", directory w, unwords (map show lengths)]
          liftIO (assertEqual said ExitSuccess status)
        sizes <- forM lengths $ \n -> serving (settingsOf w ["long" <> show n]) id $ \served -> do
          tls <- trusting
          forM_ [Tls12, Tls13] $ \oldest -> do
            answer <- withConnection served tls {clientOldest = oldest} (\t -> exchange t [ask "/"])
            liftIO (assertBool (show answer) ("HTTP/1.1 200" `B.isPrefixOf` answer))
          liftIO (B.length <$> B.readFile (directory w <> "/long" <> show n <> ".der"))
        assertBool (show sizes) (minimum sizes < 1024 && maximum sizes > 15_900),
      testCase "a record that is longer than allowed is refused with an alert" $ world id $ \served -> do
        forM_ [18_433, 65_535] $ \size -> do
          answer <- connected (servedAddress served) $ \socket -> do
            sendAll socket (header 22 size)
            receive socket 7
          -- Fatal: record_overflow.
          liftIO (answer @?= B.pack [21, 3, 1, 0, 2, 2, 22])
        eventually "two refusals" $ (== 2) . length . filter overflowed <$> readIORef (servedFailures served)
        -- After the handshake.
        tls <- trusting
        forM_ [18_433, 65_535] $ \size -> connected (servedAddress served) $ \socket -> do
          transport <- connectTls tls "localhost" socket
          sendAll socket (header 23 size)
          outcome <- try (transportToEnd transport)
          liftIO (either (@?= RefusedByPeer "record_overflow") (assertFailure . show) outcome)
    ]
  where
    world = serving (settingsOf w ["ecdsa"])
    trusting = clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
    overflowed failed = failedAlert failed == Just "record_overflow"

-- | The most that may follow a header.
largest :: Int
largest = 16_384 + 2048

-- | The contents of messages. The first two are headers of the shortest and the longest
-- record for a reader that looks for a header in the wrong place, the third of one that is
-- sometimes there.
fillings :: [Int -> ByteString]
fillings = [(`B.replicate` 0), (`B.replicate` 0xFF), \n -> B.take n (B.concat (replicate (n `div` 5 + 1) (B.pack [22, 3, 3, 2, 0])))]

header :: Int -> Int -> ByteString
header kind size = B.pack [fromIntegral kind, 3, 3, fromIntegral (size `div` 256), fromIntegral (size `mod` 256)]

record :: ByteString -> ByteString
record content = header 22 (B.length content) <> content

-- | In as few records as it takes.
message :: ByteString -> ByteString
message bytes
  | B.length bytes <= 16_384 = record bytes
  | otherwise = let (one, rest) = B.splitAt 16_384 bytes in record one <> message rest

-- | A message that comes in these segments is what is taken in a handshake.
passes :: ByteString -> [ByteString] -> Thread ()
passes bytes segments = do
  rs <- recordsFrom segments
  let go got
        | B.length got >= B.length bytes = pure got
        | otherwise = do
            -- As the library takes the first.
            h <- (<>) <$> filling rs (taking rs 2) <*> filling rs (taking rs 3)
            let size = 256 * fromIntegral (B.index h 3) + fromIntegral (B.index h 4)
            rest <- filling rs (taking rs size)
            liftIO (B.length rest @?= size)
            go (got <> rest)
  whole <- go B.empty
  unless (whole == bytes) (liftIO (assertFailure ("not what was sent, of " <> show (B.length bytes))))
  where
    -- The thread of GHC that waits in a handshake is not wanted here.
    taking rs = takeRecords rs (void (takeComplete rs 1))

-- | Do it, after filling for as long as it wants more.
filling :: Records -> IO a -> Thread a
filling rs action =
  liftIO action `catch` \NeedMore -> do
    more <- fill rs
    unless more (liftIO (assertFailure "the end, in the middle"))
    filling rs action

-- | These segments, one a receive at most.
recordsFrom :: [ByteString] -> Thread Records
recordsFrom segments = do
  source <- liftIO (newIORef segments)
  newRecords
    Transport
      { transportReceive = \buffer offset count ->
          liftIO $
            if count <= 0
              then assertFailure "a receive without room"
              else
                readIORef source >>= \case
                  [] -> pure 0
                  segment : rest -> do
                    let (now, later) = B.splitAt count segment
                    writeIORef source ([later | not (B.null later)] <> rest)
                    withBuffer buffer (\p -> unsafeUseAsCStringLen now (\(q, n) -> copyBytes (p `plusPtr` offset) (castPtr q) n))
                    pure (B.length now),
        transportSend = pure . sum . map B.length,
        transportSendFile = \_ _ _ -> pure 0,
        transportEnd = pure (),
        transportPending = pure False
      }

-- | A request with a greeting that is longer by the given number of bytes than it need be: how long.
greeting :: Served -> ClientTlsSettings -> Int -> Thread Int
greeting served tls extra = connected (servedAddress served) $ \socket -> do
  sent <- liftIO (newIORef Nothing)
  let noting pieces = do
        liftIO (modifyIORef' sent (maybe (Just (sum (map B.length pieces))) Just))
        transportSend (socketTransport socket) pieces
  (transport, _) <- connectTlsWith tls {clientProtocols = "http/1.1" : padding extra} "localhost" (socketTransport socket) {transportSend = noting}
  answer <- exchange transport [ask "/"]
  liftIO (assertBool (show (extra, answer)) ("HTTP/1.1 200" `B.isPrefixOf` answer))
  liftIO (fromMaybe 0 <$> readIORef sent)

-- | Unknown protocols, the given number of bytes.
padding :: Int -> [ByteString]
padding n
  | n <= 1 = []
  | n <= 250 = [B.replicate (n - 1) 0x78]
  | otherwise = B.replicate 199 0x78 : padding (n - 200)

-- | The first segment of each connection ends after the given number of bytes.
splitting :: IORef Int -> ServerSettings -> ServerSettings
splitting at s = s {serverLayers = split : serverLayers s}
  where
    split _ transport client = do
      left <- liftIO (readIORef at >>= newIORef)
      pure
        ( transport
            { transportReceive = \buffer offset count -> do
                most <- liftIO (readIORef left)
                n <- transportReceive transport buffer offset (if most > 0 then min most count else count)
                n <$ liftIO (writeIORef left (max 0 (most - n)))
            },
          client
        )

-- | Certificates that hold a text of these lengths.
issuing :: String
issuing =
  unlines
    [ "cd \"$1\"",
      "openssl req -new -key ecdsa.key -subj /CN=localhost -out long.csr 2>&1",
      "for n in $2; do",
      "  { echo subjectAltName=DNS:localhost; printf '1.2.3.4=ASN1:UTF8String:'; head -c $n /dev/zero | tr '\\0' x; echo; } >long.ext",
      "  openssl x509 -req -in long.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile long.ext -out long$n.pem 2>/dev/null",
      "  openssl x509 -in long$n.pem -outform DER -out long$n.der",
      "  cp ecdsa.key long$n.key",
      "done"
    ]
