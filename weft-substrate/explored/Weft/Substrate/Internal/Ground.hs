{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The ground of the substrate: an explorer
--
-- The operations of the other module of this name, for runs in which one HEC at a time goes on, and
-- a script says which. Each HEC is a thread of GHC's that waits at a gate; at every 'point' the
-- one that runs opens the gate of the next. Only the thread whose gate was opened touches
-- anything here.
module Weft.Substrate.Internal.Ground
  ( -- * Points
    point,
    Bug (..),
    planted,

    -- * Waiting
    pauseWhileOdd,
    Bed,
    newBed,
    lieDown,
    rouse,
    Gate,
    newGate,
    openGate,
    passGate,

    -- * OS threads
    isAlone,
    onCarrier,
    forkCarrier,
    withPlace,
    changePlace,
    placeHere,
    Carried,
    newCarried,
    carriedHere,
    carrierStatus,
    throwToCarrier,
    throwerAt,

    -- * HECs whose stacks can be displaced
    Watch,
    withWatch,
    userBegins,
    liesDown,
    risesUp,

    -- * Runs
    Choice (..),
    Ending (..),
    underScript,
  )
where

import Control.Concurrent (MVar, forkIO, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (Exception, SomeException, finally, throwIO, try)
import Control.Monad (filterM, forM_, unless, void, when)
import Data.IORef
import Data.Maybe (isJust)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek, poke)
import GHC.Conc (ThreadStatus (ThreadRunning))
import GHC.Exts (Any, Int#, RealWorld, State#, oneShot)
import GHC.IO (IO (..), unIO, unsafePerformIO)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Substrate.Internal.Bugs (Bug (..))

-- | A point at which the run could go on with several HECs.
data Choice = Choice
  { -- | How many there were: the one that ran first, if it could go on.
    choiceOptions :: !Int,
    choiceTaken :: !Int,
    -- | Could the one that ran have gone on? Then to take another is a preemption.
    choiceCould :: !Bool
  }

-- | How a run ended.
data Ending
  = -- | All HECs have ended, but for those that wait at a gate: they run no stack that could sleep.
    AllEnded
  | -- | Some sleep, and none runs.
    SomeSleep
  | -- | It was given up, after that many points.
    TooLong
  deriving stock (Eq, Ord, Show)

data Task = Task {taskGate :: !(MVar ()), taskStatus :: !(IORef Status), taskPlace :: !(IORef (Maybe Any)), taskOver :: !(MVar ())}

data Status = CanRun | WaitsFor (IO Bool) | AtGate (IO Bool) | HasEnded

data Run = Run
  { runTasks :: !(IORef [Task]),
    runCurrent :: !(IORef Int),
    runScript :: !(IORef [Int]),
    -- | Newest first.
    runMade :: !(IORef [Choice]),
    runPoints :: !(IORef Int),
    runEnding :: !(MVar Ending),
    runAbandoned :: !(IORef Bool)
  }

-- | The run that is going on. One at a time.
theRun :: IORef (Maybe Run)
theRun = unsafePerformIO (newIORef Nothing)
{-# NOINLINE theRun #-}

theBug :: IORef (Maybe Bug)
theBug = unsafePerformIO (newIORef Nothing)
{-# NOINLINE theBug #-}

foreign import ccall "&weft_substrate_sequence" sequencePtr :: Ptr Int

-- | Ends the HECs of a run that is over.
data Abandoned = Abandoned
  deriving stock (Show)

instance Exception Abandoned

-- | Comes before every access to shared memory: the script says which HEC goes on.
point :: State# RealWorld -> State# RealWorld
point = oneShot (\s -> case unIO (readIORef theRun >>= mapM_ (`pause` CanRun)) s of (# s1, () #) -> s1)
{-# NOINLINE point #-}

-- | Is this bug planted?
planted :: Bug -> State# RealWorld -> Bool
planted bug s = case unIO (readIORef theBug) s of (# _, it #) -> it == Just bug
{-# NOINLINE planted #-}

-- | The HEC that runs says what becomes of it, and the next goes on.
pause :: Run -> Status -> IO ()
pause run status = do
  abandoned <- readIORef (runAbandoned run)
  when abandoned (throwIO Abandoned)
  tasks <- readIORef (runTasks run)
  me <- readIORef (runCurrent run)
  writeIORef (taskStatus (tasks !! me)) status
  points <- readIORef (runPoints run)
  writeIORef (runPoints run) $! points + 1
  able <- filterM (canRun . snd) (zip [0 ..] tasks)
  let could = any ((== me) . fst) able
      options = [me | could] <> [i | (i, _) <- able, i /= me]
      hasEnded = case status of HasEnded -> True; _ -> False
      leave = unless hasEnded $ do
        takeMVar (taskGate (tasks !! me))
        gone <- readIORef (runAbandoned run)
        when gone (throwIO Abandoned)
  case options of
    _ | points > 2000 -> putMVar (runEnding run) TooLong >> leave
    [] -> do
      ended <- and <$> mapM (fmap (\case HasEnded -> True; AtGate _ -> True; _ -> False) . readIORef . taskStatus) tasks
      putMVar (runEnding run) (if ended then AllEnded else SomeSleep)
      leave
    _ -> do
      next <- choose run could options
      unless (next == me) $ do
        writeIORef (runCurrent run) next
        putMVar (taskGate (tasks !! next)) ()
        leave
  where
    canRun t =
      readIORef (taskStatus t) >>= \case
        CanRun -> pure True
        WaitsFor condition -> condition
        AtGate condition -> condition
        HasEnded -> pure False

choose :: Run -> Bool -> [Int] -> IO Int
choose _ _ [one] = pure one
choose run could options = do
  script <- readIORef (runScript run)
  let (taken, rest) = case script of
        [] -> (0, [])
        -- Of a schedule that another was made from there may be fewer.
        c : cs -> (min c (length options - 1), cs)
  writeIORef (runScript run) rest
  modifyIORef' (runMade run) (Choice (length options) taken could :)
  pure (options !! taken)

newTask :: Run -> IO () -> IO Task
newTask run act = do
  t <- Task <$> newEmptyMVar <*> newIORef CanRun <*> newIORef Nothing <*> newEmptyMVar
  modifyIORef' (runTasks run) (<> [t])
  _ <- forkIO ((takeMVar (taskGate t) >> alive act >> void (attempt (pause run HasEnded))) `finally` putMVar (taskOver t) ())
  pure t
  where
    alive a = do
      gone <- readIORef (runAbandoned run)
      unless gone (void (attempt a))
    attempt :: IO a -> IO (Either SomeException a)
    attempt = try

-- | Run a program on one HEC's thread, with a bug or without, and let the script decide at each
-- point where several could go on; after its end the one that ran goes on, or the first. Answers
-- how it ended and what was decided.
underScript :: Maybe Bug -> [Int] -> IO () -> IO (Ending, [Choice])
underScript bug script program = do
  writeIORef theBug bug
  poke sequencePtr 0
  run <- Run <$> newIORef [] <*> newIORef 0 <*> newIORef script <*> newIORef [] <*> newIORef 0 <*> newEmptyMVar <*> newIORef False
  writeIORef theRun (Just run)
  first <- newTask run program
  putMVar (taskGate first) ()
  ending <- takeMVar (runEnding run)
  made <- reverse <$> readIORef (runMade run)
  writeIORef (runAbandoned run) True
  tasks <- readIORef (runTasks run)
  -- One at a time: an abandoned HEC may still run handlers.
  forM_ tasks $ \t -> do
    status <- readIORef (taskStatus t)
    case status of
      HasEnded -> pure ()
      _ -> putMVar (taskGate t) ()
    takeMVar (taskOver t)
  writeIORef theRun Nothing
  pure (ending, made)

pauseWhileOdd :: Int -> IO ()
pauseWhileOdd _ = readIORef theRun >>= mapM_ (`pause` WaitsFor (even <$> peek sequencePtr))

newtype Bed = Bed (IORef Bool)
  deriving newtype (Eq)

newBed :: IO Bed
newBed = Bed <$> newIORef False

lieDown :: Bed -> IO ()
lieDown (Bed roused) = do
  readIORef theRun >>= mapM_ (`pause` WaitsFor (readIORef roused))
  writeIORef roused False

rouse :: Bed -> IO ()
rouse (Bed roused) = writeIORef roused True

newtype Gate a = Gate (IORef (Maybe a))

newGate :: IO (Gate a)
newGate = Gate <$> newIORef Nothing

openGate :: Gate a -> a -> IO ()
openGate (Gate v) = writeIORef v . Just

passGate :: Gate a -> IO a
passGate (Gate v) = do
  readIORef theRun >>= mapM_ (`pause` AtGate (isJust <$> readIORef v))
  readIORef v >>= maybe (throwIO Abandoned) pure

isAlone :: State# RealWorld -> (# State# RealWorld, Int# #)
isAlone s = (# s, 0# #)

onCarrier :: IO a -> IO a
onCarrier = id

forkCarrier :: IO () -> IO ()
forkCarrier act = do
  readIORef theRun >>= mapM_ (`newTask` act)
  IO (\s -> (# point s, () #))

current :: IO Task
current =
  readIORef theRun >>= \case
    Just run -> (!!) <$> readIORef (runTasks run) <*> readIORef (runCurrent run)
    Nothing -> throwIO Abandoned

withPlace :: a -> IO b -> IO b
withPlace a act = do
  t <- current
  outer <- readIORef (taskPlace t)
  writeIORef (taskPlace t) (Just (unsafeCoerce a))
  act `finally` writeIORef (taskPlace t) outer

changePlace :: a -> IO ()
changePlace a = current >>= \t -> writeIORef (taskPlace t) (Just (unsafeCoerce a))

placeHere :: a -> IO a
placeHere none = do
  t <- current
  maybe none unsafeCoerce <$> readIORef (taskPlace t)

-- | Nobody throws at OS threads.
data Carried = Carried

newCarried :: IO Carried
newCarried = pure Carried

carriedHere :: Carried -> IO ()
carriedHere _ = pure ()

carrierStatus :: Carried -> IO ThreadStatus
carrierStatus _ = pure ThreadRunning

throwToCarrier :: Carried -> SomeException -> IO ()
throwToCarrier _ = throwIO

throwerAt :: Carried -> IO (SomeException -> IO ())
throwerAt _ = pure throwIO

-- | Nobody watches: a program says when its stacks are displaced.
data Watch = Watch

withWatch :: Bool -> (Watch -> IO ()) -> (Watch -> IO a) -> IO a
withWatch _ _ act = act Watch

userBegins, liesDown, risesUp :: Watch -> IO ()
userBegins _ = pure ()
liesDown _ = pure ()
risesUp _ = pure ()
