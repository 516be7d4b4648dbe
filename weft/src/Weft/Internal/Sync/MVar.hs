{-# LANGUAGE PatternSynonyms #-}
-- Or control blocks would be rebuilt wherever a thread parks ("Weft.Internal.Core.Scheduler").
{-# OPTIONS_GHC -O2 -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | How "Weft.MVar" works: Note [Synchronization] in "Weft.Internal.Sync".
module Weft.Internal.Sync.MVar
  ( MVar (..),
    VariableState (..),
    newMVar,
    newEmptyMVar,
    newEmptyMVarNamed,
    takeMVar,
    putMVar,
    readMVar,
    swapMVar,
    tryTakeMVar,
    tryPutMVar,
    tryReadMVar,
    isEmptyMVar,
    onTake,
    onRead,
    putBack,
  )
where

import Data.Maybe (isNothing)
import Data.Text (Text)
import GHC.Exts (oneShot)
import Weft.Internal.Core.Primitive (Behaviour (..), Primitive (..), VariableState (..), behaviourOf, onlyAlone)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell
import Weft.Internal.Sync
import Weft.Internal.Sync.Choice

-- | A place for a value.
data MVar a = MVar
  { mvarState :: {-# UNPACK #-} !(Cell (MVarState a)),
    mvarTake :: !(Primitive () a),
    mvarPut :: !(Primitive a ()),
    mvarBlockedOn :: MVarBlockedOn
  }

-- | The objects of waits to take, to put and to read. Made when it is needed first.
data MVarBlockedOn = MVarBlockedOn {blockedTake, blockedPut, blockedRead :: !BlockedOn}

instance Eq (MVar a) where
  a == b = mvarState a == mvarState b

-- | The value, and the waiting threads. One waiting taker is the common case, hence 'One'; a
-- second makes a queue, which remains until it is empty. A thread that hands over through 'One'
-- empties the variable first; if the taker was cancelled, the value is still its own.
type MVarState a = VariableState (Queues a) a

-- | The threads that wait.
data Queues a
  = -- | No value; readers and takers, not both none (some may have been cancelled).
    HungryQueues !(WaitQueue () a) !(WaitQueue () a)
  | -- | A value; putters, at least one (some may have been cancelled).
    CrowdedQueue a !(WaitQueue a ())
  | -- | A putter is asked whether it still wants to: Note [Synchronization] in "Weft.Internal.Sync".
    AskingPutter

pattern Hungry :: WaitQueue () a -> WaitQueue () a -> MVarState a
pattern Hungry readers takers = Contended (HungryQueues readers takers)

pattern Crowded :: a -> WaitQueue a () -> MVarState a
pattern Crowded a putters = Contended (CrowdedQueue a putters)

pattern Busy :: MVarState a
pattern Busy = Contended AskingPutter

{-# COMPLETE Empty, Full, One, Hungry, Crowded, Busy #-}

-- | A full variable.
newMVar :: a -> Thread (MVar a)
newMVar a = internal (\home _ -> make home mempty (Full a))

-- | An empty variable.
newEmptyMVar :: Thread (MVar a)
newEmptyMVar = newEmptyMVarNamed mempty

-- | 'newEmptyMVar' with a label, for reports.
newEmptyMVarNamed :: Text -> Thread (MVar a)
newEmptyMVarNamed text = internal (\home _ -> make home text Empty)

make :: Home -> Text -> MVarState a -> IO (MVar a)
make home text state = do
  name <- newName home text
  var <- newCell state
  let blockedOn = MVarBlockedOn (waiting "MVar" name "to take") (waiting "MVar" name "to put") (waiting "MVar" name "to read")
      taking = blockedTake blockedOn
      putting = blockedPut blockedOn
  pure $
    MVar
      var
      (onlyAlone home (TakeOut var) (Behaviour (takeAct var taking (leaveHungry var)) True (using "take" taking)))
      (onlyAlone home (PutIn var) (Behaviour (putAct var putting) True (using "put into" putting)))
      blockedOn

-- | Take the value; wait for one while there is none. Cancellable while it waits; a thread
-- that is cancelled has taken nothing.
takeMVar :: MVar a -> Thread a
takeMVar mvar = Thread (Perform (mvarTake mvar) ())
{-# INLINE takeMVar #-}

-- | With what a cancelled wait does, made once.
takeAct :: Cell (MVarState a) -> BlockedOn -> (Home -> IO ()) -> Here -> () -> (a -> Trace) -> IO (Tried a)
takeAct var blockedOn forget = \here _ k -> do
  let home = hereHome here
  readCell var $ \case
    -- Most often there is no waiter yet.
    Empty
      | homeAlone home ->
          currentTcb here >>= \tcb ->
            if isNobody (tcbIdentity tcb)
              then takeLater var blockedOn here k
              else do
                waiter <- takePlace home tcb blockedOn () k
                writeCell var (One waiter)
                untilForgotten home tcb waiter forget
    _ -> takeLater var blockedOn here k

takeLater :: Cell (MVarState a) -> BlockedOn -> Here -> (a -> Trace) -> IO (Tried a)
takeLater var blockedOn here k = takeNow var home park (pure . Got)
  where
    home = hereHome here
    park = currentTcb here >>= \tcb -> waitFor home tcb blockedOn () k queueUp
    join waiter = takeNow var home (queueUp waiter) (\a -> pure () <$ answer home waiter a)
    queueUp waiter = queueToTake var home waiter (pure (leaveHungry var home)) (join waiter)

-- | Join those that wait to take; what to do when that is done, and if the state has changed.
queueToTake :: Cell (MVarState a) -> Home -> ParkedThread () a -> IO r -> IO r -> IO r
queueToTake var home waiter joined changed = lookCell var $ \seen -> \case
  Empty -> ifM (swapCell home var seen (One waiter)) joined changed
  One other -> ifM (swapCell home var seen (Hungry emptyQueue (enqueue waiter (enqueue other emptyQueue)))) joined changed
  Hungry readers takers -> ifM (swapCell home var seen (Hungry readers (enqueue waiter takers))) joined changed
  _ -> changed

-- | To take the value, as 'takeMVar' does.
onTake :: MVar a -> Choice a
onTake MVar {mvarState = var, mvarBlockedOn = blockedOn} =
  choiceOf (blockedTake blockedOn) "take" (\home -> takeNow var home (pure Later) (pure . Got)) () (queueToTake var) (leaveHungry var)

-- | Take the value if there is one; what to do if there is none, what to do with it.
takeNow :: Cell (MVarState a) -> Home -> IO r -> (a -> IO r) -> IO r
takeNow var here none use = again
  where
    again = lookCell var $ \seen -> \case
      Full a -> ifM (swapCell here var seen Empty) (use a) again
      Empty -> none
      One _ -> none
      Hungry _ _ -> none
      Crowded a putters -> ifM (swapCell here var seen Busy) (refill var here putters >> use a) again
      Busy -> relax >> again

-- | The variable is ours (Busy) and empty: the first putter that still waits puts.
refill :: Cell (MVarState a) -> Home -> WaitQueue a () -> IO ()
refill var here putters = dequeue putters (writeCell var Empty) $ \waiter rest ->
  -- Only this thread changes a Busy variable.
  offered waiter >>= \case
    Nothing -> refill var here rest
    Just a -> do
      delivered <- answer here waiter ()
      if delivered
        then writeCell var (if isEmpty rest then Full a else Crowded a rest)
        else refill var here rest

leaveHungry :: Cell (MVarState a) -> Home -> IO ()
leaveHungry var here = settle
  where
    settle = lookCell var $ \seen -> \case
      -- It may be that of another thread, which came when ours had been taken out.
      One waiter -> unlessM (stillWaits waiter ||^ swapCell here var seen Empty) settle
      Hungry readers takers -> do
        r <- afterRemoval readers
        t <- afterRemoval takers
        unlessM (swapCell here var seen (hungry r t)) settle
      _ -> pure ()

hungry :: WaitQueue () a -> WaitQueue () a -> MVarState a
hungry readers takers
  | isEmpty readers && isEmpty takers = Empty
  | otherwise = Hungry readers takers

-- | Put a value; wait for room while there is one. Cancellable while it waits; a thread that is
-- cancelled has put nothing.
putMVar :: MVar a -> a -> Thread ()
putMVar mvar = Thread . Perform (mvarPut mvar)
{-# INLINE putMVar #-}

-- | Put a value, and notice a cancellation only if this must wait.
putBack :: MVar a -> a -> Thread ()
putBack mvar = Thread . Perform (Plain (behaviourOf (mvarPut mvar)) {behaviourLooks = False})

putAct :: Cell (MVarState a) -> BlockedOn -> Here -> a -> Resume -> IO (Tried ())
putAct var blockedOn = \here a k -> do
  let home = hereHome here
  readCell var $ \case
    -- Most often one thread waits to take, which gets the value.
    One (ParkedThread place)
      | homeAlone home ->
          readCell place $ \case
            Occupied _ taker _ _ _ use -> do
              writeCell place Vacant
              writeCell var Empty
              departed home
              homeReady home Woken taker (oneShot (\_ -> use a))
              pure (Got ())
            _ -> putLater var blockedOn here a k
    _ -> putLater var blockedOn here a k

putLater :: Cell (MVarState a) -> BlockedOn -> Here -> a -> Resume -> IO (Tried ())
putLater var blockedOn here a k = putNow var home a park (pure (Got ()))
  where
    home = hereHome here
    park = currentTcb here >>= \tcb -> waitFor home tcb blockedOn a k queueUp
    join waiter = putNow var home a (queueUp waiter) (pure () <$ answer home waiter ())
    queueUp waiter = lookCell var $ \seen -> \case
      Full b -> ifM (swapCell home var seen (Crowded b (enqueue waiter emptyQueue))) (pure settle) (join waiter)
      Crowded b putters -> ifM (swapCell home var seen (Crowded b (enqueue waiter putters))) (pure settle) (join waiter)
      _ -> join waiter
    settle = lookCell var $ \seen -> \case
      Crowded b putters -> do
        left <- afterRemoval putters
        unlessM (swapCell home var seen (if isEmpty left then Full b else Crowded b left)) settle
      Busy -> relax >> settle
      _ -> pure ()

-- | Put the value if there is room; what to do if there is none, and if there was.
putNow :: Cell (MVarState a) -> Home -> a -> IO r -> IO r -> IO r
putNow var here a full done = again
  where
    again = lookCell var $ \seen -> \case
      Empty -> ifM (swapCell here var seen (Full a)) done again
      Full _ -> full
      Crowded _ _ -> full
      -- False if the taker was cancelled.
      One waiter -> ifM (swapCell here var seen Empty &&^ answer here waiter a) done again
      Hungry _ _ -> ifM (serve var here a) done again
      Busy -> relax >> again

-- | To all readers, and to the first taker or, if there is none, to the variable. False: try again.
serve :: Cell (MVarState a) -> Home -> a -> IO Bool
serve var here a = lookCell var $ \seen -> \case
  Hungry readers takers
    -- False if the taker was cancelled.
    | isEmpty readers -> dequeue takers (swapCell here var seen (Full a)) $ \waiter rest ->
        swapCell here var seen (if isEmpty rest then Empty else Hungry readers rest) &&^ answer here waiter a
    -- In one step, or a reader could have read what is then never put.
    | otherwise -> dequeue takers (withReaders seen (Full a) readers (pure True)) $ \waiter rest ->
        withReaders seen (if isEmpty rest then Empty else Hungry emptyQueue rest) readers (answer here waiter a)
  _ -> pure False
  where
    withReaders seen new readers after = swapCell here var seen new &&^ (wakeAll here a readers >> after)

-- | Read the value and leave it there; wait for one while there is none. Comes before
-- all takes that wait. Cancellable while it waits.
readMVar :: MVar a -> Thread a
readMVar MVar {mvarState = var, mvarBlockedOn = blockedOn} = attempt (using "read" (blockedRead blockedOn)) $ \home tcb k ->
  let join waiter = readNow var (queueUp waiter) (\a -> pure () <$ answer home waiter a)
      queueUp waiter = queueToRead var home waiter (pure (leaveHungry var home)) (join waiter)
   in readNow var (waitFor home tcb (blockedRead blockedOn) () k queueUp) (pure . Got)

-- | Join those that wait to read; what to do when that is done, and if the state has changed.
queueToRead :: Cell (MVarState a) -> Home -> ParkedThread () a -> IO r -> IO r -> IO r
queueToRead var home waiter joined changed = lookCell var $ \seen -> \case
  Empty -> ifM (swapCell home var seen (Hungry (enqueue waiter emptyQueue) emptyQueue)) joined changed
  One taker -> ifM (swapCell home var seen (Hungry (enqueue waiter emptyQueue) (enqueue taker emptyQueue))) joined changed
  Hungry readers takers -> ifM (swapCell home var seen (Hungry (enqueue waiter readers) takers)) joined changed
  _ -> changed

-- | To read the value, as 'readMVar' does.
onRead :: MVar a -> Choice a
onRead MVar {mvarState = var, mvarBlockedOn = blockedOn} =
  choiceOf (blockedRead blockedOn) "read" (\_ -> readNow var (pure Later) (pure . Got)) () (queueToRead var) (leaveHungry var)

readNow :: Cell (MVarState a) -> IO r -> (a -> IO r) -> IO r
readNow var none use = again
  where
    again =
      readCell var $ \case
        Full a -> use a
        Crowded a _ -> use a
        Empty -> none
        One _ -> none
        Hungry _ _ -> none
        Busy -> relax >> again

-- | Take the value and put another. Other threads may come in between.
swapMVar :: MVar a -> a -> Thread a
swapMVar mvar new = takeMVar mvar >>= \old -> old <$ putBack mvar new

-- | Take the value if there is one. Never waits.
tryTakeMVar :: MVar a -> Thread (Maybe a)
tryTakeMVar MVar {mvarState = var, mvarBlockedOn = blockedOn} = attempt (using "try to take" (blockedTake blockedOn)) $ \home _ _ ->
  takeNow var home (pure (Got Nothing)) (pure . Got . Just)

-- | Put a value if there is room: true. Never waits.
tryPutMVar :: MVar a -> a -> Thread Bool
tryPutMVar MVar {mvarState = var, mvarBlockedOn = blockedOn} a = attempt (using "try to put into" (blockedPut blockedOn)) $ \home _ _ ->
  putNow var home a (pure (Got False)) (pure (Got True))

-- | The value, if there is one. Never waits.
tryReadMVar :: MVar a -> Thread (Maybe a)
tryReadMVar MVar {mvarState = var, mvarBlockedOn = blockedOn} = attempt (using "try to read" (blockedRead blockedOn)) $ \_ _ _ ->
  readNow var (pure (Got Nothing)) (pure . Got . Just)

-- | Is it empty? Perhaps not any more when this returns.
isEmptyMVar :: MVar a -> Thread Bool
isEmptyMVar mvar = isNothing <$> tryReadMVar mvar
