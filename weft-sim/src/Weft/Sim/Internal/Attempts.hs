{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What a simulated kernel does at once or not at all
--
-- The simulated 'Attempts', made in the middle of an effect on the OS thread that runs the
-- simulation. Each is reported to the run's observer, because it orders the threads that make it
-- as a system call does; each may fail although it could succeed ('failedAttempts').
module Weft.Sim.Internal.Attempts (attemptsOf, attempting, wouldBlock) where

import Control.Concurrent (ThreadId, myThreadId)
import Control.Exception (SomeException, fromException)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Foreign.C.Error (Errno (..), eAGAIN, eIO)
import GHC.IO.Exception (ioe_errno)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace (Home (..), Probe (..))
import Weft.Internal.Kernel (Host (hostHome))
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk
import Weft.Sim.Internal.Network.Descriptors
import Weft.Sim.Internal.Network.Line
import Weft.Sim.Internal.Network.Streams
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

attemptsOf :: Network -> Disks -> Ask -> IO Attempts
attemptsOf net disks ask = do
  driver <- myThreadId
  let trying what s act = attempting (askWorld ask) (hostHome (askHost ask)) driver what s $ \unlessUnlucky ->
        thingAt net (socketDescriptor s) >>= \case
          Nothing -> pure shutDown
          Just (ThingSocket sock) -> readIORef (sockRole sock) >>= onRole unlessUnlucky act
          Just _ -> pure wouldBlock
  pure
    Attempts
      { attemptSend = \s _ bytes -> trying ("send " <> show (ByteString.length bytes) <> " bytes on ") s $ \end -> sendToEnd net end "send" [bytes],
        attemptSendFile = \s before file offset size ->
          trying ("send " <> show (ByteString.length before) <> " bytes and " <> show size <> " of a file on ") s $ \end ->
            contentsFrom disks file offset size >>= \case
              Right part | ByteString.length part == size -> sendToEnd net end "send" [before, part]
              -- The file has become shorter or is unreadable: the call that may wait reports it.
              _ -> blocked,
        attemptReceive = \s buffer offset count -> trying "receive on " s $ \end -> receiveFromEnd net end "receive" buffer offset count
      }
  where
    onRole unlessUnlucky act = \case
      Streaming end -> unlessUnlucky (maybe wouldBlock (either failed id) <$> act end)
      _ -> pure wouldBlock

-- | Make an attempt at a socket, and report it. Only the OS thread that runs the world, here the
-- given one, may touch the world: on every other thread of GHC an attempt answers that it would have to
-- wait. The attempt is given what refuses by chance.
attempting :: World -> Home -> ThreadId -> String -> Socket -> ((IO Int -> IO Int) -> IO Int) -> IO Int
attempting world home driver what s attempt = do
  here <- (== driver) <$> myThreadId
  if not here
    then pure wouldBlock
    else do
      r <- attempt unlessUnlucky
      for_ (homeProbe home) $ \probe -> probeAttempt probe ("tries to " <> what <> show s <> ": " <> show r)
      pure r
  where
    unlessUnlucky act = do
      refused <- decide world (Attempting (failedAttempts (worldConditions world)))
      if refused > 0 then pure wouldBlock else act

-- | As the system calls answer: that it would have to wait, and that the socket was shut down.
wouldBlock, shutDown :: Int
wouldBlock = negated eAGAIN
shutDown = negated (Errno 108)

-- | The result that encodes the exception of an attempt.
failed :: SomeException -> Int
failed e = negated (maybe eIO Errno (ioe_errno =<< fromException e))

negated :: Errno -> Int
negated (Errno e) = negate (fromIntegral e)
