{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Where attempts, events and waiters of a readiness backend meet. An operation is tried first; when it
-- would block it waits in its descriptor's slot, and an event has it tried again.
module Weft.Internal.Backend.Readiness.Stream
  ( submitStream,

    -- * Events
    wakeSlot,
    wakeStanding,
    isReadable,
    settle,
    waitedFor,

    -- * Staying
    standWaiter,
  )
where

import Control.Monad (unless, when)
import Data.Bits ((.&.))
import Data.Foldable (for_)
import Data.Sequence (Seq (..), (|>))
import Data.Word (Word8)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Attempt
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Core.Standing (Place)
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [No wake-up is lost]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- Each direction of a descriptor has a flag:
--
--   Blocked   an operation would block; an event will say when not any more
--   Ready     it may succeed
--   Hangup    it may succeed, and a short transfer proves nothing
--
-- The invariants, at every moment outside these functions:
--
--   (1) if an operation waits, the flag is Blocked and the poller watches;
--   (2) if the flag is Blocked, then the stream would block, or an event is
--       still to be collected that says it does not.
--
-- So every operation that waits is woken. (1) is by construction: only 'park' adds a waiter, and an event
-- ('wakeDirection') that raises the flag tries the waiters until none is left or the flag is Blocked again.
--
-- (2) must hold whenever Blocked is written, which happens
--
--   (a) after EAGAIN. What arrives later is an edge, and the poller reports it. An edge that came before and was
--       not collected yet wakes us in vain, no more.
--   (b) after a short transfer; it saves the call that would say EAGAIN. A TCP socket that gave less than asked had
--       no more at that moment, so all but an end of stream is as in (a). The event of the end may have been
--       collected before the read, together with that of the last bytes: then no other comes. But that event has
--       set the flag to Hangup, and (b) is not done in that state. If it was not collected yet, it is still to
--       come, as (2) wants. Errors and urgent data, at which a read stops short, set Hangup, too (urgent data
--       because the poller is asked for EPOLLPRI).
--
-- Before a descriptor is registered (2) holds because registering reports what is there already.
--
-- (b) needs a stream that gives all it has, and takes all it has room for. A datagram is short by nature, a Unix
-- socket stops where descriptors are passed, kernel TLS at a record, a FIFO where another process writes packets:
-- these are told from plain TCP and from pipes when they are registered with an edge-triggered poller. (A pipe
-- reports an edge when it was empty, and when it was full.) A level-triggered poller repeats itself, so that (2)
-- always holds.
--
-- Hangup ends with EAGAIN only (an error on a datagram socket passes).
--
-- A descriptor whose thread reads on another worker now would have this one woken by all that comes. After
-- some events in vain ('inVain') it is not registered any more: nothing waits (1), and registering reports (2).

-- | Try, if that may succeed; wait, if it does not.
submitStream :: Source w -> Slot w -> Direction -> CInt -> Operation -> Completion w -> IO Answer
submitStream src slot direction number op done = do
  flag <- readFlag slot direction
  if flag == Blocked && not (mustBegin op)
    then parkNew src slot direction number op done
    else do
      r <- firstAttempt op
      if
        | r == Sys.wouldBlock -> writeFlag slot direction Blocked >> parkNew src slot direction number op done
        | r == pagesMissing -> do
            key <- nextSequence src
            started <- bringIn src key op done
            pure $! if started then pending (streamToken key number direction) else Sys.canceled
        | otherwise -> r <$ noteTransfer src slot direction flag op r
{-# INLINE submitStream #-}

-- | To connect is to begin something, whatever is known about the stream.
mustBegin :: Operation -> Bool
mustBegin = \case
  Connect {} -> True
  _ -> False

parkNew :: Source w -> Slot w -> Direction -> CInt -> Operation -> Completion w -> IO Answer
parkNew src slot direction number op done = do
  key <- nextSequence src
  r <- park src slot direction number (StreamWaiter key op done)
  pure $! if Sys.isFailure r then r else pending (streamToken key number direction)

-- | Note what the result of an attempt says about the stream: (b) in Note [No wake-up is lost].
noteTransfer :: Source w -> Slot w -> Direction -> Readiness -> Operation -> Result -> IO ()
noteTransfer src slot direction flag op r = do
  -- A receive that is full lowers no flag, and yet the events before it were not in vain.
  when (direction == Reading) $ writeVain slot 0
  when (flag == Ready && provesExhausted op r) do
    registration <- readRegistration slot
    when (registration /= Registered || pollerTrigger (sourcePoller src) == Level) $
      writeFlag slot direction Blocked
{-# INLINE noteTransfer #-}

-- | Have an operation wait. Answers 0, or why the poller refuses to watch.
park :: Source w -> Slot w -> Direction -> CInt -> StreamWaiter w -> IO Result
park src slot direction number !w = do
  r <- watch src slot direction number
  if Sys.isFailure r
    then -- Unwatched, the flag would stay Blocked for ever.
      writeFlag slot direction Ready
    else do
      when (direction == Reading) (makeWay slot)
      readWaiters slot direction >>= writeWaiters slot direction . (|> w)
  pure r

-- | See to it that the poller reports the direction.
watch :: Source w -> Slot w -> Direction -> CInt -> IO Result
watch src slot direction number = case pollerTrigger poller of
  Edge -> do
    registration <- readRegistration slot
    if registration /= Unregistered
      then pure 0
      else do
        r <- tell bothDirections
        unless (Sys.isFailure r) do
          all' <- Sys.givesAll number
          writeRegistration slot if all' == 1 then RegisteredGivesAll else Registered
        pure r
  _ -> do
    before <- readInterest slot
    let wanted = before <> interestIn direction
    if wanted == before
      then pure 0
      else do
        r <- tell wanted
        unless (Sys.isFailure r) do
          writeInterest slot wanted
          writeRegistration slot Registered
        pure r
  where
    poller = sourcePoller src
    tell interest = do
      serial <- slotSerial slot
      pollerWatch poller number (makeKey number serial) (pollerTrigger poller) interest

-- | Have a level-triggered poller watch no more than what operations wait for.
settle :: Source w -> Slot w -> CInt -> IO ()
settle src slot number = when (pollerTrigger poller == Level) do
  before <- readInterest slot
  wanted <- waitedFor slot
  when (wanted /= before) do
    if wanted == noInterest
      then do
        pollerRemove poller number
        writeRegistration slot Unregistered
      else do
        serial <- slotSerial slot
        -- To ask a poller for less cannot fail.
        _ <- pollerWatch poller number (makeKey number serial) Level wanted
        pure ()
    writeInterest slot wanted
  where
    poller = sourcePoller src

-- | The directions in which operations wait; not of a standing one.
waitedFor :: Slot w -> IO Interest
waitedFor slot = (<>) <$> interestOf Reading <*> interestOf Writing
  where
    interestOf direction =
      (\ws -> if null ws then noInterest else interestIn direction) <$> readWaiters slot direction

-- | An event: the readiness bits of a descriptor. Answers how many completions ran.
wakeSlot :: Source w -> Slot w -> CInt -> Int -> IO Int
wakeSlot src slot number bits
  | bits .&. Sys.invalidBit /= 0 = do
      -- Closed without a forget: the operations that wait end.
      ws <- allWaiters slot
      pollerRemove (sourcePoller src) number
      vacateSlot slot
      for_ ws \w -> complete (waiterCompletion w) Sys.badDescriptor
      pure (length ws)
  | otherwise = do
      mayRead <- (/= Blocked) <$> readFlag slot Reading
      mayWrite <- (/= Blocked) <$> readFlag slot Writing
      readers <- direct Reading Sys.readableBit Sys.readHangupBit
      writers <- direct Writing Sys.writableBit Sys.writeHangupBit
      settle src slot number
      if
        | not mayRead -> writeVain slot 0
        | mayWrite && readers + writers == 0 -> inVain src slot number
        | otherwise -> pure ()
      pure (readers + writers)
  where
    direct direction readyBit hangupBit
      | bits .&. hangupBit /= 0 = wakeDirection src slot direction Hangup
      | bits .&. readyBit /= 0 = wakeDirection src slot direction Ready
      | otherwise = pure 0

-- | An event came, and nothing was read or waited since the one before. Once there were several, have an
-- edge-triggered poller forget the descriptor, unless an operation waits.
inVain :: Source w -> Slot w -> CInt -> IO ()
inVain src slot number = when (pollerTrigger (sourcePoller src) == Edge) do
  count <- readVain slot
  idle <- null <$> allWaiters slot
  if count >= mostInVain && idle
    then do
      pollerRemove (sourcePoller src) number
      writeRegistration slot Unregistered
      makeWay slot
      writeVain slot 0
    else writeVain slot (min mostInVain (count + 1))

-- | Each costs as much as to register the descriptor again, and a thread that computes may be late for a few.
mostInVain :: Word8
mostInVain = 8

-- | Do the bits say that there is something to read, and nothing else but that there may be room to write?
isReadable :: Int -> Bool
isReadable bits = bits .&. (Sys.invalidBit + Sys.writeHangupBit + Sys.readHangupBit + Sys.readableBit) == Sys.readableBit
{-# INLINE isReadable #-}

-- | An event of one direction. Mostly it is of one without a waiter: a peer that sends to us
-- makes room for what we send, too.
wakeDirection :: Source w -> Slot w -> Direction -> Readiness -> IO Int
wakeDirection src slot direction news = do
  flag <- readFlag slot direction
  if flag == Blocked
    then case direction of
      Reading -> wakeReaders src slot news
      Writing -> writeFlag slot direction news >> wakeWaiters src slot direction 0
    else -- By invariant (1) no operation waits. A hang-up stays when it was there.
      0 <$ when (flag < news) (writeFlag slot direction news)
{-# INLINE wakeDirection #-}

-- | Try those that wait to read, the standing one first.
wakeReaders :: Source w -> Slot w -> Readiness -> IO Int
wakeReaders src slot news =
  standing slot >>= \case
    NotStanding -> writeFlag slot Reading news >> wakeWaiters src slot Reading 0
    Standing address room (StreamWaiter _ op done) -> do
      r <- case op of
        Receive d _ _ -> Sys.recv (descriptorNumber d) address room
        _ -> pure Sys.badDescriptor
      standingRead src slot news room done r

-- | The standing waiter has read, with this result, after an event of reading.
standingRead :: Source w -> Slot w -> Readiness -> Int -> Completion w -> Result -> IO Int
standingRead src slot news room done r
  -- The flag is 'Blocked', and stays so if nothing is left.
  | r == Sys.wouldBlock = pure 0
  | otherwise = do
      nowDone slot
      all' <- if news == Ready && r > 0 && r < room then (/= Registered) <$> readRegistration slot else pure False
      unless all' $ writeFlag slot Reading news
      others <- othersWait slot
      complete done r
      if others then wakeWaiters src slot Reading 1 else pure 1
{-# NOINLINE standingRead #-}

-- | 'wakeSlot' where nothing but the standing waiter waits ('standsAlone'), and there is something to read: what
-- nearly all events of a server are about.
wakeStanding :: Source w -> Slot w -> CInt -> IO Int
wakeStanding src slot number =
  standing slot >>= \case
    Standing address room (StreamWaiter _ _ done) -> do
      r <- Sys.recv number address room
      if r > 0 && r < room
        then 1 <$ (nowDone slot >> complete done r)
        else standingRead src slot Ready room done r
    NotStanding -> pure 0
{-# INLINE wakeStanding #-}

-- | Try the operations that wait, in order, until one would block or none is left.
-- The number counts completions before those, of the same event.
wakeWaiters :: Source w -> Slot w -> Direction -> Int -> IO Int
wakeWaiters src slot direction = go
  where
    go :: Int -> IO Int
    go !count =
      readWaiters slot direction >>= \case
        Empty -> pure count
        w :<| rest -> retry count w rest
    retry count w rest = do
      flag <- readFlag slot direction
      if flag == Blocked
        then pure count
        else do
          let op = waiterOperation w
          r <- laterAttempt (count == 0) op
          if
            | r == Sys.wouldBlock -> count <$ writeFlag slot direction Blocked
            | r == pagesMissing -> do
                writeWaiters slot direction rest
                started <- bringIn src (waiterSequence w) op (waiterCompletion w)
                unless started $ complete (waiterCompletion w) Sys.canceled
                go (if started then count else count + 1)
            | otherwise -> do
                writeWaiters slot direction rest
                noteTransfer src slot direction flag op r
                complete (waiterCompletion w) r
                go (count + 1)

-- | The most that one 'SendFile' brings into memory: what 'Sys.residentBytes' looks at.
pieceSize :: Int
pieceSize = 0x40000

-- | Let the pool bring the pages of a 'SendFile' into memory, then go on. False when it takes no more jobs.
bringIn :: Source w -> Int -> Operation -> Completion w -> IO Bool
bringIn src key op done = case op of
  SendFile d file offset n -> do
    -- The job keeps the file open: it needs its slot.
    known <- withSlot src file \_ -> pure 0
    if Sys.isFailure known
      then pure False
      else startJob src key Preparation [d, file] op done (Sys.readIn (descriptorNumber file) offset (min n pieceSize)) \_ r ->
        if r > 0 then sendOn d (sendResident d file offset (min n r)) else finish r
  _ -> pure False
  where
    finish = enqueue src . Complete op done
    -- Where memory is so short that the pages are gone again, this waits for the disk, and not for ever.
    sendOn d send =
      slotOf src d >>= \case
        Nothing -> finish Sys.canceled
        Just slot -> do
          flag <- readFlag slot Writing
          r <- if flag == Blocked then pure Sys.wouldBlock else send
          if r /= Sys.wouldBlock
            then finish r
            else do
              writeFlag slot Writing Blocked
              parked <- park src slot Writing (descriptorNumber d) (StreamWaiter key op done)
              when (Sys.isFailure parked) $ finish parked

-- | 'stand' of a readiness backend. A receive stays if no other operation waits to read. Where the poller
-- forgets a descriptor without a waiter, it gains nothing.
standWaiter :: Source w -> Token -> IO (Maybe Place)
standWaiter src token
  | pollerTrigger (sourcePoller src) /= Edge || isInPool token = pure Nothing
  | otherwise =
      existingSlot (sourceTable src) (tokenNumber token) >>= \case
        Nothing -> pure Nothing
        Just slot ->
          readWaiters slot Reading >>= \case
            w :<| Empty
              | waiterSequence w == tokenSequence token,
                Receive _ address room <- waiterOperation w -> do
                  first <- standing slot
                  case first of
                    Standing {} -> pure Nothing
                    NotStanding -> do
                      writeWaiters slot Reading Empty
                      Just <$> takePlace slot w address room
            _ -> pure Nothing
