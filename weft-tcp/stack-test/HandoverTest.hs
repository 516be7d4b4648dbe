-- |
-- Description : Stacks that are replaced
--
-- Every kind of connection goes on in another stack where it was; records that are not whole or are changed are refused.
module HandoverTest (tests, readFrames) where

import Attempting
import Control.Monad (forM_, replicateM, void)
import Data.Bits (shiftL, xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Maybe (isJust, isNothing)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (castPtr)
import Site
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (Property, chooseInt, forAll, ioProperty, testProperty, (===))
import Weft.Internal.Core.SystemCall (More (..))
import Weft.Socket
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Handover hiding (release)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..), advance)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Closing (closeSock)
import Weft.Tcp.Stack.Frozen (Record (..), framed)
import Weft.Tcp.Stack.Moving (adopt, freeze, release)
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Sockets (bindSock)
import Weft.Tcp.Stack.State (Stack (stackSecret), secretOf)
import Weft.Tcp.Stack.Streams (receiveSock, sendSock, shutdownSock)

tests :: TestTree
tests =
  testGroup
    "stacks that are replaced"
    [ testGroup
        "a connection goes on in another stack"
        [ testCase "half open" halfOpen,
          testCase "not accepted, with bytes and a gap" unaccepted,
          testCase "whose accept was undone, with bytes in both directions" undone,
          testCase "at rest" resting,
          testCase "whose peer has ended its stream" ended,
          testCase "whose peer has sent more than its stream" pastEnd,
          testCase "that its user has closed" closed,
          testCase "in TIME-WAIT" waits,
          testCase "but not one whose user has it, nor one to a port at which nobody listens" stays
        ],
      testGroup
        "the accept of a connection is not undone"
        [ testCase "after one direction was shut down" shutDown,
          testCase "without a listener" noListener
        ],
      testGroup
        "records"
        [ testProperty "a changed bit is refused" changedBit,
          testCase "a part of them is refused" parts,
          testCase "times that they cannot have are refused" times
        ]
    ]

-- | The state of a site as bytes.
frozenBytes :: Site -> Instant -> IO [ByteString]
frozenBytes x now = map framed <$> freeze (siteStack x) now

readFrames :: [ByteString] -> Maybe Frozen
readFrames frames = mapM (uncurry readFrame . B.splitAt headerLength) frames >>= gathered

-- | Another site with what was in this one at the first time, by a clock that shows the second.
moves :: Site -> Instant -> Instant -> IO Site
moves x from to = do
  frames <- frozenBytes x from
  y <- site id
  secretOf (siteStack x) >>= writeIORef (stackSecret (siteStack y)) . Just
  frozen <- maybe (assertFailure "refused") pure (readFrames frames)
  y <$ adopt (siteStack y) frozen Nothing to

reads' :: Site -> Socket -> Instant -> IO (Maybe ByteString)
reads' x s now = allocaBytes 100 $ \p ->
  receiveSock (siteStack x) s p 100 Nothing now >>= \case
    Answer n -> Just <$> B.packCStringLen (castPtr p, n)
    _ -> pure Nothing

sends :: Site -> Socket -> ByteString -> Instant -> IO ()
sends x s bytes now = sendSock (siteStack x) s NothingMore [bytes] Nothing now >>= gives (Right (B.length bytes))

halfOpen, unaccepted, undone, resting, ended, pastEnd, closed, waits, stays, shutDown, noListener, parts :: Assertion
halfOpen = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  -- Half a second is over, and goes on after an hour.
  y <- moves x 500000 3600000000
  counts y [1, 0, 1]
  passes y 3600500000
  sentFrom y first >>= (@?= [])
  passes y 3600500001
  sentFrom y first >>= (@?= [(syn <> ack, 0, Seq 101)])
  comes y 3600600000 (ack <> psh) 101 (first `advance` 1) (Just 1000) (Char8.pack "hello")
  counts y [0, 0, 1]
  s <- accepts y
  reads' y s 3600600001 >>= (@?= Just (Char8.pack "hello"))
unaccepted = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 (ack <> psh) 101 (first `advance` 1) (Just 1000) (Char8.pack "abc")
  comes x 3 (ack <> psh) 107 (first `advance` 1) (Just 1000) (Char8.pack "ghi")
  y <- moves x 1000 5000
  _ <- sentFrom y first
  comes y 5001 (ack <> psh) 104 (first `advance` 1) (Just 1000) (Char8.pack "def")
  s <- accepts y
  reads' y s 5002 >>= (@?= Just (Char8.pack "abcdefghi"))
  reads' y s 5002 >>= (@?= Nothing)
