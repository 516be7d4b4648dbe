-- | @weft tcp@, for operators of a TCP of our own: what its connections do, the packets of a device
-- as a file for Wireshark and tcpdump, and the commands that make a device.
module Weft.Cli.Tcp.Command (tcpCommand) where

import Control.Exception (displayException)
import Control.Monad (forM_, unless, when)
import Data.ByteString.Builder (hPutBuilder)
import Data.ByteString.Char8 qualified as C
import Data.Foldable (toList)
import Data.IORef
import Data.Time.Clock.System (SystemTime, getSystemTime)
import Foreign.C.Error (Errno (..), ePIPE)
import GHC.IO.Exception (ExitCode (..), IOException (..))
import Options.Applicative
import System.Exit (exitWith)
import System.IO
import System.Posix.Signals (sigINT, sigTERM)
import System.Process (rawSystem)
import Weft
import Weft.Cli.Options
import Weft.Cli.Tcp
import Weft.Concurrently (race_)
import Weft.Http.Client qualified as Client
import Weft.Http.Status (statusCode)
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Signal
import Weft.Tcp.Device.Pcapng
import Weft.Tcp.Device.Tun (systemEnd)
import Weft.Tcp.Device.Watch
import Weft.Tcp.Neighbours (Attachment (..))
import Weft.Tcp.Stack.Names (showHost)

-- | The command, for the program's parser.
tcpCommand :: Mod CommandFields (IO ())
tcpCommand = command "tcp" (info (hsubparser (list <> capture <> setup)) (progDesc "Look after a TCP of its own" <> failureCode 2))
  where
    list =
      command "list" . flip info (progDesc "List the connections of a running weft serve --tcp" <> failureCode 2) $
        listAt <$> argument (eitherReader parsePlace) (metavar "URL" <> help "Where its metrics are, such as http://10.9.0.2:9090")
    capture =
      command "capture" . flip info (progDesc "Write the packets of a device to a file, in the format pcapng, until SIGINT" <> failureCode 2) $
        captureTo
          <$> strArgument (metavar "DEVICE" <> help "A TUN device, or an interface")
          <*> strArgument (metavar "FILE" <> help "Made anew; - for standard output")
          <*> optional (option (number 1 maxBound) (short 'n' <> long "packets" <> metavar "N" <> help "End after N packets"))
    setup =
      command "setup" . flip info (progDesc "Print the commands that make a TUN device for a user, or run them" <> failureCode 2) $
        setUp
          <$> argument ownTcp (metavar "DEVICE,ADDRESS/PREFIX[,ADDRESS/PREFIX]" <> help "As for --tcp")
          <*> optional (strOption (long "user" <> metavar "NAME" <> help "Who may use it, without further rights (default: root only)"))
          <*> switch (long "remove" <> help "Remove the device")
          <*> switch (long "run" <> help "Run the commands")

-- | The page of connections, beside the metrics at a URL.
parsePlace :: String -> Either String Client.Url
parsePlace text = case Client.parseUrl (C.pack text) of
  Right place
    | Client.targetScheme (Client.urlTarget place) == Client.Http -> Right place {Client.urlPath = C.pack "/tcp"}
  _ -> Left (show text <> " is not a URL, such as http://10.9.0.2:9090")

listAt :: Client.Url -> IO ()
listAt place = do
  outcome <- try . try . runWith defaultSettings {settingWorkers = Just 1} $ Client.withClient Client.defaultClientSettings (\client -> Client.request client (Client.requestTo Client.Get place))
  case outcome of
    Right (Right reply)
      | statusCode (Client.replyStatus reply) == 200 -> C.putStr (Client.replyContent reply)
      | otherwise -> failing (shown <> ": no TCP of its own is in use there")
    Right (Left e) -> failing (shown <> ": " <> displayException (e :: Client.HttpError))
    Left e -> failing (shown <> ": " <> explain e)
  where
    shown = C.unpack (Client.renderUrl place)
    failing why = reportToStderr why >> exitWith (ExitFailure 1)

