-- |
-- Description : Registers that survive a crash
--
-- The registers of one replica: in memory to be read, and in a log on the disk. One thread
-- writes the log. While it waits for the disk, more entries gather, and they share its
-- next wait (group commit).
--
-- A value that is not on the disk cannot be read either: a reader that found all of a majority
-- agreeing on it would return it, and a crash could then take it back.
module Replicated.Store (Store, StoreSettings (..), withStore, lookupEntry, storeEntry) where

import Control.Monad (forM_, forever)
import Data.ByteString (ByteString)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Data.Text qualified as Text
import Replicated.Entry
import Replicated.Log
import Replicated.Mistake
import Weft
import Weft.Channel (Channel, Received (..))
import Weft.Channel qualified as Channel
import Weft.MVar
import Weft.STM
import Weft.Scope

-- | The place of the registers on the disk, and how they are kept.
data StoreSettings = StoreSettings
  { -- | For the log, and nothing else.
    storeDirectory :: !ByteString,
    -- | The log is rewritten, without what is out of date, when it has this number of
    -- bytes and, from the second time on, twice as many as after the last time.
    storeRewriteAt :: !Int,
    storeMistakes :: ![Mistake]
  }

-- | The registers of a replica.
data Store = Store
  { storeEntries :: !(TVar (Map Key Entry)),
    storeQueue :: !(Channel Pending)
  }

-- | An entry for the disk, and where the thread that stores it waits for the outcome.
data Pending = Pending
  { pendingKey :: !Key,
    pendingEntry :: !Entry,
    pendingOutcome :: !(MVar (Either Text ()))
  }

-- | Recover the registers from the disk, and have them while the body runs.
withStore :: StoreSettings -> (Store -> Thread a) -> Thread a
withStore settings body = withLog (storeDirectory settings) $ \opened records -> do
  entries <- liftIO (newTVarIO (Map.fromListWith max records))
  store <- Store entries <$> Channel.newChannelNamed "entries for the disk" 100
  withScope $ \scope -> do
    _ <- forkDaemonIn scope (label "log" >> writeLog settings store opened)
    body store

-- | The content of a register; nothing if no value was ever put.
lookupEntry :: Store -> Key -> Thread (Maybe Entry)
lookupEntry store key = Map.lookup key <$> liftIO (readTVarIO (storeEntries store))

-- | Make a register hold this, if it holds nothing newer, and wait until that is on the
-- disk; or why that could not be done, and then it may be there or not.
storeEntry :: Store -> Key -> Entry -> Thread (Either Text ())
storeEntry store key entry = do
  held <- lookupEntry store key
  if held >= Just entry
    then pure (Right ())
    else do
      outcome <- newEmptyMVar
      Channel.send (storeQueue store) (Pending key entry outcome)
      takeMVar outcome

-- | The thread that writes the log. A disk that is full may have room again later. But
-- after a sync that failed it is not known what the log holds, and all else is refused.
writeLog :: StoreSettings -> Store -> Log -> Thread ()
writeLog settings store opened = go 0
  where
    go lastSize = do
      batch <- nextBatch (storeQueue store)
      trySystem (appendBatch opened [(pendingKey p, pendingEntry p) | p <- batch]) >>= \case
        Left why -> conclude batch (Left why) >> go lastSize
        Right () ->
          trySystem (persist batch >> tidy lastSize) >>= \case
            Left why -> conclude batch (Left why) >> refuseAll why
            Right size -> go size
    persist batch
      | AckBeforeSync `elem` storeMistakes settings = publish store batch >> syncLog opened
      | otherwise = syncLog opened >> publish store batch
    -- The size of the log when it was last rewritten.
    tidy lastSize = do
      size <- logSize opened
      if size < max (2 * lastSize) (storeRewriteAt settings)
        then pure lastSize
        else do
          entries <- liftIO (readTVarIO (storeEntries store))
          rewriteLog opened (Map.toAscList entries)
          logSize opened
    refuseAll why = forever $ nextBatch (storeQueue store) >>= \batch -> conclude batch (Left why)

-- | All that waits for the disk, up to a limit; at least one.
nextBatch :: Channel Pending -> Thread [Pending]
nextBatch queue = Channel.receive queue >>= maybe exit (\first -> (first :) <$> more (99 :: Int))
  where
    more 0 = pure []
    more n =
      Channel.tryReceive queue >>= \case
        Received next -> (next :) <$> more (n - 1)
        _ -> pure []

-- | Let readers see it, and tell the waiters.
publish :: Store -> [Pending] -> Thread ()
publish store batch = do
  let entries = Map.fromListWith max [(pendingKey p, pendingEntry p) | p <- batch]
  atomically $ modifyTVar' (storeEntries store) (Map.unionWith max entries)
  conclude batch (Right ())

conclude :: [Pending] -> Either Text () -> Thread ()
conclude batch outcome = forM_ batch $ \p -> tryPutMVar (pendingOutcome p) outcome

trySystem :: Thread a -> Thread (Either Text a)
trySystem body = either (\e -> Left (Text.pack (show (e :: IOError)))) Right <$> try body
