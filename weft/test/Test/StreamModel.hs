{-# LANGUAGE BlockArguments #-}

-- |
-- Random programs over a few socket pairs, against a model: each direction of a
-- pair is a string of bytes, written at one end and read at the other. Several operations
-- read it at a time, some of which stand (Note [Standing receives] in "Weft.Internal.Core.Standing").
module Test.StreamModel
  ( tests,
  )
where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.List (inits, tails)
import Data.Traversable (for)
import Data.Word (Word64, Word8)
import Foreign.C.Error (eBADF, eCONNRESET)
import Foreign.C.Types (CInt (..))
import Foreign.ForeignPtr (ForeignPtr, mallocForeignPtrBytes, withForeignPtr)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Marshal.Utils (copyBytes, with)
import Foreign.Ptr (Ptr, castPtr)
import Test.QuickCheck
import Test.QuickCheck.Monadic (monadicIO, monitor, run)
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Internal.Backend
import Weft.Internal.Core.Standing (Place, waitAgain)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys

-- | One step of a program. The first number says which pair, modulo their count.
data Action
  = -- | Begin a receive of at most this number of bytes at the near end, unless enough are
    -- under way. Does it stand? Then one that stands and has its bytes waits again, in other memory, if there is one.
    BeginReceive Int Bool Int
  | -- | Begin a send of this number of bytes at the far end, unless one is under way.
    BeginSend Int Int
  | -- | Cancel one receive, which may have its bytes.
    CancelReceive Int Int
  | CancelSend Int
  | -- | No more is sent at the far end.
    EndOfStream Int
  | -- | The far end is closed; over TCP with a reset.
    Reset Int
  | -- | The near end is forgotten and closed.
    CloseNear Int
  | Collect
  deriving stock (Show)

instance Arbitrary Action where
  arbitrary =
    frequency
      [ (90, BeginReceive <$> pairIndex <*> frequency [(3, pure True), (1, pure False)] <*> sizes),
        (50, BeginSend <$> pairIndex <*> frequency [(20, elements [1, 2, 7, 30]), (1, elements [5000, 150_000])]),
        (10, CancelReceive <$> pairIndex <*> choose (0, 2)),
        (6, CancelSend <$> pairIndex),
        -- These end the stream of a pair.
        (1, EndOfStream <$> pairIndex),
        (1, Reset <$> pairIndex),
        (1, CloseNear <$> pairIndex),
        (60, pure Collect)
      ]
    where
      pairIndex = choose (0, 1)
      sizes = frequency [(1, elements [1, 2, 7]), (3, elements [64, 4096, 200_000])]
  shrink = const []

-- | A pair and its model.
data Stream = Stream
  { link :: Link,
    overTcp :: Bool,
    -- | How many may read it at a time.
    mostReaders :: Int,
    sent :: IORef Int,
    -- | What was received, in the order of completion, latest first.
    chunks :: IORef [ByteString],
    -- | Was there more than one reader at a time?
    crowded :: IORef Bool,
    -- | Is no more sent?
    finished :: IORef Bool,
    -- | Was the far end closed?
    severed :: IORef Bool,
    -- | Was the near end closed?
    closed :: IORef Bool,
    -- | Has a receive found the end, or an error?
    ended :: IORef Bool,
    readers :: IORef [Reader],
    sending :: IORef (Maybe (Pending, ForeignPtr Word8))
  }

-- | A receive that waits, or stands and has its bytes.
data Reader = Reader
  { readerPending :: Pending,
    -- | Where it stands.
    readerPlace :: Maybe Place,
    -- | Where the bytes go.
    readerMemory :: ForeignPtr Word8,
    readerState :: ReaderState
  }

data ReaderState
  = Waits
  | -- | It was cancelled while it waited.
    Cancelled
  | Rests
  deriving stock (Eq)

-- | The stream's byte at a position: position and content must agree, so that a
-- byte that is lost, doubled or out of order shows.
byteAt :: Int -> Int -> ByteString
byteAt from n = fst (B.unfoldrN n (\i -> Just (fromIntegral (i * 7 + i `div` 251), i + 1)) from)

-- | The model test. Do receives stand with this backend?
tests :: Bool -> MakeBackend -> TestTree
tests stands make =
  testProperty "random programs keep to the model" . withMaxSuccess 300 . forAllBlind ((,) <$> vectorOf 2 ((,) <$> frequency [(3, pure True), (1, pure False)] <*> choose (1, 3)) <*> scale (* 6) arbitrary) $ \(kinds, actions) ->
    counterexample (show (kinds, actions)) . cover 20 (length actions > 20) "long programs" . monadicIO $ do
      waited <- run . withRig make $ runProgram kinds actions
      when stands $ monitor (cover 20 (waited > 0) "some wait again")

-- | Answers how often one that stands has waited again.
runProgram :: [(Bool, Int)] -> [Action] -> Rig -> IO Int
runProgram kinds actions rig = do
  waited <- newIORef 0
  streams <- for kinds \(tcp, most) -> do
    l <- if tcp then tcpPair else unixPair
    let flag = newIORef False
    Stream l tcp most <$> newIORef 0 <*> newIORef [] <*> flag <*> flag <*> flag <*> flag <*> flag <*> newIORef [] <*> newIORef Nothing
  let at i = streams !! (i `mod` length streams)
  for_ actions \action -> do
    case action of
      BeginReceive i stands n ->
        resting (at i) >>= \case
          r : _ | stands -> waitOnceMore rig waited (at i) n r
          _ -> beginReceive rig (at i) stands n
      BeginSend i n -> beginSend rig (at i) n
      CancelReceive i k -> cancelReceive rig (at i) k
      CancelSend i -> readIORef (sending (at i)) >>= mapM_ (abandon rig . fst)
      EndOfStream i -> endStream rig (at i)
      Reset i -> sever rig (at i)
      CloseNear i -> closeNear rig (at i)
      Collect -> void (turn rig noWait)
    mapM_ account streams
  -- Everything that was sent arrives, then the end.
  for_ streams \s -> do
    let advance = do
          account s
          endStream rig s
          over <- readIORef (ended s)
          waiting <- filter ((/= Rests) . readerState) <$> readIORef (readers s)
          rest <- resting s
          if
            | not (null waiting) -> pure False
            | over -> pure True
            | r : _ <- rest -> waitOnceMore rig waited s 100_000 r >> advance
            | otherwise -> beginReceive rig s False 100_000 >> advance
    turnUntil rig "the rest of a stream" advance
    checkBytes s
    mapM_ (release rig) =<< filterM (fmap not . isClosed) [near (link s), far (link s)]
  readIORef waited

resting :: Stream -> IO [Reader]
resting s = filter ((== Rests) . readerState) <$> readIORef (readers s)

-- | What was received is the beginning of what was sent, and all of it, if no end was closed before.
checkBytes :: Stream -> IO ()
checkBytes s = do
  expectedCount <- readIORef (sent s)
  cut <- (||) <$> readIORef (severed s) <*> readIORef (closed s)
  got <- reverse <$> readIORef (chunks s)
  several <- readIORef (crowded s)
  unless cut $ sum (map B.length got) @?= expectedCount
  assertBool "the bytes, each once, and in order" (sum (map B.length got) <= expectedCount && tile several 0 got)

-- | Are these the stream from a position, in this order, or in any?
tile :: Bool -> Int -> [ByteString] -> Bool
tile anyOrder from = \case
  [] -> True
  found -> or [tile anyOrder (from + B.length c) (before <> later) | (before, c : later) <- picks found, isAt from c]
  where
    picks found = (if anyOrder then id else take 1) (zip (inits found) (filter (not . null) (tails found)))
    isAt position c = B.take 1 c == byteAt position 1 && c == byteAt position (B.length c)

beginReceive :: Rig -> Stream -> Bool -> Int -> IO ()
beginReceive rig s stands n = do
  busy <- readIORef (readers s)
  over <- readIORef (ended s)
  when (length busy < mostReaders s && not over) do
    memory <- mallocForeignPtrBytes n
    p <- start rig (Receive (near (link s)) (unsafeForeignPtrToPtr memory) n)
    place <- case pendingToken p of
      Just token | stands -> stand (rigBackend rig) token
      _ -> pure Nothing
    unless (null busy) $ writeIORef (crowded s) True
    modifyIORef' (readers s) (<> [Reader p place memory Waits])

-- | One that has its bytes waits again where it stands; if it may not, a receive begins anew, as a kernel does it.
waitOnceMore :: Rig -> IORef Int -> Stream -> Int -> Reader -> IO ()
waitOnceMore rig waited s n r = for_ (readerPlace r) \place -> do
  memory <- mallocForeignPtrBytes n
  waits <- waitAgain place (unsafeForeignPtrToPtr memory) n
  if waits
    then do
      modifyIORef' waited (+ 1)
      replace r (Just r {readerMemory = memory, readerState = Waits}) s
    else replace r Nothing s >> beginReceive rig s True n

-- | Have another reader, or none, in place of one.
replace :: Reader -> Maybe Reader -> Stream -> IO ()
replace r new s = modifyIORef' (readers s) (concatMap \other -> if same other then maybe [] pure new else [other])
  where
    same other = pendingResults (readerPending other) == pendingResults (readerPending r)

cancelReceive :: Rig -> Stream -> Int -> IO ()
cancelReceive rig s k =
  readIORef (readers s) >>= \case
    [] -> pure ()
    rs -> do
      let r = rs !! (k `mod` length rs)
      abandon rig (readerPending r)
      -- One that rests is not told.
      when (readerState r == Waits) $ replace r (Just r {readerState = Cancelled}) s

beginSend :: Rig -> Stream -> Int -> IO ()
beginSend rig s n = do
  busy <- readIORef (sending s)
  done <- readIORef (finished s)
  when (null busy && not done) do
    from <- readIORef (sent s)
    memory <- mallocForeignPtrBytes n
    withForeignPtr memory (withBytes (byteAt from n) . copyBytes)
    r <- start rig (Send (far (link s)) (unsafeForeignPtrToPtr memory) n)
    writeIORef (sending s) (Just (r, memory))

endStream :: Rig -> Stream -> IO ()
endStream rig s = do
  busy <- readIORef (sending s)
  done <- readIORef (finished s)
  if null busy
    then unless done do
      _ <- c_shutdown (descriptorNumber (far (link s))) 1
      writeIORef (finished s) True
    else -- A send that waits for room must not be cut off.
      for_ busy (abandon rig . fst)

sever :: Rig -> Stream -> IO ()
sever rig s = do
  already <- readIORef (severed s)
  unless already do
    when (overTcp s) $ linger (far (link s))
    writeIORef (finished s) True
    writeIORef (severed s) True
    release rig (far (link s))

closeNear :: Rig -> Stream -> IO ()
closeNear rig s = do
  already <- readIORef (closed s)
  unless already do
    writeIORef (closed s) True
    release rig (near (link s))

-- | Compare what has completed with the model.
account :: Stream -> IO ()
account s = do
  rs <- readIORef (readers s)
  for_ rs \r ->
    readIORef (pendingResults (readerPending r)) >>= \case
      [] -> pure ()
      [n] | readerState r /= Rests -> do
        writeIORef (pendingResults (readerPending r)) []
        received r n
      results -> assertFailure ("receive: " <> show results)
  readIORef (sending s) >>= mapM_ \(r, memory) ->
    readIORef (pendingResults r) >>= \case
      [] -> pure ()
      [n] -> do
        writeIORef (sending s) Nothing
        cut <- (||) <$> readIORef (severed s) <*> readIORef (closed s)
        if
          | n > 0 -> modifyIORef' (sent s) (+ n)
          | n == Sys.canceled || cut -> pure ()
          | otherwise -> assertFailure ("send: " <> show n)
        withForeignPtr memory (\_ -> pure ())
      results -> assertFailure ("send: " <> show results)
  where
    received r n = do
      isShut <- readIORef (closed s)
      cut <- readIORef (severed s)
      over <- readIORef (finished s)
      if n > 0
        then do
          bytes <- withForeignPtr (readerMemory r) (`contents` n)
          modifyIORef' (chunks s) (bytes :)
          replace r (r {readerState = Rests} <$ readerPlace r) s
        else do
          replace r Nothing s
          -- One that was cancelled says nothing about the stream.
          unless (n == Sys.canceled) $ writeIORef (ended s) True
          let expected
                | n == 0 = over
                | n == Sys.canceled = readerState r == Cancelled || isShut
                | n == code eBADF = isShut
                | n == code eCONNRESET = cut
                | otherwise = False
          assertBool ("receive: " <> show n) expected

-- | Have the close of a connection reset it.
linger :: Descriptor -> IO ()
linger d = with (1 :: Word64) \p -> do
  r <- c_setsockopt (descriptorNumber d) 1 13 (castPtr p) 8
  r @?= 0

foreign import ccall unsafe "shutdown" c_shutdown :: CInt -> CInt -> IO CInt

foreign import ccall unsafe "setsockopt" c_setsockopt :: CInt -> CInt -> CInt -> Ptr () -> CInt -> IO CInt
