-- |
-- Description : Calls and packets, one by one
--
-- A stack without threads: the test makes attempts and passes packets as the stack's turn does, and
-- sets the clock. Nobody waits, so nobody is woken.
module SocketsTest (tests) where

import Foreign.C.Error
import Foreign.C.Types (CInt)
import Network.Socket (Family (..), PortNumber, SockAddr (..), tupleToHostAddress)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (Socket)
import Weft.Tcp.Device
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Arrivals (finish)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (newStack)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Stack)

tests :: TestTree
tests =
  testGroup
    "calls and packets"
    [ testCase "a port is free again when its socket could not connect and is closed" notConnected
    ]

stackOn :: Device -> [Address] -> IO Stack
stackOn device addresses = newStack (defaultTcpSettings (pure device) addresses) device

opened :: Stack -> Family -> IO Socket
opened st family =
  openSock st family >>= \case
    Answer s -> pure s
    _ -> assertFailure "no socket"

-- | The answer to an attempt, the number of its error, or nothing if it has to wait.
gives :: (Eq a, Show a) => Either (Maybe CInt) a -> Verdict a -> IO ()
gives expected verdict = came @?= expected
  where
    came = case verdict of
      Answer a -> Right a
      Refuse e -> Left (Just (errorNumber e))
      Again _ _ -> Left Nothing

errorNumber :: Errno -> CInt
errorNumber (Errno n) = n

-- | A port of this host.
here :: PortNumber -> SockAddr
here port = SockAddrInet port (tupleToHostAddress (127, 0, 0, 1))

notConnected :: IO ()
notConnected = do
  st <- stackOn noDevice []
  s <- opened st AF_INET
  bindSock st s (here 4000) >>= gives (Right ())
  connectSock st s (here 81) Nothing Nothing 1 >>= gives (Left Nothing)
  -- Nobody listens, which the stack tells itself.
  finish st Nothing 1
  connectSock st s (here 81) Nothing Nothing 2 >>= gives (Left (Just (errorNumber eCONNREFUSED)))
  localOf st s >>= gives (Right (here 4000))
  closeSock st s Nothing 3 >>= gives (Right ())
  another <- opened st AF_INET
  bindSock st another (here 4000) >>= gives (Right ())
