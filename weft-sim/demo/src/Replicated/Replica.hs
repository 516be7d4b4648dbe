-- |
-- Description : One replica of the store
--
-- A server that holds an entry for each key: it tells what it holds, and takes what is
-- newer. It knows nothing of other replicas. That the store as a whole behaves like one
-- register for each key is the doing of the clients ("Replicated.Client"), and needs of
-- a replica only that it never forgets what it has acknowledged.
--
-- The algorithm is that of Attiya, Bar-Noy and Dolev (1995), for many writers.
module Replicated.Replica (replica, ReplicaSettings (..), defaultReplicaSettings) where

import Control.Monad (forever, void)
import Data.ByteString (ByteString)
import Data.Text (Text)
import Replicated.Message
import Replicated.Mistake
import Replicated.Store
import Replicated.Wire
import Weft
import Weft.Scope
import Weft.Semaphore
import Weft.Socket
import Weft.Timeout

-- | The configuration of a replica.
data ReplicaSettings = ReplicaSettings
  { -- | For reports: the label of its threads.
    replicaName :: !Text,
    -- | Where it listens.
    replicaAddress :: !SockAddr,
    -- | Where its log is. Made if it is not there; of no other program.
    replicaDirectory :: !ByteString,
    -- | How many clients may be connected. Others wait until one has gone.
    replicaConnections :: !Int,
    -- | How long a client may take for its next request, and to read the reply. Then its
    -- connection is closed.
    replicaPatience :: !Duration,
    -- | From which size on the log is rewritten when it has doubled, in bytes.
    replicaRewriteAt :: !Int,
    -- | The mistakes that it makes.
    replicaMistakes :: ![Mistake]
  }

-- | 250 connections, one minute, 1 MB, and no mistakes.
defaultReplicaSettings :: Text -> SockAddr -> ByteString -> ReplicaSettings
defaultReplicaSettings name address directory =
  ReplicaSettings
    { replicaName = name,
      replicaAddress = address,
      replicaDirectory = directory,
      replicaConnections = 250,
      replicaPatience = seconds 60,
      replicaRewriteAt = 1_000_000,
      replicaMistakes = []
    }

-- | Recover from the disk, and serve until cancelled. Raises 'IOError' if the system
-- refuses the address or the log, and 'Replicated.Log.LogDamaged'.
replica :: ReplicaSettings -> Thread ()
replica settings = do
  label (replicaName settings)
  withStore storeSettings $ \store ->
    withSocket (listenAt (replicaAddress settings)) $ \listener -> withScope $ \sessions -> do
      places <- newSemaphore (replicaConnections settings)
      forever $ mask $ \restore -> do
        acquire places 1
        (client, _) <- accept listener `onException` release places 1
        forkIn_ sessions $
          restore (session settings store client)
            `finally` closeSocket client
            `finally` release places 1
  where
    storeSettings =
      StoreSettings
        { storeDirectory = replicaDirectory settings,
          storeRewriteAt = replicaRewriteAt settings,
          storeMistakes = replicaMistakes settings
        }

-- | Serve a client until it goes away, by whatever way.
session :: ReplicaSettings -> Store -> Socket -> Thread ()
session settings store client = do
  outcome <- tryConnection $ setOption client NoDelay 1 >> serve
  case outcome of
    Right () -> pure ()
    -- Perhaps it can still hear what it did wrong.
    Left why -> void $ tryConnection (inTime (sendMessage client (Refused why)))
  where
    serve =
      inTime (receiveMessage client) >>= \case
        Just (Just request) -> do
          reply <- answer store request
          sent <- inTime (sendMessage client reply)
          maybe (pure ()) (const serve) sent
        _ -> pure ()
    inTime = timeout (replicaPatience settings)

answer :: Store -> Request -> Thread Reply
answer store = \case
  Read key -> Found <$> lookupEntry store key
  Store key entry -> either Refused (const Stored) <$> storeEntry store key entry

listenAt :: SockAddr -> Thread Socket
listenAt address = do
  listener <- openSocket (familyOf address) Stream
  flip onException (closeSocket listener) $ do
    setOption listener ReuseAddr 1
    bind listener address
    listen listener 128
    pure listener
