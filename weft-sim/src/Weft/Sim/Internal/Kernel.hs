{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The kernel that answers from a seed: which part of a simulated world answers which system call,
-- and how time passes. One OS thread at a time uses it; several workers may share it in turns.
module Weft.Sim.Internal.Kernel
  ( Sim (..),
    Limit (..),
    newSim,
    simKernel,
    Steer (..),
    steer,
    overhear,
    attempting,
  )
where

import Control.Concurrent qualified as Ghc (ThreadId, myThreadId)
import Control.Concurrent.MVar
import Control.Exception (SomeException, fromException, toException, try)
import Control.Monad (filterM, void, when)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Primitive.PrimVar
import Data.Text qualified as Text
import Data.Type.Equality ((:~~:) (HRefl))
import Foreign.C.Error (Errno (..), eIO)
import GHC.IO.Exception (ioe_errno)
import Type.Reflection (eqTypeRep, typeRep)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Instant (..))
import Weft.Internal.Kernel
import Weft.Internal.Os.Descriptor (wasClosed)
import Weft.Internal.Os.Masked (inMasking)
import Weft.Internal.Os.Sys (failureCode, wouldBlock)
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Disk.Device (Disks, closeFile, newDisks)
import Weft.Sim.Internal.Disk.Names
import Weft.Sim.Internal.Disk.Transfer
import Weft.Sim.Internal.Names
import Weft.Sim.Internal.Network
import Weft.Sim.Internal.Network.Line
import Weft.Sim.Internal.Network.Streams
import Weft.Sim.Internal.Network.Types hiding (Segment (..))
import Weft.Sim.Internal.Signals
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

data Sim = Sim
  { simWorld :: !World,
    simTickets :: !Tickets,
    simNetwork :: !Network,
    simDisks :: !Disks,
    simSignals :: !SignalTable,
    -- | For the program's own random numbers.
    simEntropy :: !Random,
    -- | A worker, once one has started.
    simHost :: !(IORef (Maybe Host)),
    -- | A listener inside, which gets every line that the operator gets, at that moment.
    simOverhears :: !(IORef (String -> IO ())),
    -- | The time limits of each thread, by its number, while they are wanted.
    simLimits :: !(IORef (Maybe (IntMap.IntMap [Limit])))
  }

-- | A time limit that has not expired.
data Limit = Limit
  { -- | Its alarm.
    limitThread :: !Int,
    -- | Does the alarm still sleep?
    limitPending :: IO Bool,
    -- | End its sleep.
    limitExpire :: IO ()
  }

newSim :: Seed -> World -> IO Sim
newSim seed world = do
  disks <- newDisks world
  tickets <- newTickets
  net <- newNetwork world disks
  Sim world tickets net disks <$> newSignalTable <*> newRandom seed 3 <*> newIORef Nothing <*> newIORef (\_ -> pure ()) <*> newIORef Nothing

-- | A request to the simulation itself, which no real kernel answers: what it is, and what to do,
-- which must not block.
data Steer a = Steer String (Sim -> Ask -> IO a)

instance Show (Steer a) where
  showsPrec _ (Steer what _) = showString what

-- | Do something to the world in which this thread lives. Fails with an 'IOError' where the
-- world is real.
steer :: String -> (Sim -> Ask -> IO a) -> Thread a
steer what act = call (Extend (Steer what act))

-- | From now on this is told what the operator is told, at that moment.
overhear :: (String -> IO ()) -> Thread ()
overhear hear = steer "overhear reports" (\sim _ -> writeIORef (simOverhears sim) hear)

-- | The kernel of a world. Only one run may use it.
simKernel :: Sim -> Kernel
simKernel sim =
  Kernel
    { kernelName = "simulated",
      openKernel = \_ ->
        pure
          Opened
            { startKernel = startSim sim,
              openedGauges = pure mempty,
              closeKernel = pure ()
            }
    }

startSim :: Sim -> Host -> IO Instance
startSim sim operator = do
  bell <- newEmptyMVar
  let host = Host (hostHome operator) {homeReport = \text -> readIORef (simOverhears sim) >>= ($ text) >> hostReport operator text}
  showTime sim host
  modifyIORef' (simHost sim) (maybe (Just host) Just)
  pure
    Instance
      { instanceAnswer = AnswerCall (\ !tcb request k -> answerCall sim host tcb request k),
        instancePoll = pollSim sim host bell,
        instanceWake = void (tryPutMVar bell ()),
        instanceAdopt = pure (),
        instanceWaits = visitTickets (simTickets sim) (hostWorker host),
        instanceInterrupt = interruptAnonymous (simTickets sim) (hostWorker host),
        instanceQuiet = all (== 0) <$> gauges,
        instanceGauges = gauges,
        instanceStop = pure ()
      }
  where
    gauges = do
      events <- pendingEvents (worldEvents (simWorld sim))
      tickets <- openTickets (simTickets sim)
      pure (Map.fromList [(Text.pack "operations pending", tickets), (Text.pack "events pending", events)])

-- | Time passes when nothing can run: then to the next event, at once. Without one the
-- only thing left is a message from outside.
pollSim :: Sim -> Host -> MVar () -> Bool -> IO Bool
pollSim sim host bell mayBlock
  | not mayBlock = pure False
  | otherwise = do
      fired <- fireNext (worldEvents (simWorld sim))
      if fired then showTime sim host else takeMVar bell
      pure fired

showTime :: Sim -> Host -> IO ()
showTime sim host = clock (worldEvents (simWorld sim)) >>= writePrimVar (homeClock (hostHome host)) . fromIntegral

