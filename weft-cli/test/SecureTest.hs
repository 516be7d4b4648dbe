-- | HTTPS by the program itself, with @curl@ as the client and certificates of @openssl@.
module SecureTest (tests) where

import Control.Monad
import Data.List (isInfixOf, isPrefixOf)
import Harness
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.IO (hGetLine)
import System.Posix.Signals (sigHUP, sigTERM)
import System.Process
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Waiting (within)

tests :: TestTree
tests =
  testGroup
    "HTTPS"
    [ testCase "on each event source" (forM_ backends secure),
      testCase "SIGHUP loads the certificates again" reloaded,
      testCase "several certificates, behind a proxy" several,
      testCase "what is wrong with certificates" wrongly,
      testCase "weft load by https, which verifies the server" loaded
    ]

-- | Make a certificate for a name that is issued by itself: @NAME.pem@ and @NAME.key@, as
-- a file of this name.
certificate :: FilePath -> String -> String -> IO ()
certificate directory file name =
  callProcess
    "sh"
    [ "-c",
      "exec openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN="
        <> name
        <> " -addext subjectAltName=DNS:"
        <> name
        <> " -keyout "
        <> (directory </> file)
        <> ".key -out "
        <> (directory </> file)
        <> ".pem 2>/dev/null"
    ]

-- | The site, and a directory for certificates beside it.
withPlace :: (FilePath -> FilePath -> IO a) -> IO a
withPlace use = withSite $ \site -> use site (site </> "..")

-- | Ask for a file by a name, trusting a certificate: status of curl, content.
ask :: Server -> FilePath -> String -> [String] -> IO (ExitCode, String)
ask server trusted name more = do
  let port = show (serverPort server)
  (code, out, _) <-
    within "curl" $
      readProcessWithExitCode "curl" (["-sS", "--cacert", trusted, "--resolve", name <> ":" <> port <> ":127.0.0.1"] <> more <> ["https://" <> name <> ":" <> port <> "/hello.txt"]) ""
  pure (code, out)

secure :: String -> Assertion
secure backend = withPlace $ \site place -> do
  certificate place "a" "a.test"
  withServerIn [] [] site ["--backend", backend, "--tls-cert", place </> "a.pem", "--tls-key", place </> "a.key"] $ \server -> do
    ask server (place </> "a.pem") "a.test" [] >>= (@?= (ExitSuccess, "0123456789abcdef"))
    -- For another name it is not good, and says so.
    (code, _) <- ask server (place </> "a.pem") "b.test" []
    assertBool (show code) (code /= ExitSuccess)
    -- HTTP on this port is told where it is.
    reply <- get server "/hello.txt"
    replyStatus reply @?= 400
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
    -- One line, of the first handshake that failed.
    told <- lines <$> serverErrors server
    case told of
      [line] -> assertBool line ("weft: handshake with " `isPrefixOf` line && " failed: TLS: " `isInfixOf` line)
      _ -> assertFailure (show told)

loaded :: Assertion
loaded = withPlace $ \site place -> do
  certificate place "here" "localhost"
  withServerIn [] [] site ["--tls-cert", place </> "here.pem", "--tls-key", place </> "here.key"] $ \server -> do
    let load options host = runWeft [] (["load", "-n", "20", "-c", "2", "--idle", "1"] <> options <> ["https://" <> host <> ":" <> show (serverPort server) <> "/hello.txt"])
    forM_ [(["--ca", place </> "here.pem"], "localhost"), (["--insecure"], "127.0.0.1")] $ \(options, host) -> do
      (code, out, err) <- load options host
      (code, err) @?= (ExitSuccess, "")
      assertBool out ("requests    20 in " `isInfixOf` out)
    (code, _, err) <- load ["--ca", place </> "here.pem"] "127.0.0.1"
    code @?= ExitFailure 1
    assertBool err ("it is not for 127.0.0.1" `isInfixOf` err)
    (unknown, _, why) <- load ["--ca", place </> "nothing.pem"] "localhost"
    unknown @?= ExitFailure 1
    assertBool why ("nothing.pem" `isInfixOf` why)

reloaded :: Assertion
reloaded = withPlace $ \site place -> do
  certificate place "served" "a.test"
  certificate place "other" "a.test"
  withServerIn [] [] site ["--tls-cert", place </> "served.pem", "--tls-key", place </> "served.key"] $ \server -> do
    ask server (place </> "served.pem") "a.test" [] >>= (@?= (ExitSuccess, "0123456789abcdef"))
    callProcess "cp" [place </> "served.pem", place </> "kept.pem"]
    -- A file that cannot be loaded changes nothing.
    writeFile (place </> "served.pem") "nothing"
    stopWith sigHUP server
    _ <- hGetLine (serverOutput server)
    said <- serverErrors server
    assertBool said ("stay as they were" `isInfixOf` said && "served.pem" `isInfixOf` said)
    ask server (place </> "kept.pem") "a.test" [] >>= (@?= (ExitSuccess, "0123456789abcdef"))
    callProcess "cp" [place </> "other.pem", place </> "served.pem"]
    callProcess "cp" [place </> "other.key", place </> "served.key"]
    stopWith sigHUP server
    _ <- hGetLine (serverOutput server)
    ask server (place </> "other.pem") "a.test" [] >>= (@?= (ExitSuccess, "0123456789abcdef"))

several :: Assertion
several = withPlace $ \site place -> do
  certificate place "a" "a.test"
  certificate place "b" "b.test"
  let file = place </> "weft.toml"
  writeFile file "[tls]\ncertificate = [\"a.pem\", \"b.pem\"]\nkey = [\"a.key\", \"b.key\"]\n[server]\nproxy-protocol = true\ntrusted-proxies = \"127.0.0.1\"\n[log]\naccess = \"log\"\nformat = \"json\"\n"
  withServerIn [] [] site ["--config", file] $ \server -> do
    -- curl sends a header of its own address before TLS.
    forM_ ["a", "b"] $ \name ->
      ask server (place </> (name <> ".pem")) (name <> ".test") ["--haproxy-protocol"] >>= (@?= (ExitSuccess, "0123456789abcdef"))
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
  logged <- readFile (place </> "log")
  length (filter ("\"tls\":\"TLS1." `isInfixOf`) (lines logged)) @?= 2

wrongly :: Assertion
wrongly = withPlace $ \site place -> do
  certificate place "a" "a.test"
  certificate place "b" "b.test"
  forM_ [("a", "b", "does not belong"), ("none", "a", "cannot be opened")] $ \(cert, key, phrase) -> forM_ [["--check"], ["--port", "0"]] $ \more -> do
    (code, out, err) <- runWeft [] (["serve", site, "--tls-cert", place </> (cert <> ".pem"), "--tls-key", place </> (key <> ".key")] <> more)
    (code, out) @?= (ExitFailure 1, "")
    assertEqual err 1 (length (lines err))
    assertBool err (phrase `isInfixOf` err)
