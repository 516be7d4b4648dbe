{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Losing what was not synced
--
-- Draws what becomes of everything that is not durable: at a crash, and of one file when its sync
-- fails. Answers with a line of text for each change.
--
-- See Note [What a crash leaves] in "Weft.Sim.Internal.Disk.Unsynced".
module Weft.Sim.Internal.Disk.Crash (crashed, syncFailed) where

import Control.Monad (foldM)
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (toList)
import Data.IntMap.Strict qualified as IntMap
import Data.List (intercalate)
import Data.List qualified as List
import Data.Sequence qualified as Seq
import Weft.Sim.Internal.Disk.Content
import Weft.Sim.Internal.Disk.FileSystem
import Weft.Sim.Internal.Disk.Tree
import Weft.Sim.Internal.Disk.Unsynced
import Weft.Sim.Internal.Random

-- | Of eight pages three survive, two are lost and three are torn; a page that has grown is torn
-- in one of two ways.
byDice :: Random -> CrashOutcomes IO
byDice random =
  CrashOutcomes
    { outcomeOfPage = \added -> below random 16 >>= outcomeOf added,
      outcomeOfSizes = \n -> below random (n + 1)
    }
  where
    outcomeOf :: (Int, Int) -> Int -> IO PageOutcome
    outcomeOf (from, to) n
      | n < 6 = pure Survives
      | n < 10 = pure Lost
      | n < 13 || from >= to = below random 4 >>= torn
      | otherwise = Ragged . (from +) <$> below random (to - from) <*> chance random 0.7 <*> junk
    -- At one place, or anywhere.
    torn :: Int -> IO PageOutcome
    torn n
      | n == 0 = Torn . fromIntegral . (1 +) <$> below random 254
      | otherwise = (\i new -> Torn (if new then 2 ^ i - 1 else 255 - (2 ^ i - 1))) . (1 +) <$> below random 7 <*> chance random 0.5
    junk = chance random 0.4 >>= \zeroes -> if zeroes then pure Zeroes else Stale <$> below random 4096

-- | A power cut: all files are closed, and the dice decide what of the rest survives.
crashed :: Random -> FileSystem -> IO (FileSystem, [String])
crashed random fs = do
  surviving <- below random (Seq.length (fsJournal fs) + 1)
  let tree = List.foldl' (flip applyChange) (fsTreeOnDisk fs) (toList (Seq.take surviving (fsJournal fs)))
      paths = pathsOf tree
      lost = Seq.length (fsJournal fs) - surviving
      journalLine = ["of " <> counted (Seq.length (fsJournal fs)) "change of names" "changes of names" <> " " <> show lost <> " lost" | not (Seq.null (fsJournal fs))]
  (nodes, told) <- foldM (settled paths) (IntMap.empty, []) (IntMap.toList (IntMap.intersection (fsNodes fs) paths))
  pure
    ( fs
        { fsNodes = nodes,
          fsTree = tree,
          fsTreeOnDisk = tree,
          fsJournal = Seq.empty,
          fsJournalStart = journalEnd fs,
          fsPages = sum (IntMap.size . contentPages . seen . nodeData <$> nodes)
        },
      journalLine <> reverse told
    )
  where
    settled paths (nodes, told) (n, node) = do
      (file, outcomes, sizes) <- settleTo (byDice random) (mark (nodeData node)) (nodeData node)
      late <- if nodeModified node == nodeModifiedOnDisk node then pure True else chance random 0.5
      let after = forgetCached file
          modified = if late then nodeModified node else nodeModifiedOnDisk node
          line = [Char8.unpack (paths IntMap.! n) <> ": " <> account outcomes sizes <> sizeNow node after | unsyncedChanges (nodeData node) > 0]
          node' =
            node
              { nodeData = after,
                nodeModified = modified,
                nodeModifiedOnDisk = modified,
                nodeNamed = True,
                nodeMayReturn = True,
                nodeOpens = 0
              }
      pure (IntMap.insert n node' nodes, line <> told)
    sizeNow node after
      | before == now = ""
      | otherwise = "; " <> show now <> " bytes instead of " <> show before
      where
        before = contentSize (seen (nodeData node))
        now = contentSize (seen after)

-- | The system has given up what a sync up to the mark should have written. Programs do not see
-- it yet, and the sizes stay.
syncFailed :: Random -> Mark -> FileData -> IO (FileData, String)
syncFailed random upTo file = do
  (after, outcomes, sizes) <- settleTo (byDice random) {outcomeOfSizes = pure} upTo file
  pure (after, account outcomes sizes)

account :: [PageOutcome] -> Int -> String
account outcomes sizes =
  "of " <> counted (length outcomes) "unsynced page write" "unsynced page writes" <> " " <> intercalate ", " (pages <> [counted sizes "change" "changes" <> " of the size lost" | sizes > 0])
  where
    pages = [show (count (== Lost)) <> " lost", show (count torn) <> " torn"]
    count p = length (filter p outcomes)
    torn = \case
      Torn {} -> True
      Ragged {} -> True
      _ -> False

counted :: Int -> String -> String -> String
counted 1 one _ = "1 " <> one
counted n _ several = show n <> " " <> several