-- Out of line: in a function of its own for each worker GHC would save thirty fields around each
-- call.
answerCall :: Sim -> Host -> Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
answerCall sim host !tcb !request k = case request of
  Now -> clock (worldEvents (simWorld sim)) >>= \t -> pure (k (Instant t))
  Suspend _ action -> answerSuspend host request action tcb k
  _ -> do
    !machine <- machineOf (simWorld sim) tcb
    !moment <- readPrimVar (homeClock (hostHome host))
    let !ask = Ask (simWorld sim) (simTickets sim) host machine (Wait tcb request moment)
    answerAsk sim ask request k
{-# OPAQUE answerCall #-}

answerAsk :: Sim -> Ask -> SystemCall a -> (a -> Trace) -> IO Trace
answerAsk sim ask request k = case request of
  SleepUntil (Instant t) -> sleepUntil sim ask t k
  Resolve hints h p -> resolve (simWorld sim) hints h p ask k
  OpenFile place path mode flags -> openFile disks place path mode flags ask k
  ReadFile f b o n at' -> readFileAt disks f b o n at' ask k
  WriteFile f b at' -> writeFileAt disks f b at' ask k
  WriteBuffer f b o n at' -> writeBufferAt disks f b o n at' ask k
  SyncFile f d -> syncFile disks f d ask k
  FileStatusOf f -> fileStatus disks f ask k
  PathStatus place path -> pathStatus disks place path ask k
  SetFileSize f n -> setFileSize disks f n ask k
  CloseFile f -> closeFile disks f ask k
  ListDirectory f -> listDirectory disks f ask k
  MakeDirectory path -> makeDirectory disks path ask k
  RemovePath path -> removePath disks path ask k
  RenamePath a b -> renamePath disks a b ask k
  WallClock -> wallClockOf (simWorld sim) (askMachine ask) >>= \t -> pure (k t)
  RandomBytes n -> do
    bytes <- ByteString.pack <$> mapM (\_ -> fromIntegral <$> below (simEntropy sim) 256) [1 .. n]
    pure (k bytes)
  OpenSignals wanted -> openSignals (simSignals sim) wanted ask k
  NextSignal s -> nextSignal s ask k
  CloseSignals s -> closeSignals (simSignals sim) s ask k
  WorkerCount -> pure (k (hostWorkers (askHost ask)))
  KernelAttempts -> k <$> attemptsOf net disks ask
  Blocking action -> blockingAction ask action k
  Extend (e :: f a)
    | Just HRefl <- eqTypeRep (typeRep @f) (typeRep @Steer),
      Steer _ act <- e ->
        try (act sim ask) >>= \r -> pure (either (\x -> Throw (x :: SomeException)) k r)
    | otherwise -> pure (Throw (toException (userError ("no kernel extension answers the request " <> show e))))
  _ -> answerNetwork net request ask k
  where
    net = simNetwork sim
    disks = simDisks sim

-- | A sleep that is over when it begins goes through the queue like any other.
sleepUntil :: Sim -> Ask -> Int64 -> (() -> Trace) -> IO Trace
sleepUntil sim ask t k = park ask k $ \ticket -> do
  key <- at events t (void (settle ticket Woken (Right ())))
  when (contextScope context == limitScope) $
    readIORef (simLimits sim) >>= mapM_ (remember (Limit (tcbNumber tcb) (isOpen ticket) (settleAtOnce ticket Woken (Right ()) >> void (revoke events key))))
  pure (void (revoke events key))
  where
    events = worldEvents (askWorld ask)
    tcb = askTcb ask
    context = stateContext (tcbState tcb)
    remember limit limits = do
      others <- filterM limitPending (IntMap.findWithDefault [] (contextParent context) limits)
      writeIORef (simLimits sim) (Just (IntMap.insert (contextParent context) (limit : others) limits))

-- | Run at once, in the masking state of its thread. The thread gets the result a little later, as
-- from a pool.
blockingAction :: Ask -> IO a -> (a -> Trace) -> IO Trace
blockingAction ask action k = do
  result <- try (inMasking (stateMasking (tcbState (askTcb ask))) action)
  park ask k $ \ticket -> do
    let world = askWorld ask
    d <- lasting (worldRandom world) (diskDelay (worldConditions world))
    _ <- after (worldEvents world) d (void (settle ticket Completed result))
    pure (pure ())

-- | The simulated 'Attempts', made in the middle of an effect. Each is reported to the run's
-- observer: it orders the threads that make it as a system call does. Each may fail by chance
-- ('failedAttempts').
attemptsOf :: Network -> Disks -> Ask -> IO Attempts
attemptsOf net disks ask = do
  driver <- Ghc.myThreadId
  let trying what s act = attempting (askWorld ask) (hostHome (askHost ask)) driver what s $ \unlessUnlucky ->
        entryAt (netThings net) (socketDescriptor s) >>= \case
          Nothing -> pure wasClosed
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

-- | Make an attempt at a socket, given what refuses by chance, and report it. It would have to wait
-- on another OS thread than the given one, which runs the world.
attempting :: World -> Home -> Ghc.ThreadId -> String -> Socket -> ((IO Int -> IO Int) -> IO Int) -> IO Int
attempting world home driver what s attempt = do
  here <- (== driver) <$> Ghc.myThreadId
  if not here
    then pure wouldBlock
    else do
      r <- attempt unlessUnlucky
      for_ (homeProbe home) $ \probe -> probeAttempt probe ("tries to " <> what <> show s <> ": " <> show r)
      pure r
  where
    unlessUnlucky act = do
      refused <- decide world (Unusual (failedAttempts (worldConditions world)))
      if refused > 0 then pure wouldBlock else act

failed :: SomeException -> Int
failed e = failureCode (maybe eIO Errno (ioe_errno =<< fromException e))
