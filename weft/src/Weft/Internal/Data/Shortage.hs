{-# OPTIONS_HADDOCK not-home #-}

-- | Reports of a shortage, once a minute. A server at its limit of descriptors may run short with
-- every connection. The operator must hear of it, and the log must not be filled with it.
module Weft.Internal.Data.Shortage (Shortage, newShortage, runShort) where

import Data.IORef

-- | When the last report was, in nanoseconds, and how many times since then there was none.
newtype Shortage = Shortage (IORef (Maybe (Int, Int)))

newShortage :: IO Shortage
newShortage = Shortage <$> newIORef Nothing

-- | Something is short at this time (monotonic, in nanoseconds): report it with these words, and how
-- often since the last report, unless that is less than a minute ago. For one OS thread at a time.
runShort :: Shortage -> Int -> (String -> IO ()) -> String -> IO ()
runShort (Shortage ref) now report text =
  readIORef ref >>= \case
    Just (reported, silent) | now - reported < minute -> writeIORef ref (Just (reported, silent + 1))
    before -> do
      writeIORef ref (Just (now, 0))
      report (text <> maybe "" (since . snd) before)
  where
    minute = 60_000_000_000
    since 0 = ""
    since n = " (" <> show n <> " more since the last report)"
