-- |
-- Reading a stream by lines, by numbers of bytes, or up to a delimiter.
--
-- A stream of bytes has no borders. A 'Reader' receives what comes, and gives out what was asked for:
--
-- >>> :set -XOverloadedStrings
-- >>> import Data.IORef
-- >>> import Weft (liftIO, run)
-- >>> let inPieces pieces = newIORef pieces >>= \r -> pure (\_ -> liftIO (atomicModifyIORef' r (\ps -> (drop 1 ps, mconcat (take 1 ps)))))
-- >>> :{
-- run $ do
--   source <- liftIO (inPieces ["HELLO al", "ice\r", "\nDATA 5\nab", "cde"])
--   reader <- newReaderFrom source
--   greeting <- readLine reader 100
--   command <- readLine reader 100
--   content <- readExactly reader 5
--   end <- readLine reader 100
--   pure (greeting, command, content, end)
-- :}
-- (Just "HELLO alice",Just "DATA 5","abcde",Nothing)
--
-- [Bounds] 'readLine' and 'readUntil' have a bound: a peer that sends no end of line must not fill the
--   memory.
-- [What is given out] Every 'ByteString' is a copy that is never written to, and keeps no more memory than it
--   has bytes.
-- [Nothing is lost] A read that fails, is cancelled or meets a time limit has taken nothing: the next read
--   begins with what was received.
-- [Threads] One reads at a time. Receiving from the socket past its reader takes bytes out of the middle.
--
-- All that waits here waits as 'Weft.Socket.receive' does, and fails as that does.
module Weft.Reader
  ( Reader,
    newReader,
    newReaderFrom,

    -- * Reading
    readLine,
    readExactly,
    readUntil,
    readSome,

    -- * Looking ahead
    peek,
    atEnd,
    readReceived,

    -- * What goes wrong
    ReadError (..),
    Wanted (..),
  )
where

import Control.Exception (Exception (..))
import Control.Monad.Catch (throwM)
import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Foreign.Marshal.Utils (copyBytes, moveBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Weft.Internal.Core.Buffer
import Weft.Internal.Core.Trace (Thread)
import Weft.Socket (Socket, receiveInto)

-- | A reader of what a socket receives. It takes 4 KB.
newReader :: Socket -> Thread Reader
newReader socket = liftIO $ do
  state <- newState
  pure . Reader state $ do
    ReaderState buffer _ to <- liftIO (makeRoom state (usual `div` 4))
    n <- receiveInto socket buffer to (bufferSize buffer - to)
    n <$ liftIO (keep state n)

-- | A reader of anything that gives bytes, at most as many as asked for, and none at the end: TLS, a pipe.
newReaderFrom :: (Int -> Thread ByteString) -> Thread Reader
newReaderFrom source = liftIO $ do
  state <- newState
  pure . Reader state $ do
    bytes <- source usual
    liftIO $ do
      let n = ByteString.length bytes
      ReaderState buffer _ to <- makeRoom state n
      unsafeUseAsCStringLen bytes (\(p, _) -> withBuffer buffer (\b -> copyBytes (b `plusPtr` to) (castPtr p) n))
      n <$ keep state n

-- | Why a read has failed. The bytes are still in the reader.
data ReadError
  = -- | The stream has ended before this was complete, after this number of bytes.
    EndedEarly !Wanted !Int
  | -- | It has no end within this number of bytes.
    TooLong !Wanted !Int
  deriving stock (Eq, Show)

-- | The thing that was to be read.
data Wanted
  = -- | A line.
    Line
  | -- | This number of bytes.
    Bytes !Int
  | -- | The bytes before these.
    UpTo !ByteString
  deriving stock (Eq, Show)

instance Exception ReadError where
  displayException = \case
    EndedEarly wanted n -> "the stream has ended after " <> count n <> " of " <> named wanted
    TooLong wanted n -> named wanted <> " is longer than " <> count n
    where
      count n = show n <> (if n == 1 then " byte" else " bytes")
      named = \case
        Line -> "a line"
        Bytes n -> count n
        UpTo delimiter -> "what ends with " <> show delimiter

-- | The next line, without its end, of at most the given number of bytes; 'Nothing' at the end of the
-- stream. A line ends with LF; a CR before that belongs to the end. The rest after the last LF is no
-- line: it raises 'EndedEarly'. For a longer line it raises 'TooLong', when this much has come.
readLine :: Reader -> Int -> Thread (Maybe ByteString)
readLine reader bound = delimited reader Line bound 2 $ \bytes searched -> do
  i <- (+ searched) <$> Char8.elemIndex '\n' (ByteString.drop searched bytes)
  pure (if i > 0 && Char8.index bytes (i - 1) == '\r' then (i - 1, i + 1) else (i, i + 1))

-- | The bytes before the delimiter, at most the given number. The delimiter, which may be empty, is taken too.
-- 'Nothing' at the end of the stream; 'EndedEarly' when it ends without one, 'TooLong' beyond the bound.
readUntil :: Reader -> ByteString -> Int -> Thread (Maybe ByteString)
readUntil reader delimiter bound = delimited reader (UpTo delimiter) bound size $ \bytes searched ->
  -- The delimiter may have begun in what was searched.
  let from = max 0 (searched + 1 - max 1 size)
      (before, found) = ByteString.breakSubstring delimiter (ByteString.drop from bytes)
      i = from + ByteString.length before
   in if ByteString.length found < size then Nothing else Just (i, i + size)
  where
    size = ByteString.length delimiter

-- | The next of the stream that has an end: given its bound, the length of an end at most, and how to
-- find one in what was received, given how many of its bytes were searched before: the length of the
-- content, and with its end. The pieces in which the stream comes do not matter.
delimited :: Reader -> Wanted -> Int -> Int -> (ByteString -> Int -> Maybe (Int, Int)) -> Thread (Maybe ByteString)
delimited reader wanted bound ending find = go 0
  where
    most = if bound > maxBound - ending then maxBound else max 0 bound + ending
    go searched =
      liftIO (look searched) >>= \case
        Right bytes -> pure (Just bytes)
        Left n
          | n >= most -> throwM (TooLong wanted (max 0 bound))
          | otherwise -> do
              more <- receiveMore reader
              if
                | more > 0 -> go n
                | n == 0 -> pure Nothing
                | otherwise -> throwM (EndedEarly wanted n)
    -- Where the bytes lie: nothing that is lazy in them leaves this.
    look searched = do
      st@(ReaderState buffer from to) <- readIORef (readerState reader)
      let bytes = unsafeSlice buffer from (to - from)
      case find (ByteString.take most bytes) searched of
        Just (content, whole) | content <= bound -> do
          taken <- copyBuffer buffer from content
          Right taken <$ (writeIORef (readerState reader) $! st {stateFrom = from + whole})
        Just _ -> pure (Left most)
        Nothing -> pure (Left (to - from))

-- | This number of bytes (0 or less: none); raises 'EndedEarly' if there are fewer. Takes memory as needed.
readExactly :: Reader -> Int -> Thread ByteString
readExactly reader n = do
  have <- awaitBytes reader n
  if have < n then throwM (EndedEarly (Bytes n) have) else liftIO (takeBytes reader n)

-- | At least one byte and at most the given number, as soon as there are any; none at the end of the stream.
readSome :: Reader -> Int -> Thread ByteString
readSome reader n = awaitBytes reader 1 *> liftIO (takeBytes reader (max 1 n))

-- | The next bytes, without taking them. Waits until they are there; fewer only where the stream has ended.
peek :: Reader -> Int -> Thread ByteString
peek reader n = awaitBytes reader n *> liftIO (peekBytes reader n)

-- | Is nothing left to read? Waits for a byte, or the end.
atEnd :: Reader -> Thread Bool
atEnd reader = (== 0) <$> awaitBytes reader 1

-- | Take what was received and not read, without waiting, perhaps nothing: for handing the socket on.
readReceived :: Reader -> Thread ByteString
readReceived reader = liftIO (takeBytes reader maxBound)

-- | Wait until the given number of bytes are there, or the stream has ended: how many there are.
awaitBytes :: Reader -> Int -> Thread Int
awaitBytes reader n = do
  have <- liftIO (received reader)
  if have >= n
    then pure have
    else do
      more <- receiveMore reader
      if more == 0 then pure have else awaitBytes reader n

-- A buffer grows on demand and returns to its first size when empty. Bytes are copied out of it.

-- | A stream, and what was received of it and not read.
data Reader = Reader
  { readerState :: !(IORef ReaderState),
    -- | Wait for bytes and keep them: how many came, 0 at the end. Nothing interrupts between arrival
    -- and state.
    receiveMore :: !(Thread Int)
  }

-- | The bytes between the two offsets are there; the room after them is free.
data ReaderState = ReaderState
  { _stateBuffer :: !Buffer,
    stateFrom :: !Int,
    stateTo :: !Int
  }

-- | The size of a buffer that has not grown.
usual :: Int
usual = 4096

newState :: IO (IORef ReaderState)
newState = newBuffer usual >>= \buffer -> newIORef (ReaderState buffer 0 0)

-- | Note that the given number of bytes were received.
keep :: IORef ReaderState -> Int -> IO ()
keep state n = modifyIORef' state (\st -> st {stateTo = stateTo st + n})

-- | Have room for the given number of bytes: move what is there to the beginning, or to a larger buffer.
makeRoom :: IORef ReaderState -> Int -> IO ReaderState
makeRoom state n = do
  st@(ReaderState buffer from to) <- readIORef state
  let size = bufferSize buffer
      have = to - from
      moveTo target = withBuffer buffer $ \old -> withBuffer target $ \new -> moveBytes new (old `plusPtr` from) have
      becomes st' = st' <$ writeIORef state st'
  if
    | have == 0 && size > usual && n <= usual -> newBuffer usual >>= \b -> becomes (ReaderState b 0 0)
    | size - to >= n && have > 0 -> pure st
    | size >= n + have && 2 * have <= size -> moveTo buffer >> becomes (ReaderState buffer 0 have)
    | otherwise -> do
        larger <- newBuffer (max (n + have) (2 * size))
        moveTo larger
        becomes (ReaderState larger 0 have)

-- | How many bytes were received and not given out.
received :: Reader -> IO Int
received reader = (\st -> stateTo st - stateFrom st) <$> readIORef (readerState reader)

-- | Take at most the given number of bytes of those.
takeBytes :: Reader -> Int -> IO ByteString
takeBytes reader n = do
  bytes <- peekBytes reader n
  bytes <$ modifyIORef' (readerState reader) (\st -> st {stateFrom = stateFrom st + ByteString.length bytes})

-- | A copy of at most the given number of bytes of those.
peekBytes :: Reader -> Int -> IO ByteString
peekBytes reader n = do
  ReaderState buffer from to <- readIORef (readerState reader)
  copyBuffer buffer from (min n (to - from))
