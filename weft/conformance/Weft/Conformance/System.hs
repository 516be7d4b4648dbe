{-# LANGUAGE GADTs #-}

-- |
-- Description : Blocking actions, randomness, and calls that the kernel does not know
module Weft.Conformance.System (system) where

import Control.Exception qualified as Exception
import Control.Monad (forM, replicateM_)
import Data.ByteString qualified as ByteString
import Data.List (nub)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Kernel (request)
import Weft.Mask (mask_, uninterruptibleMask_)

-- | The rest of the system calls.
system :: World -> TestTree
system world =
  testGroup
    "system"
    [ conforms world "blocking actions answer and raise, each to its own thread" (blockingActions world),
      conforms world "what a blocking action answers is not evaluated" lazily,
      conforms world "a blocking action is masked as its thread is" masking,
      conforms world "randomness" randomness,
      conforms world "the number of workers" (workerCount ===> worldWorkers world),
      conforms world "a call that the kernel does not know is an error that names it" (failsNaming "MakeTea" (request MakeTea)),
      testCase "an exception of the main thread is the run's" $ do
        r <- Exception.try (worldRun world deaf (yield >> throwM (Exception.ErrorCall "main") :: Thread ()))
        r @?= Left (Exception.ErrorCall "main")
    ]

blockingActions :: World -> Thread ()
blockingActions world = do
  -- More than a pool has threads.
  waits <- forM [1 .. 40 :: Int] $ \i ->
    spawnOn (Just (i `mod` worldWorkers world)) . try . blocking $
      if even i then pure i else Exception.throwIO (userError (show i))
  results <- sequence waits
  map (either (\e -> show (e :: IOError)) show) results `is` [if even i then show i else "user error (" <> show i <> ")" | i <- [1 .. 40 :: Int]]
  replicateM_ 10 (blocking (pure ()))

masking :: Thread ()
masking =
  mapM (\masked -> masked (blocking Exception.getMaskingState)) [id, mask_, uninterruptibleMask_]
    ===> [Exception.Unmasked, Exception.MaskedInterruptible, Exception.MaskedUninterruptible]

lazily :: Thread ()
lazily = do
  r <- blocking (pure (Exception.throw (userError "inside") :: Int))
  failsNaming "inside" (liftIO (Exception.evaluate r))

randomness :: Thread ()
randomness = do
  many <- mapM (\_ -> randomBytes 16) [1 .. 100 :: Int]
  holds "they differ" (length (nub many) == 100 && all ((== 16) . ByteString.length) many)
  a <- randomBytes 1000
  b <- randomBytes 1000
  holds "differs" (a /= b && ByteString.length a == 1000)
  (ByteString.length <$> randomBytes 0) ===> 0
  (ByteString.length <$> randomBytes (-1)) ===> 0
  (ByteString.length <$> randomBytes 100_000) ===> 100_000

-- | An application's own call, for which no kernel was extended.
data Kitchen a where
  MakeTea :: Kitchen ()

deriving stock instance Show (Kitchen a)
