-- | The command line: what is wrong is one clear line; starting is fast.
module CommandLineTest (tests) where

import Control.Monad
import Data.ByteString qualified as B
import Data.List (isInfixOf)
import GHC.Clock (getMonotonicTimeNSec)
import Harness
import System.Directory (createDirectory)
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.IO (hClose)
import System.Posix.Signals (sigTERM)
import Test.Tasty
import Test.Tasty.HUnit

tests :: TestTree
tests =
  testGroup
    "command line"
    [ testCase "a missing directory" (refused [] ["serve", "/no/such/directory", "--port", "0"] "/no/such/directory"),
      testCase "a file as directory" (withSite (\site -> refused [] ["serve", site </> "hello.txt", "--port", "0"] "hello.txt")),
      testCase "no directory" (refused [] ["serve"] "DIR"),
      testCase "an unknown flag" (refused [] ["serve", ".", "--bogus"] "--bogus"),
      testCase "an unknown command" (refused [] ["bogus"] "bogus"),
      testCase "a port that is no number" (refused [] ["serve", ".", "--port", "99999"] "65535"),
      testCase "a number of bytes that is none" (refused [] ["serve", ".", "--cache-bytes", "-5"] "bytes"),
      testCase "an unknown event source" (refused [] ["serve", ".", "--backend", "bogus"] "bogus"),
      testCase "an unknown schedule" (refused [] ["serve", ".", "--schedule", "bogus"] "bogus"),
      testCase "an unknown event source in WEFT_BACKEND" (withSite (\site -> refused [("WEFT_BACKEND", "bogus")] ["serve", site, "--port", "0"] "bogus")),
      testCase "a host that is none" (withSite (\site -> refused [] ["serve", site, "--host", "256.1.1.1", "--port", "0"] "256.1.1.1")),
      testCase "a device without an address" (withSite (\site -> refused [] ["serve", site, "--tcp", "tun0"] "\"tun0\" is not a device and an address")),
      testCase "a second address that is none" (withSite (\site -> forM_ ["10.9.0.300", "10.9.0/24", "fd09::2/640", "fd09:::2", "fd09::2@fd09::z"] (\two -> refused [] ["serve", site, "--tcp", "tun0,10.9.0.2/24," <> two] " is not "))),
      testCase "a device that cannot be" (withSite (\site -> refused [] ["serve", site, "--check", "--tcp", "no/device,10.9.0.2/24"] "no/device")),
      testCase "a file like an address, with its directory" (withSite (\site -> refused [] ["serve", site, "--check", "--tcp", "no/device,10.9.0.2/24,./a:b"] "no/device")),
      testCase "a successor of nobody" (withSite (\site -> refused [] ["serve", site, "--port", "0", "--handover", "/tmp/path"] "server.tcp is not")),
      testCase "an access log that cannot be opened" (withSite (\site -> refused [] ["serve", site, "--port", "0", "--access-log", "/no/such/log"] "/no/such/log")),
      testCase "a timeline that cannot be written" (withSite (\site -> refused [] ["serve", site, "--port", "0", "--trace", "/no/such/timeline"] "/no/such/timeline")),
      testCase "a directory as timeline" (withSite (\site -> refused [] ["serve", site, "--port", "0", "--trace", site] site)),
      testCase "a port in use" portInUse,
      testCase "--help and --version" helpful,
      testCase "a directory with a name outside ASCII, in the C locale" strangeName,
      testCase "nobody reads what it says" nobodyReads,
      testCase "it starts fast" startsFast
    ]

-- | Not zero, nothing on standard output, one line on standard error that names it.
refused :: [(String, String)] -> [String] -> String -> IO ()
refused variables args named = do
  (code, out, err) <- runWeft variables args
  assertBool (show code) (code /= ExitSuccess)
  out @?= ""
  assertEqual err 1 (length (lines err))
  assertBool err (named `isInfixOf` err)

portInUse :: IO ()
portInUse = forM_ backends $ \backend -> withServer ["--backend", backend] $ \server ->
  refused [] ["serve", serverSite server, "--backend", backend, "--port", show (serverPort server)] (show (serverPort server))

helpful :: IO ()
helpful = do
  (code, out, err) <- runWeft [] ["serve", "--help"]
  (code, err) @?= (ExitSuccess, "")
  forM_ ["--host", "--port", "--workers", "--backend", "--schedule", "--tcp", "--handover", "--cache-bytes", "--max-connections", "--access-log", "--access-log-format", "--metrics", "--tls-cert", "--tls-key", "--proxy-protocol", "--trusted-proxies", "--reuse-port", "--overload", "--shutdown-delay", "--grace", "--trace", "--quiet"] $ \flag ->
    assertBool flag (flag `isInfixOf` out)
  (code', out', _) <- runWeft [] ["--version"]
  code' @?= ExitSuccess
  assertBool out' ("weft " `isInfixOf` out')

strangeName :: IO ()
strangeName = withSite $ \site -> do
  let strange = site </> "d\233ri\8364"
  createDirectory strange
  B.writeFile (strange </> "index.html") "strange\n"
  withServerIn [] [("LC_ALL", "C"), ("LANG", "C")] strange [] $ \server -> do
    reply <- get server "/"
    replyBody reply @?= "strange\n"

-- | A closed pipe as standard output is no reason to end.
nobodyReads :: IO ()
nobodyReads = withServer [] $ \server -> do
  hClose (serverOutput server)
  reply <- get server "/hello.txt"
  replyStatus reply @?= 200
  stopWith sigTERM server
  waitForExit server >>= (@?= ExitSuccess)
  serverErrors server >>= (@?= "")

startsFast :: IO ()
startsFast = withSite $ \site -> do
  times <- replicateM 3 $ do
    before <- getMonotonicTimeNSec
    withServerIn [] [] site [] $ \server -> do
      reply <- get server "/hello.txt"
      replyStatus reply @?= 200
      after' <- getMonotonicTimeNSec
      pure ((after' - before) `div` 1_000_000)
  putStrLn ("  from start to the first response: " <> show times <> " ms")
  assertBool (show times) (minimum times < 5000)
