-- | The content of a log after a crash.
module LogTest (tests) where

import Control.Exception (try)
import Control.Monad (forM_)
import Data.Bits (xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.List (isPrefixOf)
import Data.Word (Word8)
import Entries
import Replicated.Entry
import Replicated.Log
import Replicated.LogFormat
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft (Thread, liftIO, run)

tests :: TestTree
tests =
  testGroup
    "log"
    [ testProperty "every prefix holds the batches that are whole in it" $ forAll batches $ \written ->
        let (bytes, ends) = logOf written
         in conjoin
              [ scan (ByteString.take n bytes) === Right (concat (take whole written), (ByteString.length header : ends) !! whole)
                | n <- [ByteString.length header .. ByteString.length bytes],
                  let whole = length (takeWhile (<= n) ends)
              ],
      testProperty "garbage after the batches is cut off" $ forAll ((,) <$> batches <*> arbitrary) $ \(written, garbage) ->
        let (bytes, _) = logOf written
         in scan (bytes <> ByteString.pack garbage) === Right (concat written, ByteString.length bytes),
      testProperty "a changed byte costs the last batch, or is noticed" $ forAll batches $ \written ->
        let (bytes, ends) = logOf written
            lastBegins = last (ByteString.length header : init ends)
         in forAll (chooseInt (0, ByteString.length bytes - 1)) $ \at ->
              forAll (elements [1, 2, 4, 8, 16, 32, 64, 128, 255]) $ \difference -> do
                let changed = changeAt at difference bytes
                cover 20 (at < lastBegins) "in an earlier batch" . cover 10 (at >= lastBegins) "in the last batch" $
                  if at >= lastBegins
                    then scan changed === Right (concat (init written), lastBegins)
                    else either (const (property True)) (\found -> counterexample (show found) False) (scan changed),
      testCase "a file that is no log is refused" $
        scan "something else, and quite long" @?= Left (LogDamaged "it does not begin as a log does"),
      testCase "a torn log is opened, cut, and goes on" $ withLogIn $ \directory -> do
        run . withLog directory $ \opened _ -> appendBatch opened one >> appendBatch opened two >> syncLog opened
        bytes <- readLog directory
        forM_ [1, 10, 20] $ \missing -> do
          writeLog directory (ByteString.take (ByteString.length bytes - missing) bytes)
          run (opensWith directory one)
          readLog directory >>= (@?= ByteString.take (ByteString.length header + ByteString.length (encodeBatch (ByteString.length header) one)) bytes)
          -- The next batch comes where the torn one was.
          run . withLog directory $ \opened found -> do
            liftIO (found @?= one)
            appendBatch opened three
            syncLog opened
          run (opensWith directory (one <> three)),
      testCase "a log that is damaged in the middle is not opened" $ withLogIn $ \directory -> do
        run . withLog directory $ \opened _ -> appendBatch opened one >> appendBatch opened two >> syncLog opened
        bytes <- readLog directory
        let damaged = changeAt (ByteString.length header + 20) 1 bytes
        writeLog directory damaged
        try (run (withLog directory (\_ found -> pure found))) >>= \case
          Left (LogDamaged why) -> assertBool why ("a batch at byte" `isPrefixOf` why)
          Right found -> assertFailure ("opened, with " <> show found)
        -- Nothing was changed, so that the operator can look at it.
        readLog directory >>= (@?= damaged),
      testCase "a log that is written anew holds what it was given, and grows" $ withLogIn $ \directory -> do
        run . withLog directory $ \opened _ -> do
          appendBatch opened one
          syncLog opened
          rewriteLog opened many
          appendBatch opened two
          syncLog opened
        run (opensWith directory (many <> two)),
      testCase "a log that was being written anew when the crash came is the old one" $ withLogIn $ \directory -> do
        run . withLog directory $ \opened _ -> appendBatch opened one >> syncLog opened
        ByteString.writeFile (Char8.unpack directory <> "/log.new") (header <> "half")
        run (opensWith directory one)
    ]

one, two, three, many :: [Record]
one = [("x", Entry (Version 1 1) "one"), ("y", Entry (Version 1 1) "one as well")]
two = [("x", Entry (Version 2 1) "two, which is long enough to be torn in several places")]
three = [("", Entry (Version 3 1) "")]
many = [(Char8.pack (show n), Entry (Version 1 n) "one of many") | n <- [1 .. 250]]

batches :: Gen [[Record]]
batches = chooseInt (2, 5) >>= (`vectorOf` records)

-- | The bytes of a log, and where its batches end.
logOf :: [[Record]] -> (ByteString, [Int])
logOf = foldl add (header, [])
  where
    add (bytes, ends) batch =
      let longer = bytes <> encodeBatch (ByteString.length bytes) batch in (longer, ends <> [ByteString.length longer])

changeAt :: Int -> Word8 -> ByteString -> ByteString
changeAt at difference bytes = case ByteString.splitAt at bytes of
  (before, rest) | Just (byte, behind) <- ByteString.uncons rest -> before <> ByteString.cons (byte `xor` difference) behind
  _ -> bytes

withLogIn :: (ByteString -> IO ()) -> IO ()
withLogIn body = withSystemTempDirectory "weft-kv" $ \place -> body (Char8.pack (place <> "/made-when-needed"))

readLog :: ByteString -> IO ByteString
readLog directory = ByteString.readFile (Char8.unpack directory <> "/log")

writeLog :: ByteString -> ByteString -> IO ()
writeLog directory = ByteString.writeFile (Char8.unpack directory <> "/log")

opensWith :: ByteString -> [Record] -> Thread ()
opensWith directory expected = withLog directory (\_ found -> liftIO (found @?= expected))
