-- |
-- Description : A client of the store
--
-- Each key is a register that many may read and write, kept by all replicas, any majority
-- of which is enough (Attiya, Bar-Noy & Dolev 1995). Two majorities have a replica in
-- common; so a client that asks a majority hears of everything that a majority has stored.
--
-- The connections are kept by "Replicated.Link".
module Replicated.Client
  ( Client,
    withClient,
    ClientSettings (..),
    defaultClientSettings,

    -- * Operations
    get,
    put,
    Outcome (..),
  )
where

import Control.Monad (forM, forM_)
import Data.Binary (decode)
import Data.ByteString.Lazy qualified as Lazy
import Data.IORef
import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Word (Word64)
import Replicated.Entry
import Replicated.Link
import Replicated.Message
import Replicated.Mistake
import Weft
import Weft.Channel (Channel)
import Weft.Channel qualified as Channel
import Weft.Scope
import Weft.Socket (SockAddr, showAddress)
import Weft.Time (Instant, wallClock)
import Weft.Timeout

-- | The configuration of a client.
data ClientSettings = ClientSettings
  { -- | For reports: the label of its threads.
    clientName :: !Text,
    -- | Where the replicas are: all of them, or majorities are none.
    clientReplicas :: ![SockAddr],
    -- | How long an operation may take.
    clientPatience :: !Duration,
    -- | How long a replica may take to answer, before it is asked again on another
    -- connection.
    clientAttempt :: !Duration,
    -- | The mistakes that it makes.
    clientMistakes :: ![Mistake]
  }

-- | Two seconds for an operation, 300 milliseconds for an attempt, and no mistakes.
defaultClientSettings :: Text -> [SockAddr] -> ClientSettings
defaultClientSettings name replicas =
  ClientSettings
    { clientName = name,
      clientReplicas = replicas,
      clientPatience = seconds 2,
      clientAttempt = milliseconds 300,
      clientMistakes = []
    }

-- | A client of the store. Any number of threads may use it.
data Client = Client
  { clientSettings :: !ClientSettings,
    -- | Distinguishes its versions from those of other clients.
    clientNumber :: !Word64,
    -- | The greatest counter that it has used.
    clientCounter :: !(IORef Word64),
    -- | To the threads that talk to the replicas.
    clientLinks :: ![Channel Job]
  }

-- | How an operation ended.
data Outcome a
  = Done !a
  | -- | Not done, and it never will be.
    Failed !Text
  | -- | Perhaps it is done, perhaps it will be later, perhaps never.
    Unknown !Text
  deriving stock (Eq, Show)

-- | Be a client while the body runs.
withClient :: ClientSettings -> (Client -> Thread a) -> Thread a
withClient settings body = withScope $ \scope -> do
  number <- decode . Lazy.fromStrict <$> randomBytes 8
  counter <- liftIO (newIORef 0)
  links <- forM (clientReplicas settings) $ \address -> do
    jobs <- Channel.newChannelNamed "requests for a replica" 100
    _ <- forkDaemonIn scope $ do
      label (clientName settings <> " to " <> Text.pack (showAddress address))
      link (clientAttempt settings) address jobs
    pure jobs
  body (Client settings number counter links)

-- | The value of a key, if it has one.
get :: Client -> Key -> Thread (Outcome (Maybe Value))
get client key = limited client key mempty $ \limit -> do
  let done = Done . fmap entryValue
      writeBack entry = either Failed (const (done (Just entry))) <$> askMajority client limit (Store key entry) stored
  askMajority client limit (Read key) found >>= \case
    Left why -> pure (Failed why)
    Right entries -> case maximum entries of
      Just newest
        -- Not all of a majority have it. A later reader must not find less than this
        -- one did, so the value is written back.
        | any (/= Just newest) entries, NoWriteBack `notElem` mistakes -> writeBack newest
      newest -> pure (done newest)
  where
    mistakes = clientMistakes (clientSettings client)

-- | Give a key a value. When the outcome is unknown, others may see the value, from now
-- on or at any later time.
put :: Client -> Key -> Value -> Thread (Outcome ())
put client key value = limited client key value $ \limit ->
  askMajority client limit (Read key) found >>= \case
    Left why -> pure (Failed why)
    Right entries -> do
      version <- newVersion client (entryVersion <$> maximum entries)
      either Unknown (const (Done ())) <$> askMajority client limit (Store key (Entry version value)) stored

-- | A version greater than one that was seen, and than all that this client has made.
newVersion :: Client -> Maybe Version -> Thread Version
newVersion client seen = do
  counter <-
    if WallClockVersions `elem` clientMistakes (clientSettings client)
      then fromIntegral <$> wallClock
      else liftIO (atomicModifyIORef' (clientCounter client) (\own -> let n = 1 + max own (maybe 0 versionCounter seen) in (n, n)))
  pure (Version counter (clientNumber client))

-- | Check the sizes of the key and the value; then run the body, with its deadline.
limited :: Client -> Key -> Value -> (Instant -> Thread (Outcome a)) -> Thread (Outcome a)
limited client key value body = case sizeFault key value of
  Just fault -> pure (Failed fault)
  Nothing -> deadline (clientPatience (clientSettings client)) >>= body

-- | Ask all replicas, and wait for a majority to answer as wanted.
askMajority :: Client -> Instant -> Request -> (Reply -> Either Text a) -> Thread (Either Text [a])
askMajority client limit request wanted = do
  replies <- Channel.newUnboundedChannel
  forM_ (clientLinks client) $ \jobs -> Channel.trySend jobs (Job request limit replies)
  let gather good bad
        | length good >= majority = pure (Right good)
        | why : _ <- bad, length bad > replicas - majority = pure (Left why)
        | otherwise =
            Channel.receive replies >>= \case
              Just reply -> either (\why -> gather good (why : bad)) (\a -> gather (a : good) bad) (wanted reply)
              Nothing -> exit
  fromMaybe (Left "no majority has answered in time") <$> timeoutAt limit (gather [] [])
  where
    replicas = length (clientLinks client)
    majority = replicas `div` 2 + 1

found :: Reply -> Either Text (Maybe Entry)
found = \case
  Found entry -> Right entry
  other -> Left (refusal other)

stored :: Reply -> Either Text ()
stored = \case
  Stored -> Right ()
  other -> Left (refusal other)

refusal :: Reply -> Text
refusal = \case
  Refused why -> "a replica refused: " <> why
  _ -> "a replica answered something else than it was asked"
