-- |
-- Description : The costs of waiting for a descriptor
--
-- That an accept waits for a free descriptor is a test of "Weft.Conformance"; here is
-- that it does not spin meanwhile.
module Test.Sockets (tests) where

import Control.Concurrent (threadDelay)
import Control.Exception qualified as Exception
import Control.Monad (forM_, join, replicateM)
import Data.IORef
import Foreign.C.Error (eINVAL, eOPNOTSUPP)
import System.Posix.IO qualified as Posix
import System.Posix.Resource qualified as Posix
import System.Posix.Types (Fd (..))
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "Sockets"
    [ testGroup
        "no descriptor left: accept waits, uses no time, tells once, goes on"
        [testCase (describeConfig c) (starved c) | c <- configurations],
      testCase "a close that would stop its worker for seconds cannot be asked for" . run $
        withSocket (openSocket AF_INET Stream) (\s -> failsWith [eOPNOTSUPP] (setOption s Linger 1)),
      testCase "values that an option cannot have are refused" . run $
        withSocket (openSocket AF_INET Stream) $ \s -> do
          let congestion = SockOpt 6 13
              named = foldr (\c n -> n * 256 + fromEnum c) 0
          setOption s congestion (named "reno")
          getOption s congestion >>= liftIO . (@?= named "reno")
          failsWith [eINVAL] (setOption s congestion (named "reno" + 2 ^ (56 :: Int)))
          failsWith [eINVAL] (setOption s NoDelay (2 ^ (32 :: Int) + 1))
    ]

-- | With every descriptor taken, connections wait in the backlog.
starved :: Config -> Assertion
starved c = do
  told <- newIORef (0 :: Int)
  uncaught <- newIORef []
  used <- openDescriptors
  limits <- Posix.getResourceLimit Posix.ResourceOpenFiles
  let settings = (settingsFor c) {settingReport = \_ -> atomicModifyIORef' told (\n -> (n + 1, ())), settingUncaught = \_ _ e -> modifyIORef' uncaught (show e :)}
      lowered = limits {Posix.softLimit = Posix.ResourceLimit (fromIntegral used + 60)}
  flip Exception.finally (Posix.setResourceLimit Posix.ResourceOpenFiles limits)
    . runWith settings
    . withSocket (listenTcp (Just "127.0.0.1") "0" 16)
    $ \listener -> do
      address <- localAddress listener
      clients <- replicateM 2 (openSocket AF_INET Stream)
      forM_ clients (`connect` address)
      -- Let every worker and the pool have started, with what they need.
      join (beside (blocking (pure ())))
      liftIO (Posix.setResourceLimit Posix.ResourceOpenFiles lowered)
      hoard <- liftIO takeAll
      server <- beside (replicateM 2 (fst <$> accept listener))
      eventually "the operator to be told" ((> 0) <$> readIORef told)
      cpu <- liftIO cpuTime
      blocking (threadDelay 100_000)
      cpu' <- liftIO cpuTime
      liftIO $ do
        assertBool ("it must not spin: " <> show (cpu' - cpu) <> " ns in 100 ms") (cpu' - cpu < 40_000_000)
        readIORef told >>= (@?= 1)
        mapM_ Posix.closeFd hoard
      accepted <- server
      mapM_ closeSocket (clients <> accepted)
  readIORef uncaught >>= (@?= [])
  where
    beside = spawnOn (Just (configWorkers c - 1))
    takeAll = do
      r <- Exception.try (Posix.dup (Fd 0))
      case r of
        Left (_ :: IOError) -> pure []
        Right fd -> (fd :) <$> takeAll
