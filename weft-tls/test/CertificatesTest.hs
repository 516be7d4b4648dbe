-- | Loading certificates, and what is said when that fails.
module CertificatesTest (tests) where

import Control.Exception (displayException)
import Data.ByteString.Char8 qualified as C
import Data.Either (isRight)
import Data.Hourglass (Date (..), DateTime (..), Month (..), TimeOfDay (..))
import Data.List (isInfixOf)
import System.Exit (ExitCode (..))
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Tls
import Weft.Tls.Internal.Certificates (matches, validity)
import World

tests :: World -> TestTree
tests w =
  testGroup
    "certificates"
    [ testCase "what is wrong with a file is said, with its name" $ do
        C.writeFile (at "text.pem") "hello\n"
        C.writeFile (at "cut.pem") "-----BEGIN CERTIFICATE-----\nMIIB\n"
        C.writeFile (at "nonsense.pem") "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
        fails (CertificateFiles (at "none.pem") (at "rsa.key")) ["none.pem", "No such file"]
        fails (CertificateFiles (at "rsa.pem") (at "none.key")) ["none.key", "No such file"]
        fails (CertificateFiles (directory w) (at "rsa.key")) [directory w]
        fails (CertificateFiles (at "text.pem") (at "rsa.key")) ["text.pem", "not PEM"]
        fails (CertificateFiles (at "cut.pem") (at "rsa.key")) ["cut.pem", "not PEM"]
        fails (CertificateFiles (at "nonsense.pem") (at "rsa.key")) ["nonsense.pem", "cannot be parsed"]
        fails (CertificateFiles (at "rsa.key") (at "rsa.key")) ["rsa.key", "no certificate", "PRIVATE KEY"]
        fails (CertificateFiles (at "rsa.pem") (at "rsa.pem")) ["rsa.pem", "no private key", "CERTIFICATE"]
        fails (files w "locked") ["locked.key", "passphrase"]
        fails (CertificateFiles (at "rsa.pem") (at "ecdsa.key")) ["ecdsa.key", "does not belong", "rsa.pem"]
        fails (CertificateFiles (at "ecdsa.pem") (at "other.key")) ["other.key", "does not belong", "ecdsa.pem"]
        run (try (loadTls defaultTlsSettings)) >>= either (\e -> assertBool (displayException e) ("no certificate" `isInfixOf` displayException (e :: LoadError))) (\_ -> assertFailure "loaded"),
      testCase "names are matched, with one star at the front" $ do
        map (`matches` "*.wild.test") ["a.wild.test", "wild.test", "a.b.wild.test", ".wild.test"] @?= [True, False, False, False]
        map (`matches` "other.test") ["other.test", "another.test"] @?= [True, False],
      testCase "an operator is told of certificates that have expired, or soon will" $ do
        let day d = DateTime (Date 2030 March d) (TimeOfDay 0 0 0 0)
        validity (day 10) (day 1) (day 30) @?= []
        validity (day 20) (day 1) (day 30) @?= ["expires soon, on 2030-03-30T00:00:00Z"]
        validity (day 31) (day 1) (day 30) @?= ["has expired, on 2030-03-30T00:00:00Z"]
        validity (day 1) (day 2) (day 30) @?= ["is not valid yet, but from 2030-03-02T00:00:00Z"],
      testCase "each client gets the certificate for the name it asks for" $
        serving (settingsOf w ["ecdsa", "other", "rsa"]) id $ \served -> do
          let subject name = do
                (_, out, _) <- program "openssl" (["s_client", "-connect", "127.0.0.1:" <> servedPort served] <> name)
                -- OpenSSL 3.2 and later leave the blanks out.
                pure [filter (/= ' ') line | line <- lines out, "subject=" `isInfixOf` line]
          subject ["-servername", "other.test"] >>= is ["subject=CN=other.test"]
          subject ["-servername", "Any.Wild.Test"] >>= is ["subject=CN=other.test"]
          subject ["-servername", "localhost"] >>= is ["subject=CN=localhost"]
          subject ["-servername", "unknown.test"] >>= is ["subject=CN=localhost"]
          subject ["-noservername"] >>= is ["subject=CN=localhost"]
          -- Of two for a name, the one with a key that the client understands.
          (status, out, _) <-
            program "openssl" ["s_client", "-connect", "127.0.0.1:" <> servedPort served, "-servername", "localhost", "-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"]
          status `is` ExitSuccess
          liftIO (assertBool out ("Cipher is ECDHE-RSA-AES128-GCM-SHA256" `isInfixOf` out)),
      testCase "what is loaded again counts for new handshakes; what is broken does not" $ do
        copy "ecdsa" "live"
        serving (settingsOf w ["live"]) id $ \served -> do
          trusting <- clientTls (AuthoritiesFrom (at "ca.pem")) Nothing
          stranger <- clientTls (AuthoritiesFrom (at "stranger.pem")) Nothing
          let works tls = do
                outcome <- try (withConnection served tls (\t -> exchange t [ask "/"]))
                pure (isRight (outcome :: Either TlsFailure C.ByteString))
          mapM works [trusting, stranger] >>= is [True, False]
          withConnection served trusting $ \open -> do
            liftIO (copy "stranger" "live")
            reloadTls (servedTls served) >>= is (Right ())
            mapM works [trusting, stranger] >>= is [False, True]
            liftIO (C.writeFile (at "live.key") "nothing\n")
            reloaded <- reloadTls (servedTls served)
            liftIO (either (\(LoadError path _) -> path @?= at "live.key") (\_ -> assertFailure "loaded") reloaded)
            mapM works [trusting, stranger] >>= is [False, True]
            answer <- exchange open [ask "/"]
            liftIO (assertBool (show answer) ("HTTP/1.1 200" `C.isPrefixOf` answer))
    ]
  where
    at name = directory w <> "/" <> name
    copy from to = mapM_ (\end -> C.readFile (at (from <> end)) >>= C.writeFile (at (to <> end))) [".pem", ".key"]
    is expected actual = liftIO (actual @?= expected)
    fails these wanted =
      run (try (loadTls defaultTlsSettings {tlsCertificates = [these]})) >>= \case
        Left e -> mapM_ (\part -> assertBool (show e) (part `isInfixOf` show (e :: LoadError))) wanted
        Right _ -> assertFailure ("loaded: " <> show these)
