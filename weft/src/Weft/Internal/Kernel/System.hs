{-# LANGUAGE GADTs #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The kernel that answers with the operating system. Which part answers which system call, and how
-- a worker waits for an event, a timer or a wake-up.
module Weft.Internal.Kernel.System (systemKernel, SystemSettings (..), defaultSystemSettings) where

import Control.Exception (toException)
import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.ByteString.Internal qualified as ByteString (create)
import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Data.Text qualified as Text
import Foreign.C.Types (CInt)
import Foreign.Ptr (plusPtr)
import GHC.Exts (oneShot)
import GHC.Stack (emptyCallStack)
import Weft.Internal.Backend hiding (Operation (..))
import Weft.Internal.Backend qualified as Operation (Operation (Await, AwaitFd))
import Weft.Internal.Backend.Choose
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Counters (Gauges)
import Weft.Internal.Data.Shortage (newShortage)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Data.Time
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Internal.Kernel
import Weft.Internal.Kernel.Attempts
import Weft.Internal.Kernel.Env
import Weft.Internal.Kernel.Files
import Weft.Internal.Kernel.Network
import Weft.Internal.Kernel.Signals
import Weft.Internal.Kernel.Standing
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Internal.Os.Foreign (ForeignWait (..), enter, withdraw)
import Weft.Internal.Os.Net
import Weft.Internal.Os.Pool
import Weft.Internal.Os.Sys qualified as Sys

-- | How the system kernel is set up.
data SystemSettings = SystemSettings
  { -- | Which event source. Default 'Auto'.
    systemBackend :: !BackendChoice,
    -- | How many OS threads at most carry out what blocks ('Weft.blocking', name resolution, and disk operations
    -- where the backend has none of its own), for all workers together. Further requests wait. Default 16.
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
              openedGauges = poolGauges <$> poolGauge pool,
              closeKernel = shutdownPool pool
            }
    }

startSystem :: Chosen -> Pool -> MutableArray RealWorld (Maybe Env) -> Host -> IO Instance
startSystem choose pool peers host = do
  backend <- startBackend choose pool (hostPost host) (hostReport host)
  env <-
    Env host backend
      <$> Timers.new
      <*> pure pool
      <*> pure peers
      <*> newPrimVar 0
      <*> newPrimVar 0
      <*> newPrimVar 0
      <*> Slots.new
      <*> newShortage
  writeArray peers (hostWorker host) (Just env)
  Sys.monotonicNow >>= writePrimVar (homeClock (hostHome host)) . fromIntegral
  pure
    Instance
      { instanceAnswer = AnswerCall (\tcb request k -> answerSystem env tcb request k),
        instancePoll = pollSystem env,
        instanceWake = wake backend,
        instanceAdopt = adopt backend,
        instanceWaits = visitWaits env,
        instanceInterrupt = interruptAnonymous env,
        instanceQuiet = isQuiet env,
        instanceGauges = workerGauges env,
        instanceStop = shutdown backend
      }

-- | For "Weft.Counters".
workerGauges :: Env -> IO Gauges
workerGauges env =
  Map.fromList
    <$> sequence
      [ (Text.pack "operations pending",) <$> readPrimVar (envPending env),
        (Text.pack "timers pending",) <$> Timers.size (envTimers env),
        (Text.pack "completions",) <$> readPrimVar (envCompleted env),
        (Text.pack "timers fired",) <$> readPrimVar (envFired env)
      ]

poolGauges :: PoolGauge -> Gauges
poolGauges (PoolGauge threads unused jobs) =
  Map.fromList [(Text.pack "pool threads", threads), (Text.pack "pool idle", unused), (Text.pack "pool waiting", jobs)]