undone = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 (ack <> psh) 101 (first `advance` 1) (Just 1000) (Char8.pack "first")
  s <- accepts x
  reads' x s 3 >>= (@?= Just (Char8.pack "first"))
  sends x s (Char8.pack "answer") 4
  comes x 5 (ack <> psh) 106 (first `advance` 1) (Just 1000) (Char8.pack "second")
  _ <- sentFrom x first
  release (siteStack x) s Nothing 6 >>= (@?= True)
  reads' x s 6 >>= (@?= Nothing)
  y <- moves x 6 4006
  -- What was not acknowledged goes again.
  passes y 2000000
  again <- sentFrom y first
  assertBool (show again) ((ack <> psh, 1, Seq 112) `elem` again)
  t <- accepts y
  reads' y t 2000001 >>= (@?= Just (Char8.pack "second"))
  comes y 2000002 ack 112 (first `advance` 7) (Just 1000) B.empty
  sends y t (Char8.pack "more") 2000003
  sentFrom y first >>= (@?= [(ack <> psh, 7, Seq 112)])
resting = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 ack 101 (first `advance` 1) (Just 1000) B.empty
  s <- accepts x
  sends x s (Char8.pack "abc") 4
  comes x 5 ack 101 (first `advance` 4) (Just 1000) B.empty
  passes x 2000000
  _ <- sentFrom x first
  -- While its user has it, it stays, and at rest.
  w <- moves x 2000001 2000002
  counts w [0, 0, 0]
  atRest x >>= (@?= [True])
  release (siteStack x) s Nothing 2000003 >>= (@?= True)
  y <- moves x 2000004 3600000000
  -- The one that was left goes on as well as the one that was taken over.
  forM_ [(x, 2000005), (y, 3600000001)] $ \(z, now') -> do
    t <- accepts z
    comes z now' (ack <> psh) 101 (first `advance` 4) (Just 1001) (Char8.pack "hello")
    reads' z t (now' + 1) >>= (@?= Just (Char8.pack "hello"))
    sends z t (Char8.pack "d") (now' + 2)
    sent <- sentFrom z first
    last sent @?= (ack <> psh, 4, Seq 106)
    filter (\(f, _, _) -> f /= ack && f /= ack <> psh) sent @?= []
    comes z (now' + 3) ack 106 (first `advance` 5) (Just 1001) B.empty
    passes z (now' + 5000000)
    sentFrom z first >>= (@?= [])
    atRest z >>= (@?= [True])
ended = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 (ack <> psh <> fin) 101 (first `advance` 1) (Just 1000) (Char8.pack "last")
  y <- moves x 6 4006
  s <- accepts y
  reads' y s 4007 >>= (@?= Just (Char8.pack "last"))
  reads' y s 4007 >>= (@?= Just B.empty)
pastEnd = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  let says t flags from n = comes x t (ack <> psh <> flags) from (first `advance` 1) (Just 1000) (B.replicate n 0x61)
  says 2 mempty 201 100
  says 3 fin 241 10
  says 4 mempty 101 100
  y <- moves x 6 4006
  s <- accepts y
  got <- replicateM 3 (reads' y s 4007)
  map (fmap B.length) got @?= [Just 100, Just 50, Just 0]
closed = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 ack 101 (first `advance` 1) (Just 1000) B.empty
  s <- accepts x
  sends x s (Char8.pack "answer") 4
  closeSock (siteStack x) s Nothing 5 >>= gives (Right ()) . void
  _ <- sentFrom x first
  y <- moves x 6 4006
  passes y 2000000
  again <- sentFrom y first
  assertBool (show again) (any (\(f, _, _) -> f `has` fin || f `has` psh) again)
  comes y 2000002 ack 101 (first `advance` 8) (Just 1000) B.empty
  comes y 2000003 (ack <> fin) 101 (first `advance` 8) (Just 1000) B.empty
  counts y [0, 1, 1]
waits = do
  x <- site id
  first <- inTimeWait x
  y <- moves x 30000000 1030000000
  counts y [0, 1, 1]
  comes y 1030000001 (ack <> fin) 101 (first `advance` 2) (Just 1000) B.empty
  sentFrom y first >>= (@?= [(ack, 2, Seq 102)])
  z <- moves y 1030000001 1030001000
  passes z (1030000000 + minute)
  counts z [0, 1, 1]
  passes z (1030002000 + minute)
  counts z [0, 0, 0]
stays = do
  x <- site id
  first <- begins 4000 x (Just 1000)
  comes x 2 ack 101 (first `advance` 1) (Just 1000) B.empty
  _ <- accepts x
  y <- moves x 6 4006
  counts y [0, 0, 0]
  second <- begins 4001 x (Just 1000)
  comesFrom 4001 x 2 ack 101 (second `advance` 1) (Just 1000) B.empty
  frames <- frozenBytes x 10
  z <- site id
  closeSock (siteStack z) (siteListener z) Nothing 10 >>= gives (Right ()) . void
  frozen <- maybe (assertFailure "refused") pure (readFrames frames)
  adopt (siteStack z) frozen Nothing 11 >>= (@?= 0)
  sentFrom z second >>= (@?= [(rst <> ack, 1, Seq 101)])
  counts z [0, 0, 0]
shutDown = forM_ [ShutdownSend, ShutdownReceive] $ \how -> do
  x <- site id
  s <- established x
  shutdownSock (siteStack x) s how Nothing 4 >>= gives (Right ())
  release (siteStack x) s Nothing 6 >>= (@?= False)
  -- It is there as before.
  closeSock (siteStack x) s Nothing 7 >>= gives (Right ()) . void
noListener = do
  x <- site id
  s <- established x
  closeSock (siteStack x) (siteListener x) Nothing 5 >>= gives (Right ()) . void
  release (siteStack x) s Nothing 6 >>= (@?= False)
  -- Its port is not anybody's.
  other <- opened (siteStack x) AF_INET
  bindSock (siteStack x) other (toSockAddr AF_INET own 81) >>= gives (Right ())
  release (siteStack x) other Nothing 6 >>= (@?= False)
parts = do
  frames <- several
  assertBool "all" (isJust (readFrames frames))
  forM_ [0 .. length frames - 1] $ \n -> do
    let (before, after) = splitAt n frames
    assertBool ("the first " <> show n) (isNothing (readFrames before))
    assertBool ("without number " <> show n) (isNothing (readFrames (before <> drop 1 after)))
    forM_ (take 1 after) $ \frame ->
      forM_ [0 .. B.length frame - 1] $ \k ->
        assertBool (show k <> " bytes of number " <> show n) (isNothing (readFrames (before <> [B.take k frame] <> drop 1 after)))

-- Connections that were there at 1,000 were not written before they began, nor days before their deadlines.
times :: Assertion
times = do
  x <- site id
  _ <- begins 4000 x (Just 1000)
  frames <- drop 1 <$> frozenBytes x 1000
  let at now = isJust (readFrames (framed (Begin now 0) : frames))
  (at 1000, at 500000, at (-1), at (-100000000000)) @?= (True, True, False, False)

-- | A connection of the peer's.
established :: Site -> IO Socket
established x = do
  first <- begins 4000 x (Just 1000)
  comes x 2 ack 101 (first `advance` 1) (Just 1000) B.empty
  accepts x

-- | Records of every kind.
several :: IO [ByteString]
several = do
  x <- site id
  _ <- begins 4001 x (Just 1000)
  _ <- inTimeWait x
  first <- begins 4002 x (Just 1000)
  comesFrom 4002 x 2 (ack <> psh) 101 (first `advance` 1) (Just 1000) (Char8.pack "hello")
  frames <- frozenBytes x 10
  frames <$ (length frames @?= 5)

changedBit :: Property
changedBit = forAll (chooseInt (0, 4)) $ \n -> forAll (chooseInt (0, maxBound)) $ \place -> ioProperty $ do
  frames <- several
  let (before, after) = splitAt n frames
  pure $ case after of
    frame : rest ->
      let k = place `mod` (8 * B.length frame)
          (front, back) = B.splitAt (k `div` 8) frame
       in isNothing (readFrames (before <> [front <> B.singleton (B.head back `xor` (1 `shiftL` (k `mod` 8))) <> B.tail back] <> rest)) === True
    [] -> False === True
