-- | The option @--tcp DEVICE,ADDRESS\/PREFIX[\@ROUTER][,ADDRESS\/PREFIX[\@ROUTER]][,FILE]@: sockets
-- belong to a stack in this process with these addresses, and what passes its device is written to
-- the file. The device is an interface of Ethernet if there is one with this name, and else a TUN
-- device.
module Weft.Cli.Tcp (OwnTcp (..), parseOwnTcp, ownTcp, overOwnTcp, overOwnTcpAfter, checkOwnTcp, sharedPart, answeringTcp) where

import Control.Exception (throwIO)
import Control.Monad (mfilter, when)
import Data.ByteString.Char8 qualified as C
import Data.Char (isDigit)
import Data.Foldable (toList)
import Data.List (intercalate, sort)
import Data.List.NonEmpty (NonEmpty (..))
import Data.Maybe (isJust)
import Foreign.C.Error (Errno (..), eBUSY)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import Weft
import Weft.Cli.Options
import Weft.Cli.Succession
import Weft.Http.Server.Types
import Weft.Kernel (Kernel)
import Weft.Tcp.Device
import Weft.Tcp.Device.Capture
import Weft.Tcp.Device.Interface
import Weft.Tcp.Device.Tun
import Weft.Tcp.Info
import Weft.Tcp.Neighbours (Attachment (..))
import Weft.Tcp.Packet (Address, sameFamily)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Names (parseHost, showHost)

-- | A device, the stack's addresses, and the file for packets.
data OwnTcp = OwnTcp
  { ownDevice :: !String,
    -- | One, or one of each version, with their networks and with routers for other networks on an interface of Ethernet.
    ownAttachments :: !(NonEmpty Attachment),
    ownCapture :: !(Maybe FilePath)
  }
  deriving stock (Eq, Show)

-- | A device and one address or two, and the name of a file if there is one.
parseOwnTcp :: String -> Either String OwnTcp
parseOwnTcp text = case break (== ',') text of
  (device@(_ : _), ',' : rest) | (one, more) <- break (== ',') rest -> do
    first <- attachment one
    case break (== ',') (drop 1 more) of
      (two, file) | isLikeAddress two -> do
        second <- attachment two
        when (sameFamily (attachmentAddress first) (attachmentAddress second)) $
          Left (show text <> " has two addresses of one version of IP")
        OwnTcp device (first :| [second]) <$> named file
      _ -> OwnTcp device (first :| []) <$> named more
  _ -> unlike
  where
    unlike = Left (show text <> " is not a device and an address, such as tun0,10.9.0.2/24")
    -- The name of a file that looks like an address is written with a directory.
    isLikeAddress part = ':' `elem` host || '.' `elem` host && any isDigit host && all (\c -> c == '.' || isDigit c) host
      where
        host = takeWhile (\c -> c /= '/' && c /= '@') part
    named = \case
      "" -> Right Nothing
      "," -> unlike
      file -> Right (Just (drop 1 file))
    attachment part = case break (== '@') part of
      (own, router) -> do
        (a, n) <- parseAddress own
        Attachment a n <$> if null router then Right Nothing else maybe (Left (show (drop 1 router) <> " is not the address of a router")) (Right . Just) (mfilter (sameFamily a) (parseHost (drop 1 router)))

-- | The option's value.
ownTcp :: ReadM OwnTcp
ownTcp = eitherReader parseOwnTcp

-- | The kernel with sockets of its own, if they were asked for.
overOwnTcp :: Maybe OwnTcp -> Kernel -> Kernel
overOwnTcp = maybe id (\own -> withTcp (settingsFor own (openOwn own >>= captured own)))

-- | 'overOwnTcp' for a process that can take the place of another one, and be replaced itself.
overOwnTcpAfter :: Succession -> OwnTcp -> Kernel -> Kernel
overOwnTcpAfter one own = withTcp (successionTcp one attach over (settingsFor own))
  where
    attach = choose own (attachInterface (ownDevice own) (attachments own)) (attachTun Offload (ownDevice own) (networks own))
    over fd = choose own (interfaceOver (ownDevice own) (attachments own) fd) (tunOver Offload (ownDevice own) fd) >>= captured own

-- | What two processes that follow each other have in common: the device and the addresses, in any order.
sharedPart :: OwnTcp -> String
sharedPart own = intercalate "," (ownDevice own : map showHost (sort (map attachmentAddress (attachments own))))

attachments :: OwnTcp -> [Attachment]
attachments = toList . ownAttachments

networks :: OwnTcp -> [(Address, Int)]
networks own = [(a, n) | Attachment a n _ <- attachments own]

settingsFor :: OwnTcp -> IO Device -> TcpSettings
settingsFor own device = defaultTcpSettings device (map fst (networks own))

captured :: OwnTcp -> Device -> IO Device
captured = maybe pure capturing . ownCapture

openOwn :: OwnTcp -> IO Device
openOwn own = choose own (openInterface (ownDevice own) (attachments own)) (openTunWith Offload (ownDevice own) (networks own))

-- What is done with an interface, and what with a TUN device.
choose :: OwnTcp -> IO a -> IO a -> IO a
choose own interface tun =
  isInterface (ownDevice own) >>= \case
    True -> interface
    False
      | any (isJust . attachmentRouter) (attachments own) -> throwIO (userError ("network device " <> ownDevice own <> ": a router is for an interface of Ethernet; to a TUN device packets are routed by the system"))
      | otherwise -> tun

-- | Why the device is not available. The flag: it may be another program's now, for it is only
-- checked.
checkOwnTcp :: Bool -> OwnTcp -> IO (Maybe String)
checkOwnTcp mayBeBusy own =
  try (openOwn own) >>= \case
    Right device -> Nothing <$ deviceClose device
    Left e
      | mayBeBusy && fmap Errno (ioe_errno e) == Just eBUSY -> pure Nothing
      | otherwise -> pure (Just (explain e))

-- | Answer @\/tcp@ if a stack is open in this process; the handler answers all else.
answeringTcp :: Handler -> Handler
answeringTcp others request
  | requestPath request == "/tcp",
    requestMethod request `elem` [Get, Head] =
      liftIO socketsHere >>= \case
        [] -> others request
        stacks -> pure (plain ok200 [Field "Content-Type" "text/plain; charset=utf-8", Field "Cache-Control" "no-store"] (C.pack (showSockets (concat stacks))))
  | otherwise = others request
