{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What an effect does outside of the simulation
--
-- Measures one effect of a thread from outside: how long it takes by the real clock, and which
-- descriptors of the operating system it leaves open.
module Weft.Sim.Internal.Audit (audited) where

import Control.Exception (IOException, try)
import Control.Monad (unless, when)
import Data.List (isSuffixOf, (\\))
import System.Posix.Directory qualified as Posix
import System.Posix.Files (readSymbolicLink)
import Weft.Internal.Os.Sys (monotonicNow)

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

-- | The open descriptors and what they are, without the one that this listing opens. Empty where
-- the system does not tell.
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
