{-# LANGUAGE CPP #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Versions, ciphers and groups. What depends on the library's version is here and in @Failure@.
module Weft.Tls.Internal.Library
  ( TlsVersion (..),
    supportedFrom,
    optionalCertificates,
    Engine (engineContext),
    newEngine,
    receiveBy,
    noteAlerts,
    handshakeAsClient,
    announceEnd,
    endsWithTicket,
    securityOf,
    serverDefaults,
    clientDefaults,
    newSessions,
  )
where

import Control.Concurrent (ThreadId, myThreadId)
import Control.Exception (bracket_, catch, evaluate, throwIO)
import Crypto.System.CPU (ProcessorOption (..), processorOptions)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Short (ShortByteString, toShort)
import Data.Default.Class (def)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Word (Word64)
import GHC.Clock (getMonotonicTimeNSec)
import Network.TLS
import Network.TLS.Extra.Cipher (ciphersuite_strong)
import Weft.Http.Request (Security (..))
import Weft.Tls.Internal.Failure
import Weft.Tls.Internal.Records

-- | The oldest version to accept.
data TlsVersion = Tls12 | Tls13
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Versions from this one; authenticated ciphers with forward secrecy; elliptic curves; no SHA-1.
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

-- | Can a server ask for a certificate and go on without one? In version 2.1.8 it waits for a proof.
optionalCertificates :: Bool
#if MIN_VERSION_tls(2,0,0)
optionalCertificates = False
#else
optionalCertificates = True
#endif

-- | The accepted ciphers in order of preference, by IANA's numbers and names. AES is first only if the
-- cryptographic library uses the processor's instructions for it (Debian's does not). Without them AES
-- takes ten times as long as ChaCha20, and a time that depends on the key.
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

-- Note [What the library receives on its own]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Since version 2 the library's client receives in two more places, for at least 30 milliseconds:
--
--   * At the end of a handshake (TLS 1.3) in which it was asked for a certificate: an alert that
--     refuses it. That would delay each of these handshakes, and what comes instead of an alert
--     would be kept where `isComplete` does not see it. Here the source raises `NeedMore`, as if
--     nothing had come, and the handshake ends. The first receive finds the refusal, as it does
--     with version 1.8.
--   * In `bye`, until a session ticket has come. There `NeedMore` would end `bye` before it has
--     announced the end, and an end of the stream would have it announce nothing. So the source
--     gives the header of a record that is too long: `bye` receives no more, and announces the
--     end. This is for the thread in `bye` only; another one may be receiving.

-- | The context of a connection, and where it receives.
data Engine = Engine
  { engineContext :: !Context,
    source :: !(IORef (Int -> IO ByteString)),
    -- | The thread in 'announceEnd'.
    announcer :: !(IORef (Maybe ThreadId))
  }

-- | A context over these records that receives by the action.
newEngine :: (TLSParams params) => Records -> (Int -> IO ByteString) -> params -> IO Engine
newEngine records first params = do
  from <- newIORef first
  announcing <- newIORef Nothing
  let receive n = do
        me <- myThreadId
        it <- readIORef announcing
        if it == Just me then pure (B.take n tooLong) else readIORef from >>= ($ n)
      backend = Backend {backendFlush = pure (), backendClose = pure (), backendSend = put records, backendRecv = receive}
  context <- contextNew backend params
  pure (Engine context from announcing)
  where
    tooLong = B.pack [23, 3, 3, 0xFF, 0xFF]

receiveBy :: Engine -> (Int -> IO ByteString) -> IO ()
receiveBy = writeIORef . source

-- | Run a handshake, and the action on the alert that it sends. Throws 'RefusedByPeer' for the peer's.
noteAlerts :: (ByteString -> IO ()) -> Engine -> IO () -> IO ()
noteAlerts sent engine action = do
  received <- newIORef Nothing
  contextHookSetLogging
    (engineContext engine)
    def {loggingPacketSent = mapM_ sent . alertIn, loggingPacketRecv = mapM_ (writeIORef received . Just) . alertIn}
  action `catch` \e -> do
    alert <- readIORef received
    maybe (throwIO (e :: TLSException)) (throwIO . RefusedByPeer . C.unpack) alert
  contextHookSetLogging (engineContext engine) def

-- | Run a client's handshake; was a certificate asked for? Note [What the library receives on its own].
handshakeAsClient :: IORef Bool -> Engine -> IO ()
handshakeAsClient asked (Engine context from _) = do
  receive <- readIORef from
  writeIORef from (\n -> isOver >>= \over -> if over then throwIO NeedMore else receive n)
  handshake context `catch` \NeedMore -> pure ()
  where
    -- TLS 1.2 goes on after that.
    isOver = readIORef asked >>= \was -> if was then endsWithTicket context else pure False

-- | Announce the end, without receiving anything: Note [What the library receives on its own].
announceEnd :: Engine -> IO ()
announceEnd engine =
  bracket_ (myThreadId >>= writeIORef (announcer engine) . Just) (writeIORef (announcer engine) Nothing) (bye (engineContext engine))

-- | Is a session ticket all that a server writes after the client's last message? In TLS 1.3 it is.
-- Before, the client waits for what is written then.
endsWithTicket :: Context -> IO Bool
endsWithTicket context = maybe False ((== TLS13) . infoVersion) <$> contextGetInformation context

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

serverDefaults :: ServerParams
serverDefaults = def

clientDefaults :: HostName -> ClientParams
clientDefaults host = defaultParamsClient host ""

-- | Sessions by their number, and the numbers in order of arrival.
data Store = Store
  { sessions :: !(Map ShortByteString Entry),
    order :: !(IntMap ShortByteString),
    next :: !Int
  }

data Entry = Entry !Int !Word64 SessionData

-- | Remembers at most the given number of sessions, each for the given seconds; drops the oldest first.
newSessions :: Int -> Int -> IO SessionManager
newSessions most lifetimeSeconds
  | most <= 0 = pure noSessionManager
  | otherwise = do
      store <- newIORef (Store Map.empty IntMap.empty 0)
      let look number = do
            now <- getMonotonicTimeNSec
            found <- Map.lookup (toShort number) . sessions <$> readIORef store
            pure $ case found of
              Just (Entry _ until' session) | now < until' -> Just session
              _ -> Nothing
          forget number = atomicModifyIORef' store (\s -> (without (toShort number) s, ()))
      pure
        noSessionManager
          { sessionResume = look,
            sessionResumeOnlyOnce = \number -> look number <* forget number,
            sessionEstablish = \number session -> do
              now <- getMonotonicTimeNSec
              -- An unevaluated session would retain the whole handshake.
              _ <- evaluate (length (show session))
              let until' = now + fromIntegral lifetimeSeconds * 1_000_000_000
              -- No ticket of our own, which tls 2 asks for; tls 1.8 wants ().
              atomicModifyIORef' store (\s -> (limited (with (toShort number) until' session s), mempty)),
            sessionInvalidate = forget
          }
  where
    with number until' session s =
      let s' = without number s
       in s'
            { sessions = Map.insert number (Entry (next s') until' session) (sessions s'),
              order = IntMap.insert (next s') number (order s'),
              next = next s' + 1
            }
    without number s = case Map.lookup number (sessions s) of
      Nothing -> s
      Just (Entry place _ _) -> s {sessions = Map.delete number (sessions s), order = IntMap.delete place (order s)}
    limited s
      | Map.size (sessions s) <= most = s
      | otherwise = case IntMap.minView (order s) of
          Just (number, _) -> without number s
          Nothing -> s
