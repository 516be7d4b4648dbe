-- |
-- Description : @weft tcp capture@
--
-- The packets of a device as a file of Wireshark's and tcpdump's, whatever program uses the device.
module Weft.Cli.Tcp.Capture (captureTo) where

import Control.Monad (unless, when)
import Data.ByteString.Builder (hPutBuilder)
import Data.IORef
import Data.Time.Clock.System (SystemTime, getSystemTime)
import Foreign.C.Error (Errno (..), ePIPE)
import GHC.IO.Exception (ExitCode (..), IOException (..))
import System.Exit (exitWith)
import System.IO
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Cli.Options
import Weft.Concurrently (race_)
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Signal
import Weft.Tcp.Device.Pcapng
import Weft.Tcp.Device.Watch

-- | Write the packets of this device to the file (@-@: to standard output) until SIGINT or SIGTERM, or this number of packets. All
-- that has passed before is in the file then, which is complete at any time when nothing passes. The numbers of packets
-- and of those that were lost are said on standard error. What goes wrong is one line there and status 1; but a reader of
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
    -- Packets that are there, up to a number of them, or to one that passed at another time. May there be more?
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
