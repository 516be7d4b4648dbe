-- |
-- Observations of a test: values that a service reports, the descriptors of the process, and
-- parts of a text.
module Weft.Test.Observing
  ( recorder,
    openTargets,
    openBelow,
    has,
    lacks,
  )
where

import Control.Exception (IOException, try)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (isPrefixOf)
import System.Directory (getSymbolicLinkTarget, listDirectory)
import Test.Tasty.HUnit

-- | How to record a value, from any thread, and how to read what was recorded, in order.
recorder :: IO (a -> IO (), IO [a])
recorder = do
  ref <- newIORef []
  pure (\a -> atomicModifyIORef' ref (\as -> (a : as, ())), reverse <$> readIORef ref)

-- | The descriptors that this process has open, and what each is.
openTargets :: IO [(String, FilePath)]
openTargets = do
  names <- listDirectory "/proc/self/fd"
  -- The descriptor that lists them is closed by now.
  targets <- mapM (try . getSymbolicLinkTarget . ("/proc/self/fd/" <>)) names
  pure [(name, target) | (name, Right target) <- zip names (targets :: [Either IOException FilePath])]

-- | The paths with this prefix that the process has open.
openBelow :: FilePath -> IO [FilePath]
openBelow path = filter (path `isPrefixOf`) . map snd <$> openTargets

-- | The second contains the first.
has :: (HasCallStack) => ByteString -> ByteString -> Assertion
has part whole = assertBool (show part <> " is not in " <> show whole) (part `B.isInfixOf` whole)

-- | The second does not contain the first.
lacks :: (HasCallStack) => ByteString -> ByteString -> Assertion
lacks part whole = assertBool (show part <> " is in " <> show whole) (not (part `B.isInfixOf` whole))
