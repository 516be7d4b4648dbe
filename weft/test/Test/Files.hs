-- |
-- Description : Signals and blocking actions, beside the rest of the process
--
-- Their meaning to threads is in "Weft.Conformance"; here are the handlers
-- that the process had, and the OS threads that run blocking calls.
module Test.Files (tests) where

import Control.Concurrent (isCurrentThreadBound)
import Data.IORef
import System.Posix.Signals (raiseSignal, sigUSR1)
import System.Posix.Signals qualified as Signals
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Signal

tests :: TestTree
tests =
  testGroup
    "Signals and blocking actions"
    [ testGroup
        (describeConfig c)
        [ testCase "a handler from before is back" (running c signals),
          testCase "blocking actions run elsewhere" (running c elsewhere)
        ]
      | c <- configurations
    ]

signals :: Thread ()
signals = do
  calls <- liftIO (newIORef (0 :: Int))
  before <- liftIO (Signals.installHandler sigUSR1 (Signals.Catch (modifyIORef' calls (+ 1))) Nothing)
  flip finally (liftIO (Signals.installHandler sigUSR1 before Nothing)) $ do
    withSignals [sigUSR1] $ \s -> do
      liftIO (raiseSignal sigUSR1)
      nextSignal s >>= \n -> liftIO (n @?= sigUSR1)
    -- The handler from before is back.
    liftIO (raiseSignal sigUSR1)
    eventually "one call" ((== 1) <$> readIORef calls)

elsewhere :: Thread ()
elsewhere = do
  here <- liftIO isCurrentThreadBound
  there <- blocking isCurrentThreadBound
  liftIO ((here, there) @?= (True, False))
