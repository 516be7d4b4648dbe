-- | TLS to servers.
--
-- @
-- tls <- 'clientTls' 'SystemAuthorities' Nothing
-- socket <- connectTcp (seconds 5) \"example.org\" \"443\"
-- transport <- 'connectTls' tls \"example.org\" socket
-- @
module Weft.Tls.Client
  ( ClientTlsSettings (..),
    Authorities (..),
    clientTls,
    connectTls,
    connectTlsWith,
    socketTransport,

    -- * For "Weft.Http.Client"
    secureWith,
  )
where

import Control.Exception (SomeAsyncException, SomeException, fromException)
import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Functor (void)
import Data.IORef
import Data.X509.CertificateStore (CertificateStore, listCertificates, makeCertificateStore)
import Data.X509.Validation (FailedReason (UnknownCA))
import Network.TLS
import System.X509 (getSystemCertificateStore)
import Weft
import Weft.Http.Client (Target (..))
import Weft.Http.Request (Security)
import Weft.Http.Server (Transport (..), socketTransport)
import Weft.Socket
import Weft.Timeout (timeout)
import Weft.Tls.Internal.Certificates
import Weft.Tls.Internal.Failure
import Weft.Tls.Internal.Handshake
import Weft.Tls.Internal.Library
import Weft.Tls.Internal.Records
import Weft.Tls.Internal.Stream

-- | The settings of TLS to servers, made by 'clientTls' and shared by all connections of a run.
data ClientTlsSettings = ClientTlsSettings
  { -- | The trusted authorities. 'Nothing' trusts any server, and any attacker in between.
    clientAuthorities :: !(Maybe CertificateStore),
    -- | The oldest version to accept; default 'Tls12'.
    clientOldest :: !TlsVersion,
    -- | Protocols to offer by ALPN; default @http/1.1@. Empty: none.
    clientProtocols :: [ByteString],
    -- | The certificate for servers that ask for one; default: none.
    clientCertificate :: !(Maybe Credential),
    -- | Limits concurrent handshakes.
    clientGate :: !Gate
  }

-- | The source of the authorities' certificates.
data Authorities
  = -- | The system's.
    SystemAuthorities
  | -- | This file (PEM).
    AuthoritiesFrom !FilePath
  | -- | Servers are not verified; for tests.
    NoVerification
  deriving stock (Eq, Show)

-- | Load the authorities and an optional client certificate. Throws 'LoadError'.
clientTls :: Authorities -> Maybe CertificateFiles -> Thread ClientTlsSettings
clientTls authorities shown = do
  store <- case authorities of
    SystemAuthorities -> do
      store <- blocking getSystemCertificateStore
      if null (listCertificates store)
        then throwM (LoadError "/etc/ssl/certs" "the system has no certificates of authorities (the package ca-certificates)")
        else pure (Just store)
    AuthoritiesFrom path -> Just . makeCertificateStore <$> readCertificates path
    NoVerification -> pure Nothing
  credential <- mapM (fmap loadedCredential . loadCertificate) shown
  ClientTlsSettings store Tls12 ["http/1.1"] credential <$> newGate

-- | Speak TLS with this host, a name, which is also sent (SNI), or an address, on a connected socket;
-- the server's certificate must be for it. Throws 'TlsFailure', and 'IOError's. The caller closes the
-- socket and limits the time. Sets @TCP_NODELAY@.
--
-- The transport throws 'Truncated' at an unannounced end of stream. 'transportEnd' announces ours.
connectTls :: ClientTlsSettings -> HostName -> Socket -> Thread Transport
connectTls tls host socket = do
  -- Records must not wait for acknowledgements. Only TCP sockets have this option.
  _ <- try @_ @IOError (setOption socket NoDelay 1)
  fst <$> connectTlsWith tls host (socketTransport socket)

-- | 'connectTls' over any transport, with the negotiated parameters.
connectTlsWith :: ClientTlsSettings -> HostName -> Transport -> Thread (Transport, Security)
connectTlsWith tls host transport = do
  records <- newRecords transport
  reasons <- liftIO (newIORef [])
  asked <- liftIO (newIORef False)
  identity <- liftIO (identityOf host)
  engine <-
    (establish (clientGate tls) records (parametersFor tls identity reasons asked) (\_ -> pure ()) (handshakeAsClient asked) <* flush records) `catch` \e -> case fromException e of
      Just (_ :: SomeAsyncException) -> throwM e
      Nothing -> do
        -- Sends the alert that the library has written.
        void . try @_ @IOError . timeout (seconds 1) $ flush records
        why <- liftIO (readIORef reasons)
        unless (null why) (throwM (Untrusted why))
        case fromException e of
          Just io -> throwM (io :: IOError)
          Nothing -> throwM (failureOf (e :: SomeException))
  liftIO $ do
    security <- securityOf (engineContext engine) Nothing
    above <- streamTransport ClientSide records engine
    pure (above, security)

-- | For 'Weft.Http.Client.clientSecure': 'connectTlsWith' whose failures are 'IOError's.
secureWith :: ClientTlsSettings -> Target -> Transport -> Thread Transport
secureWith tls target transport = do
  (above, _) <- connectTlsWith tls (C.unpack (targetHost target)) transport `catch` (throwM . asIOError)
  pure above {transportReceive = \buffer offset count -> transportReceive above buffer offset count `catch` (throwM . asIOError)}

parametersFor :: ClientTlsSettings -> Identity -> IORef [String] -> IORef Bool -> ClientParams
parametersFor tls identity reasons asked =
  defaults
    { -- An address is not a name (RFC 6066, section 3).
      clientUseServerNameIndication = named,
      clientSupported = supportedFrom (clientOldest tls),
      clientHooks =
        (clientHooks defaults)
          { onServerCertificate = \_ _ _ chain -> case clientAuthorities tls of
              Nothing -> pure []
              Just store -> do
                wrong <- verifyServer store identity chain
                writeIORef reasons wrong
                -- The library sends the server no more than this.
                pure [UnknownCA | not (null wrong)],
            onCertificateRequest = \_ -> clientCertificate tls <$ writeIORef asked True,
            onSuggestALPN = pure (if null (clientProtocols tls) then Nothing else Just (clientProtocols tls))
          }
    }
  where
    (host, named) = case identity of
      DnsId name -> (name, True)
      IpId name _ -> (name, False)
    defaults = clientDefaults host
