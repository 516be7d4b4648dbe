-- |
-- Description : Signals while an OS thread waits
module Test.Signals (waitsOutSignals) where

import Control.Concurrent (runInBoundThread)
import Control.Exception (bracket_)
import Control.Monad (unless)
import Data.Int (Int64)
import Foreign.C.Types (CInt (..))
import GHC.Clock (getMonotonicTimeNSec)
import Test.Tasty.HUnit (Assertion, assertBool, assertFailure, (@?=))

-- | A wait of the given number of nanoseconds, in which nothing comes, is not ended early by signals. It is tried
-- until three signals have come in one. The wait answers what has happened in it.
waitsOutSignals :: (Int64 -> IO Int) -> Assertion
waitsOutSignals wait = runInBoundThread $ bracket_ (c_begin >>= (@?= 0)) c_end (go (1000 :: Int))
  where
    limit = 5_500_000
    go 0 = assertFailure "no signals come"
    go n = do
      signals <- c_signals
      before <- getMonotonicTimeNSec
      wait limit >>= (@?= 0)
      later <- getMonotonicTimeNSec
      assertBool ("early: " <> show (later - before)) (later - before >= fromIntegral limit)
      came <- subtract signals <$> c_signals
      unless (came >= 3) $ go (n - 1)

foreign import ccall unsafe "weft_test_signals" c_signals :: IO CInt

foreign import ccall unsafe "weft_test_signals_begin" c_begin :: IO CInt

foreign import ccall safe "weft_test_signals_end" c_end :: IO ()
