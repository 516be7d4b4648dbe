{-# LANGUAGE MultiWayIf #-}

-- |
-- Reading a stream by lines, by numbers of bytes, or up to a delimiter.
--
-- A stream of bytes has no borders: what one end sends in one call the other receives in any
-- pieces. A 'Reader' receives what comes, and gives out what was asked for:
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
-- [Bounds] A peer that sends no end of line must not fill the memory: 'readLine' and
--   'readUntil' have a bound, and a reader holds little more than the largest that was asked for.
-- [What is given out] Every 'ByteString' is a copy that is never written to: it can be kept, and
--   keeps no more memory than it has bytes.
-- [Nothing is lost] A read that fails, is cancelled or meets a time limit has taken nothing: what
--   was received stays in the reader, and the next read begins with it.
-- [Threads] One reads at a time. Receiving from the socket past its reader takes bytes from
--   the middle of what the reader would give.
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
import Weft.Internal.Core.Trace (Thread)
import Weft.Internal.Sync.Reader
import Weft.Socket (Socket, receiveInto)

-- | A reader of what a socket receives. It takes 4 KB.
newReader :: Socket -> Thread Reader
newReader = newReaderInto . receiveInto

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

-- | The next line, without its end, of at most the given number of bytes; 'Nothing' when the stream has
-- ended. A line ends with LF; a CR before that belongs to the end and not to the line. Any
-- other CR is a byte like others.
--
-- The rest after the last LF is no line, for it may be a part of one: then it raises
-- 'EndedEarly'. For a longer line it raises 'TooLong', when this much has come.
readLine :: Reader -> Int -> Thread (Maybe ByteString)
readLine reader bound = delimited reader Line bound 2 $ \bytes searched -> do
  i <- (+ searched) <$> Char8.elemIndex '\n' (ByteString.drop searched bytes)
  pure (if i > 0 && Char8.index bytes (i - 1) == '\r' then (i - 1, i + 1) else (i, i + 1))

-- | The bytes before the delimiter, at most the given number of bytes. The delimiter is taken too.
-- 'Nothing' when the stream has ended; 'EndedEarly' when it ends without a delimiter, 'TooLong' when
-- there is none where it should be. An empty delimiter is found at once.
readUntil :: Reader -> ByteString -> Int -> Thread (Maybe ByteString)
readUntil reader delimiter bound = delimited reader (UpTo delimiter) bound size $ \bytes searched ->
  -- The delimiter may have begun in what was searched.
  let from = max 0 (searched + 1 - max 1 size)
      (before, found) = ByteString.breakSubstring delimiter (ByteString.drop from bytes)
      i = from + ByteString.length before
   in if ByteString.length found < size then Nothing else Just (i, i + size)
  where
    size = ByteString.length delimiter

-- | The next of the stream that has an end: given its bound, the length of an end at most, and
-- how to find one in what was received, given how many of its bytes were searched before: how long
-- the content is, and how long it is with its end. Whether it is found does not depend on the
-- pieces in which the stream comes.
delimited :: Reader -> Wanted -> Int -> Int -> (ByteString -> Int -> Maybe (Int, Int)) -> Thread (Maybe ByteString)
delimited reader wanted bound ending find = go 0
  where
    most = if bound > maxBound - ending then maxBound else max 0 bound + ending
    go searched =
      liftIO (consider reader (look searched)) >>= \case
        Taken bytes -> pure (Just bytes)
        Remains n
          | n >= most -> throwM (TooLong wanted (max 0 bound))
          | otherwise -> do
              more <- receiveMore reader
              if
                | more > 0 -> go n
                | n == 0 -> pure Nothing
                | otherwise -> throwM (EndedEarly wanted n)
    look searched bytes = case find (ByteString.take most bytes) searched of
      Just (content, whole) | content <= bound -> Take content whole
      Just _ -> Leave most
      Nothing -> Leave (ByteString.length bytes)

-- | The given number of bytes (none, if it is not positive). When the stream has fewer it raises
-- 'EndedEarly'. Memory is taken as bytes come, not ahead of them.
readExactly :: Reader -> Int -> Thread ByteString
readExactly reader n = do
  have <- awaitBytes reader n
  if have < n then throwM (EndedEarly (Bytes n) have) else liftIO (takeBytes reader n)

-- | At least one byte and at most the given number (at least 1), as soon as there are any; none at the
-- end of the stream.
readSome :: Reader -> Int -> Thread ByteString
readSome reader n = awaitBytes reader 1 *> liftIO (takeBytes reader (max 1 n))

-- | The next bytes, the given number, without taking them. Waits until they are there; fewer only where
-- the stream has ended.
peek :: Reader -> Int -> Thread ByteString
peek reader n = awaitBytes reader n *> liftIO (peekBytes reader n)

-- | Is nothing left to read? Waits for a byte, or the end.
atEnd :: Reader -> Thread Bool
atEnd reader = (== 0) <$> awaitBytes reader 1

-- | Take what was received and not read, without waiting; perhaps nothing. It comes before all
-- that the socket receives next: for handing the socket on.
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
