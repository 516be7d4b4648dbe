-- | The client of weft-http over TLS: with our own server, with @openssl s_server@ and with nginx.
module HttpsTest (tests) where

import Control.Exception (IOException, displayException)
import Control.Monad (forM_, void)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (isDigit)
import Data.IORef
import Data.List (isInfixOf, isPrefixOf)
import Network.Socket (tupleToHostAddress)
import System.Directory (doesFileExist, findExecutable)
import System.IO (Handle, hClose, hGetLine)
import System.Process
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (forConcurrently)
import Weft.Http.Client qualified as Client
import Weft.Http.Server (Observation (..), ServerSettings (..), Timeouts (..), defaultTimeouts)
import Weft.Http.Status
import Weft.Socket
import Weft.Test.Skipping (skipped)
import Weft.Test.Waiting (eventually)
import Weft.Tls
import World

tests :: World -> TestTree
tests w =
  testGroup
    "https"
    [ testCase "a connection is kept for the next request, and closed politely" $ world ["ecdsa"] $ \served -> do
        tls <- trusting
        withHttps tls $ \client -> do
          forM_ [1 .. 5 :: Int] $ \n -> do
            let body = B.replicate (n * 50_000) 0x61
            reply <- Client.url (base served "/sum") >>= \u -> Client.request client (Client.requestTo Client.Post u) {Client.requestBody = Client.Whole body}
            liftIO (C.pack (show (B.length body) <> " ") `B.isPrefixOf` Client.replyContent reply @? show reply)
          Client.openConnections client >>= liftIO . (@?= 1)
          Client.idleConnections client >>= liftIO . (@?= 1)
          page <- Client.get client (base served "/large")
          liftIO (Client.replyContent page == large @? "the content is another")
        opened served >>= liftIO . (@?= 1)
        failures <- liftIO (readIORef (servedFailures served))
        liftIO (failures @?= []),
      testCase "many at a time, on the connections there may be" $ world ["ecdsa"] $ \served -> do
        tls <- trusting
        withHttps tls $ \client -> do
          replies <- forConcurrently [1 .. 100 :: Int] (\_ -> Client.replyStatus <$> Client.get client (base served "/"))
          liftIO (filter (/= ok200) replies @?= [])
          n <- Client.openConnections client
          liftIO (n <= 16 @? show n),
      testCase "a connection that the server closes while it is idle is closed here too" $
        serving (settingsOf w ["ecdsa"]) (\s -> s {serverTimeouts = defaultTimeouts {timeoutIdle = milliseconds 1}}) $ \served -> do
          tls <- trusting
          withHttps tls $ \client -> do
            reply <- Client.get client (base served "/")
            liftIO (Client.replyStatus reply @?= ok200)
            let gone = Client.openConnections client >>= \n -> if n == 0 then pure () else sleep (milliseconds 5) >> gone
            gone,
      testCase "http and https do not share connections" $ world ["ecdsa"] $ \served -> do
        tls <- trusting
        withHttps tls $ \client -> do
          void (Client.get client (base served "/"))
          -- The same host and port: the server says that it was not asked in TLS.
          plainly <- Client.get client ("http" <> B.drop 5 (base served "/"))
          liftIO (Client.replyStatus plainly @?= badRequest400)
        opened served >>= liftIO . (@?= 2),
      testGroup
        "servers that are not who they should be are refused"
        [ testCase what $ world [certificate] $ \served -> do
            tls <- trusting
            withHttps tls $ \client -> refusedFor reason (Client.get client (C.pack ("https://" <> host <> ":" <> servedPort served <> "/")))
          | (what, certificate, host, reason) <-
              [ ("another host", "other", "localhost", "not for localhost"),
                ("expired", "expired", "localhost", "expired"),
                ("signed by itself", "stranger", "localhost", "signed by itself")
              ]
        ],
      testCase "without a way to secure connections https fails, and says so" . run . Client.withClient Client.defaultClientSettings $ \client ->
        refusedFor "clientSecure" (Client.get client "https://127.0.0.1:1/"),
      testCase "openssl s_server" . run $ do
        let arguments = ["s_server", "-WWW", "-accept", "127.0.0.1:0", "-cert", at "ecdsa.pem", "-key", at "ecdsa.key"]
        withProgram (proc "openssl" arguments) {cwd = Just (directory w)} $ \output -> do
          port <- blocking (portIn output)
          let from path = C.pack ("https://localhost:" <> port <> path)
          tls <- trusting
          withHttps tls $ \client -> do
            -- Up to the end of the connection, which is announced.
            reply <- Client.get client (from "/large.bin")
            liftIO (Client.replyContent reply == large @? show (B.length (Client.replyContent reply)))
          strangers <- clientTls (AuthoritiesFrom (at "stranger.pem")) Nothing
          withHttps strangers $ \client -> refusedFor "authority is not known" (Client.get client (from "/large.bin")),
      testCase "nginx" $
        findExecutable "nginx" >>= maybe (findInSbin >>= maybe (skipped "there is no nginx") nginx) nginx
    ]
  where
    world names = serving (settingsOf w names) id
    at name = directory w <> "/" <> name
    trusting = clientTls (AuthoritiesFrom (at "ca.pem")) Nothing
    findInSbin = (\there -> if there then Just "/usr/sbin/nginx" else Nothing) <$> doesFileExist "/usr/sbin/nginx"
    nginx path = forM_ ["TLSv1.2", "TLSv1.3"] $ \version -> run $ do
      port <- freePort
      liftIO (writeFile (at "nginx.conf") (configuration port version))
      withProgram (proc path ["-p", directory w, "-e", at "nginx.log", "-c", at "nginx.conf"]) $ \_ -> do
        eventually "nginx listens" $ run (either (\(_ :: IOException) -> False) (const True) <$> try (connectTcp (seconds 5) "127.0.0.1" port >>= closeSocket))
        let from path' = C.pack ("https://localhost:" <> port <> path')
        tls <- trusting
        withHttps tls $ \client -> do
          forM_ [1 .. 5 :: Int] $ \_ -> do
            reply <- Client.get client (from "/large.bin")
            liftIO (Client.replyContent reply == large @? show (Client.replyStatus reply))
          Client.openConnections client >>= liftIO . (@?= 1)
          -- One connection: nginx says how many requests it has served.
          number <- Client.replyContent <$> Client.get client (from "/number")
          liftIO (number @?= "6")
          refusedFor "not for 127.0.0.2" (Client.get client (C.pack ("https://127.0.0.2:" <> port <> "/")))
        strangers <- clientTls (AuthoritiesFrom (at "stranger.pem")) Nothing
        withHttps strangers $ \client -> refusedFor "authority is not known" (Client.get client (from "/"))
    configuration port version =
      unlines
        [ "daemon off; master_process off; pid nginx.pid; error_log nginx.log;",
          "events {}",
          "http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;",
          "server { listen 127.0.0.1:" <> port <> " ssl; listen 127.0.0.2:" <> port <> " ssl;",
          "ssl_certificate rsa.pem; ssl_certificate_key rsa.key; ssl_protocols " <> version <> "; root " <> directory w <> ";",
          "location = /number { return 200 $connection_requests; } } }"
        ]

