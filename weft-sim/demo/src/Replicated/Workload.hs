-- |
-- Description : Clients that do all sorts of things
module Replicated.Workload (workload, worker, WorkloadSettings (..), defaultWorkloadSettings) where

import Control.Monad (when)
import Data.ByteString qualified as ByteString
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding (encodeUtf8)
import Replicated.Client
import Replicated.Entry
import Replicated.History
import Weft
import Weft.Concurrently
import Weft.Time
import Weft.Timeout (deadline)

-- | The work of the clients.
data WorkloadSettings = WorkloadSettings
  { -- | The registers that they use. They must hold nothing.
    workloadKeys :: ![Key],
    -- | How long they go on.
    workloadTime :: !Duration,
    -- | How many operations each of them does at most.
    workloadOperations :: !Int,
    -- | The longest pause between two operations of a client.
    workloadPause :: !Duration,
    -- | How many of 256 operations are gets.
    workloadGets :: !Int
  }

-- | Two keys, three seconds, pauses of up to five milliseconds, half of it gets.
defaultWorkloadSettings :: WorkloadSettings
defaultWorkloadSettings =
  WorkloadSettings
    { workloadKeys = ["x", "y"],
      workloadTime = seconds 3,
      workloadOperations = maxBound,
      workloadPause = milliseconds 5,
      workloadGets = 128
    }

-- | Let several clients, each with a name of its own, work at the same time.
workload :: WorkloadSettings -> [(Text, Client)] -> Thread History
workload settings clients = do
  recorder <- newRecorder
  forConcurrently_ clients (uncurry (worker settings recorder))
  recorded recorder

-- | One client, one operation at a time. It puts no value twice; and no other does, if it has another
-- name.
worker :: WorkloadSettings -> Recorder -> Text -> Client -> Thread ()
worker settings recorder name client = do
  label name
  end <- deadline (workloadTime settings)
  let go n = do
        early <- (< end) <$> now
        when (early && n <= workloadOperations settings) $ do
          dice <- map fromIntegral . ByteString.unpack <$> randomBytes 4
          case dice of
            [which, kind, high, low] -> do
              operate (keys !! (which `mod` length keys)) (kind < workloadGets settings) n
              sleep (fraction (256 * high + low) (workloadPause settings))
            _ -> pure ()
          go (n + 1)
  go (1 :: Int)
  where
    keys = workloadKeys settings
    operate key isGet n
      | isGet = record recorder name key Get (get client key)
      | otherwise = record recorder name key (Put value) (put client key value)
      where
        value = encodeUtf8 (name <> "." <> Text.pack (show n))

-- | This number of parts of 65,536.
fraction :: Int -> Duration -> Duration
fraction parts whole = nanoseconds (fromIntegral (durationNanoseconds whole) * parts `div` 65536)
