{-# LANGUAGE BlockArguments #-}

-- |
-- Random programs over a few socket pairs, against a model: each direction of a
-- pair is a string of bytes, written at one end and read at the other.
module Test.StreamModel
  ( tests,
  )
where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Traversable (for)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (free, mallocBytes)
import Foreign.Marshal.Utils (copyBytes)
import Test.QuickCheck
import Test.QuickCheck.Monadic (monadicIO, run)
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys

-- | One step of a program. The number says which pair, modulo their count.
data Action
  = -- | Begin a receive of at most this number of bytes at the near end, unless one is
    -- under way.
    BeginReceive Int Int
  | -- | Begin a send of this number of bytes at the far end, unless one is under way.
    BeginSend Int Int
  | CancelReceive Int
  | CancelSend Int
  | -- | No more is sent at the far end.
    EndOfStream Int
  | Collect
  deriving stock (Show)

instance Arbitrary Action where
  arbitrary =
    frequency
      [ (6, BeginReceive <$> pairIndex <*> elements [1, 2, 7, 64, 4096, 200_000]),
        (6, BeginSend <$> pairIndex <*> elements [1, 2, 7, 64, 5000, 150_000]),
        (2, CancelReceive <$> pairIndex),
        (2, CancelSend <$> pairIndex),
        (1, EndOfStream <$> pairIndex),
        (6, pure Collect)
      ]
    where
      pairIndex = choose (0, 3)
  shrink = const []

-- | A pair and its model.
data Stream = Stream
  { link :: Link,
    sent :: IORef Int,
    received :: IORef Int,
    finished :: IORef Bool,
    ended :: IORef Bool,
    receiving :: IORef (Maybe (Pending, IO ByteString, IO ())),
    sending :: IORef (Maybe (Pending, IO ()))
  }

-- | The stream's byte at a position: position and content must agree, so that a
-- byte that is lost, doubled or out of order shows.
byteAt :: Int -> Int -> ByteString
byteAt from n = B.pack (map (\i -> fromIntegral (i * 7 + i `div` 251)) [from .. from + n - 1])

-- | The model test.
tests :: MakeBackend -> TestTree
tests make =
  testProperty "random programs keep to the model" $ withMaxSuccess 60 \kinds actions ->
    cover 20 (length actions > 20) "long programs" . monadicIO . run . withRig make $ runProgram (getNonEmpty kinds) actions

runProgram :: [Bool] -> [Action] -> Rig -> IO ()
runProgram kinds actions rig = do
  streams <- for (take 4 (cycle kinds)) \tcp -> do
    l <- if tcp then tcpPair else unixPair
    Stream l <$> newIORef 0 <*> newIORef 0 <*> newIORef False <*> newIORef False <*> newIORef Nothing <*> newIORef Nothing
  let at i = streams !! (i `mod` length streams)
  for_ actions \action -> do
    case action of
      BeginReceive i n -> beginReceive rig (at i) n
      BeginSend i n -> beginSend rig (at i) n
      CancelReceive i -> readIORef (receiving (at i)) >>= mapM_ (\(p, _, _) -> abandon rig p)
      CancelSend i -> readIORef (sending (at i)) >>= mapM_ (abandon rig . fst)
      EndOfStream i -> endStream rig (at i)
      Collect -> void (turn rig noWait)
    mapM_ account streams
  -- Everything that was sent arrives, then the end.
  for_ streams \s -> do
    let advance = do
          account s
          endStream rig s
          beginReceive rig s 100_000
          account s
          over <- readIORef (ended s)
          waits <- readIORef (receiving s)
          if over || not (null waits) then pure over else advance
    turnUntil rig "the rest of a stream" advance
    (,) <$> readIORef (sent s) <*> readIORef (received s) >>= \(a, b) -> b @?= a
    mapM_ (release rig) [near (link s), far (link s)]

beginReceive :: Rig -> Stream -> Int -> IO ()
beginReceive rig s n = do
  busy <- readIORef (receiving s)
  over <- readIORef (ended s)
  when (null busy && not over) do
    p <- mallocBytes n
    r <- start rig (Receive (near (link s)) p n)
    let result = readIORef (pendingResults r) >>= contents p . max 0 . sum
    writeIORef (receiving s) (Just (r, result, free p))

beginSend :: Rig -> Stream -> Int -> IO ()
beginSend rig s n = do
  busy <- readIORef (sending s)
  done <- readIORef (finished s)
  when (null busy && not done) do
    from <- readIORef (sent s)
    p <- mallocBytes n
    withBytes (byteAt from n) (copyBytes p)
    r <- start rig (Send (far (link s)) p n)
    writeIORef (sending s) (Just (r, free p))

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

-- | Compare what has completed with the model.
account :: Stream -> IO ()
account s = do
  readIORef (receiving s) >>= mapM_ \(r, bytes, done) ->
    readIORef (pendingResults r) >>= \case
      [] -> pure ()
      [n]
        | n == Sys.canceled -> done >> writeIORef (receiving s) Nothing
        | n == 0 -> do
            done >> writeIORef (receiving s) Nothing >> writeIORef (ended s) True
            readIORef (finished s) >>= assertBool "an end that nobody made"
        | n > 0 -> do
            got <- bytes
            from <- readIORef (received s)
            assertBool "the bytes in order" (got == byteAt from n)
            writeIORef (received s) (from + n)
            done >> writeIORef (receiving s) Nothing
      rs -> assertFailure ("receive: " <> show rs)
  readIORef (sending s) >>= mapM_ \(r, done) ->
    readIORef (pendingResults r) >>= \case
      [] -> pure ()
      [n]
        | n == Sys.canceled -> done >> writeIORef (sending s) Nothing
        | n > 0 -> do
            modifyIORef' (sent s) (+ n)
            done >> writeIORef (sending s) Nothing
      rs -> assertFailure ("send: " <> show rs)

foreign import ccall unsafe "shutdown" c_shutdown :: CInt -> CInt -> IO CInt
