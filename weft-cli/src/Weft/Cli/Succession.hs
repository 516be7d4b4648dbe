-- | One process after another on the same device. They talk over a socket of the Unix domain, whose
-- path both have as an option. The new one sends what it is and gets the device and the secret of
-- the stack; when it is ready it gets the connections, confirms them, and hears that they are its.
module Weft.Cli.Succession
  ( Predecessor,
    askPredecessor,
    takeFromPredecessor,
    Succession,
    newSuccession,
    successionTcp,
    release,
    SuccessorSocket,
    listenForSuccessors,
    endListening,
    withSuccessors,
    hello,
  )
where

import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Word (Word8)
import Foreign.C.Error (Errno (..), eCONNREFUSED, eNOENT)
import Foreign.C.Types (CInt)
import GHC.IO.Exception (IOException (..))
import System.Posix.Files (removeLink, rename, setFileMode)
import Weft
import Weft.Cli.Options (argumentBytes, shownPath)
import Weft.Concurrently (race)
import Weft.Internal.Core.SystemCall qualified as Call
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Socket
import Weft.Tcp.Device (Device)
import Weft.Tcp.Handover hiding (release)
import Weft.Tcp.Handover qualified as Handover
import Weft.Tcp.Handover.Descriptor
import Weft.Tcp.Internal.Bytes (build, byte64, word64)
import Weft.Tcp.Stack (TcpSettings)
import Weft.Timeout (timeout)

-- | A process that serves: the descriptors of the conversation and of the device, and the secret of
-- its stack.
data Predecessor = Predecessor !CInt !CInt !Secret

-- | This process's part.
data Succession = Succession
  { successionPath :: !FilePath,
    successionPlace :: !String,
    successionStack :: !Handover,
    successionDevice :: !(IORef (Maybe CInt)),
    successionPredecessor :: !(Maybe Predecessor)
  }

-- | Ask the process that listens at the path, if there is one, for its device, which is to be this
-- one, with this address. Throws an 'IOError' that says why it refuses.
askPredecessor :: String -> FilePath -> Thread (Maybe Predecessor)
askPredecessor place path = do
  s <- openSocket AF_UNIX Stream
  flip onException (closeSocket s) $
    try (connect s (SockAddrUnix path)) >>= \case
      Left e
        | fmap Errno (ioe_errno e) `elem` [Just eNOENT, Just eCONNREFUSED] -> Nothing <$ closeSocket s
        | otherwise -> failing ("cannot be reached at " <> path <> ": " <> ioe_description e)
      Right () -> within 10 "does not answer" $ do
        mine <- short place
        sendAll s (hello <> mine)
        receiveDescriptor s >>= \case
          Just (mark, Just device) | mark == passes -> do
            bytes <- exactly s 16
            pure (Just (Predecessor (numberOf s) device (word64 bytes 0, word64 bytes 8)))
          Just (mark, _) | mark == refuses -> do
            why <- shortly s >>= shown
            failing ("refuses: " <> why)
          _ -> failing "does not answer as expected"
  where
    numberOf = descriptorNumber . Call.socketDescriptor

-- | A process with this device and address, and this path, after that one.
newSuccession :: String -> FilePath -> Maybe Predecessor -> IO Succession
newSuccession place path predecessor =
  Succession path place <$> newHandover ((\(Predecessor _ _ own) -> own) <$> predecessor) <*> newIORef Nothing <*> pure predecessor

-- | Settings of the stack, given how to attach to the device, how to have a device of its
-- descriptor, and the settings for a device.
successionTcp :: Succession -> IO CInt -> (CInt -> IO Device) -> (IO Device -> TcpSettings) -> TcpSettings
successionTcp one attach over settings = movable (successionStack one) . settings $ do
  fd <- maybe attach (\(Predecessor _ device _) -> pure device) (successionPredecessor one)
  writeIORef (successionDevice one) (Just fd)
  over fd

-- | Undo the accept of a connection, for the successor.
release :: Succession -> Socket -> Thread Bool
release = Handover.release . successionStack

-- | Take over from the process before, if there is one: how many connections there were. Throws an
-- 'IOError' if the other does not hand over, and goes on, and when the action ends before it does.
takeFromPredecessor :: Thread () -> Succession -> Thread (Maybe Int)
takeFromPredecessor stop one = case successionPredecessor one of
  Nothing -> pure Nothing
  Just (Predecessor fd _ _) -> withSocket (adoptSocket fd) $ \s -> do
    sendAll s (B.singleton isReady)
    -- Responses may be under way there.
    records <- race stop (receiving s) >>= either (\() -> throwM (userError "stopped before it took over from the other process")) pure
    case gathered records of
      Nothing -> failing "has sent what is not understood"
      Just frozen -> do
        answer <- within 30 "does not confirm" (sendAll s (B.singleton understood) >> exactly s 1)
        unless (answer == B.singleton yours) (failing "does not confirm")
        Just <$> takeOver (successionStack one) frozen
  where
    receiving s = do
      header <- exactly s headerLength
      body <- maybe (failing "has sent what is not understood") (exactly s) (frameLength header)
      case readFrame header body of
        Nothing -> failing "has sent what is not understood"
        Just r
          | isLast r -> pure [r]
          | otherwise -> (r :) <$> receiving s

