-- | The common ground of the tests: keys and certificates, made with @openssl@ for each run of the
-- tests; a server with a few handlers; programs as clients.
module World
  ( -- * Certificates
    World (..),
    withWorld,
    files,

    -- * Servers
    Port,
    Served (..),
    serving,
    servingOn,
    settingsOf,
    backends,
    handler,
    large,

    -- * Threads as clients
    withConnection,
    exchange,
    transportToEnd,
    ask,

    -- * Programs
    program,
    programWithInput,
    commanding,
  )
where

import Control.Monad (unless, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as C
import Data.IORef
import System.Exit (ExitCode)
import System.IO.Temp (withSystemTempDirectory)
import System.Process (callProcess, proc, readCreateProcessWithExitCode)
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.File (OpenMode (ReadOnly), closeFile, openFile)
import Weft.Http.Server
import Weft.Http.Status
import Weft.Kernel (Kernel)
import Weft.Socket hiding (Raw)
import Weft.Test.Loopback (connected, portOf, untilEmpty)
import Weft.Test.Loopback qualified as Loopback
import Weft.Test.Message qualified as Message
import Weft.Test.Observing (recorder)
import Weft.Test.Waiting (within)
import Weft.Tls

-- | A directory with certificates: @ca@, which has issued @rsa@ and @ecdsa@ (both for
-- @localhost@ and 127.0.0.1), @other@ (for @other.test@ and @*.wild.test@) and @alice@ (of a
-- client); @stranger@, which no authority has issued; @expired@; each a @.pem@ and a @.key@.
newtype World = World {directory :: FilePath}

-- | The files of a certificate.
files :: World -> String -> CertificateFiles
files w name = CertificateFiles (directory w <> "/" <> name <> ".pem") (directory w <> "/" <> name <> ".key")

-- | Make all that.
withWorld :: (World -> IO a) -> IO a
withWorld use = withSystemTempDirectory "weft-tls" $ \dir -> do
  writeFile (dir <> "/make") script
  callProcess "sh" ["-e", "-c", "cd " <> dir <> " && exec 2>make.log && sh -e make"]
  -- Recognisable in every place.
  B.writeFile (dir <> "/large.bin") large
  use (World dir)

large :: ByteString
large = B.concat [C.pack (take 10 (show n <> "..........")) | n <- [0 .. 299_999 :: Int]]

script :: String
script =
  unlines
    [ "ec='-algorithm EC -pkeyopt ec_paramgen_curve:P-256'",
      "openssl genpkey $ec -out ca.key",
      "openssl req -x509 -new -key ca.key -subj '/CN=Test CA' -days 30 -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -out ca.pem",
      "issue() { # name, key algorithm, subject, extensions, days",
      "  openssl genpkey $2 -out $1.key",
      "  openssl req -new -key $1.key -subj \"$3\" -out $1.csr",
      "  printf '%b' \"$4\" >$1.ext",
      "  openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days $5 -extfile $1.ext -out $1.pem",
      "}",
      "here='subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1,IP:fe80::10\\nextendedKeyUsage=serverAuth\\n'",
      "issue ecdsa \"$ec\" /CN=localhost \"$here\" 30",
      "issue rsa '-algorithm RSA -pkeyopt rsa_keygen_bits:2048' /CN=localhost \"$here\" 30",
      "issue other \"$ec\" /CN=other.test 'subjectAltName=DNS:other.test,DNS:*.wild.test\\n' 30",
      "issue alice \"$ec\" /O=Weft/CN=alice 'extendedKeyUsage=clientAuth\\n' 30",
      "issue short \"$ec\" /CN=localhost \"$here\" 1",
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -addext \"subjectAltName=DNS:localhost\" -days 30 -keyout stranger.key -out stranger.pem",
      "openssl req -new -key ecdsa.key -subj /CN=localhost -out expired.csr",
      "printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=issued\\nserial=next\\nnew_certs_dir=.\\ndefault_md=sha256\\npolicy=p\\nx509_extensions=e\\n[p]\\ncommonName=supplied\\n[e]\\nsubjectAltName=DNS:localhost\\n' >issuing",
      ": >issued; echo 01 >next",
      "openssl ca -batch -notext -config issuing -cert ca.pem -keyfile ca.key -in expired.csr -startdate 20200101000000Z -enddate 20200201000000Z -out expired.pem",
      "cp ecdsa.key expired.key",
      "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -aes256 -pass pass:secret -out locked.key",
      "cp rsa.pem locked.pem"
    ]

type Port = String

-- | A server that runs, and what was seen of it.
data Served = Served
  { servedPort :: Port,
    servedAddress :: SockAddr,
    servedTls :: TlsContext,
    servedServer :: Server,
    -- | Of handshakes.
    servedFailures :: IORef [FailedHandshake],
    servedObserved :: IORef [Observation]
  }

settingsOf :: World -> [String] -> TlsSettings
settingsOf w names = defaultTlsSettings {tlsCertificates = map (files w) names, tlsReport = \_ -> pure ()}

-- | The event sources.
backends :: [BackendChoice]
backends = [Epoll, Uring, Poll]

-- | Run a server, and threads as its clients. It must have told the operator nothing, and be
-- empty at the end.
serving :: TlsSettings -> (ServerSettings -> ServerSettings) -> (Served -> Thread a) -> IO a
serving = servingOn (systemKernel defaultSystemSettings)

servingOn :: Kernel -> TlsSettings -> (ServerSettings -> ServerSettings) -> (Served -> Thread a) -> IO a
servingOn kernel tlsSettings change use = do
  failures <- newIORef []
  (report, reports) <- recorder
  observed <- newIORef []
  let add ref x = atomicModifyIORef' ref (\xs -> (x : xs, ()))
  result <- runWith defaultSettings {settingKernel = kernel, settingReport = report} $ do
    tls <- loadTls tlsSettings {tlsOnFailure = Just (\failed -> mapM_ ($ failed) (tlsOnFailure tlsSettings) >> add failures failed)}
    server <-
      newServer
        (change defaultServerSettings {serverLayers = [tlsLayer tls], serverReport = report, serverObserver = Just (add observed), serverGrace = seconds 5})
        (const handler)
    Loopback.serving (serve server) (drain server . pure) $ \address ->
      use (Served (show (portOf address)) address tls server failures observed)
  reports >>= (@?= [])
  pure result

-- | @/@: the client; @/echo@: what is sent; @/large@: some megabytes of memory; @/file?path@: a file;
-- @/stream?count@: the given number of pieces of 1,000 octets; else: how much there was in the body, and the sum
-- of it.
handler :: Handler
handler request = case requestPath request of
  "/" -> pure (plain ok200 [] (C.pack (show (clientSecurity (requestClient request)))))
  "/large" -> pure (plain ok200 [] large)
  "/file" -> do
    file <- openFile (B.drop 1 (requestQuery request)) ReadOnly
    pure (Response ok200 [] (FileBody file [FilePart "<" 0 (fromIntegral (B.length large))] ">" (closeFile file)) Nothing)
  "/stream" -> do
    let count = maybe 0 fst (C.readInt (B.drop 1 (requestQuery request)))
    pure (streamed ok200 [] (\sink -> mapM_ (\_ -> sinkWrite sink (byteString thousand)) [1 .. count]))
  "/echo" -> pure (Response ok200 [] (Raw echo) Nothing)
  _ -> do
    (n, s) <- summed 0 0
    pure (plain ok200 [] (C.pack (show n <> " " <> show s)))
  where
    echo duplex = do
      piece <- duplexReceive duplex
      unless (B.null piece) (duplexSend duplex [piece] >> echo duplex)
    thousand = B.replicate 1000 0x78
    summed n s = do
      piece <- receiveBody request
      if B.null piece
        then pure (n :: Int, s :: Int)
        else let s' = B.foldl' (\a b -> (a * 31 + fromIntegral b) `mod` 1_000_003) s piece in s' `seq` summed (n + B.length piece) s'

-- | Connect with TLS as @localhost@.
withConnection :: Served -> ClientTlsSettings -> (Transport -> Thread a) -> Thread a
withConnection served tls use = connected (servedAddress served) (connectTls tls "localhost" >=> use)

-- | Send all, say that it was all, and hear what comes.
exchange :: Transport -> [ByteString] -> Thread ByteString
exchange transport pieces = do
  go pieces
  transportToEnd transport
  where
    go ps = unless (all B.null ps) $ do
      n <- transportSend transport ps
      go (dropped n ps)
    dropped _ [] = []
    dropped n (p : ps) | n >= B.length p = dropped (n - B.length p) ps
    dropped n (p : ps) = B.drop n p : ps

-- | All that comes until the other end has ended its direction.
transportToEnd :: Transport -> Thread ByteString
transportToEnd transport = do
  buffer <- liftIO (newBuffer 40_000)
  untilEmpty (transportReceive transport buffer 0 maxBound >>= liftIO . copyBuffer buffer 0)

ask :: ByteString -> ByteString
ask target = Message.request "GET" target ["Host: localhost", "Connection: close"]

-- | Run a program to its end, within two minutes: status, output and errors.
program :: FilePath -> [String] -> Thread (ExitCode, String, String)
program name arguments = programWithInput name arguments ""

programWithInput :: FilePath -> [String] -> String -> Thread (ExitCode, String, String)
programWithInput name arguments = blocking . within (name <> " to end") . readCreateProcessWithExitCode (proc name arguments)

-- | Have @openssl s_client@ obey a command (a letter) when it is connected, and send a request
-- when it has said this: all it printed.
commanding :: World -> Served -> [String] -> String -> String -> Thread String
commanding w served arguments command said = do
  (_, out, _) <- programWithInput "sh" (["-c", steps, "sh", directory w, servedPort served, command, said] <> arguments) ""
  pure out
  where
    steps =
      unlines
        [ "cd \"$1\"; port=$2 command=$3 said=$4; shift 4",
          "rm -f commands; mkfifo commands; exec 3<>commands",
          ": >printed",
          "timeout 20 openssl s_client -connect 127.0.0.1:$port \"$@\" <commands >printed 2>&1 3>&- &",
          "until grep -q 'Verify return code' printed; do sleep 0.02; done",
          "echo $command >&3",
          "until grep -q \"$said\" printed; do sleep 0.02; done",
          "printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3",
          "wait",
          "cat printed"
        ]
