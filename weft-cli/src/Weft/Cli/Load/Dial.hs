{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections to the server under load
--
-- Makes connections, more of them than one address has ports for: on loopback every address
-- 127.0.0.x is local and has its own ports.
module Weft.Cli.Load.Dial (Dialer, newDialer, dial, Secure, securedWithin) where

import Control.Monad (void, when)
import Foreign.C.Error (Errno (..), eADDRINUSE, eADDRNOTAVAIL)
import GHC.IO.Exception (IOException (..))
import Network.Socket (hostAddressToTuple, tupleToHostAddress)
import Weft
import Weft.Cli.Load.Cells
import Weft.Http.Transport
import Weft.Socket
import Weft.Timeout (timeout)

-- | The server's address, TLS if any, the time limit of each step, and which local address is in
-- use: 0 lets the system choose.
data Dialer = Dialer !SockAddr !Secure !Duration !Cells

-- | Puts TLS around a connection, or nothing.
type Secure = Transport -> Thread Transport

-- | A dialer for an address, with a limit of time for each connection.
newDialer :: Duration -> Secure -> SockAddr -> IO Dialer
newDialer limit secure address = Dialer address secure limit <$> newCells 1

-- | A new connection without Nagle's algorithm; the caller closes the socket. Throws 'IOError'.
dial :: Dialer -> Thread (Socket, Transport)
dial dialer@(Dialer _ secure limit _) = mask $ \restore -> do
  socket <- restore (dialSocket dialer)
  transport <- restore (securedWithin limit secure socket) `onException` closeSocket socket
  pure (socket, transport)

securedWithin :: Duration -> Secure -> Socket -> Thread Transport
securedWithin limit secure socket = timeout limit (secure (socketTransport socket)) >>= maybe (throwM (userError "the TLS handshake took too long")) pure

dialSocket :: Dialer -> Thread Socket
dialSocket dialer@(Dialer address _ limit own) = do
  from <- liftIO (peekCell own 0)
  try (attempt from) >>= \case
    Right socket -> pure socket
    Left e
      | noPorts e && onLoopback && from < 250 -> do
          -- The first thread that finds the ports used up moves on for all.
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
