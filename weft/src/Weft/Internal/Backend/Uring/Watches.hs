{-# OPTIONS_HADDOCK not-home #-}

-- | Receives that wait for news of a watched descriptor: Note [Watched descriptors] in
-- "Weft.Internal.Backend.Uring.Watch". On the worker that owns the ring only.
module Weft.Internal.Backend.Uring.Watches
  ( receiveWatched,
    mayWatch,
    beginWatch,
    standIn,
    seen,
    endWait,
    endWatch,
    submitWatch,
  )
where

import Control.Monad (unless, when)
import Data.Foldable (for_)
import Data.Word (Word32, Word8)
import Foreign.C.Error (eFAULT, eINTR)
import Foreign.Ptr (Ptr)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Table (Readiness (..))
import Weft.Internal.Backend.Uring.Descriptors qualified as Descriptors
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.State
import Weft.Internal.Backend.Uring.Steps
import Weft.Internal.Backend.Uring.Watch
import Weft.Internal.Core.Standing (Place)
import Weft.Internal.Data.Slots (SlotKey (..))
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Sys qualified as Sys

-- | Carry out a receive on a watched descriptor. 'Nothing' while another waits for its news.
receiveWatched :: Uring w -> Watch -> Ptr Word8 -> Int -> Operation -> Completion w -> IO (Maybe Answer)
receiveWatched u w p n op done =
  waiting w >>= \case
    Waiting {} -> pure Nothing
    NotWaiting -> do
      makeWay u w
      news <- readNews w
      if news == Blocked
        then parked
        else do
          r <- Sys.recv (descriptorNumber (watched w)) p n
          if r == Sys.wouldBlock
            then nothingLeft w >> parked
            else Just r <$ noteRead w n r
  where
    parked = Just <$> parkOn u w p n op done

-- | Have a receive wait for news; no other stands there.
parkOn :: Uring w -> Watch -> Ptr Word8 -> Int -> Operation -> Completion w -> IO Answer
parkOn u w p n op done = do
  key <- Slots.insert (table u) (Pending Wanted (Watching w) op done)
  park w key p n
  pure (pending (Token (keyNumber key)))

-- | May a receive that would have to wait begin a watch of the descriptor?
mayWatch :: Uring w -> Descriptor -> IO Bool
mayWatch u = Descriptors.hasFlag Descriptors.Stood (descriptors u)
{-# INLINE mayWatch #-}

-- | Watch the descriptor, and have a receive wait for the first news.
beginWatch :: Uring w -> Descriptor -> Ptr Word8 -> Int -> Operation -> Completion w -> IO Answer
beginWatch u d p n op done = do
  w <- newWatch d
  key <- Slots.insert (watches u) w
  Descriptors.retain (descriptors u) d
  Descriptors.setWatch (descriptors u) d (Just key)
  askForNews u key w
  parkOn u w p n op done

askForNews :: Uring w -> SlotKey -> Watch -> IO ()
askForNews u key w = queue u (QueuedWatch key) (submitWatch u key w)

submitWatch :: Uring w -> SlotKey -> Watch -> IO Bool
submitWatch u key w = Ring.watch (descriptorNumber (watched w)) (ring u) key

-- | What stays there and does not wait leaves.
makeWay :: Uring w -> Watch -> IO ()
makeWay u w =
  occupant w >>= mapM_ \key -> do
    leavePlace w
    Slots.remove (table u) key

-- | 'stand' of the backend. The second time, the operation waits for a watch.
standIn :: Uring w -> Token -> IO (Maybe Place)
standIn u (Token k) =
  Slots.lookup (table u) (SlotKey k) >>= \case
    Just p | Wanted <- cancelState p -> case stage p of
      Watching w -> Just <$> keepPlace w
      _ -> Nothing <$ when (deferred u) (for_ (streamOf (operation p)) (stands . snd))
    _ -> pure Nothing
  where
    stands d = do
      asked <- known Descriptors.Asked d
      unless asked $ do
        set Descriptors.Asked d
        givesAll <- Sys.givesAll (descriptorNumber d)
        when (givesAll == 1) $ set Descriptors.Stood d
    known flag = Descriptors.hasFlag flag (descriptors u)
    set flag = Descriptors.setFlag flag True (descriptors u)

-- | There is something to read, or the watch says why it has ended. Answers how many completions ran.
seen :: Uring w -> SlotKey -> Int -> Word32 -> IO Int
seen u key result flags =
  Slots.lookup (watches u) key >>= \case
    Nothing -> pure 0
    Just w
      | result >= 0 -> do
          when (Ring.ends flags) $ tell w Hangup
          ran <- receiveFor u key w
          if Ring.goesOn flags then pure ran else (ran +) <$> goOn u key w
      -- The thread that asked has ended, or was succeeded; or nobody wants it any more.
      | result == Sys.canceled || result == Sys.failureCode eINTR || result == Sys.failureCode eFAULT -> goOn u key w
      | otherwise -> endWatch u key w result

-- | A request for news has had its last completion: make it anew, if something waits or has read. Not a
-- local function, which every completion would allocate.
goOn :: Uring w -> SlotKey -> Watch -> IO Int
goOn u key w = do
  over <- isOver u (watched w)
  unread <- isUnread w
  if over || unread then endWatch u key w Sys.canceled else 0 <$ askForNews u key w

-- | Receive for what waits.
receiveFor :: Uring w -> SlotKey -> Watch -> IO Int
receiveFor u watchKey w =
  waiting w >>= \case
    NotWaiting -> do
      leaves <- inVain w
      0 <$ when leaves (queue u (QueuedWatchEnd watchKey) (Ring.cancelWatch watchKey (ring u)))
    Waiting key address room -> do
      r <- Sys.recv (descriptorNumber (watched w)) address room
      if r == Sys.wouldBlock
        then 0 <$ nothingLeft w
        else do
          noteRead w room r
          Slots.lookup (table u) key >>= \case
            Nothing -> 0 <$ leavePlace w
            Just p -> 1 <$ endWait u w key p r

-- | The wait of an operation for a watch has ended with this result. It stays in its place if it may.
endWait :: Uring w -> Watch -> SlotKey -> Pending w -> Int -> IO ()
endWait u w key p r = do
  kept <- occupant w
  case (kept, cancelState p) of
    (Just _, Wanted) -> stopWaiting w
    _ -> leavePlace w >> Slots.remove (table u) key
  complete (completion p) r

-- | Its last completion has come. What waits ends with this result.
endWatch :: Uring w -> SlotKey -> Watch -> Int -> IO Int
endWatch u key w r = do
  Slots.remove (watches u) key
  Descriptors.setWatch (descriptors u) (watched w) Nothing
  ran <-
    waiting w >>= \case
      NotWaiting -> 0 <$ makeWay u w
      Waiting waits _ _ -> do
        found <- Slots.take (table u) waits
        leavePlace w
        length found <$ mapM_ (\p -> complete (completion p) r) found
  ran <$ releaseOne u (watched w)
