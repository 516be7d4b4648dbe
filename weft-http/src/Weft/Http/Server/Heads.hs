{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A memo of heads, which all sessions ask before they parse: clients send the same bytes again.
--
-- == Note [Heads that have come before]
--
-- The memo maps all bytes that have come together to what 'parseRequest' says of them. An entry is the
-- answer or not found, so 'readHead' is a pure function.
--
--   * Its memory is fixed: 'places' strings of at most 1,024 bytes, and what was parsed of each.
--   * Bytes are kept when they come for the second time, and nothing else has come to their place
--     since: clients that send what comes once throw nothing out, and cost the parser, a hash and a
--     store to memory that the collector skips. An entry used since another one could have taken its
--     place is spared once.
--   * What is kept is a copy. So what was parsed refers to no connection's buffer, and the memory
--     where the bytes came can be received into again ('Weft.Http.Server.Input.giveBack').
--   * With an entry goes one thing that others make of its head: a server keeps there what
--     answers it.
--   * Workers share it without a lock. An entry is immutable, and is replaced by one store; a
--     sighting that is lost costs one more parse.
--
-- An entry, with the passwords in its fields, stays until it is replaced. The hash is of all bytes, and
-- it has a secret, so that clients cannot choose heads that share a place.
module Weft.Http.Server.Heads
  ( Heads,
    newHeads,
    Reading (..),
    readingParsed,
    findHead,
    readHead,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (unsafeShiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Word (Word64)
import System.IO.Unsafe (unsafeDupablePerformIO)
import Weft.Http.Internal.Hash
import Weft.Http.RequestHead

-- | A memo in which a @k@ is kept with each head.
data Heads k = Heads
  { -- | With which all are parsed.
    headsLimits :: !Limits,
    headsSecret :: {-# UNPACK #-} !Secret,
    -- | Makes the value that is kept with a new entry, given the number of its bytes and their parse.
    headsWith :: !(Int -> Parsed -> IO k),
    headsEntries :: !(MutableArray RealWorld (KnownHead k)),
    -- | For each place the last hash parsed for it, and 1 if it was used since it could be replaced.
    headsSeen :: !(MutablePrimArray RealWorld Word64)
  }

data KnownHead k
  = Vacant
  | KnownHead {-# UNPACK #-} !ByteString !(Reading k)

-- | The parse of received bytes.
data Reading k
  = -- | It refers to them.
    Fresh !Parsed
  | -- | It refers to a copy. What is kept with it.
    Known !Parsed !k

readingParsed :: Reading k -> Parsed
readingParsed = \case
  Fresh parsed -> parsed
  Known parsed _ -> parsed

-- | Entries: a power of two.
places :: Int
places = 128

-- | With each entry is kept what the function makes of the number of bytes and their parse, maybe twice.
newHeads :: Limits -> Secret -> (Int -> Parsed -> IO k) -> IO (Heads k)
newHeads limits secret with = do
  seen <- newPrimArray (2 * places)
  setPrimArray seen 0 (2 * places) 0
  entries <- newArray places Vacant
  pure (Heads limits secret with entries seen)

-- | Parse these bytes, of which nothing was looked at before. Inlined: a known head is found without a call.
findHead :: Heads k -> ByteString -> IO (Reading k)
findHead heads given
  -- With a hundred fields such an entry takes some 10 KB, with those of a browser 1.5.
  | B.length given > 1024 = pure $! Fresh (parseRequest (headsLimits heads) 0 given)
  | otherwise = do
      let !hash = hashOf (headsSecret heads) given
      readArray (headsEntries heads) (placeOf hash) >>= \case
        KnownHead bytes reading | bytes == given -> do
          used <- readPrimArray (headsSeen heads) (useOf hash)
          -- Written only when it changes: the line is shared by the workers.
          reading <$ when (used == 0) (writePrimArray (headsSeen heads) (useOf hash) 1)
        _ -> unknown heads given hash
{-# INLINE findHead #-}

placeOf :: Word64 -> Int
placeOf hash = fromIntegral (hash `unsafeShiftR` 57)

-- | Indices of 'headsSeen'.
sightingOf, useOf :: Word64 -> Int
sightingOf hash = 2 * placeOf hash
useOf hash = sightingOf hash + 1

-- | Parse bytes with this hash that have no entry, and make one if they come for the second time.
unknown :: Heads k -> ByteString -> Word64 -> IO (Reading k)
unknown heads given hash = do
  before <- readPrimArray (headsSeen heads) (sightingOf hash)
  used <- readPrimArray (headsSeen heads) (useOf hash)
  if
    | before /= hash -> writePrimArray (headsSeen heads) (sightingOf hash) hash >> fresh
    | used /= 0 -> writePrimArray (headsSeen heads) (useOf hash) 0 >> fresh
    | otherwise -> do
        let !own = B.copy given
            !parsed = parseRequest (headsLimits heads) 0 own
        kept <- headsWith heads (B.length own) parsed
        let !reading = Known parsed kept
        reading <$ writeArray (headsEntries heads) (placeOf hash) (KnownHead own reading)
  where
    fresh = pure $! Fresh (parseRequest (headsLimits heads) 0 given)
{-# NOINLINE unknown #-}

-- | 'parseRequest', given how many bytes it has looked at. Pure: Note [Heads that have come before].
readHead :: Heads k -> Int -> ByteString -> Reading k
readHead heads scanned given
  | scanned > 0 = Fresh (parseRequest (headsLimits heads) scanned given)
  | otherwise = unsafeDupablePerformIO (findHead heads given)
-- The arrays are read each time that it is called.
{-# NOINLINE readHead #-}
