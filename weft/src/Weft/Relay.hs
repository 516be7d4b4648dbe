-- |
-- Moving bytes between two sockets, as proxies do.
--
-- @
-- session client _ = 'Weft.Socket.withSocket' ('Weft.Socket.connectTcp' ('Weft.seconds' 5) \"127.0.0.1\" \"5432\") $ \\server ->
--   'relay' client server
-- @
--
-- [Memory] A direction has one buffer of 16 KB and receives again when all of that was sent: a slow reader
--   slows its writer down, and nothing piles up in the program.
-- [Half-close] An end of stream is passed on as one: the other socket is shut down for sending.
module Weft.Relay (relay, forward) where

import Control.Monad (unless)
import Control.Monad.Catch (catch, throwM)
import Control.Monad.IO.Class (liftIO)
import Data.Int (Int64)
import Data.Primitive.PrimVar (modifyPrimVar, newPrimVar, readPrimVar)
import Foreign.C.Error (Errno (..), eNOTCONN)
import GHC.IO.Exception (ioe_errno)
import Weft.Buffer
import Weft.Concurrently (concurrently)
import Weft.Internal.Core.Buffer (unsafeSlice)
import Weft.Internal.Core.Trace (Thread)
import Weft.Socket

-- | Move bytes in both directions until both have ended: how many went from the first socket, and back.
--
-- An error in one direction, or a cancellation, ends the other, too, and is raised. Neither socket is
-- closed here, and after an error bytes may be missing at its other end. It takes two threads.
relay :: Socket -> Socket -> Thread (Int64, Int64)
relay one other = concurrently (forward one other) (forward other one)

-- | Move bytes until the first socket has no more; then shut the second down for sending. How many.
forward :: Socket -> Socket -> Thread Int64
forward from to = do
  buffer <- liftIO (newBuffer 16_384)
  count <- liftIO (newPrimVar (0 :: Int64))
  receiveEachInto from buffer $ \n ->
    if n == 0
      then (shutdown to ShutdownSend `catch` unlessGone) *> liftIO (Just <$> readPrimVar count)
      else do
        -- Shares the buffer, which is received into again when all was sent.
        sendAll to (unsafeSlice buffer 0 n)
        Nothing <$ liftIO (modifyPrimVar count (+ fromIntegral n))
  where
    -- It was reset, so no thread waits for an end. A thread that receives from it learns why.
    unlessGone e = unless (ioe_errno e == Just notConnected) (throwM e)
    Errno notConnected = eNOTCONN
