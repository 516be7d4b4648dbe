-- | TLS for the server of "Weft.Http.Server". Keys are agreed on by X25519, P-256, P-384 or P-521; the
-- library (@tls@ 1.8, 2.1.8) has no ML-KEM.
--
-- @
-- tls <- 'loadTls' 'defaultTlsSettings' {'tlsCertificates' = ['CertificateFiles' \"chain.pem\" \"key.pem\"]}
-- server <- newServer defaultServerSettings {serverLayers = ['tlsLayer' tls]} handler
-- @
module Weft.Tls.Server
  ( -- * Loading
    TlsContext,
    TlsSettings (..),
    defaultTlsSettings,
    CertificateFiles (..),
    ClientCertificates (..),
    TlsVersion (..),
    loadTls,
    reloadTls,
    LoadError (..),

    -- * Serving
    tlsLayer,
    TlsFailure (..),
    FailedHandshake (..),
  )
where

import Control.Exception (IOException, SomeAsyncException, SomeException, fromException)
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Data.X509 qualified as X509
import Data.X509.CertificateStore (CertificateStore, makeCertificateStore)
import Network.TLS
import Weft
import Weft.Buffer
import Weft.Http.Request (ClientInfo (..))
import Weft.Http.Server (Layer, Transport (..))
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Time (durationNanoseconds)
import Weft.Timeout (timeout)
import Weft.Tls.Internal.Certificates
import Weft.Tls.Internal.Failure
import Weft.Tls.Internal.Handshake
import Weft.Tls.Internal.Library
import Weft.Tls.Internal.Records
import Weft.Tls.Internal.Stream

-- | The settings of a TLS server.
data TlsSettings = TlsSettings
  { -- | The client's server name (SNI) selects a certificate, of several one whose kind of key the
    -- client supports. The first is the default. Default: none, which 'loadTls' refuses.
    tlsCertificates :: [CertificateFiles],
    -- | The oldest version to accept; default 'Tls12'.
    tlsOldest :: !TlsVersion,
    -- | Protocols for ALPN, preferred first; default @http/1.1@. Empty: none. Others alone are refused.
    tlsProtocols :: [ByteString],
    -- | Whether to ask clients for certificates; default 'NoClientCertificates'.
    tlsClients :: !ClientCertificates,
    -- | Sessions to remember; default 10,000, some 2 KB each. 0: none, as with client certificates.
    tlsSessions :: !Int,
    -- | How long to remember a session; default two hours, at most seven days.
    tlsSessionLifetime :: !Duration,
    -- | Reports a line to the operator: an expired certificate, or a failed handshake, at most every
    -- ten seconds. Default: standard error.
    tlsReport :: !(String -> IO ()),
    -- | Called for each failed handshake, for metrics ("Weft.Tls.Metrics"). Default: none. Must not block.
    tlsOnFailure :: !(Maybe (FailedHandshake -> IO ()))
  }

-- | The clients that must show a certificate.
data ClientCertificates
  = -- | No client is asked.
    NoClientCertificates
  | -- | A client may show one, issued by an authority in this file (PEM). 'loadTls' refuses it with
    -- @tls@ 2.1, whose server refuses clients that have none.
    OptionalFrom !FilePath
  | -- | A client must show one, issued by an authority in this file (PEM).
    RequiredFrom !FilePath
  deriving stock (Eq, Show)

-- | The defaults named at each field.
defaultTlsSettings :: TlsSettings
defaultTlsSettings =
  TlsSettings
    { tlsCertificates = [],
      tlsOldest = Tls12,
      tlsProtocols = ["http/1.1"],
      tlsClients = NoClientCertificates,
      tlsSessions = 10_000,
      tlsSessionLifetime = seconds (2 * 60 * 60),
      tlsReport = reportToStderr,
      tlsOnFailure = Nothing
    }

-- | The loaded settings of a server. Belongs to one run.
data TlsContext = TlsContext
  { settings :: !TlsSettings,
    gate :: !Gate,
    failures :: !FailureLog,
    current :: !(IORef Generation)
  }

-- | The files loaded at one time.
data Generation = Generation
  { parameters :: !ServerParams,
    certificates :: [Loaded],
    authorities :: !(Maybe CertificateStore)
  }

-- | Load the certificates and keys. Throws 'LoadError'. Reports, but uses, expired certificates.
loadTls :: TlsSettings -> Thread TlsContext
loadTls s = do
  generation <- load s
  TlsContext s <$> newGate <*> liftIO (newFailureLog (tlsReport s)) <*> liftIO (newIORef generation)

-- | Load the files again for new handshakes, unless there is an error. Older sessions are not resumed.
reloadTls :: TlsContext -> Thread (Either LoadError ())
reloadTls context =
  try (load (settings context)) >>= traverse (liftIO . writeIORef (current context))

load :: TlsSettings -> Thread Generation
load s = do
  when (null (tlsCertificates s)) $ throwM (LoadError "TLS" "no certificate is named in the settings")
  loaded <- mapM loadCertificate (tlsCertificates s)
  issuers <- case tlsClients s of
    NoClientCertificates -> pure []
    OptionalFrom path
      | optionalCertificates -> readCertificates path
      | otherwise -> throwM (LoadError path "the library tls of this version refuses clients without a certificate: require one, or ask for none")
    RequiredFrom path -> readCertificates path
  sessions <- liftIO (newSessions (if null issuers then tlsSessions s else 0) lifetime)
  liftIO (mapM_ (tlsReport s) (concatMap loadedWarnings loaded))
  pure
    Generation
      { parameters =
          serverDefaults
            { serverWantClientCert = not (null issuers),
              serverCACertificates = issuers,
              serverShared = (serverShared serverDefaults) {sharedSessionManager = sessions},
              serverSupported = supportedFrom (tlsOldest s),
              serverEarlyDataSize = 0,
              serverTicketLifetime = lifetime
            },
        certificates = loaded,
        authorities = if null issuers then Nothing else Just (makeCertificateStore issuers)
      }
  where
    lifetime = fromIntegral (max 0 (min (7 * 24 * 60 * 60) (durationNanoseconds (tlsSessionLifetime s) `div` 1_000_000_000)))

-- | TLS for 'Weft.Http.Server.serverLayers'; fills 'clientSecurity'. Plain HTTP is answered with 400.
tlsLayer :: TlsContext -> Layer
tlsLayer context _ transport client = do
  records <- newRecords transport
  alert <- liftIO (newIORef Nothing)
  attempt context records alert client `catch` \e -> case fromException e of
    Just (_ :: SomeAsyncException) -> throwM e
    Nothing -> do
      let failure = failureOf (e :: SomeException)
      sent <- liftIO (readIORef alert)
      let failed = FailedHandshake (clientAddress client) failure $ case failure of
            RefusedByPeer name -> Just (C.pack name)
            Refused _ -> sent
            _ -> Nothing
      liftIO (for_ (tlsOnFailure (settings context)) ($ failed))
      logFailure (failures context) failed
      partFrom records failure
      throwM (asIOError failure)

-- The reference receives the alert that is sent.
attempt :: TlsContext -> Records -> IORef (Maybe ByteString) -> ClientInfo -> Thread (Transport, ClientInfo)
attempt context records alert client = do
  begun <- fill records
  first <- liftIO (firstByte records)
  case first of
    _ | not begun -> throwM NothingSent
    Just byte
      -- A handshake record.
      | byte == 0x16 -> pure ()
      -- The first letter of a method.
      | byte >= 0x41 && byte <= 0x5A -> throwM PlainHttp
    _ -> throwM NotTls
  generation <- liftIO (readIORef (current context))
  subject <- liftIO (newIORef Nothing)
  engine <- establish (gate context) records (parametersFor (settings context) generation subject) (writeIORef alert . Just) (handshake . engineContext)
  -- No client waits for a ticket: it goes with the response to a request that is here, or before the first wait for one.
  mayWait <- liftIO ((&&) <$> isComplete records <*> endsWithTicket (engineContext engine))
  unless mayWait (void (flush records))
  liftIO $ do
    security <- readIORef subject >>= securityOf (engineContext engine)
    above <- streamTransport ServerSide records engine
    pure (above, client {clientSecurity = Just security})

-- | The parameters of one connection; the reference receives the client's subject.
parametersFor :: TlsSettings -> Generation -> IORef (Maybe ByteString) -> ServerParams
parametersFor s generation subject =
  (parameters generation)
    { serverHooks =
        (serverHooks serverDefaults)
          { onServerNameIndication = \name -> pure (Credentials (chooseFor name (certificates generation))),
            onALPNClientSuggest = if null (tlsProtocols s) then Nothing else Just (pure . chooseProtocol),
            onCipherChoosing = \_ -> head',
            onUnverifiedClientCert = pure False,
            onClientCertificate = maybe (\_ -> pure refused) check (authorities generation)
          }
    }
  where
    -- An empty choice refuses the client.
    chooseProtocol offered = case filter (`elem` offered) (tlsProtocols s) of
      protocol : _ -> protocol
      [] -> B.empty
    -- In our order of preference, and never empty.
    head' = foldr const (error "the library asks for one of no ciphers")
    refused = CertificateUsageReject (CertificateRejectOther "no certificates are expected")
    check store chain = case (chain, tlsClients s) of
      (X509.CertificateChain [], OptionalFrom _) -> pure CertificateUsageAccept
      (X509.CertificateChain [], _) -> pure (CertificateUsageReject CertificateRejectAbsent)
      _ ->
        verifyClient store chain >>= \case
          [] -> CertificateUsageAccept <$ writeIORef subject (subjectText chain)
          reason : _ -> pure (CertificateUsageReject (CertificateRejectOther reason))

-- | Notify the client if possible, within a second.
partFrom :: Records -> TlsFailure -> Thread ()
partFrom records failure = unless (failure `elem` [Vanished, NothingSent, NotTls]) $ do
  when (failure == PlainHttp) (liftIO (put records plainAnswer))
  parting
  where
    parting = void . try @_ @IOException . timeout (seconds 1) $ do
      _ <- flush records
      transportEnd (below records)
      -- Unread bytes would cause a reset, and the client might not see the response.
      buffer <- liftIO (newBuffer 4096)
      let skip n = when (n > (0 :: Int)) $ do
            got <- transportReceive (below records) buffer 0 4096
            when (got > 0) (skip (n - got))
      skip 65_536

plainAnswer :: ByteString
plainAnswer =
  "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 59\r\n\
  \Connection: close\r\n\r\nThis port speaks HTTPS, and the request was sent as HTTP.\r\n"