-- | Listen beside the path, where nobody asks yet. Throws an 'IOError'.
listenForSuccessors :: Succession -> Thread SuccessorSocket
listenForSuccessors one = do
  s <- openSocket AF_UNIX Stream
  flip onException (closeSocket s) $ do
    removed beside
    bind s (SockAddrUnix beside)
    -- Anyone who can connect gets the device.
    liftIO (setFileMode beside 0o600)
    listen s 4
  pure (SuccessorSocket one s)
  where
    beside = besideOf one

-- | Where successors connect.
data SuccessorSocket = SuccessorSocket !Succession !Socket

-- | Nobody will ask there.
endListening :: SuccessorSocket -> Thread ()
endListening (SuccessorSocket one s) = closeSocket s >> removed (besideOf one)

besideOf :: Succession -> FilePath
besideOf one = successionPath one <> ".new"

removed :: FilePath -> Thread ()
removed path = void (try @_ @IOException (liftIO (removeLink path)))

-- | Wait for processes that want to take the place of this one, until one has. They ask at the path
-- from now on. Given how connections are let go of, and how to go on when that was in vain, in
-- turns.
withSuccessors :: SuccessorSocket -> (String -> Thread ()) -> Thread () -> Thread () -> Thread ()
withSuccessors (SuccessorSocket one listener) say letGo goOn = do
  liftIO (rename (besideOf one) (successionPath one))
  (waiting `onException` removed (successionPath one)) `finally` closeSocket listener
  where
    waiting = do
      taken <-
        (accept listener >>= \(client, _) -> withSocket (pure client) conversing) `catch` \e -> do
          say ("not replaced by a new process: " <> ioe_description (e :: IOException))
          False <$ sleep (milliseconds 200)
      unless taken waiting
    conversing s = do
      asked <- within 10 "does not speak" (exactly s (B.length hello))
      unless (asked == hello) (refuse s "it has another version" "has another version")
      place <- within 10 "does not speak" (shortly s)
      mine <- short (successionPlace one)
      unless (place == B.drop 1 mine) $ do
        other <- shown place
        refuse s ("it serves over " <> successionPlace one <> ", not over " <> other) ("is to serve over " <> other)
      device <- liftIO (readIORef (successionDevice one))
      case device of
        Nothing -> refuse s "it has no device" "came too early"
        Just fd -> do
          sendDescriptor s passes fd
          (a, b) <- secret (successionStack one)
          sendAll s (build (byte64 a <> byte64 b))
          ready <- within 60 "does not become ready" (exactly s 1)
          unless (ready == B.singleton isReady) (failing "does not become ready")
          say "handing over to a new process"
          taken <- (takingMore (successionStack one) letGo >> handingOver (successionStack one) (telling s) (sendAll s (B.singleton yours))) `onException` goOn
          taken <$ unless taken goOn
    refuse s why what = short why >>= sendAll s . B.cons refuses >> failing what
    telling s records = within 30 "does not take over" $ do
      mapM_ (sendMany s) (batches records)
      answer <- exactly s 1
      True <$ when (answer /= B.singleton understood) (failing "does not take over")

-- | The first words of a new process: the version that it speaks.
hello :: ByteString
hello = C.pack "weft handover " <> C.pack (drop 1 (show (100 + formatVersion)))

passes, refuses, isReady, understood, yours :: Word8
passes = 68
refuses = 78
isReady = 82
understood = 85
yours = 89

-- A text of at most 255 bytes after its length. Two processes may have different locales, but an argument has its bytes.
short :: String -> Thread ByteString
short text = (\bytes -> let some = B.take 255 bytes in B.cons (fromIntegral (B.length some)) some) <$> liftIO (argumentBytes text)

shortly :: Socket -> Thread ByteString
shortly s = exactly s 1 >>= exactly s . fromIntegral . B.head

shown :: ByteString -> Thread String
shown = liftIO . shownPath

batches :: [ByteString] -> [[ByteString]]
batches [] = []
batches records = let (some, rest) = splitAt 64 records in some : batches rest

exactly :: Socket -> Int -> Thread ByteString
exactly s n = B.concat <$> go n
  where
    go left
      | left <= 0 = pure []
      | otherwise = do
          bytes <- receive s (min left 65536)
          when (B.null bytes) (failing "has ended")
          (bytes :) <$> go (left - B.length bytes)

within :: Int -> String -> Thread a -> Thread a
within limit what act = timeout (seconds limit) act >>= maybe (failing what) pure

failing :: String -> Thread a
failing what = throwM (userError ("the other process " <> what))
