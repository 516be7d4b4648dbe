{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The interface to the TLS library
--
-- The accepted versions, ciphers and groups, and their names. All code that depends on the
-- library's version is here and in "Weft.Tls.Internal.Sessions".
module Weft.Tls.Internal.Library
  ( -- * What is spoken
    TlsVersion (..),
    supportedFrom,

    -- * Contexts
    contextOn,
    noteAlerts,
    securityOf,
    serverDefaults,
    clientDefaults,
  )
where

import Crypto.System.CPU (ProcessorOption (..), processorOptions)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Default.Class (def)
import Data.IORef
import Data.Maybe (fromMaybe)
import Network.TLS
import Network.TLS.Extra.Cipher (ciphersuite_strong)
import Weft.Http.Request (Security (..))
import Weft.Tls.Internal.Failed (alertIn)
import Weft.Tls.Internal.Records

-- | The oldest version to accept.
data TlsVersion = Tls12 | Tls13
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Versions from this one; authenticated ciphers with forward secrecy, cheapest first; elliptic
-- curves; and no signatures with SHA-1.
supportedFrom :: TlsVersion -> Supported
supportedFrom oldest =
  def
    { supportedVersions = TLS13 : [TLS12 | oldest == Tls12],
      supportedCiphers = [c | (number, _) <- names, c <- ciphersuite_strong, cipherID c == number],
      supportedCompressions = [nullCompression],
      supportedGroups = [X25519, P256, P384, P521],
      supportedHashSignatures =
        [ (HashIntrinsic, SignatureEd25519),
          (HashSHA256, SignatureECDSA),
          (HashIntrinsic, SignatureRSApssRSAeSHA256),
          (HashSHA384, SignatureECDSA),
          (HashIntrinsic, SignatureRSApssRSAeSHA384),
          (HashSHA512, SignatureECDSA),
          (HashIntrinsic, SignatureRSApssRSAeSHA512),
          (HashSHA256, SignatureRSA),
          (HashSHA384, SignatureRSA),
          (HashSHA512, SignatureRSA)
        ],
      supportedClientInitiatedRenegotiation = False,
      supportedSession = True
    }

-- | The accepted ciphers in order of preference, by IANA's numbers and names. AES is first only if
-- the cryptographic library uses the processor's instructions for it, which Debian's build does
-- not. Without them AES takes ten times as long as ChaCha20 (29 ms a megabyte, and 3), and its
-- table look-ups take a time that depends on the key.
names :: [(CipherID, ByteString)]
names
  | AESNI `elem` processorOptions && PCLMUL `elem` processorOptions = aes <> chacha
  | otherwise = chacha <> aes
  where
    aes =
      [ (0x1301, "TLS_AES_128_GCM_SHA256"),
        (0x1302, "TLS_AES_256_GCM_SHA384"),
        (0xC02B, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        (0xC02F, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        (0xC02C, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (0xC030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
      ]
    chacha =
      [ (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
        (0xCCA9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        (0xCCA8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")
      ]

-- | A context over these records, and its replaceable source of bytes.
contextOn :: (TLSParams params) => Records -> (Int -> IO ByteString) -> params -> IO (Context, IORef (Int -> IO ByteString))
contextOn records first params = do
  source <- newIORef first
  context <-
    contextNew
      Backend
        { backendFlush = pure (),
          backendClose = pure (),
          backendSend = put records,
          backendRecv = \n -> readIORef source >>= ($ n)
        }
      params
  pure (context, source)

-- | Record the alert that the context sends during the action.
noteAlerts :: IORef (Maybe ByteString) -> Context -> IO () -> IO ()
noteAlerts ref context action = do
  contextHookSetLogging context def {loggingPacketSent = mapM_ (writeIORef ref . Just) . alertIn}
  action
  contextHookSetLogging context def

-- | The negotiated parameters after the handshake.
securityOf :: Context -> Maybe ByteString -> IO Security
securityOf context subject = do
  information <- contextGetInformation context
  protocol <- getNegotiatedProtocol context
  server <- getClientSNI context
  pure $!
    Security
      { securityVersion = maybe "unknown" (versionName . infoVersion) information,
        securityCipher = maybe "unknown" (cipherText . infoCipher) information,
        securityProtocol = protocol,
        securityServerName = C.pack <$> server,
        securitySubject = subject
      }
  where
    cipherText c = fromMaybe (C.pack (cipherName c)) (lookup (cipherID c) names)
    versionName = \case
      TLS13 -> "TLS1.3"
      TLS12 -> "TLS1.2"
      other -> C.pack (show other)

-- | A server's parameters, to be changed.
serverDefaults :: ServerParams
serverDefaults = def

-- | The parameters of a client that connects to this host.
clientDefaults :: HostName -> ClientParams
clientDefaults host = defaultParamsClient host ""
