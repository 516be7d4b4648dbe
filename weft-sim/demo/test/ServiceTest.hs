-- | Replicas and clients, for real.
module ServiceTest (tests) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Text (Text)
import Data.Text qualified as Text
import Harness
import Replicated.Client
import Replicated.Entry
import Replicated.Message
import Replicated.Replica
import Replicated.Wire
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently
import Weft.Scope
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "service"
    [ testCase "what was put is found" . withSettings 3 run $ \settings ->
        serving settings . withClientOf settings "a" $ \a -> withClientOf settings "b" $ \b -> do
          get a "x" >>= is (Done Nothing)
          put a "x" "1" >>= is (Done ())
          get b "x" >>= is (Done (Just "1"))
          put b "x" "2" >>= is (Done ())
          get a "x" >>= is (Done (Just "2"))
          get a "y" >>= is (Done Nothing),
      testCase "what was put survives a restart of all" . withSettings 3 run $ \settings -> do
        serving settings . withClientOf settings "a" $ \a ->
          forM_ [1 .. 50 :: Int] $ \n -> put a "x" (Char8.pack (show n)) >>= is (Done ())
        serving settings . withClientOf settings "b" $ \b -> get b "x" >>= is (Done (Just "50")),
      testCase "a log that is written anew loses nothing" . withSettings 1 run $ \plain -> do
        let from n = [s {replicaRewriteAt = n} | s <- plain]
            puts numbers a = forM_ numbers $ \n -> put a (if even n then "x" else "y") (Char8.pack (show (n :: Int))) >>= is (Done ())
            logBytes = liftIO (ByteString.length <$> ByteString.readFile (Char8.unpack (replicaDirectory (theFirst plain)) <> "/log"))
        serving (from maxBound) $ withClientOf plain "a" (puts [1 .. 100])
        long <- logBytes
        -- It is too long already, and is written anew before the second of these.
        serving (from 1000) $ withClientOf plain "b" (puts [101, 102])
        short <- logBytes
        liftIO (assertBool (show (long, short)) (long > 4000 && short < 1000))
        -- And now very often.
        serving (from 1) $ withClientOf plain "c" (puts [103 .. 200])
        logBytes >>= \size -> liftIO (assertBool (show size) (size < 1000))
        serving plain . withClientOf plain "d" $ \d -> do
          get d "x" >>= is (Done (Just "200"))
          get d "y" >>= is (Done (Just "199")),
      testCase "what is no news is acknowledged, and not written" . withSettings 1 run $ \settings ->
        serving settings $ do
          let one = theFirst settings
              logBytes = liftIO (ByteString.length <$> ByteString.readFile (Char8.unpack (replicaDirectory one) <> "/log"))
              store counter value = tell (replicaAddress one) (Store "x" (Entry (Version counter 1) value))
          store 5 "new" >>= is Stored
          before <- logBytes
          store 5 "new" >>= is Stored
          store 4 "old" >>= is Stored
          logBytes >>= is before
          tell (replicaAddress one) (Read "x") >>= is (Found (Just (Entry (Version 5 1) "new")))
          store 6 "newer" >>= is Stored
          tell (replicaAddress one) (Read "x") >>= is (Found (Just (Entry (Version 6 1) "newer"))),
      testCase "a majority is enough" . withSettings 3 run $ \settings ->
        serving (take 2 settings) . withClientOf settings "a" $ \a -> do
          put a "x" "1" >>= is (Done ())
          get a "x" >>= is (Done (Just "1")),
      testCase "a minority is not" . withSettings 3 run $ \settings ->
        serving (take 1 settings) . withClient (clientOf settings "a") {clientPatience = milliseconds 50} $ \a -> do
          put a "x" "1" >>= is (Failed "no majority has answered in time")
          get a "x" >>= is (Failed "no majority has answered in time"),
      testCase "a put that a majority does not store has an unknown outcome" . withSettings 2 run $ \settings ->
        withScope $ \scope -> do
          _ <- forkDaemonIn scope (fake (replicaAddress (last settings)) [Found Nothing, Refused "no more today"])
          serving (take 1 settings) . withClientOf settings "a" $ \a ->
            put a "x" "1" >>= is (Unknown "a replica refused: no more today"),
      testCase "garbage is answered with a reason, and disturbs nobody else" . withSettings 1 run $ \settings ->
        serving settings $ do
          let place = replicaAddress (theFirst settings)
              garbage = [("\0\0\0\1\9", "there is no request 9"), ("GET / HTTP/1.1\r\n", "a message of 1195725856 bytes")] :: [(ByteString, Text)]
          tell place (Read "x") >>= is (Found Nothing)
          forM_ garbage $ \(bytes, reason) ->
            withSocket (openSocket AF_INET Stream) $ \s -> do
              connect s place
              sendAll s bytes
              receiveMessage s >>= \case
                Just (Refused why) -> why `says` reason
                other -> liftIO (assertFailure (show other))
          tell place (Read "x") >>= is (Found Nothing),
      testCase "a replica that says garbage is as good as none" . withSettings 3 run $ \settings ->
        withScope $ \scope -> do
          _ <- forkDaemonIn scope (babbler (replicaAddress (last settings)))
          serving (take 2 settings) . withClientOf settings "a" $ \a -> do
            put a "x" "1" >>= is (Done ())
            get a "x" >>= is (Done (Just "1")),
      testCase "a replica that says nothing is asked again, on another connection" . withSettings 1 run $ \settings ->
        withScope $ \scope -> do
          _ <- forkDaemonIn scope (silentAtFirst (replicaAddress (theFirst settings)) (Found (Just (Entry (Version 1 1) "1"))))
          withClient (clientOf settings "a") {clientAttempt = milliseconds 10} $ \a ->
            get a "x" >>= is (Done (Just "1")),
      testCase "clients that are too many wait for their turn" . withSettings 1 run $ \plain -> do
        let settings = [s {replicaConnections = 2} | s <- plain]
        serving settings . forConcurrently_ [1 .. 6 :: Int] $ \n ->
          withClient (clientOf settings (Text.pack (show n))) {clientPatience = seconds 10} $ \a ->
            put a "x" (Char8.pack (show n)) >>= is (Done ()),
      testCase "a client that says nothing loses its place" . withSettings 1 run $ \plain -> do
        let settings = [s {replicaConnections = 1, replicaPatience = milliseconds 20} | s <- plain]
            place = replicaAddress (theFirst settings)
        serving settings $ do
          tell place (Read "x") >>= is (Found Nothing)
          withSocket (openSocket AF_INET Stream) $ \s -> do
            connect s place
            -- The beginning of a message.
            sendAll s "\0\0"
            tell place (Read "x") >>= is (Found Nothing),
      testCase "what is too long is not sent" . withSettings 1 run $ \settings ->
        serving settings . withClientOf settings "a" $ \a -> do
          put a (ByteString.replicate 257 0) "1" >>= is (Failed "a key has 256 bytes at most")
          put a "x" (ByteString.replicate longestValue 7) >>= is (Done ())
          get a "x" >>= is (Done (Just (ByteString.replicate longestValue 7)))
          put a "x" (ByteString.replicate (longestValue + 1) 0) >>= is (Failed "a value has 65536 bytes at most")
    ]
