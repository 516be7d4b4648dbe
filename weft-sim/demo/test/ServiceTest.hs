-- | Replicas and what can happen to them, for real.
module ServiceTest (tests) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Text (Text)
import Data.Text qualified as Text
import Replicated.Client
import Replicated.Entry
import Replicated.Loopback
import Replicated.Replica
import Replicated.Wire
import System.IO.Temp (withSystemTempDirectory)
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
    [ testCase "what was put is found" . withReplicas 3 id $ \_ addresses ->
        withClient (defaultClientSettings "a" addresses) $ \a -> withClient (defaultClientSettings "b" addresses) $ \b -> do
          get a "x" >>= is (Done Nothing)
          put a "x" "1" >>= is (Done ())
          get b "x" >>= is (Done (Just "1"))
          put b "x" "2" >>= is (Done ())
          get a "x" >>= is (Done (Just "2"))
          get a "y" >>= is (Done Nothing),
      testCase "what was put survives a restart of all" $ inDirectory $ \directory -> do
        addresses <- freeAddresses 3
        let settings = replicasIn directory addresses
        serving settings $ withClient (defaultClientSettings "a" addresses) $ \a ->
          forM_ [1 .. 50 :: Int] $ \n -> put a "x" (Char8.pack (show n)) >>= is (Done ())
        serving settings $ withClient (defaultClientSettings "b" addresses) $ \b ->
          get b "x" >>= is (Done (Just "50")),
      testCase "a log that is written anew loses nothing" . withReplicas 1 (\s -> s {replicaRewriteAt = 1}) $ \directory addresses -> do
        withClient (defaultClientSettings "a" addresses) $ \a ->
          forM_ [1 .. 100 :: Int] $ \n -> put a (if even n then "x" else "y") (Char8.pack (show n)) >>= is (Done ())
        withClient (defaultClientSettings "b" addresses) $ \b -> do
          get b "x" >>= is (Done (Just "100"))
          get b "y" >>= is (Done (Just "99"))
        size <- liftIO (ByteString.length <$> ByteString.readFile (Char8.unpack directory <> "/1/log"))
        liftIO (assertBool (show size) (size < 1000)),
      testCase "a majority is enough" $ inDirectory $ \directory -> do
        addresses <- freeAddresses 3
        serving (take 2 (replicasIn directory addresses)) $ withClient (defaultClientSettings "a" addresses) $ \a -> do
          put a "x" "1" >>= is (Done ())
          get a "x" >>= is (Done (Just "1")),
      testCase "a minority is not" $ inDirectory $ \directory -> do
        addresses <- freeAddresses 3
        serving (take 1 (replicasIn directory addresses)) $
          withClient (defaultClientSettings "a" addresses) {clientPatience = milliseconds 50} $ \a -> do
            put a "x" "1" >>= is (Failed "no majority has answered in time")
            get a "x" >>= is (Failed "no majority has answered in time"),
      testCase "a put that a majority reads but does not store has an unknown outcome" $ inDirectory $ \directory -> do
        addresses <- freeAddresses 2
        let settings = replicasIn directory addresses
        withScope $ \scope -> do
          _ <- forkDaemonIn scope (replica (head' settings))
          _ <- forkDaemonIn scope (fake (last addresses) [Found Nothing, Refused "the disk is full"])
          withClient (defaultClientSettings "a" addresses) $ \a ->
            put a "x" "1" >>= is (Unknown "a replica refused: the disk is full"),
      testCase "garbage is answered with a reason, and disturbs nobody else" . withReplicas 1 id $ \_ addresses -> do
        let garbage = [("\0\0\0\1\9", "there is no request 9"), ("GET / HTTP/1.1\r\n", "a message of 1195725856 bytes")] :: [(ByteString, Text)]
        forM_ garbage $ \(bytes, reason) ->
          withSocket (openSocket AF_INET Stream) $ \s -> do
            connect s (head' addresses)
            sendAll s bytes
            receiveMessage s >>= \case
              Just (Refused why) -> liftIO (assertBool (Text.unpack why) (reason `Text.isInfixOf` why))
              other -> liftIO (assertFailure (show other))
        withClient (defaultClientSettings "a" addresses) $ \a -> put a "x" "1" >>= is (Done ()),
      testCase "a replica that says garbage is as good as none" $ inDirectory $ \directory -> do
        addresses <- freeAddresses 3
        withScope $ \scope -> do
          _ <- forkDaemonIn scope (babbler (last addresses))
          serving (take 2 (replicasIn directory addresses)) $ withClient (defaultClientSettings "a" addresses) $ \a -> do
            put a "x" "1" >>= is (Done ())
            get a "x" >>= is (Done (Just "1")),
      testCase "more clients than a replica takes wait for their turn" . withReplicas 1 (\s -> s {replicaConnections = 2}) $ \_ addresses ->
        forConcurrently_ [1 .. 6 :: Int] $ \n ->
          withClient (defaultClientSettings (Text.pack (show n)) addresses) {clientPatience = seconds 10} $ \a ->
            put a "x" (Char8.pack (show n)) >>= is (Done ()),
      testCase "what is too long is not sent" . withReplicas 1 id $ \_ addresses ->
        withClient (defaultClientSettings "a" addresses) $ \a -> do
          put a (ByteString.replicate 257 0) "1" >>= is (Failed "a key has 256 bytes at most")
          put a "x" (ByteString.replicate longestValue 7) >>= is (Done ())
          get a "x" >>= is (Done (Just (ByteString.replicate longestValue 7)))
          put a "x" (ByteString.replicate 65537 0) >>= is (Failed "a value has 65536 bytes at most")
    ]

is :: (Eq a, Show a) => a -> a -> Thread ()
is expected found = liftIO (found @?= expected)

-- ---------------------------------------------------------------------------
-- Replicas, real and false

withReplicas :: Int -> (ReplicaSettings -> ReplicaSettings) -> (ByteString -> [SockAddr] -> Thread ()) -> IO ()
withReplicas n change body = inDirectory $ \directory -> do
  addresses <- freeAddresses n
  serving (map change (replicasIn directory addresses)) (body directory addresses)

inDirectory :: (ByteString -> Thread ()) -> IO ()
inDirectory body = withSystemTempDirectory "weft-kv" (run . body . Char8.pack)

replicasIn :: ByteString -> [SockAddr] -> [ReplicaSettings]
replicasIn directory addresses =
  [defaultReplicaSettings (Text.pack (show n)) address (directory <> "/" <> Char8.pack (show n)) | (n, address) <- zip [1 :: Int ..] addresses]

serving :: [ReplicaSettings] -> Thread a -> Thread a
serving settings body = withScope $ \scope -> mapM_ (forkDaemonIn scope . replica) settings >> body

-- | Answers as it is told, whatever it is asked, and then no more.
fake :: SockAddr -> [Reply] -> Thread ()
fake address replies = listening address $ \client -> forM_ replies $ \reply -> do
  _ <- receiveMessage @Request client
  sendMessage client reply

-- | Answers something else than a reply.
babbler :: SockAddr -> Thread ()
babbler address = listening address $ \client -> receive client 1 >> sendAll client "what?"

listening :: SockAddr -> (Socket -> Thread ()) -> Thread ()
listening address session = withSocket (openSocket AF_INET Stream) $ \listener -> do
  setOption listener ReuseAddr 1
  bind listener address
  listen listener 10
  let go = withSocket (fst <$> accept listener) session >> go
  go

head' :: [a] -> a
head' = foldr const (error "none")
