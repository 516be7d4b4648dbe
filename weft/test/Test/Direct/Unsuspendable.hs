-- |
-- Description : Where a direct thread cannot suspend, and how it is told
--
-- On another stack than its own, and while an asynchronous exception of GHC is pending
-- for its worker.
module Test.Direct.Unsuspendable (unsuspendable, message, pending) where

import Control.Concurrent (forkIO)
import Control.Concurrent qualified as Concurrent
import Control.Exception
import Control.Monad
import Control.Monad.STM (atomically)
import Data.IORef
import Data.List (intercalate, isInfixOf, isPrefixOf, partition)
import Foreign.Ptr (FunPtr, freeHaskellFunPtr)
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus, unsafeIOToSTM)
import System.IO.Unsafe (unsafePerformIO)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft qualified
import Weft.IO hiding (atomically)

unsuspendable, pending :: TestTree
unsuspendable = testGroup "where it cannot suspend it says so, at that call" (map cannot places)
pending =
  testGroup
    "an asynchronous exception of GHC is pending for the worker (GHC's test T27651)"
    [ testCase "masked: raised at the await" (pendingAt mask_ "boom at the await"),
      testCase "masked uninterruptibly: the await fails, the exception comes after the mask" (pendingAt uninterruptibleMask_ (show ExceptionPending <> ", boom after the mask")),
      testCase "a continuation captured unmasked inside a mask goes on while another is masked" pendingElsewhere
    ]

foreign import ccall "wrapper" wrapCallback :: IO () -> IO (FunPtr (IO ()))

foreign import ccall safe "dynamic" callBack :: FunPtr (IO ()) -> IO ()

-- | Each runs its argument in a place where a thread cannot suspend, and answers what
-- it raised there.
places :: [(String, IO () -> IO (Either SomeException ()))]
places =
  [ ("unsafePerformIO", try . evaluate . hidden),
    ( "a value that is evaluated lazily",
      \act -> do
        ref <- newIORef (hidden act)
        value <- readIORef ref
        try (evaluate value)
    ),
    ("atomically", try . atomically . unsafeIOToSTM),
    ("a foreign callback", elsewhere (\act -> bracket (wrapCallback act) freeHaskellFunPtr callBack)),
    ("forkIO", elsewhere (void . forkIO)),
    ("a blocking action", try . blocking),
    ("an effect of the monadic style", await . suspending)
  ]
  where
    hidden act = unsafePerformIO act
    {-# NOINLINE hidden #-}
    -- On another stack: what was raised there comes back through a variable.
    elsewhere :: (IO () -> IO ()) -> IO () -> IO (Either SomeException ())
    elsewhere how act = do
      box <- Concurrent.newEmptyMVar
      how (try act >>= Concurrent.putMVar box)
      Concurrent.takeMVar box
    -- On a worker, but in an effect of the monadic style.
    suspending act = Weft.liftIO (try act)

cannot :: (String, IO () -> IO (Either SomeException ())) -> TestTree
cannot (name, place) = testGroup name [testCase what (check operation) | (what, operation) <- ways]
  where
    ways = [("yield", yield), ("await", await (Weft.liftIO (pure ()))), ("masked", mask_ yield), ("masked uninterruptibly", uninterruptibleMask_ (await Weft.yield))]
    check operation = do
      -- The thread goes on afterwards, suspends again, and the order of things shows
      -- that the failure came out of that very call.
      said <- newIORef []
      let say x = modifyIORef' said (x :)
      r <- runningQuietly . direct $ do
        yield
        r <- place (say "before" >> operation >> say "after")
        say "handled"
        yield
        state <- getMaskingState
        state @?= Unmasked
        pure r
      either (\e -> fromException e @?= Just NothingToSuspend) (\_ -> assertFailure "it suspended") r
      readIORef said >>= (@?= ["before", "handled"]) . reverse

message :: Assertion
message = do
  r <- try yield
  case r of
    Left e -> forM_ ["direct", "unsafePerformIO", "atomically", "callback", "forkIO"] $ \word ->
      assertBool word (word `isInfixOf` displayException (e :: CannotSuspend))
    Right () -> assertFailure "it suspended"

data Boom = Boom
  deriving stock (Show)

instance Exception Boom

-- | Have another GHC thread throw at the worker, which is masked, and wait until it
-- is waiting to be heard.
provoke :: IO ()
provoke = do
  worker <- Concurrent.myThreadId
  thrower <- forkIO (Concurrent.throwTo worker Boom)
  let wait =
        threadStatus thrower >>= \case
          ThreadBlocked BlockedOnException -> pure ()
          _ -> Concurrent.yield >> wait
  -- The other capability has sent its message; this one's scheduler is to read it.
  wait >> Concurrent.yield

pendingAt :: (forall a. IO a -> IO a) -> String -> Assertion
pendingAt masking allowed = replicateM_ 50 $ do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  n <- runningQuietly . direct $ do
    handle (\Boom -> say "boom after the mask") . masking $ do
      provoke
      handle (\Boom -> say "boom at the await") $
        handle (\e -> say (show (e :: CannotSuspend))) $
          await Weft.yield
    -- The worker is none the worse.
    replicateM_ 3 yield
    pure (3 :: Int)
  n @?= 3
  readIORef said >>= (@?= allowed) . intercalate ", " . reverse

pendingElsewhere :: Assertion
pendingElsewhere = replicateM_ 50 $ do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  runningQuietly . direct $ do
    -- Suspended unmasked, inside a mask: to go on unmasks.
    fork_ $ mask $ \restore -> do
      restore (await (replicateM_ 2 Weft.yield))
      say "first: went on"
    yield
    handle (\Boom -> say "second: boom") . uninterruptibleMask_ $ do
      provoke
      say "second: masked"
    replicateM_ 5 yield
  -- The first may go on while the second has lost its worker, on a machine that is busy.
  (first, second) <- partition (isPrefixOf "first") . reverse <$> readIORef said
  (first, second) @?= (["first: went on"], ["second: masked", "second: boom"])
