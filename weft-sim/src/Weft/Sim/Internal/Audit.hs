-- |
-- Description : What an effect does outside of the simulation
-- Stability   : not home
--
-- Watches one effect of a thread from outside: how long it took by the real clock, and
-- which descriptors of the operating system are open that were not before. Called by the
-- driver when it was asked to.
module Weft.Sim.Internal.Audit
  ( audited,
  )
where

import Control.Exception (IOException, try)
import Control.Monad (unless, when)
import Data.List (isSuffixOf, (\\))
import System.Posix.Directory qualified as Posix
import System.Posix.Files (readSymbolicLink)
import Weft.Internal.Sys (monotonicNow)

-- | Run a step, and tell what it did.
audited :: (String -> IO ()) -> IO () -> IO ()
audited tell step = do
  before <- openDescriptors
  begin <- monotonicNow
  step
  end <- monotonicNow
  after <- openDescriptors
  let milliseconds = (end - begin) `div` 1_000_000
  when (milliseconds >= tolerated) . tell $
    "an effect took " <> show milliseconds <> " ms of real time: it sleeps, waits or computes, which no simulated clock shows"
  let new = after \\ before
  unless (null new) . tell $ "an effect opened descriptors of the operating system: " <> unwords [n <> " (" <> to <> ")" | (n, to) <- new]
  where
    tolerated = 20

-- | The numbers of those that are open now, and what they are, but for the one that this
-- takes itself. Where that cannot be known, none.
openDescriptors :: IO [(String, FilePath)]
openDescriptors = either (\(_ :: IOException) -> []) id <$> try listing
  where
    listing = do
      stream <- Posix.openDirStream "/proc/self/fd"
      let go names =
            Posix.readDirStream stream >>= \case
              "" -> pure names
              n | n `elem` [".", ".."] -> go names
              n -> go (n : names)
      names <- go []
      everything <- mapM (\n -> (n,) . either (\(_ :: IOException) -> "") id <$> try (readSymbolicLink ("/proc/self/fd/" <> n))) names
      Posix.closeDirStream stream
      pure [(n, to) | (n, to) <- everything, not ("/fd" `isSuffixOf` to)]
