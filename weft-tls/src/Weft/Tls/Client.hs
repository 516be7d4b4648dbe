-- |
-- TLS to servers.
--
-- @
-- tls <- 'clientTls' 'SystemAuthorities'
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
import Data.Maybe (isNothing)
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
import Weft.Tls.Internal.Trust

-- | How TLS is spoken to servers. Made by 'clientTls', and changed by its fields; one serves
-- all connections of a run.
data ClientTlsSettings = ClientTlsSettings
  { -- | Whose certificates are trusted. 'Nothing': any server is, and so is whoever sits in
    -- between.
    clientAuthorities :: !(Maybe CertificateStore),
    -- | The oldest version that is spoken; default 'Tls12'.
    clientOldest :: !TlsVersion,
    -- | Protocols that are offered by ALPN; default @http/1.1@. Empty: none.
    clientProtocols :: [ByteString],
    -- | What is shown to a server that asks for a certificate; default: nothing.
    clientCertificate :: !(Maybe Credential),
    -- | How many handshakes compute at a time.
    clientGate :: !Gate
  }

-- | Where the certificates of authorities come from.
data Authorities
  = -- | The system's.
    SystemAuthorities
  | -- | This file (PEM).
    AuthoritiesFrom !FilePath
  | -- | Servers are not verified: for tests.
    NoVerification
  deriving stock (Eq, Show)

-- | Load the authorities, and, if wanted, a certificate to show. Raises 'LoadError'.
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

-- | Speak TLS on a connected socket with this host: a name, which the server is told (SNI),
-- or an address. Its certificate must be for that. Raises 'TlsFailure', and 'IOError' as the
-- socket does. Closing the socket stays the caller's; to limit the time, so does that
-- ('Weft.Timeout.timeout'). @TCP_NODELAY@ is set.
--
-- The transport raises 'TlsFailure' where a socket would answer with the end of the stream,
-- if the server has not announced it ('Truncated'). 'transportEnd' announces ours.
connectTls :: ClientTlsSettings -> HostName -> Socket -> Thread Transport
connectTls tls host socket = do
  -- What is sent in several records must not wait for the acknowledgement of the first. A
  -- socket that is not TCP has no such option.
  _ <- try @_ @IOError (setOption socket NoDelay 1)
  fst <$> connectTlsWith tls host (socketTransport socket)

-- | The same over any transport; and what was agreed on.
connectTlsWith :: ClientTlsSettings -> HostName -> Transport -> Thread (Transport, Security)
connectTlsWith tls host transport = do
  records <- newRecords transport
  reasons <- liftIO (newIORef [])
  turns <- liftIO newTurns
  (context, source) <-
    liftIO $ contextOn records (takeRecords records (waitForMore turns)) (parametersFor tls host reasons)
  shake (clientGate tls) turns records (handshake context) `catch` \e -> case fromException e of
    Just (_ :: SomeAsyncException) -> throwM e
    Nothing -> do
      -- The alert that the library has written.
      void . try @_ @IOError . timeout (seconds 1) $ flush records
      why <- liftIO (readIORef reasons)
      unless (null why) (throwM (Untrusted why))
      case fromException e of
        Just io -> throwM (io :: IOError)
        Nothing -> throwM (failureOf (e :: SomeException))
  liftIO $ do
    writeIORef source (takeComplete records)
    security <- securityOf context Nothing
    above <- streamTransport ClientSide records context
    pure (above, security)

-- | For 'Weft.Http.Client.clientSecure': TLS with the host of a URL, whose certificate is
-- verified as the settings say. What 'connectTls' raises is an 'IOError' here, which says the
-- same.
secureWith :: ClientTlsSettings -> Target -> Transport -> Thread Transport
secureWith tls target transport = do
  (above, _) <- connectTlsWith tls (C.unpack (targetHost target)) transport `catch` (throwM . asIOError)
  pure above {transportReceive = \buffer offset count -> transportReceive above buffer offset count `catch` (throwM . asIOError)}

parametersFor :: ClientTlsSettings -> HostName -> IORef [String] -> ClientParams
parametersFor tls host reasons =
  defaults
    { -- An address is not a name (RFC 6066, section 3).
      clientUseServerNameIndication = isNothing (isAddress host),
      clientSupported = supportedFrom (clientOldest tls),
      clientHooks =
        (clientHooks defaults)
          { onServerCertificate = \_ _ _ chain -> case clientAuthorities tls of
              Nothing -> pure []
              Just store -> do
                wrong <- verifyServer store host chain
                writeIORef reasons wrong
                -- The library says no more than that to the server.
                pure [UnknownCA | not (null wrong)],
            onCertificateRequest = \_ -> pure (clientCertificate tls),
            onSuggestALPN = pure (if null (clientProtocols tls) then Nothing else Just (clientProtocols tls))
          }
    }
  where
    defaults = clientDefaults host
