{-# OPTIONS_HADDOCK not-home #-}

-- | What is known of a descriptor that a ring watches: whether there is something to read, and which
-- operation waits for that. Used on the worker that owns the ring only. See Note [Watched descriptors].
module Weft.Internal.Backend.Uring.Watch
  ( Watch,
    watched,
    newWatch,

    -- * What there is to read
    readNews,
    tell,
    nothingLeft,
    inVain,
    isUnread,
    noteRead,

    -- * What waits
    Waiting (..),
    waiting,
    waitsFor,
    park,
    stopWaiting,
    keepPlace,
    occupant,
    leavePlace,
  )
where

import Control.Monad (void)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, setByteArray, writeByteArray)
import Data.Word (Word8)
import Foreign.Ptr (IntPtr (..), Ptr, intPtrToPtr)
import Weft.Internal.Backend.Readiness.Table (Readiness (..), readinessByte, readinessOf)
import Weft.Internal.Core.Standing (Place (..), waitAgain)
import Weft.Internal.Data.Slots (SlotKey (..))
import Weft.Internal.Os.Descriptor (Descriptor (..))

-- Note [Watched descriptors]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Where a receive stands (Note [Standing receives] in "Weft.Internal.Core.Standing"), the ring watches the
-- descriptor: one poll request that completes again each time something comes. It takes no bytes. They stay in
-- the socket until a thread wants them, so nothing has to be given back when the descriptor is closed or passed on.
--
-- A watch begins with the second receive of a descriptor that could stand, so not for a connection with one request,
-- and only where a short receive proves that there is nothing left ('Weft.Internal.Os.Sys.givesAll'). From then on
-- it serves each receive that waits, standing or not. What waits is in the table of operations under a key of its
-- own, its token, which the watch has. One waits at a time: another receive is a request of its own.
--
-- The news are those of Note [No wake-up is lost] in "Weft.Internal.Backend.Readiness.Stream":
--
--   'Blocked'  a receive would block, or a completion that says it does not is still to come
--   'Ready'    it may succeed
--   'Hangup'   so it may, and a short one proves nothing
--
-- A completion of the poll is an edge: it comes after each arrival, the end of the stream, and an error. So
-- 'Blocked' may be written after a receive that would have blocked, and after a short one unless the end has been
-- seen. A poll that is made anew says first what is there already.
--
-- The watch ends with the last completion of its request: when its descriptor is forgotten, the ring is shut down,
-- or several news came for which nothing waited ('inVain'), because its thread reads on another worker. Until then it
-- counts as pending on the descriptor, so that the number is not closed.

-- | A watched descriptor.
data Watch = Watch
  { watched :: !Descriptor,
    -- | @0@ news, @6@ does an operation wait; @16..23@ its key, or -1, @24..31@ its address, @32..39@ its
    -- room: as "Weft.Internal.Core.Standing" has them. @40@ does what waited stay, @41@ news in vain.
    watchBytes :: {-# UNPACK #-} !(MutableByteArray RealWorld)
  }
  deriving stock (Eq)

instance Show Watch where
  showsPrec _ w = showString "watch of " . shows (watched w)

-- | A watch for which nothing waits. Its poll is yet to be submitted.
newWatch :: Descriptor -> IO Watch
newWatch d = do
  bytes <- newByteArray 48
  setByteArray bytes 0 48 (0 :: Word8)
  let w = Watch d bytes
  w <$ leavePlace w

byteAt :: Watch -> Int -> IO Word8
byteAt = readByteArray . watchBytes

setByte :: Watch -> Int -> Word8 -> IO ()
setByte = writeByteArray . watchBytes

readNews :: Watch -> IO Readiness
readNews w = readinessOf <$> byteAt w 0

writeNews :: Watch -> Readiness -> IO ()
writeNews w = setByte w 0 . readinessByte

-- | There are news. An end stays, when it was seen before.
tell :: Watch -> Readiness -> IO ()
tell w news = readNews w >>= writeNews w . max news

-- | There are news for which nothing waits. True for each eighth time since the last were read.
inVain :: Watch -> IO Bool
inVain w = do
  news <- readNews w
  count <- byteAt w 41
  let count'
        | news == Blocked = 0
        | count == maxBound = mostInVain
        | otherwise = count + 1
  setByte w 41 count'
  tell w Ready
  pure (count' /= 0 && count' `rem` mostInVain == 0)

-- | Should the watch end? No operation waits and 'mostInVain' news or more came in vain.
isUnread :: Watch -> IO Bool
isUnread w = do
  waits <- byteAt w 6
  count <- byteAt w 41
  pure (waits == 0 && count >= mostInVain)

-- | A thread that computes may be late for a few.
mostInVain :: Word8
mostInVain = 8

-- | A receive would have blocked.
nothingLeft :: Watch -> IO ()
nothingLeft w = writeNews w Blocked

-- | A receive with this room has ended with this result.
noteRead :: Watch -> Int -> Int -> IO ()
noteRead w room r = do
  setByte w 41 0
  news <- readNews w
  if r > 0 && r < room && news /= Hangup then writeNews w Blocked else tell w Ready

-- | What waits on a watched descriptor, and where its bytes go.
data Waiting = NotWaiting | Waiting !SlotKey !(Ptr Word8) !Int

waiting :: Watch -> IO Waiting
waiting w =
  byteAt w 6 >>= \case
    0 -> pure NotWaiting
    _ -> do
      key <- keyOf w
      address <- readByteArray (watchBytes w) 3
      room <- readByteArray (watchBytes w) 4
      pure (Waiting (SlotKey key) (intPtrToPtr (IntPtr address)) room)

keyOf :: Watch -> IO Int
keyOf w = readByteArray (watchBytes w) 2

-- | Does the operation with this key wait?
waitsFor :: Watch -> SlotKey -> IO Bool
waitsFor w (SlotKey k) = do
  waits <- byteAt w 6
  key <- keyOf w
  pure (waits /= 0 && key == k)

-- | Have an operation wait, for bytes, at most the given number, that go to the address. No other may stand
-- there; there are no news.
park :: Watch -> SlotKey -> Ptr Word8 -> Int -> IO ()
park w (SlotKey k) address room = do
  writeByteArray (watchBytes w) 2 k
  void (waitAgain (Place (watchBytes w) 0 k) address room)

stopWaiting :: Watch -> IO ()
stopWaiting w = setByte w 6 0

-- | Have what waits stay when it has its bytes, so that it can wait again in this place.
keepPlace :: Watch -> IO Place
keepPlace w = do
  setByte w 40 1
  Place (watchBytes w) 0 <$> keyOf w

-- | What stays, whether it waits or not.
occupant :: Watch -> IO (Maybe SlotKey)
occupant w = do
  kept <- byteAt w 40
  if kept == 0 then pure Nothing else Just . SlotKey <$> keyOf w

-- | What waits or stays there leaves.
leavePlace :: Watch -> IO ()
leavePlace w = do
  stopWaiting w
  setByte w 40 0
  writeByteArray (watchBytes w) 2 (-1 :: Int)