-- | What servers do most of all is by itself: where all answers are, all that any of them needs of the
-- environment is read first, 80 instructions. Inlined, it would be a closure of a dozen parts of it.
answerSystem :: Env -> Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
answerSystem env !tcb !request k = case request of
  Receive s b o n -> do
    wait <- waitOf env tcb request
    receive env s b o n wait k
  ReceiveStanding intake -> receiveStanding env tcb request intake k
  _ -> do
    wait <- waitOf env tcb request
    answerTo env wait request k
{-# OPAQUE answerSystem #-}

-- | The wait of a thread, for dumps.
waitOf :: Env -> Tcb -> SystemCall a -> IO Wait
waitOf env tcb request = Wait tcb request <$> readPrimVar (homeClock (hostHome (envHost env)))

answerTo :: Env -> Wait -> SystemCall a -> (a -> Trace) -> IO Trace
answerTo env wait request k = case request of
  Receive s b o n -> receive env s b o n wait k
  ReceiveStanding intake -> receiveAnew env (waitTcb wait) request intake k
  Send s b -> send env s b wait k
  SendVector s bs -> sendVector env s bs wait k
  AwaitReadable s -> awaitReady env Reading s wait k
  AwaitWritable s -> awaitReady env Writing s wait k
  AwaitReadableFd n -> awaitForeign env Reading n request wait k
  AwaitWritableFd n -> awaitForeign env Writing n request wait k
  Now -> Sys.monotonicNow >>= \t -> pure $ k (Instant t)
  SleepUntil t -> do
    let tcb = waitTcb wait
    key <- Timers.insert (envTimers env) (instantNanoseconds t) (WakeThread tcb k)
    interruptible tcb $
      whenM (Timers.cancel (envTimers env) key) $
        orInterrupted tcb k >>= hostReady (envHost env) Woken tcb
    pure Parked
  Accept s limit -> acceptSocket env s limit wait k
  Connect s a limit -> connectSocket env s a limit wait k
  OpenSocket f t -> openSocket f t wait k
  AdoptSocket n -> adoptSocket n wait k
  Bind s a -> bindSocket env s a wait k
  Listen s n -> listenSocket env s n wait k
  ReceiveFrom s b -> receiveFrom env s b wait k
  SendTo s b a -> sendTo env s b a wait k
  SendFile s f o n -> sendFile env s (fileDescriptor f) o n wait k
  Shutdown s how -> unlessClosed env "shutdown" (socketDescriptor s) $ do
    r <- c_shutdown (descriptorNumber (socketDescriptor s)) (case how of ShutdownReceive -> 0; ShutdownSend -> 1; ShutdownBoth -> 2)
    pure (failing "shutdown" Nothing (\_ -> k ()) (fromIntegral r))
  CloseSocket s -> closeDescriptor env (socketDescriptor s) wait k
  GetOption s o -> getOption env s o wait k
  SetOption s o v -> setOption env s o v wait k
  LocalAddress s -> localAddress env s wait k
  PeerAddress s -> peerAddress env s wait k
  Resolve hints h p -> resolve env request hints h p wait k
  OpenPipe -> openPipe wait k
  OpenFifo path mode -> openFifo path mode wait k
  ReadPipe p b o n -> readPipe env p b o n wait k
  WritePipe p b -> writePipe env p b wait k
  PipeCapacity p size -> pipeCapacity env p size wait k
  ClosePipe p -> closeDescriptor env (pipeDescriptor p) wait k
  OpenFile place path mode flags -> openFile env place path mode flags wait k
  ReadFile f b o n at -> readFileAt env f b o n at wait k
  WriteFile f b at -> writeFileAt env f b at wait k
  WriteBuffer f b o n at -> writeBufferAt env f b o n at wait k
  SyncFile f d -> syncFile env f d wait k
  FileStatusOf f -> fileStatus env f wait k
  PathStatus place path -> pathStatus env place path wait k
  SetFileSize f n -> setFileSize env f n wait k
  CloseFile f -> closeDescriptor env (fileDescriptor f) wait k
  ListDirectory f -> listDirectory env f wait k
  MakeDirectory path -> makeDirectory env path wait k
  RemovePath path -> removePath env path wait k
  RenamePath a b -> renamePath env a b wait k
  WallClock -> c_wall_clock >>= \t -> pure $ k t
  RandomBytes n -> randomBytes n >>= \b -> pure $ k b
  OpenSignals wanted -> openSignals wanted >>= \s -> pure $ k s
  NextSignal s -> answerSuspend (envHost env) request (nextSignal s) (waitTcb wait) k
  CloseSignals s -> closeSignals s >> pure (k ())
  WorkerCount -> pure $ k (hostWorkers (envHost env))
  KernelAttempts -> pure $ k systemAttempts
  Blocking action -> inPool env action wait k
  Suspend _ action -> answerSuspend (envHost env) request action (waitTcb wait) k
  Extend e -> pure (Throw (toException (userError ("no kernel extension answers the request " <> show e))))
{-# OPAQUE answerTo #-}

awaitReady :: Env -> Direction -> Socket -> Answering ()
awaitReady env direction (Socket d _ _) wait k =
  operate env Completed d (Operation.Await direction d) (pure ()) wait (failing "wait" Nothing (\_ -> k ()))

-- | Answer this request to wait for a foreign number. The thread is put into the table of the process, by which
-- it is told of a close: Note [A number that is closed] in "Weft.Internal.Os.Foreign".
awaitForeign :: Env -> Direction -> CInt -> SystemCall () -> Answering ()
awaitForeign env direction number request wait k = do
  -- The answer of 'submit' while it says that the operation is pending, else 0.
  place <- newIORef 0
  let this = ForeignWait place . hostPost (envHost env) $ do
        answer <- readIORef place
        when (isPending answer) $ cancel (envBackend env) (answerToken answer)
      outcome r = (\open -> if open then r else Sys.badDescriptor) <$> withdraw number this
      -- Named as base names it, whose callers know it by that.
      next = failing "threadWait" Nothing (\_ -> k ())
  entered <- enter number this
  if not entered
    then tryLater
    else do
      answer <- submit (envBackend env) (Operation.AwaitFd direction number) . Completion wait $ \r -> do
        writeIORef place 0
        result <- outcome r
        completed env Completed wait result (oneShot (\_ -> next result))
      if isPending answer
        then do
          writeIORef place answer
          countPending env 1
          interruptible (waitTcb wait) (cancel (envBackend env) (answerToken answer))
          pure Parked
        else next <$> outcome answer
  where
    -- The number is being closed.
    tryLater = do
      now <- Sys.monotonicNow
      pure (Call emptyCallStack (SleepUntil (Duration 1_000_000 `after` Instant now)) (\_ -> Call emptyCallStack request k))

isQuiet :: Env -> IO Bool
isQuiet env = do
  operations <- readPrimVar (envPending env)
  timers <- Timers.size (envTimers env)
  gauge <- poolGauge (envPool env)
  pure (operations == 0 && timers == 0 && gaugeThreads gauge == gaugeIdle gauge && gaugeWaiting gauge == 0)

interruptAnonymous :: Env -> IO ()
interruptAnonymous env = do
  pendingTokens (envBackend env) (endsWithRun . waitTcb) >>= mapM_ (cancel (envBackend env))
  sleepers <- Timers.foldKeysM sleeper [] (envTimers env)
  mapM_ rouse sleepers
  where
    sleeper found key = \case
      WakeThread tcb resume | endsWithRun tcb -> pure ((key, tcb, resume) : found)
      _ -> pure found
    rouse (key, tcb, resume) = do
      early <- Timers.cancel (envTimers env) key
      when early $ orClosing (hostHome (envHost env)) tcb resume >>= uncurry (hostReady (envHost env) Woken)

visitWaits :: Env -> (Wait -> r -> IO r) -> r -> IO r
visitWaits env f start =
  Timers.foldM visitTimer start (envTimers env) >>= visit (envBackend env) (\_ wait r -> lately wait >>= (`f` r))
  where
    visitTimer r deadline = \case
      WakeThread tcb _ -> f (Wait tcb (SleepUntil (Instant deadline)) 0) r
      Alarm _ -> pure r

-- | Collect timers that are due and operations that completed. Blocks, when it may, until the first.
pollSystem :: Env -> Bool -> IO Bool
pollSystem env mayBlock = do
  sleeping <- Timers.size timers
  if sleeping == 0
    then collect (if mayBlock then forever else noWait) <* look
    else do
      now <- look
      fired <- expire now
      if fired > 0 || not mayBlock
        then (\found -> found || fired > 0) <$> collect noWait
        else do
          next <- Timers.nextDeadline timers
          found <- collect (if next == Timers.never then forever else max 1 (next - now))
          late <- look >>= expire
          pure (found || late > 0)
  where
    timers = envTimers env
    look = do
      now <- Sys.monotonicNow
      now <$ writePrimVar (homeClock (hostHome (envHost env))) (fromIntegral now)
    expire now = Timers.popExpired timers now fire >>= counted (envFired env)
    fire = \case
      WakeThread tcb resume -> hostReady (envHost env) Woken tcb resume
      Alarm act -> act
    counted variable n = n <$ when (n > 0) (readPrimVar variable >>= writePrimVar variable . (+ n))
    -- With nothing pending there is nothing to find, and no reason to ask.
    collect timeout = do
      pendingOperations <- readPrimVar (envPending env)
      if timeout == noWait && pendingOperations == 0
        then pure False
        else (> 0) <$> (poll (envBackend env) timeout >>= counted (envCompleted env))

-- | From the system's generator.
randomBytes :: Int -> IO ByteString
randomBytes n = ByteString.create (max 0 n) (fill (max 0 n))
  where
    fill 0 _ = pure ()
    fill left p = do
      -- Requests of up to 256 bytes are always answered whole.
      r <- c_getrandom p (fromIntegral (min 256 left))
      when (r < 0) $ ioError (userError "getrandom failed")
      fill (left - fromIntegral r) (p `plusPtr` fromIntegral r)
