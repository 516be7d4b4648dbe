{-# OPTIONS_HADDOCK not-home #-}

-- | The types that the parts of the server share: the server, its open connections, and their phases.
module Weft.Http.Server.State
  ( module Weft.Http.Server.Types,
    Server (..),
    Stage (..),
    Answers (..),
    Answerer (..),
    layoutOf,
    isPlain,
    Open (..),
    isInUse,
    observe,

    -- * Connections
    Member (..),
    Pulse,
    newPulse,
    phaseWord,
    readDeadline,
    writeDeadline,
    countRequest,
    readCredit,
    writeCredit,
    wasRevived,
    noteRevived,
    memberNumber,
    setNumber,
    Connection (..),
    connectionSocket,
    Phase (..),
    ServiceState (..),

    -- * Interruptions
    Interruption (..),
    Reason (..),
    Aborted (..),
  )
where

import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.Map.Strict (Map)
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar (PrimVar (..))
import Weft (Thread, ThreadId)
import Weft.Attempt (Attempts)
import Weft.Http.Internal.Address (Address, Peer)
import Weft.Http.Server.Heads (Heads, Reading (..))
import Weft.Http.Server.Layout
import Weft.Http.Server.Render (OwnFields)
import Weft.Http.Server.Types
import Weft.Internal.Core.Standing (Intake)
import Weft.Kernel (Waiter)
import Weft.Socket (Socket)

-- | A running server.
data Server = Server
  { serverSettings :: !ServerSettings,
    serverAnswers :: !Answers,
    serverClock :: !Clock,
    serverOwnFields :: !(IORef OwnFields),
    serverHeads :: !(Heads Answerer),
    serverAttempts :: !Attempts,
    serverConnections :: !(IORef Open),
    serverStage :: !(IORef Stage),
    -- | When the current tick began, and by how much later a phase may last, in nanoseconds (maxBound:
    -- for ever): what "Weft.Http.Server.Phase" needs, near at hand.
    serverSince :: {-# UNPACK #-} !(PrimVar RealWorld Int64),
    serverAllowed :: {-# UNPACK #-} !(PrimArray Int64),
    -- | Handlers at work; counted where their number is limited.
    serverBusy :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | When operators may be told again that there are as many connections as there may be.
    serverFullSaid :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | What becomes of connections that are at rest.
data Stage
  = -- | They are kept.
    Serving
  | -- | They are given to this, unless it refuses.
    HandingOver (Socket -> Thread Bool)
  | -- | They end.
    Draining

data Answers
  = -- | First what is at hand, if anything may be.
    ByHandler !(Maybe AtHand) !Handler
  | ByApplication Application
  | ByPlain PlainApplication

-- | The answerer that is kept with a head, and the fields of its other responses.
data Answerer
  = -- | What had its answer at hand the last time ('AtHand').
    AtHandBefore {-# UNPACK #-} !(IORef (IO (Maybe Response))) !Layout
  | -- | Of a request that was all that had come, and has no body.
    AnswersPlainly !PlainAnswer !Layout
  | NoAnswerer !Layout

layoutOf :: Reading Answerer -> Layout
layoutOf = \case
  Known _ answerer -> case answerer of
    AtHandBefore _ layout -> layout
    AnswersPlainly _ layout -> layout
    NoAnswerer layout -> layout
  Fresh _ -> NoLayout

-- | Has a request no body, and is nothing to be asked before it is answered?
isPlain :: ServerSettings -> RequestHead -> Bool
isPlain settings h = case headFraming h of
  NoBody -> serverMaxHandlers settings <= 0 && headExpectation h /= ExpectUnknown
  _ -> False

-- | The open connections by number. The server is in use while there are some or a thread may make one.
data Open = Open
  { openConnections :: !(IntMap Member),
    -- | How many each peer has; empty unless that is limited.
    openPeers :: !(Map Address Int),
    openNext :: !Int,
    -- | Kept beside the map, whose size is not constant to compute.
    openCount :: !Int,
    openRefusing :: !Int,
    -- | How many may make a connection yet: acceptors, and 'Weft.Http.Server.drain'.
    openHeld :: !Int,
    openTicking :: !Bool,
    -- | Acceptors that wait for room. Strict: a thunk would refer to the state before, for days.
    openRoom :: ![Waiter ()],
    openNone :: ![Waiter ()]
  }

-- Note [A connection at rest]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Most of the connections of a server have nothing to do, so what each keeps while it rests is small:
-- the 'Member', which the registry holds, and a thread with one handler. The 'Connection' of a session
-- is made anew when the client comes back. A server's memory and the collector's pauses depend on it.

-- | An open connection, as the registry and the ticker know it.
data Member = Member
  { memberSocket :: !Socket,
    memberPeer :: !Peer,
    memberPulse :: !Pulse,
    -- | The thread that is condemned when the phase is 'Cut' or 'Resting', and whether that applies.
    memberService :: {-# UNPACK #-} !(IORef ServiceState)
  }

-- | The part of a connection's state that changes with each request, in memory that the collector skips. Words:
--
-- 0. the phase (4 bits) and how many phases were entered (the rest), changed atomically;
-- 1. the deadline, monotonic nanoseconds; maxBound for none;
-- 2. requests so far, counted where their number is limited;
-- 3. the number of the connection in the registry;
-- 4. for how long the client may yet be waited for to take some of a response, in nanoseconds
--    ("Weft.Http.Server.Pace");
-- 5. whether it has been revived ('Weft.Http.Server.Phase.revive'): 0 or 1.
newtype Pulse = Pulse (MutablePrimArray RealWorld Int)

-- | With these first two words, and this credit.
newPulse :: Int -> Int64 -> Int64 -> IO Pulse
newPulse word deadline credit = do
  words' <- newPrimArray 6
  setPrimArray words' 0 6 0
  writePrimArray words' 0 word
  writePrimArray words' 1 (fromIntegral deadline)
  writePrimArray words' 4 (fromIntegral credit)
  pure (Pulse words')

phaseWord :: Member -> PrimVar RealWorld Int
phaseWord m = case memberPulse m of
  Pulse words' -> PrimVar words'

readWord :: Int -> Member -> IO Int
readWord i m = case memberPulse m of
  Pulse words' -> readPrimArray words' i

writeWord :: Int -> Member -> Int -> IO ()
writeWord i m word = case memberPulse m of
  Pulse words' -> writePrimArray words' i word

readDeadline, readCredit :: Member -> IO Int64
readDeadline m = fromIntegral <$> readWord 1 m
readCredit m = fromIntegral <$> readWord 4 m

writeDeadline, writeCredit :: Member -> Int64 -> IO ()
writeDeadline m = writeWord 1 m . fromIntegral
writeCredit m = writeWord 4 m . fromIntegral

-- | One more request has come: how many there were.
countRequest :: Member -> IO Int
countRequest m = do
  n <- (+ 1) <$> readWord 2 m
  n <$ writeWord 2 m n

memberNumber :: Member -> IO Int
memberNumber = readWord 3

setNumber :: Member -> Int -> IO ()
setNumber = writeWord 3

wasRevived :: Member -> IO Bool
wasRevived m = (/= 0) <$> readWord 5 m

noteRevived :: Member -> IO ()
noteRevived m = writeWord 5 m 1

-- | A connection as its session knows it.
data Connection = Connection
  { connectionMember :: !Member,
    -- | The transport that a layer has put around the socket.
    connectionTransport :: !(Maybe Transport),
    -- | The reader of the socket, where there is no layer, and some of a request has come.
    connectionIntake :: !(Maybe Intake),
    connectionClient :: !ClientInfo
  }

-- | The socket beneath all layers.
connectionSocket :: Connection -> Socket
connectionSocket = memberSocket . connectionMember

-- | The thread of a connection, once it is known, and whether the interruptions sent to it apply:
-- mostly none; more than one where ticker and 'Weft.Http.Server.cutOff' met.
data ServiceState
  = Unserved
  | Served !ThreadId [IORef Bool]

-- | The current activity of a connection.
data Phase
  = -- | Between two requests.
    Idle
  | -- | Some of a head has come, or the connection is new.
    ReceivingHead
  | ReceivingBody
  | -- | The handler works.
    Handling
  | -- | The content of a response is being made, or another protocol is spoken.
    Streaming
  | Sending
  | -- | The response was sent; what the client still sends is thrown away.
    Lingering
  | Expired
  | -- | The handler was interrupted.
    Cut
  | -- | Idle for a while, and asked to wait without a buffer.
    Resting
  | -- | Idle, and not to be asked: without a buffer, or with a layer.
    Dormant
  | -- | The response was sent, and its application goes on.
    Finishing
  | -- | 'ReceivingBody', until the client has been slower than it may be ("Weft.Http.Server.Pace").
    ReceivingAtPace
  | -- | 'Sending', in the same way.
    SendingAtPace
  deriving stock (Eq, Show, Enum, Bounded)

-- | Interrupts a handler, or the receive of an idle connection.
data Interruption = Interruption !Reason !(IORef Bool)

data Reason
  = -- | 'timeoutHandler' has passed.
    HandlerTooSlow
  | -- | The client has reset the connection.
    ClientGone
  | -- | An idle connection needs no buffer.
    BufferUnused
  deriving stock (Eq, Show)

instance Show Interruption where
  show (Interruption reason _) = case reason of
    HandlerTooSlow -> "the time of the handler is over"
    ClientGone -> "the client is gone"
    BufferUnused -> "the connection is idle"

instance Exception Interruption where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException

-- | The connection must end, as was reported where it should be; perhaps with the reason.
data Aborted = Aborted String (Maybe SomeException)

instance Show Aborted where
  show (Aborted why _) = why

instance Exception Aborted

isInUse :: Open -> Bool
isInUse open = openCount open + openHeld open + openRefusing open > 0

observe :: Server -> Observation -> IO ()
observe server observation = for_ (serverObserver (serverSettings server)) ($ observation)