setUp :: OwnTcp -> Maybe String -> Bool -> Bool -> IO ()
setUp own user removes runs = forM_ (setupLines own user removes) $ \line ->
  if runs
    then do
      status <- try (rawSystem "ip" line)
      case status of
        Right ExitSuccess -> pure ()
        -- It has said why.
        Right failed -> exitWith failed
        Left e -> reportToStderr ("ip: " <> ioe_description e) >> exitWith (ExitFailure 1)
    else putStrLn (unwords ("ip" : line))

-- | Arguments for @ip@: a device for this user, or its removal.
setupLines :: OwnTcp -> Maybe String -> Bool -> [[String]]
setupLines own user removes
  | removes = [["link", "del", "dev", device]]
  | otherwise =
      [ ["tuntap", "add", "dev", device, "mode", "tun", "multi_queue"] <> maybe [] (\u -> ["user", u]) user
      ]
        <> [["addr", "add", showHost (systemEnd address prefix) <> "/" <> show prefix, "dev", device] | Attachment address prefix _ <- toList (ownAttachments own)]
        <> [["link", "set", "dev", device, "up"]]
  where
    device = ownDevice own

-- | Write the packets of this device to the file (@-@: to standard output) until SIGINT or SIGTERM,
-- or this number of packets; the file is complete whenever nothing passes. The numbers of packets
-- and of lost ones, or what goes wrong (status 1), are one line on standard error; a reader of
-- standard output that ends, ends this.
captureTo :: String -> FilePath -> Maybe Int -> IO ()
captureTo device path most = do
  outcome <- try . runWith defaultSettings {settingWorkers = Just 1} . withSignals [sigINT, sigTERM] $ \signals ->
    withWatch device $ \watch -> do
      file <- liftIO (begun (if path == "-" then pure stdout else openBinaryFile path WriteMode))
      written <- liftIO (newIORef 0)
      liftIO (reportToStderr ("capturing on " <> device))
      race_ (nextSignal signals) (capturing watch file written)
      liftIO (ending watch file written)
  case outcome of
    Right () -> pure ()
    Left e
      | fmap Errno (ioe_errno e) == Just ePIPE -> pure ()
      | otherwise -> do
          reportToStderr (maybe (explain e) (<> ": " <> ioe_description e) (ioe_filename e))
          exitWith (ExitFailure 1)
  where
    begun open = do
      file <- open
      hSetBinaryMode file True
      hSetBuffering file (BlockBuffering (Just 65536))
      hPutBuilder file preamble
      file <$ hFlush file
    full written = maybe (pure False) (\n -> (>= n) <$> readIORef written) most
    -- A batch at a time, so that a signal is heard on a busy device, too.
    capturing watch file written = do
      more <- liftIO (takeSome watch file written (\_ -> True) 256)
      enough <- liftIO (full written)
      unless enough $ do
        if more then yield else liftIO (hFlush file) >> awaitWatched watch
        capturing watch file written
    -- With what passed before the signal.
    ending watch file written = do
      now <- getSystemTime
      let rest = takeSome watch file written (<= now) 256 >>= \more -> when more rest
      rest
      lost <- lostToWatch watch
      hPutBuilder file (statisticsBlock now (fromIntegral lost))
      hClose file
      n <- readIORef written
      reportToStderr (show n <> (if n == 1 then " packet, " else " packets, ") <> show lost <> " lost")
    -- Packets that are there, up to a number of them or to one that passed at another time. May
    -- there be more?
    takeSome :: Watch -> Handle -> IORef Int -> (SystemTime -> Bool) -> Int -> IO Bool
    takeSome watch file written wanted left = do
      enough <- full written
      if enough || left == 0
        then pure (not enough)
        else
          nextWatched watch >>= \case
            Just (Watched at direction packet) | wanted at -> do
              hPutBuilder file (packetBlock direction at packet)
              modifyIORef' written (+ 1)
              takeSome watch file written wanted (left - 1)
            _ -> pure False
