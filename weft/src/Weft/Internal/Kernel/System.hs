{-# LANGUAGE GADTs #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The kernel that answers with the operating system
-- Stability   : not home
--
-- Puts the parts together: which part answers which system call, and how a worker
-- waits for the first of an event, a timer and a wake-up.
module Weft.Internal.Kernel.System
  ( systemKernel,
    SystemSettings (..),
    defaultSystemSettings,
  )
where

import Control.Exception (toException)
import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.ByteString.Internal qualified as ByteString (create)
import Data.IORef
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Foreign.Ptr (plusPtr)
import Weft.Internal.Backend hiding (Operation (..))
import Weft.Internal.Backend qualified as Operation
import Weft.Internal.Backend.Choose
import Weft.Internal.Kernel
import Weft.Internal.Kernel.Env
import Weft.Internal.Kernel.Files
import Weft.Internal.Kernel.Network
import Weft.Internal.Kernel.Signals
import Weft.Internal.Net
import Weft.Internal.Policy (Why (..))
import Weft.Internal.Pool
import Weft.Internal.Sys qualified as Sys
import Weft.Internal.SystemCall
import Weft.Internal.Time
import Weft.Internal.Timers qualified as Timers
import Weft.Internal.Trace

-- | How the system kernel is set up.
data SystemSettings = SystemSettings
  { -- | Which event source. Default 'Auto'.
    systemBackend :: !BackendChoice,
    -- | How many OS threads at most carry out what blocks ('Weft.blocking', name
    -- resolution, and disk operations where the backend has none of its own), for
    -- all workers together. Default 16. Further requests wait in a queue.
    systemPool :: !PoolSettings
  }

-- | The defaults.
defaultSystemSettings :: SystemSettings
defaultSystemSettings = SystemSettings Auto defaultPoolSettings

-- | The operating system.
systemKernel :: SystemSettings -> Kernel
systemKernel settings =
  Kernel
    { kernelName = "system",
      openKernel = \workers -> do
        pool <- newPool (systemPool settings)
        peers <- newArray workers Nothing
        choose <- chooseBackend (systemBackend settings)
        pure
          Opened
            { startKernel = startSystem choose pool peers,
              closeKernel = shutdownPool pool
            }
    }

startSystem :: Chosen -> Pool -> MutableArray RealWorld (Maybe Env) -> Host -> IO Instance
startSystem choose pool peers host = do
  backend <- startBackend choose pool (hostPost host) (hostReport host)
  timers <- Timers.new
  pendingOperations <- newPrimVar 0
  starved <- newIORef []
  let env =
        Env
          { envHost = host,
            envBackend = backend,
            envTimers = timers,
            envPool = pool,
            envPeers = peers,
            envPending = pendingOperations,
            envStarved = starved
          }
  writeArray peers (hostWorker host) (Just env)
  pure
    Instance
      { instanceAnswer = AnswerCall (\tcb request k -> answerSystem env tcb request k),
        instancePoll = pollSystem env,
        instanceWake = wake backend,
        instanceStop = shutdown backend
      }

-- | Answer one system call.
answerSystem :: Env -> Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
answerSystem env tcb request k = case request of
  Receive s b o n -> receive env s b o n tcb k
  Send s b -> send env s b tcb k
  SendVector s bs -> sendVector env s bs tcb k
  AwaitReadable s -> awaitReady env (Operation.AwaitReadable (socketDescriptor s)) s tcb k
  AwaitWritable s -> awaitReady env (Operation.AwaitWritable (socketDescriptor s)) s tcb k
  Now -> Sys.monotonicNow >>= \t -> pure $! k (Instant t)
  SleepUntil t -> do
    _ <- Timers.insert (envTimers env) (instantNanoseconds t) (WakeThread tcb k)
    pure Parked
  Accept s limit -> acceptSocket env s limit tcb k
  Connect s a limit -> connectSocket env s a limit tcb k
  OpenSocket f t -> openSocket f t tcb k
  Bind s a -> bindSocket s a tcb k
  Listen s n -> listenSocket s n tcb k
  ReceiveFrom s b -> receiveFrom env s b tcb k
  SendTo s b a -> sendTo env s b a tcb k
  SendFile s f o n -> sendFile env s (fileDescriptor f) o n tcb k
  Shutdown s how -> unlessClosed "shutdown" (socketDescriptor s) $ do
    r <- c_shutdown (descriptorNumber (socketDescriptor s)) (case how of ShutdownReceive -> 0; ShutdownSend -> 1; ShutdownBoth -> 2)
    pure $! failing "shutdown" Nothing (\_ -> k ()) (fromIntegral r)
  CloseSocket s -> closeDescriptor env (socketDescriptor s) tcb k
  GetOption s o -> getOption s o tcb k
  SetOption s o v -> setOption s o v tcb k
  LocalAddress s -> localAddress s tcb k
  PeerAddress s -> peerAddress s tcb k
  Resolve hints h p -> resolve env hints h p tcb k
  OpenPipe -> openPipe tcb k
  OpenFifo path mode -> openFifo path mode tcb k
  ReadPipe p b o n -> readPipe env p b o n tcb k
  WritePipe p b -> writePipe env p b tcb k
  ClosePipe p -> closeDescriptor env (pipeDescriptor p) tcb k
  OpenFile place path mode flags -> openFile env place path mode flags tcb k
  ReadFile f b o n at -> readFileAt env f b o n at tcb k
  WriteFile f b at -> writeFileAt env f b at tcb k
  WriteBuffer f b o n at -> writeBufferAt env f b o n at tcb k
  SyncFile f d -> syncFile env f d tcb k
  FileStatusOf f -> fileStatus env f tcb k
  PathStatus place path -> pathStatus env place path tcb k
  SetFileSize f n -> setFileSize env f n tcb k
  CloseFile f -> closeDescriptor env (fileDescriptor f) tcb k
  ListDirectory f -> listDirectory env f tcb k
  MakeDirectory path -> makeDirectory env path tcb k
  RemovePath path -> removePath env path tcb k
  RenamePath a b -> renamePath env a b tcb k
  WallClock -> c_wall_clock >>= \t -> pure $! k t
  RandomBytes n -> randomBytes n >>= \b -> pure $! k b
  OpenSignals wanted -> openSignals wanted >>= \s -> pure $! k s
  NextSignal s -> answerSuspend (envHost env) (nextSignal s) tcb k
  CloseSignals s -> closeSignals s >> (pure $! k ())
  WorkerCount -> pure $! k (hostWorkers (envHost env))
  Blocking action -> inPool env action tcb k
  Suspend _ action -> answerSuspend (envHost env) action tcb k
  Extend e -> pure (Throw (toException (userError ("no kernel extension answers the request " <> show e))))

awaitReady :: Env -> Operation.Operation -> Socket -> Tcb -> (() -> Trace) -> IO Trace
awaitReady env operation s tcb k =
  operate env Completed (socketDescriptor s) operation (pure ()) tcb (failing "wait" Nothing (\_ -> k ()))

-- | Collect what has happened: timers that are due, operations that completed.
-- Blocks, when it may, until the first timer or event.
pollSystem :: Env -> Bool -> IO Bool
pollSystem env mayBlock = do
  sleeping <- Timers.size timers
  if sleeping == 0
    then collect (if mayBlock then forever else noWait)
    else do
      now <- Sys.monotonicNow
      fired <- expire now
      if fired > 0 || not mayBlock
        then (\found -> found || fired > 0) <$> collect noWait
        else do
          next <- Timers.nextDeadline timers
          found <- collect (if next == Timers.never then forever else max 1 (next - now))
          late <- Sys.monotonicNow >>= expire
          pure (found || late > 0)
  where
    timers = envTimers env
    expire now = Timers.popExpired timers now $ \case
      WakeThread tcb resume -> hostReady (envHost env) Woken tcb resume
      Alarm act -> act
    -- With nothing pending there is nothing to find, and no reason to ask.
    collect timeout = do
      pendingOperations <- readPrimVar (envPending env)
      if timeout == noWait && pendingOperations == 0
        then pure False
        else (> 0) <$> poll (envBackend env) timeout

-- | From the system's generator, which does not run dry.
randomBytes :: Int -> IO ByteString
randomBytes n = ByteString.create (max 0 n) (fill (max 0 n))
  where
    fill 0 _ = pure ()
    fill left p = do
      -- Requests of up to 256 bytes are always answered whole.
      r <- c_getrandom p (fromIntegral (min 256 left))
      when (r < 0) $ ioError (userError "getrandom failed")
      fill (left - fromIntegral r) (p `plusPtr` fromIntegral r)
