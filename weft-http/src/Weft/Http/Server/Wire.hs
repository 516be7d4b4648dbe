{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Receiving and sending on a connection, with deadlines, whether or not a layer is around its socket;
-- and the context that all sessions share. Every response leaves here: Note [Trying first].
module Weft.Http.Server.Wire
  ( Context (..),
    Shortcut (..),
    newContext,
    report,
    abort,
    abortNow,
    runOnce,
    transportOf,
    receiveTo,
    receiveMore,
    receivePiece,
    tryWrite,
    tryWriteAll,
    write,
    writeFilePart,
    endSending,
  )
where

import Control.Exception (throwIO)
import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Data.Maybe (fromMaybe, isNothing)
import GHC.Exts (oneShot)
import Weft
import Weft.Attempt
import Weft.Buffer
import Weft.File (File)
import Weft.Http.Server.Input
import Weft.Http.Server.Pace
import Weft.Http.Server.State
import Weft.Internal.Core.Trace (Thread (..))
import Weft.Socket (dropBytes)

data Context = Context
  { contextServer :: !Server,
    -- | Are responses neither logged nor observed?
    contextQuiet :: !Bool,
    contextShortcut :: !Shortcut
  }

-- | What is tried first with bytes on an idle connection, if requests are neither counted nor observed.
data Shortcut
  = NoShortcut
  | AtHandFirst !AtHand
  | PlainFirst

newContext :: Server -> Context
newContext server = Context server quiet shortcut
  where
    settings = serverSettings server
    quiet = isNothing (serverAccessLog settings) && isNothing (serverObserver settings)
    shortcut
      | quiet,
        serverMaxRequests settings <= 0,
        serverMaxHandlers settings <= 0 = case serverAnswers server of
          ByHandler (Just found) _ -> AtHandFirst found
          ByPlain _ -> PlainFirst
          _ -> NoShortcut
      | otherwise = NoShortcut

report :: Context -> String -> Thread ()
report context = liftIO . serverReport (serverSettings (contextServer context))

-- | End the connection, with this for the operator.
abort :: Context -> String -> Thread a
abort context = liftIO . abortNow context

abortNow :: Context -> String -> IO a
abortNow context why = serverReport (serverSettings (contextServer context)) why >> throwIO (Aborted why Nothing)

-- Note [The continuation is a parameter]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread is a function of its continuation. A function that makes one, and has something to evaluate
-- first, is compiled as two: it evaluates, and makes a closure of all that the thread needs, which is
-- given its continuation, because GHC must assume that the thread is run more than once. Here each is
-- run once, where it was made. 'runOnce' says so, and the continuation becomes one more parameter: no
-- closure, and the call is a jump.

-- | A thread that is run once for each time that it is made. (More often is right, too.)
runOnce :: Thread a -> Thread a
{- HLINT ignore runOnce "Avoid lambda" -}
runOnce (Thread body) = Thread (oneShot (\k -> body k))
{-# INLINE runOnce #-}

receiveTo :: Connection -> Buffer -> Int -> Int -> Thread Int
receiveTo = transportReceive . transportOf

transportOf :: Connection -> Transport
transportOf c = fromMaybe (socketTransport (connectionSocket c)) (connectionTransport c)

-- | Receive into what room there is; 'Nothing' at the end of the stream.
receiveMore :: Connection -> Input -> Thread (Maybe Input)
receiveMore c input =
  runOnce $
    liftIO (withRoom input) >>= \case
      NoInput -> pure Nothing
      Input buffer from to -> do
        n <- receiveTo c buffer to maxBound
        pure (if n == 0 then Nothing else Just (Input buffer from (to + n)))

-- | Receive at most this number of bytes into memory of their own.
receivePiece :: Connection -> Int -> Thread ByteString
receivePiece = receiveBytes . transportOf

-- Note [Trying first]
-- ~~~~~~~~~~~~~~~~~~~
-- All bytes of a server leave here, except with a layer. A connection that has room takes them in plain
-- 'IO' ("Weft.Attempt"), without a deadline. Only what is left is sent by calls that wait, each under
-- its own deadline ("Weft.Http.Server.Pace"). The thread that writes owns the exchange (Note [The owner
-- of an exchange] in "Weft.Http.Server.Exchange"), or is the session between two exchanges.

-- | Send as much as the client takes at once, from any thread: how many bytes. None under a layer, or
-- when the connection was closed; 'write' is told of errors.
tryWrite :: Context -> Connection -> ByteString -> IO Int
tryWrite context c bytes = case connectionTransport c of
  Nothing -> trySend (attemptsOf context) (connectionSocket c) bytes
  Just _ -> pure 0

attemptsOf :: Context -> Attempts
attemptsOf = serverAttempts . contextServer

-- | Send as much of several pieces as the client takes at once, from any thread: the rest.
tryWriteAll :: Context -> Connection -> [ByteString] -> IO [ByteString]
tryWriteAll = tryAll False

-- | 'tryWriteAll', where more follows if the flag says so.
tryAll :: Bool -> Context -> Connection -> [ByteString] -> IO [ByteString]
tryAll more context c pieces = case connectionTransport c of
  Nothing -> go (together pieces)
  Just _ -> pure (filter (not . B.null) pieces)
  where
    go [] = pure []
    go (piece : rest) = do
      n <- (if more || not (null rest) then trySendMore else trySend) (attemptsOf context) (connectionSocket c) piece
      if n == B.length piece then go rest else pure (B.drop n piece : rest)

write :: Context -> Connection -> [ByteString] -> Thread ()
write = writeBefore False

-- | 'write', where more follows at once if the flag says so: it leaves in one packet with the last.
writeBefore :: Bool -> Context -> Connection -> [ByteString] -> Thread ()
writeBefore more context c pieces = runOnce (liftIO (tryAll more context c pieces) >>= waiting)
  where
    waiting [] = pure ()
    waiting left = do
      n <- sendAtPace (contextServer context) c (transportSend (transportOf c) left)
      waiting (dropBytes n left)

-- | The same bytes in few pieces: small ones are joined, which costs less than to send each.
together :: [ByteString] -> [ByteString]
together = go [] 0
  where
    go joined size = \case
      piece : rest | size + B.length piece <= 32_768 -> go (piece : joined) (size + B.length piece) rest
      rest
        | size > 0 -> B.concat (reverse joined) : go [] 0 rest
        | piece : rest' <- rest -> piece : go [] 0 rest'
        | otherwise -> []

-- | Send bytes, and a part of a file (offset, size). A file that has become shorter ends the connection.
writeFilePart :: Context -> Connection -> ByteString -> File -> Int64 -> Int64 -> Thread ()
writeFilePart context c before file offset size = runOnce $ do
  -- Nearly always all of it is in memory, and taken at once.
  sent <- case connectionTransport c of
    Nothing -> liftIO (trySendFile (attemptsOf context) (connectionSocket c) before file offset (fromIntegral size))
    Just _ -> pure 0
  unless (sent == B.length before + fromIntegral size) $ do
    let more = fromIntegral (max 0 (sent - B.length before))
    writeBefore True context c [B.drop sent before]
    going (offset + more) (size - more)
  where
    sendSome = transportSendFile (transportOf c)
    -- In turns, so that progress moves the deadline.
    going from count = unless (count <= 0) $ do
      n <- sendAtPace (contextServer context) c (sendSome file from (fromIntegral (min count 524_288)))
      when (n == 0) $ abort context "a file became shorter while it was sent; the connection was cut off"
      going (from + fromIntegral n) (count - fromIntegral n)

endSending :: Connection -> Thread ()
endSending = transportEnd . transportOf
