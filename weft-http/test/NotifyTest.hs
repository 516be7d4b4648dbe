-- | Messages to the service manager, and how it is found.
module NotifyTest (tests) where

import Control.Monad (forM_, replicateM)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft)
import Data.IORef
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Env.ByteString (getEnv, setEnv)
import System.Posix.Process (getProcessID)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Notify
import Weft.Socket
import Weft.Time (instantNanoseconds, microseconds, now)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "service manager"
      [ testCase "messages, through a path" (withSystemTempDirectory "weft-notify" (\dir -> messages (dir </> "notify") (C.pack (dir </> "notify")))),
        testCase "messages, through an abstract name" $ do
          me <- getProcessID
          let name = "weft-notify-" <> show me
          messages ('\0' : name) (C.pack ('@' : name)),
        testCase "without a manager nothing is sent" quiet,
        testCase "a manager that is gone: the operator is told once" gone,
        testCase "the watchdog is fed as long as all is well" watchdog,
        testCase "addresses" $ do
          parseNotifySocket "/run/n" @?= Right (SockAddrUnix "/run/n")
          parseNotifySocket "@n/x" @?= Right (SockAddrUnix "\0n/x")
          parseNotifySocket ("/" <> C.replicate 106 'x') @?= Right (SockAddrUnix ('/' : replicate 106 'x'))
          forM_ ["", "/", "@", "run/n", "vsock:2:1", "/" <> C.replicate 107 'x'] $ \a -> assertBool (show a) (isLeft (parseNotifySocket a)),
        testCase "watchdog intervals" $ do
          parseWatchdog 7 Nothing Nothing @?= Right Nothing
          parseWatchdog 7 (Just "30000000") Nothing @?= Right (Just (seconds 30))
          parseWatchdog 7 (Just "1") (Just "7") @?= Right (Just (microseconds 1))
          parseWatchdog 7 (Just "1") (Just "8") @?= Right Nothing
          forM_ ["", "0", "-1", "1s", "99999999999999999999999"] $ \t -> assertBool (show t) (isLeft (parseWatchdog 7 (Just t) Nothing))
          assertBool "" (isLeft (parseWatchdog 7 (Just "1") (Just "x")))
      ]

-- | A manager at this path that hears what the body lets be said.
managed :: String -> (IO () -> Thread ByteString -> Thread a) -> IO a
managed path body = run . withSocket (openSocket AF_UNIX Datagram) $ \manager -> do
  bind manager (SockAddrUnix path)
  body (setEnv "NOTIFY_SOCKET" (C.pack path) True) (fst <$> receiveFrom manager 4096)

messages :: String -> ByteString -> IO ()
messages path variable = managed path $ \_ hear -> do
  liftIO (setEnv "NOTIFY_SOCKET" variable True)
  notifier <- openNotifier (assertFailure . ("told: " <>))
  left <- liftIO (getEnv "NOTIFY_SOCKET")
  liftIO (left @?= Nothing)
  let says act expected = act notifier >> hear >>= liftIO . (@?= expected)
  says notifyReady "READY=1"
  says (`notifyStatus` "serving 3\nconnections") "STATUS=serving 3 connections"
  says notifyStopping "STOPPING=1"
  before <- now
  notifyReloading notifier
  reloading <- hear
  after' <- now
  case C.lines reloading of
    ["RELOADING=1", usec]
      | Just (n, "") <- C.readInt (C.drop 15 usec),
        "MONOTONIC_USEC=" `C.isPrefixOf` usec -> liftIO $ do
          assertBool "before" (n >= fromIntegral (instantNanoseconds before `div` 1000))
          assertBool "after" (n <= fromIntegral (instantNanoseconds after' `div` 1000))
    _ -> liftIO (assertFailure (show reloading))
  closeNotifier notifier

quiet :: IO ()
quiet = run $ do
  notifier <- openNotifier (assertFailure . ("told: " <>))
  notifyReady notifier
  watchOver notifier (liftIO (assertFailure "there is no watchdog"))
  yield
  liftIO (watchdogInterval notifier @?= Nothing)
  closeNotifier notifier

gone :: IO ()
gone = withSystemTempDirectory "weft-notify" $ \dir -> do
  told <- newIORef []
  let report text = modifyIORef' told (text :)
      path = C.pack (dir </> "nobody")
  setEnv "NOTIFY_SOCKET" path True
  run $ do
    notifier <- openNotifier report
    notifyReady notifier
    notifyStopping notifier
    closeNotifier notifier
  readIORef told >>= \ts -> length ts @?= 1
  setEnv "NOTIFY_SOCKET" "nonsense" True
  setEnv "WATCHDOG_USEC" "nonsense" True
  run $ do
    notifier <- openNotifier report
    notifyReady notifier
    closeNotifier notifier
  readIORef told >>= \ts -> length ts @?= 3

watchdog :: IO ()
watchdog = withSystemTempDirectory "weft-notify" $ \dir -> do
  me <- getProcessID
  checks <- newIORef (0 :: Int)
  managed (dir </> "notify") $ \set hear -> do
    liftIO $ do
      set
      setEnv "WATCHDOG_USEC" "4000" True
      setEnv "WATCHDOG_PID" (C.pack (show me)) True
    notifier <- openNotifier (assertFailure . ("told: " <>))
    liftIO (watchdogInterval notifier @?= Just (milliseconds 4))
    left <- liftIO (mapM getEnv ["WATCHDOG_USEC", "WATCHDOG_PID"])
    liftIO (left @?= [Nothing, Nothing])
    -- Well five times, and never again.
    watchOver notifier (liftIO (atomicModifyIORef' checks (\n -> (n + 1, n < 5))))
    pings <- replicateM 5 hear
    liftIO (pings @?= replicate 5 "WATCHDOG=1")
    let untilChecked = liftIO (readIORef checks) >>= \n -> if n >= 8 then pure () else sleep (milliseconds 1) >> untilChecked
    untilChecked
    notifyStopping notifier
    next <- hear
    liftIO (next @?= "STOPPING=1")
    closeNotifier notifier
