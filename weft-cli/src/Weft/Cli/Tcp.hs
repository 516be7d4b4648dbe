-- |
-- Description : TCP of our own, for commands
--
-- The option @--tcp DEVICE,ADDRESS\/PREFIX@: sockets belong to a stack in this process.
module Weft.Cli.Tcp (OwnTcp (..), parseOwnTcp, ownTcp, overOwnTcp, checkOwnTcp) where

import Control.Exception (try)
import Foreign.C.Error (Errno (..), eBUSY)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import Weft.Cli.Options
import Weft.Kernel (Kernel)
import Weft.Tcp.Device
import Weft.Tcp.Device.Tun
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack

-- | A device, the stack's address, and the length of the network.
data OwnTcp = OwnTcp
  { ownDevice :: !String,
    ownAddress :: !Address,
    ownPrefix :: !Int
  }
  deriving stock (Eq, Show)

-- | A device and an address.
parseOwnTcp :: String -> Either String OwnTcp
parseOwnTcp text = case break (== ',') text of
  (device@(_ : _), ',' : address) -> uncurry (OwnTcp device) <$> parseAddress address
  _ -> Left (show text <> " is not a device and an address, such as tun0,10.9.0.2/24")

-- | The option's value.
ownTcp :: ReadM OwnTcp
ownTcp = eitherReader parseOwnTcp

-- | The kernel with sockets of its own, if they were asked for.
overOwnTcp :: Maybe OwnTcp -> Kernel -> Kernel
overOwnTcp = maybe id (\own -> withTcp (defaultTcpSettings (openOwn own) [ownAddress own]))

openOwn :: OwnTcp -> IO Device
openOwn own = openTun (ownDevice own) (ownAddress own) (ownPrefix own)

-- | Why the device cannot be had. The flag: it may be another program's now, for it is only
-- checked.
checkOwnTcp :: Bool -> OwnTcp -> IO (Maybe String)
checkOwnTcp mayBeBusy own =
  try (openOwn own) >>= \case
    Right device -> Nothing <$ deviceClose device
    Left e
      | mayBeBusy && fmap Errno (ioe_errno e) == Just eBUSY -> pure Nothing
      | otherwise -> pure (Just (explain e))