withHttps :: ClientTlsSettings -> (Client.Client -> Thread a) -> Thread a
withHttps tls = Client.withClient Client.defaultClientSettings {Client.clientSecure = Just (secureWith tls)}

base :: Served -> B.ByteString -> B.ByteString
base served path = C.pack ("https://localhost:" <> servedPort served) <> path

-- | How many connections there were so far.
opened :: Served -> Thread Int
opened served = length . filter isOpened <$> liftIO (readIORef (servedObserved served))
  where
    isOpened = \case
      ConnectionOpened -> True
      _ -> False

-- | No connection comes about, and that is why.
refusedFor :: String -> Thread a -> Thread ()
refusedFor reason action =
  try (void action) >>= \case
    Left e@(Client.ConnectFailed _ _) -> liftIO (assertBool (displayException e) (reason `isInfixOf` displayException e))
    Left e -> throwM e
    Right () -> liftIO (assertFailure "it was not refused")

-- | A program that runs meanwhile, and its first lines.
withProgram :: CreateProcess -> (Handle -> Thread a) -> Thread a
withProgram what use =
  bracket
    (liftIO (createProcess what {std_in = CreatePipe, std_out = CreatePipe, std_err = NoStream}))
    (\(input, output, _, process) -> liftIO (mapM_ hClose input >> mapM_ hClose output >> terminateProcess process >> void (waitForProcess process)))
    (\(_, output, _, _) -> maybe (liftIO (assertFailure "no output")) use output)

-- | Where @openssl s_server@ says that it listens.
portIn :: Handle -> IO String
portIn output = do
  said <- hGetLine output
  if "ACCEPT " `isPrefixOf` said then pure (takeWhileEnd isDigit said) else portIn output
  where
    takeWhileEnd p = reverse . takeWhile p . reverse

-- | A port that is free now.
freePort :: Thread String
freePort = withSocket (openSocket AF_INET Stream) $ \socket -> do
  bind socket (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  localAddress socket >>= \case
    SockAddrInet port _ -> pure (show port)
    other -> liftIO (assertFailure (show other))
