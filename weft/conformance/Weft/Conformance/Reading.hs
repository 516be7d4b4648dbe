{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Reading a stream by lines, by numbers and by delimiters
--
-- "Weft.Reader" against a pure model of it, with the stream cut at every place; over
-- sockets; and interrupted.
module Weft.Conformance.Reading (reading) where

import Control.Monad (forM, forM_, unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Test.Tasty
import Test.Tasty.QuickCheck
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Reader
import Weft.Socket
import Weft.Timeout (timeout)

-- | Readers.
reading :: World -> TestTree
reading world =
  testGroup
    "reading"
    [ testProperty "as the model says, however the stream is cut" (agrees world),
      conforms world "in every two pieces and byte by byte, over a socket" everyCut,
      conforms world "a thread that is interrupted has taken nothing" interrupted,
      conforms world "what was given out does not change" kept,
      conforms world "a long line costs no memory beyond its bound" bounded
    ]

-- ----------------------------------------------------------------------------
-- The model

data Op = ReadLine Int | ReadExactly Int | ReadUntil ByteString Int | Peek Int | AtEnd
  deriving stock (Eq, Show)

data Answer = Bytes' ByteString | Ended | Is Bool | Failed' ReadError
  deriving stock (Eq, Show)

-- | The answer of an operation at the beginning of this stream, and the rest of the stream.
model :: ByteString -> Op -> (Answer, ByteString)
model stream = \case
  ReadLine bound -> upTo Line bound 2 $ do
    i <- Char8.elemIndex '\n' stream
    let line = ByteString.take i stream
    pure (if "\r" `ByteString.isSuffixOf` line then ByteString.init line else line, i + 1)
  ReadUntil delimiter bound -> upTo (UpTo delimiter) bound (ByteString.length delimiter) $
    case ByteString.breakSubstring delimiter stream of
      (before, found)
        | ByteString.null found && not (ByteString.null delimiter) -> Nothing
        | otherwise -> Just (before, ByteString.length before + ByteString.length delimiter)
  ReadExactly n
    | ByteString.length stream < n -> (Failed' (EndedEarly (Bytes n) (ByteString.length stream)), stream)
    | otherwise -> (Bytes' (ByteString.take n stream), ByteString.drop n stream)
  Peek n -> (Bytes' (ByteString.take n stream), stream)
  AtEnd -> (Is (ByteString.null stream), stream)
  where
    upTo wanted bound ending = \case
      Just (content, whole)
        | ByteString.length content <= bound -> (Bytes' content, ByteString.drop whole stream)
        | otherwise -> (Failed' (TooLong wanted bound), stream)
      Nothing
        | ByteString.null stream -> (Ended, stream)
        | ByteString.length stream >= bound + ending -> (Failed' (TooLong wanted bound), stream)
        | otherwise -> (Failed' (EndedEarly wanted (ByteString.length stream)), stream)

perform :: Reader -> Op -> Thread Answer
perform reader op = handle (pure . Failed') $ case op of
  ReadLine bound -> maybe Ended Bytes' <$> readLine reader bound
  ReadExactly n -> Bytes' <$> readExactly reader n
  ReadUntil delimiter bound -> maybe Ended Bytes' <$> readUntil reader delimiter bound
  Peek n -> Bytes' <$> peek reader n
  AtEnd -> Is <$> atEnd reader

-- | All that the operations answer, and what is left then.
expected :: ByteString -> [Op] -> ([Answer], ByteString)
expected stream = \case
  [] -> ([], stream)
  op : ops -> let (a, rest) = model stream op; (as, left) = expected rest ops in (a : as, left)

data Case = Case ByteString [Op] [Int]
  deriving stock (Show)

instance Arbitrary Case where
  arbitrary = do
    few <- chooseInt (0, 40)
    many <- frequency [(19, pure few), (1, chooseInt (4_000, 10_000))]
    stream <- Char8.pack <$> vectorOf many (elements "ab\r\n-")
    ops <- resize 12 (listOf (op many))
    cuts <- listOf (frequency [(3, pure 1), (3, chooseInt (1, 6)), (1, chooseInt (1, 9_000))])
    pure (Case stream ops cuts)
    where
      op size = do
        bound <- frequency [(6, chooseInt (0, 12)), (1, chooseInt (0, size))]
        delimiter <- elements ["\r\n\r\n", "--", "a", "\n-", "ab\r\n-", ""]
        frequency [(4, pure (ReadLine bound)), (3, pure (ReadExactly bound)), (3, pure (ReadUntil delimiter bound)), (1, pure (Peek bound)), (1, pure AtEnd)]
  shrink (Case stream ops cuts) =
    [Case stream ops' cuts | ops' <- shrinkList (const []) ops]
      <> [Case (ByteString.pack s) ops cuts | s <- shrinkList (const []) (ByteString.unpack stream)]
      <> [Case stream ops cuts' | cuts' <- shrink cuts]

-- | The stream in pieces of these lengths, again and again.
inPieces :: ByteString -> [Int] -> Thread (Int -> Thread ByteString)
inPieces stream cuts = do
  left <- liftIO (newIORef (stream, cycle (filter (> 0) cuts <> [3])))
  pure $ \most -> liftIO . atomicModifyIORef' left $ \case
    (rest, n : others) -> ((ByteString.drop (min most n) rest, others), ByteString.take (min most n) rest)
    (rest, []) -> (("", []), rest)

agrees :: World -> Case -> Property
agrees world (Case stream ops cuts) =
  withMaxSuccess (worldRounds world 200)
    . coverTable "answers" [("line", 20), ("end", 5), ("too long", 20), ("early", 20)]
    . tabulate "answers" (map kind wanted)
    . ioProperty
    . running world
    $ do
      reader <- inPieces stream cuts >>= newReaderFrom
      answers <- forM ops (perform reader)
      held <- readReceived reader
      more <- readAll reader
      pure ((answers, held <> more) === (wanted, left))
  where
    (wanted, left) = expected stream ops
    kind = \case
      Ended -> "end"
      Failed' (TooLong _ _) -> "too long"
      Failed' (EndedEarly _ _) -> "early"
      _ -> "line"

readAll :: Reader -> Thread ByteString
readAll reader = do
  bytes <- readSome reader 1_000
  if ByteString.null bytes then pure "" else (bytes <>) <$> readAll reader

-- ----------------------------------------------------------------------------
-- Sockets

conversation :: ByteString
conversation = "HELLO\r\n\r\nlen=5\nabcde--x\r--\r\n"

-- | The operations read the same bytes, whatever the pieces.
converse :: Reader -> Thread ()
converse reader = do
  readLine reader 5 ===> Just "HELLO"
  readLine reader 0 ===> Just ""
  peek reader 3 ===> "len"
  readUntil reader "=" 3 ===> Just "len"
  readExactly reader 1 ===> "5"
  readLine reader 0 ===> Just ""
  readExactly reader 5 ===> "abcde"
  readUntil reader "--" 0 ===> Just ""
  readUntil reader "--" 2 ===> Just "x\r"
  atEnd reader ===> False
  readLine reader 100 ===> Just ""
  readLine reader 100 ===> Nothing
  atEnd reader ===> True

everyCut :: Thread ()
everyCut = forM_ (map (: []) [1 .. size - 1] <> [[1 .. size - 1]]) $ \cuts -> do
  (a, b) <- connected
  setOption a NoDelay 1
  reader <- newReader b
  -- Each piece is there, and alone, before the next is sent.
  sender <- spawn $ do
    forM_ (zip (0 : cuts) (cuts <> [size])) $ \(from, to) ->
      sendAll a (ByteString.take (to - from) (ByteString.drop from conversation)) >> yield
    shutdown a ShutdownSend
  converse reader
  sender
  closeSocket a >> closeSocket b
  where
    size = ByteString.length conversation

-- | Between any two bytes a read is given up, by a time limit or a cancellation.
interrupted :: Thread ()
interrupted = do
  (a, b) <- connected
  setOption a NoDelay 1
  reader <- newReader b
  forM_ (ByteString.unpack "a long line\r\n") $ \byte -> do
    timeout (milliseconds 1) (readLine reader 100) ===> Nothing
    victim <- fork (readExactly reader 100 >>= \bytes -> holds ("read " <> show bytes) False)
    eventually "it to wait" (waitsOrEnded victim)
    sendAll a (ByteString.singleton byte)
    cancelAndWait victim
  readLine reader 100 ===> Just "a long line"
  closeSocket a >> closeSocket b

kept :: Thread ()
kept = do
  reader <- inPieces (ByteString.concat [line i <> "\n" | i <- numbers]) [1, 700, 5_000] >>= newReaderFrom
  lines' <- forM numbers (\_ -> readLine reader 100)
  lines' `is` map (Just . line) numbers
  where
    numbers = [1 .. 3_000 :: Int]
    line i = "line number " <> Char8.pack (show i)

bounded :: Thread ()
bounded = do
  asked <- liftIO (newIORef (0 :: Int))
  reader <- newReaderFrom $ \most -> do
    liftIO (modifyIORef' asked (+ most))
    pure (ByteString.replicate most 97)
  outcome <- try (readLine reader 10_000)
  throws (== TooLong Line 10_000) outcome
  n <- liftIO (readIORef asked)
  unless (n < 20_000) $ holds ("it has received " <> show n <> " bytes") False
