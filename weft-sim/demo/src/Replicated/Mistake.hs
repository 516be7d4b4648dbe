-- |
-- Description : Mistakes that can be switched on
--
-- Each is one line of the service, of the kind that people write in earnest. With none
-- of them the service is linearizable.
module Replicated.Mistake (Mistake (..), nameOf, describe, parseMistake) where

import Data.List (find, intercalate)

-- | A deliberate mistake.
data Mistake
  = WallClockVersions
  | AckBeforeSync
  | NoWriteBack
  deriving stock (Eq, Ord, Show, Read, Enum, Bounded)

-- | Its name on the command line.
nameOf :: Mistake -> String
nameOf = \case
  WallClockVersions -> "wall-clock-versions"
  AckBeforeSync -> "ack-before-sync"
  NoWriteBack -> "no-write-back"

-- | The mistake and its consequence, for the command line.
describe :: Mistake -> String
describe = \case
  WallClockVersions ->
    "clients take versions from their wall clocks: a value that was put later, by a clock that is behind, loses"
  AckBeforeSync ->
    "replicas acknowledge a value before it is on the disk: when a majority crashes, it is gone"
  NoWriteBack ->
    "a get does not write back what it found: one reader sees the new value, and a later reader the old one"

-- | The mistake of that name, or which names there are.
parseMistake :: String -> Either String Mistake
parseMistake name = maybe (Left unknown) Right (find ((== name) . nameOf) mistakes)
  where
    mistakes = [minBound .. maxBound]
    unknown = "there is no mistake " <> show name <> "; there are " <> intercalate ", " (map nameOf mistakes)
