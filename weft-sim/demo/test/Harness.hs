-- | Replicas, real and false, and their clients.
module Harness
  ( withSettings,
    serving,
    withClientOf,
    clientOf,
    tell,
    fake,
    babbler,
    silentAtFirst,

    -- * Small things
    is,
    says,
    theFirst,
  )
where

import Control.Monad (forM_, void, when)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Text (Text)
import Data.Text qualified as Text
import Replicated.Client
import Replicated.Loopback (withFreeAddresses)
import Replicated.Message
import Replicated.Replica
import Replicated.Wire
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty.HUnit
import Weft
import Weft.Scope
import Weft.Socket

-- | Run a thread with settings for the given number of replicas, that do nothing wrong.
withSettings :: Int -> (Thread a -> IO a) -> ([ReplicaSettings] -> Thread a) -> IO a
withSettings count runIt body = withSystemTempDirectory "weft-kv" $ \place ->
  runIt . withFreeAddresses count $ \addresses ->
    body
      [ defaultReplicaSettings (Text.pack (show n)) address (Char8.pack (place <> "/" <> show n))
        | (n, address) <- zip [1 :: Int ..] addresses
      ]

-- | Replicas while the body runs.
serving :: [ReplicaSettings] -> Thread a -> Thread a
serving settings body = withScope $ \scope -> mapM_ (forkDaemonIn scope . replica) settings >> body

-- | A client of these replicas.
withClientOf :: [ReplicaSettings] -> Text -> (Client -> Thread a) -> Thread a
withClientOf settings name = withClient (clientOf settings name)

clientOf :: [ReplicaSettings] -> Text -> ClientSettings
clientOf settings name = defaultClientSettings name (map replicaAddress settings)

-- | Make one request of one replica, which is perhaps about to listen.
tell :: SockAddr -> Request -> Thread Reply
tell address request = do
  reply <- tryConnection . withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s address
    sendMessage s request
    receiveMessage s
  case reply of
    Right (Just answer) -> pure answer
    _ -> sleep (milliseconds 1) >> tell address request

-- | Answers as it is told, whatever it is asked, and then no more.
fake :: SockAddr -> [Reply] -> Thread ()
fake address replies = listening address $ \client -> forM_ replies $ \reply -> do
  _ <- receiveMessage @Request client
  sendMessage client reply

-- | Says nothing on its first connection, until the other end closes it, and on the next
-- this reply.
silentAtFirst :: SockAddr -> Reply -> Thread ()
silentAtFirst address reply = do
  connections <- liftIO (newIORef (0 :: Int))
  listening address $ \client -> do
    _ <- receiveMessage @Request client
    earlier <- liftIO (atomicModifyIORef' connections (\n -> (n + 1, n)))
    when (earlier > 0) $ sendMessage client reply
    void (receiveMessage @Request client)

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

is :: (Eq a, Show a) => a -> a -> Thread ()
is expected found = liftIO (found @?= expected)

says :: Text -> Text -> Thread ()
says text part = liftIO (assertBool (Text.unpack text) (part `Text.isInfixOf` text))

theFirst :: [a] -> a
theFirst = foldr const (error "none")
