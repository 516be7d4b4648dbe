-- |
-- Description : Connections to the server under load
-- Stability   : not home
--
-- Makes connections, and more of them than one address has ports for: on loopback every
-- address 127.0.0.x is one's own, and each has ports of its own.
module Weft.Cli.Load.Dial
  ( Dialer,
    newDialer,
    dialAddress,
    dial,
    Secure,
    securedWithin,
  )
where

import Control.Monad (void, when)
import Foreign.C.Error (Errno (..), eADDRINUSE, eADDRNOTAVAIL)
import GHC.IO.Exception (IOException (..))
import Network.Socket (hostAddressToTuple, tupleToHostAddress)
import Weft
import Weft.Cli.Load.Cells
import Weft.Http.Transport
import Weft.Socket
import Weft.Timeout (timeout)

-- | Where to, how it is secured, how long each of these may take, and which address of our own is
-- in use: 0 is the system's choice.
data Dialer = Dialer !SockAddr !Secure !Duration !Cells

-- | Puts TLS around a connection, or nothing.
type Secure = Transport -> Thread Transport

-- | A dialer for an address, with a limit of time for each connection.
newDialer :: Duration -> Secure -> SockAddr -> IO Dialer
newDialer limit secure address = Dialer address secure limit <$> newCells 1

-- | Where it leads.
dialAddress :: Dialer -> SockAddr
dialAddress (Dialer address _ _ _) = address

-- | A new connection, its data sent without delay; the socket is to be closed. Throws an
-- 'IOError'.
dial :: Dialer -> Thread (Socket, Transport)
dial dialer@(Dialer _ secure limit _) = mask $ \restore -> do
  socket <- restore (dialSocket dialer)
  transport <- restore (securedWithin limit secure socket) `onException` closeSocket socket
  pure (socket, transport)

-- | Secure a connection, within a time.
securedWithin :: Duration -> Secure -> Socket -> Thread Transport
securedWithin limit secure socket = timeout limit (secure (socketTransport socket)) >>= maybe (throwM (userError "the TLS handshake took too long")) pure

dialSocket :: Dialer -> Thread Socket
dialSocket dialer@(Dialer address _ limit own) = do
  from <- liftIO (peekCell own 0)
  try (attempt from) >>= \case
    Right socket -> pure socket
    Left e
      | noPorts e && onLoopback && from < 250 -> do
          -- The first that finds it out moves on for all.
          now' <- liftIO (peekCell own 0)
          when (now' == from) (void (liftIO (addCell own 0 1)))
          dialSocket dialer
      | otherwise -> throwM e
  where
    attempt from = mask $ \restore -> do
      socket <- openSocket family Stream
      flip onException (closeSocket socket) $ do
        when (from > 0) (bind socket (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, fromIntegral (from + 1)))))
        restore (connectBefore limit socket address)
        setOption socket NoDelay 1
        pure socket
    family = case address of
      SockAddrInet6 {} -> AF_INET6
      _ -> AF_INET
    onLoopback = case address of
      SockAddrInet _ host -> let (a, _, _, _) = hostAddressToTuple host in a == 127
      _ -> False
    noPorts e = ioe_errno e `elem` map (\(Errno n) -> Just n) [eADDRNOTAVAIL, eADDRINUSE]
