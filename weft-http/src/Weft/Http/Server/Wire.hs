{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Bytes of a connection, with their deadlines
-- Stability   : not home
--
-- Receiving and sending on a connection, whether it is a plain socket or has a layer
-- around it, and the context that all sessions of a server share.
module Weft.Http.Server.Wire
  ( -- * The context of sessions
    Context (..),
    newContext,
    report,
    abort,

    -- * Functions that make threads
    runOnce,

    -- * Receiving
    receiveTo,
    receiveMore,
    receivePiece,

    -- * Sending
    sendOnce,
    sendHere,
    sendNow,
    sendNowInTurn,
    InTurn (..),
    sendPieces,
    sendBefore,
    sendFileNow,
    sendFileOnce,
    endSending,
  )
where

import Control.Monad (unless)
import Data.Bits (testBit)
import Data.ByteString qualified as B
import Data.ByteString.Internal (ByteString (BS))
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.Int (Int64)
import Data.Maybe (isNothing)
import Data.Primitive.PrimVar (readPrimVar)
import Data.Word (Word8)
import Foreign.Ptr (Ptr, castPtr)
import GHC.Exts (oneShot)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import Weft
import Weft.Buffer
import Weft.File (File)
import Weft.Http.Server.Input
import Weft.Http.Server.Pace
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Internal.Backend (Descriptor (..))
import Weft.Internal.Buffer (unsafeFreeze)
import Weft.Internal.Kernel.Env (closedBit)
import Weft.Internal.SendNow (Behind (..), Turn, isBusy, notYours, takeTurn, wasClosed)
import Weft.Internal.SendNow qualified as SendNow
import Weft.Internal.Sys qualified as Sys
import Weft.Internal.SystemCall (fileDescriptor, socketDescriptor)
import Weft.Internal.Trace (Thread (..))
import Weft.Socket

-- | What all sessions of a server share.
data Context = Context
  { contextServer :: !Server,
    -- | Does nobody want to know of responses?
    contextQuiet :: !Bool
  }

-- | For sessions of this server.
newContext :: Server -> Context
newContext server = Context server (isNothing (serverAccessLog settings) && isNothing (serverObserver settings))
  where
    settings = serverSettings server

-- | Tell the operator.
report :: Context -> String -> Thread ()
report context = liftIO . serverReport (serverSettings (contextServer context))

-- | End the connection, with this for the operator.
abort :: Context -> String -> Thread a
abort context why = report context why >> throwM (Aborted why Nothing)

-- Note [The continuation is a parameter]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread is a function of its continuation. A function that makes one, and has something
-- to evaluate first, is compiled as two: it evaluates, makes a closure of all that the
-- thread needs, and that is given its continuation. GHC must assume that the thread
-- is run more than once, and what was evaluated is then shared. Here each is run once, where it was
-- made. 'runOnce' says so, and the continuation becomes one more parameter of the function: no
-- closure, and the call is a jump to known code.

-- | A thread that is run once for each time that it is made. (To run it more often is right,
-- too: what is evaluated before its first step is then evaluated again.)
runOnce :: Thread a -> Thread a
{- HLINT ignore runOnce "Avoid lambda" -}
runOnce (Thread body) = Thread (oneShot (\k -> body k))
{-# INLINE runOnce #-}

-- | As 'receiveInto'.
receiveTo :: Connection -> Buffer -> Int -> Int -> Thread Int
receiveTo c buffer offset count = case connectionTransport c of
  Nothing -> receiveInto (connectionSocket c) buffer offset count
  Just transport -> transportReceive transport buffer offset count
{-# INLINE receiveTo #-}

-- | Receive into what room there is; 'Nothing' at the end of the stream.
receiveMore :: Connection -> Input -> Thread (Maybe Input)
receiveMore c input = runOnce $ do
  roomy <- liftIO (withRoom input)
  case roomy of
    NoInput -> pure Nothing
    Input buffer from to -> do
      n <- receiveTo c buffer to maxBound
      pure (if n == 0 then Nothing else Just (Input buffer from (to + n)))

-- | Receive at most so many bytes into memory of their own.
receivePiece :: Connection -> Int -> Thread ByteString
receivePiece c count = runOnce $ do
  buffer <- liftIO (newBuffer count)
  n <- receiveTo c buffer 0 count
  unsafeFreeze buffer n

-- | Send some bytes: how many were taken.
sendOnce :: Connection -> ByteString -> Thread Int
sendOnce c bytes = case connectionTransport c of
  Nothing -> send (connectionSocket c) bytes
  Just transport -> transportSend transport [bytes]
{-# INLINE sendOnce #-}

-- Note [Sending in plain IO]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- What sends without a system call of the thread is called by the thread of the connection, and by
-- whatever thread an application has given its functions to: it may be one that the application
-- has left behind, when the connection has ended and its number is another client's, or
-- answers another request. The first is ruled out where the number is used
-- (Note [Sending from elsewhere] in "Weft.Internal.Backend"). The second here and in
-- "Weft.Http.Server.Answering": who sends a response takes its turn, and the session takes it
-- before it goes on ('sendNowInTurn', 'Weft.Internal.SendNow.takeTurn'); the content of a response
-- has a turn of its own, which is over when the content is (Note [The turn of a stream] in
-- "Weft.Http.Server.Streaming").

-- | The same in plain 'IO': what the system takes at once, which may be nothing. An error is
-- nothing, too; who sends the rest is told of it. Where another kernel than the system's
-- answers, nothing is taken: its descriptors have numbers that no process has. For the thread
-- of the connection only, which is who closes the socket.
sendHere :: Connection -> ByteString -> IO Int
sendHere = sendBy (Sys.send . descriptorNumber)

-- | The same from any thread: Note [Sending in plain IO].
sendNow :: Connection -> ByteString -> IO Int
sendNow = sendBehind NothingBehind

sendBehind :: Behind -> Connection -> ByteString -> IO Int
sendBehind behind = sendBy (`SendNow.sendNow` behind)

-- | By this call, if there is no layer.
sendBy :: (Descriptor -> Ptr Word8 -> Int -> IO Sys.Result) -> Connection -> ByteString -> IO Int
sendBy call c (BS content n) = case connectionTransport c of
  Nothing -> unsafeWithForeignPtr content $ \p -> max 0 <$> call (socketDescriptor (connectionSocket c)) p n
  Just _ -> pure 0
{-# INLINE sendBy #-}

-- | What has become of bytes that were to be sent in turn.
data InTurn
  = -- | So many were taken at once; the turn is the caller's.
    Taken !Int
  | -- | The turn is another thread's, or was.
    NotYours
  | -- | The connection has ended.
    Gone

-- | The same for who has not got the turn yet.
sendNowInTurn :: Turn -> Connection -> ByteString -> IO InTurn
sendNowInTurn turn c (BS content n) = case connectionTransport c of
  Just _ -> mine
  Nothing ->
    unsafeWithForeignPtr content (\p -> SendNow.sendOnce turn descriptor p n) >>= \r ->
      if
        | r >= 0 -> pure (Taken r)
        | r == notYours -> pure NotYours
        | r == wasClosed -> pure Gone
        | r == isBusy -> mine
        | otherwise -> pure (Taken 0)
  where
    descriptor = socketDescriptor (connectionSocket c)
    mine = (\before -> if before == 0 then Taken 0 else NotYours) <$> takeTurn turn descriptor
{-# INLINE sendNowInTurn #-}

-- | Send all pieces; whenever the client takes some of it, its time begins anew, but for what
-- 'serverResponseRate' asks. Nearly always all is taken at once, and there is nothing to be measured.
sendPieces :: Context -> Connection -> [ByteString] -> Thread ()
sendPieces context c = first . filter (not . B.null)
  where
    first [] = pure ()
    first pieces = runOnce $ do
      n <- sendInPassing server c (sendSome pieces)
      others (dropped n pieces)
    others [] = pure ()
    others pieces = runOnce $ do
      n <- sendAtPace server c (sendSome pieces)
      others (dropped n pieces)
    server = contextServer context
    sendSome = maybe (sendVector (connectionSocket c)) transportSend (connectionTransport c)
    dropped _ [] = []
    dropped n (p : ps)
      | n >= B.length p = dropped (n - B.length p) ps
      | otherwise = B.drop n p : ps

-- | Send bytes behind which the next part of a file is sent at once: they leave with it,
-- in one packet less.
sendBefore :: Context -> Connection -> ByteString -> Thread ()
sendBefore context c bytes = unless (B.null bytes) $ do
  n <- liftIO (sendBehind MoreBehind c bytes)
  unless (n == B.length bytes) (sendPieces context c [B.drop n bytes])

-- | Bytes, and behind them a part of a file (offset, size), as far as the system takes both
-- at once: how many octets that were. As with 'sendNow' it may be nothing, which it is where
-- the part is not in memory, or long. The file is the caller's, who closes it.
sendFileNow :: Connection -> ByteString -> File -> Int64 -> Int64 -> IO Int
sendFileNow c before file offset size
  | Nothing <- connectionTransport c,
    size <= 262_144 = do
      -- The number of one that was closed may be another's.
      marks <- readPrimVar (descriptorWorkers descriptor)
      if testBit marks closedBit
        then pure 0
        else unsafeUseAsCStringLen before $ \(p, n) ->
          max 0 <$> SendNow.sendFileNow (socketDescriptor (connectionSocket c)) (castPtr p) n descriptor offset (fromIntegral size)
  | otherwise = pure 0
  where
    descriptor = fileDescriptor file

-- | As 'sendFile'.
sendFileOnce :: Connection -> File -> Int64 -> Int -> Thread Int
sendFileOnce c = maybe (sendFile (connectionSocket c)) transportSendFile (connectionTransport c)

-- | Nothing more will be sent.
endSending :: Connection -> Thread ()
endSending c = maybe (shutdown (connectionSocket c) ShutdownSend) transportEnd (connectionTransport c)
