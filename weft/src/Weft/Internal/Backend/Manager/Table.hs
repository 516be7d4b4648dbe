{-# OPTIONS_HADDOCK not-home #-}

-- | The descriptors of an event manager. Any thread registers, unregisters and closes; the stepper looks up
-- what an event is for. See Note [Stripes] and Note [What the poller is told].
module Weft.Internal.Backend.Manager.Table
  ( newStripes,
    register,
    unregister,
    closeWith,
    handleEvent,
    handleAlways,
    closeAll,
  )
where

import Control.Concurrent.MVar
import Control.Exception (SomeException, mask_, onException, throwIO, try)
import Control.Monad (replicateM, unless, when)
import Data.Bits ((.&.), (.|.))
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet qualified as IntSet
import Data.Primitive.PrimVar (fetchAddInt)
import Data.Primitive.SmallArray (SmallArray, indexSmallArray, smallArrayFromListN)
import Data.Word (Word32)
import Foreign.C.Error (eINVAL, ePERM, errnoToIOError)
import Foreign.C.Types (CInt)
import System.Posix.Types (Fd (..))
import Weft.Internal.Backend.Manager.State
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [Stripes]
-- ~~~~~~~~~~~~~~
-- The table is divided into stripes by number, each under a lock of its own, as GHC's event manager does.
-- Under the lock of a number its registrations and what the poller was told of it change together, so that
-- the poller is told of changes in their order; and a descriptor is closed.
--
-- No callback runs under a lock. A slot has a serial, which its events carry: an event of a descriptor
-- that was closed finds another serial or no slot.

-- Note [What the poller is told]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Where all waiters for a descriptor want one event, the poller is asked for one ('Once'), if it knows
-- that: then no call is needed after the event, and the next registration is one call. Else it is asked
-- for 'Level'.
--
-- A poller that any thread may use is told at once. Another one is told by the stepper, which gets a
-- message; until then the poller may report an event that finds no registration.
--
-- Each registration tells the poller even of what it should know already: the number may have been
-- closed, without notice, and be another file's.

stripeCount :: Int
stripeCount = 64

newStripes :: IO (SmallArray (MVar (IntMap WatchSlot)))
newStripes = smallArrayFromListN stripeCount <$> replicateM stripeCount (newMVar IntMap.empty)

-- | Change the slot of a number, if it has one, under the lock of its stripe. Masked.
changeSlot :: EventManager -> CInt -> (Maybe WatchSlot -> IO (Maybe WatchSlot, a)) -> IO a
changeSlot m number change = do
  slots <- takeMVar lock
  (slot, a) <- change (IntMap.lookup key slots) `onException` putMVar lock slots
  a <$ (putMVar lock $! maybe (IntMap.delete key) (IntMap.insert key) slot slots)
  where
    lock = indexSmallArray (managerStripes m) (key `mod` stripeCount)
    key = fromIntegral number

-- | Never 0, which is the wake-up's.
newSerial :: EventManager -> IO Word32
newSerial m = max 1 . fromIntegral <$> fetchAddInt (managerSerials m) 1

-- | Have a callback run as long as a descriptor is ready (level-triggered). It gets its registration,
-- and what has happened: of that only what it waits for, and 'peerClosed', 'failed', 'closed' and
-- 'refused', which end waits of all kinds. Several registrations for a descriptor run in the order in
-- which they were made. A regular file is always ready.
--
-- The manager does not own the descriptor. Close it by 'closeWith', or 'unregister' first: a callback
-- for a number that is closed in secret would be told of the number's next owner.
--
-- Throws an 'IOError': @EBADF@ for a number that is not open, @EINVAL@ for no interest, and others
-- where the source refuses. A source for the stepper only (@poll@, @select@, @ioUring@) refuses later,
-- by an event, 'refused'.
register :: EventManager -> Fd -> Interest -> Lifetime -> (Registration -> Events -> IO ()) -> IO Registration
register m (Fd number) interest lifetime callback = mask_ do
  when (interest == noInterest) $ throwResult (Sys.failureCode eINVAL)
  when (number < 0) $ throwResult Sys.badDescriptor
  registration <- Registration m number interest lifetime callback <$> newIORef True
  now <- maySettle m
  -- Else the poller would say so later, in an event.
  unless now $ unlessM (Sys.isOpen number) (throwResult Sys.badDescriptor)
  r <- changeSlot m number \known -> do
    refuseWhenFree m "register"
    slot <- maybe ((\serial -> WatchSlot serial Untold []) <$> newSerial m) pure known
    let wanted = slot {slotRegistrations = registration : slotRegistrations slot}
    if now
      then do
        (r, settled) <- settle m True number wanted
        -- Refused: as before. What others have registered for stays.
        pure (if Sys.isFailure r then known else settled, r)
      else pure (Just wanted, 0)
  when (Sys.isFailure r) $ throwResult r
  unless now $ leave m (settleLater m True number)
  pure registration
  where
    throwResult r = ioError (errnoToIOError "register" (Sys.resultErrno r) Nothing Nothing)

-- | Drop a registration. False when it is gone already: dropped, or 'OneShot' and its callback has run
-- or is running, or its descriptor closed. The callback does not begin to run afterwards; on another
-- thread, the stepper, it may be running.
unregister :: Registration -> IO Bool
unregister registration = mask_ do
  live <- atomicModifyIORef' (registrationIsLive registration) (False,)
  when live do
    now <- maySettle m
    changeSlot m number \case
      Just slot
        | registration `elem` slotRegistrations slot -> do
            let left = slot {slotRegistrations = filter (/= registration) (slotRegistrations slot)}
            if now
              then do
                (settled, refusals) <- settleIn m False number left
                unless (null refusals) $ onStepper m (enqueue m refusals)
                pure (settled, ())
              else (Just left, ()) <$ leave m (settleLater m False number)
      other -> pure (other, ())
  pure live
  where
    m = registrationManager registration
    number = registrationNumber registration

-- | Close a descriptor, by the action given, and tell all that have registered for it that it is
-- 'closed', in the next step. While the action runs no thread registers for the number. What the action
-- throws is thrown, and the registrations are gone all the same.
closeWith :: EventManager -> Fd -> (Fd -> IO ()) -> IO ()
closeWith m fd@(Fd number) close = mask_ do
  now <- maySettle m
  r <- changeSlot m number \known -> do
    (left, notify) <- case known of
      Nothing -> pure (Nothing, pure ())
      Just slot -> do
        serial <- newSerial m
        let emptied = slot {slotSerial = serial, slotRegistrations = []}
        left <- if now then snd <$> settle m False number emptied else pure (Just emptied)
        pure . (left,) $ leave m do
          enqueue m (firing closed (slotRegistrations slot))
          unless now $ settleLater m False number
    r <- try (close fd)
    -- Under the lock: the thread that frees the manager looks for messages after it has taken each lock.
    notify
    pure (left, r)
  either (throwIO :: SomeException -> IO ()) pure r

-- | An event: run, or have run, what it is for. On the stepper.
handleEvent :: EventManager -> Key -> Int -> IO ()
handleEvent m key bits = handle m (keyNumber key) \slot ->
  if slotSerial slot /= keySerial key then Nothing else Just (Events bits)

-- | A descriptor that is always ready has an event in each step. On the stepper.
handleAlways :: EventManager -> CInt -> IO ()
handleAlways m number = do
  handle m number \slot -> if isAlways slot then Just (readable <> writable) else Nothing
  left <- changeSlot m number (\slot -> pure (slot, slot))
  unless (any isAlways left) $ modifyIORef' (managerAlways m) (IntSet.delete (fromIntegral number))
  where
    isAlways slot = slotTold slot == AlwaysReady

handle :: EventManager -> CInt -> (WatchSlot -> Maybe Events) -> IO ()
handle m number eventsFor = do
  run <- changeSlot m number \case
    Just slot | Just events <- eventsFor slot -> do
      let all' = slotRegistrations slot
          isInvalid = events `has` invalid
          goes r = isInvalid || (concerns events r && registrationLifetime r == OneShot)
          told = case slotTold slot of
            Told Once _ -> Untold
            other -> other
          left = slot {slotTold = told, slotRegistrations = filter (not . goes) all'}
          reports
            | isInvalid = firing closed all'
            | otherwise = firing events (filter (concerns events) all')
      fmap (reports <>) <$> settleIn m False number left
    other -> pure (other, [])
  enqueue m run

-- | Does a registration hear of it? Of what ends a descriptor all do.
concerns :: Events -> Registration -> Bool
concerns (Events bits) r = bits .&. (interestBits (registrationInterest r) .|. always) /= 0
  where
    always = eventBits (failed <> invalid)

-- | The callbacks of registrations, oldest first, of what each hears.
firing :: Events -> [Registration] -> [IO Bool]
firing events registrations = [report r | r <- reverse registrations]
  where
    final = events `has` (closed <> refused)
    report r = do
      live <-
        if final || registrationLifetime r == OneShot
          then atomicModifyIORef' (registrationIsLive r) (False,)
          else readIORef (registrationIsLive r)
      live <$ when live (registrationCallback r r (heard r))
    heard r = Events (eventBits events .&. (interestBits (registrationInterest r) .|. eventBits endings))
    endings = peerClosed <> failed <> closed <> refused

-- | Everything is told that it is closed, for the manager is freed. On the stepper.
closeAll :: EventManager -> IO ()
closeAll m = for_ (managerStripes m) \stripe -> do
  slots <- swapMVar stripe IntMap.empty
  enqueue m (concatMap (firing closed . slotRegistrations) slots)

-- | May the calling thread use the poller?
maySettle :: EventManager -> IO Bool
maySettle m = if pollerIsShared (managerPoller m) then pure True else isStepper m

-- | Tell the poller what a number is waited for, if it does not know or if that is forced. Under the
-- number's lock. Answers a failure, and the slot if it is still needed.
settle :: EventManager -> Bool -> CInt -> WatchSlot -> IO (Result, Maybe WatchSlot)
settle m forced number slot = case slotRegistrations slot of
  [] -> do
    case slotTold slot of
      Told _ _ -> pollerRemove poller number
      _ -> pure ()
    pure (0, Nothing)
  registrations
    | slotTold slot == wanted && not forced -> pure (0, Just slot)
    | slotTold slot == AlwaysReady && not forced -> pure (0, Just slot)
    | otherwise -> do
        r <- pollerWatch poller number (makeKey number (slotSerial slot)) trigger interest
        if r == Sys.failureCode ePERM
          then do
            onStepper m $ modifyIORef' (managerAlways m) (IntSet.insert (fromIntegral number))
            pure (0, Just slot {slotTold = AlwaysReady})
          else pure (r, Just slot {slotTold = wanted})
    where
      interest = foldr ((<>) . registrationInterest) noInterest registrations
      trigger
        | pollerHasOnce poller && all ((== OneShot) . registrationLifetime) registrations = Once
        | otherwise = Level
      wanted = Told trigger interest
  where
    poller = managerPoller m

-- | 'settle', where a slot that the poller refuses is dropped. Answers the callbacks that are to hear of that, too.
settleIn :: EventManager -> Bool -> CInt -> WatchSlot -> IO (Maybe WatchSlot, [IO Bool])
settleIn m forced number slot = do
  (r, settled) <- settle m forced number slot
  if Sys.isFailure r
    then (Nothing, firing refused (slotRegistrations slot)) <$ pollerRemove (managerPoller m) number
    else pure (settled, [])

-- | 'settle' for a message. On the stepper.
settleLater :: EventManager -> Bool -> CInt -> IO ()
settleLater m forced number =
  changeSlot m number (maybe (pure (Nothing, [])) (settleIn m forced number)) >>= enqueue m
