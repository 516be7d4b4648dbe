-- |
-- Description : A stack without threads
--
-- A test makes attempts and passes packets as the stack's turn does, and sets the clock. Nobody
-- waits, so nobody is woken.
module Attempting
  ( stackOn,
    opened,
    openedFor,
    gives,
    errorNumber,
    here,
    counted,
  )
where

import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Foreign.C.Error
import Foreign.C.Types (CInt)
import Network.Socket (Family (..), PortNumber, SockAddr (..), SocketType (..), tupleToHostAddress)
import Test.Tasty.HUnit
import Weft.Internal.Core.SystemCall (Socket)
import Weft.Tcp.Device
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (gauges, newStack)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Stack)

stackOn :: Device -> [Address] -> IO Stack
stackOn device addresses = newStack (defaultTcpSettings (pure device) addresses) device

-- | A new socket for streams, and for what is said.
opened :: Stack -> Family -> IO Socket
opened st = openedFor st Stream

openedFor :: Stack -> SocketType -> Family -> IO Socket
openedFor st kind family =
  openSock st family kind >>= \case
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

-- | A counter of the stack.
counted :: Stack -> String -> IO (Maybe Int)
counted st name = Map.lookup (Text.pack name) <$> gauges st
