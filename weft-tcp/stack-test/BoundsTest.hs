-- |
-- Description : What a peer can make a stack keep
--
-- Peers that open connections and then acknowledge little (sockstress), or send their bytes one by one. An honest connection
-- goes on beside them.
module BoundsTest (tests) where

import Attempting
import Control.Monad (forM, forM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Word (Word16)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (castPtr)
import Site
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (More (..), Socket)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq, advance)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Held qualified as Held
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams (receiveSock, sendSock)
import Weft.Tcp.Stack.Table qualified as Table

tests :: TestTree
tests =
  testGroup
    "what peers can have kept"
    [ testCase "of too many closed connections the oldest are reset, and counted" tooMany,
      testCase "also if they hold too many bytes, less what is acknowledged" tooLarge,
      testCase "segments of one byte take the memory of their bytes" tiny
    ]

tooMany :: IO ()
tooMany = do
  x <- site (\s -> s {tcpMostOrphans = 8})
  honest <- establishes x 3999
  forM_ [4001 .. 4020] (\port -> closesWith x port 4000)
  orphans x >>= (@?= [4013 .. 4020])
  counted (siteStack x) "tcp orphans reset" >>= (@?= Just 12)
  talks x 3999 honest

tooLarge :: IO ()
tooLarge = do
  x <- site (\s -> s {tcpOrphanBytes = 40000})
  honest <- establishes x 3999
  firsts <- forM [4001 .. 4020] (\port -> closesWith x port 10000)
  orphans x >>= (@?= [4017 .. 4020])
  -- One has all but its last byte, and there is room for another of the size.
  comesFrom 4020 x 6 ack 101 (last firsts `advance` 10000) Nothing B.empty
  void (closesWith x 4021 9999)
  orphans x >>= (@?= [4017 .. 4021])
  void (closesWith x 4022 1)
  orphans x >>= (@?= [4018 .. 4022])
  -- One ends by itself.
  comesFrom 4020 x 7 (ack <> rst) 101 (last firsts `advance` 10000) Nothing B.empty
  void (closesWith x 4023 9999)
  orphans x >>= (@?= [4018, 4019, 4021, 4022, 4023])
  counted (siteStack x) "tcp orphans reset" >>= (@?= Just 17)
  talks x 3999 honest

tiny :: IO ()
tiny = do
  x <- site id
  honest <- establishes x 3999
  (s, first) <- establishes x 4000
  forM_ (B.unpack bytes `zip` [101 ..]) $ \(byte, number) -> comes x 4 (ack <> psh) number (first `advance` 1) Nothing (B.singleton byte)
  pieces <- bodies x >>= \all' -> pure [length (Held.heldPieces (bodyIn b)) | (4000, b) <- all']
  assertBool (show pieces) (all (<= 2 * size `div` 512) pieces)
  talks x 3999 honest
  reads' x s size >>= (@?= bytes)
  where
    size = 8000
    bytes = B.pack (take size (cycle [0 .. 250]))

-- | A connection from this port, accepted, and the first number of the stack's.
establishes :: Site -> Word16 -> IO (Socket, Seq)
establishes x port = do
  first <- begins port x Nothing
  comesFrom port x 2 ack 101 (first `advance` 1) Nothing B.empty
  s <- accepts x
  (s, first) <$ siteSent x

-- | A connection from this port whose user has sent bytes that are not acknowledged, and has closed it.
closesWith :: Site -> Word16 -> Int -> IO Seq
closesWith x port n = do
  (s, first) <- establishes x port
  sendSock (siteStack x) s NothingMore [B.replicate n 7] Nothing 4 >>= gives (Right n)
  closeSock (siteStack x) s Nothing 5 >>= gives (Right ()) . void
  first <$ siteSent x

-- | A byte in each direction.
talks :: Site -> Word16 -> (Socket, Seq) -> IO ()
talks x port (s, first) = do
  comesFrom port x 8 (ack <> psh) 101 (first `advance` 1) Nothing (B.singleton 1)
  reads' x s 1 >>= (@?= B.singleton 1)
  _ <- siteSent x
  sendSock (siteStack x) s NothingMore [B.singleton 2] Nothing 8 >>= gives (Right 1)
  siteSent x >>= (@?= [1]) . map segmentLength

reads' :: Site -> Socket -> Int -> IO ByteString
reads' x s n = allocaBytes n $ \memory ->
  receiveSock (siteStack x) s memory n Nothing 8 >>= \case
    Answer got -> B.packCStringLen (castPtr memory, got)
    _ -> assertFailure "nothing to read"

bodies :: Site -> IO [(Word16, Body)]
bodies x = Table.toList (stackConns (siteStack x)) >>= mapM (\c -> (,) (connPeerPort c) <$> readBody c)

-- | The ports of the connections that hold bytes to send and have no user.
orphans :: Site -> IO [Word16]
orphans x = (\all' -> [port | port <- [4000 .. 4030], port `elem` map fst all']) <$> bodies x
