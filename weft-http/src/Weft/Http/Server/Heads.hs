{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Heads that have come before
--
-- Browsers, health checks and clients of an API send the same bytes again and again, and the same
-- bytes are the same head. One memo for each server, which the sessions of all its workers ask before
-- they parse.
--
-- == Note [Heads that have come before]
--
-- The memo maps all bytes that have come together to what 'parseRequest' says of them, and compares
-- all of them: it is the parser, and only faster. Its arrays are the one thing that changes, and
-- an entry read there is either the answer or not found, so 'readHead' is a pure function.
--
--   * Its memory is fixed: 'places' strings of at most 'longest' bytes, and what was parsed of each.
--   * Bytes are kept when they come for the second time, and nothing else has come to their place
--     since: clients that send what comes once throw nothing out, and cost the parser, a hash and a
--     store to memory that the collector does not look at.
--   * What is kept is a copy. So what was parsed refers to no connection's buffer, and the memory
--     where the bytes came can be received into again ('Weft.Http.Server.Input.giveBack').
--   * Workers share it without a lock. An entry is immutable and is replaced by one store; a sighting that is
--     lost costs one more parse.
--
-- An entry, with the passwords in its fields, stays until it is replaced. The hash is not
-- secret: a client can send heads that share a place, and have others in that place parsed again, as
-- they would be without a memo.
module Weft.Http.Server.Heads
  ( Heads,
    newHeads,
    Reading (..),
    readHead,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (unsafeShiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Primitive.Array
import Data.Primitive.PrimArray
import Data.Word (Word64)
import System.IO.Unsafe (unsafeDupablePerformIO)
import Weft.Http.Internal.Hash
import Weft.Http.Internal.Head
import Weft.Http.Internal.Types (Limits)

-- | The entries by place, the hashes of the bytes that were last parsed for each place, and the limits that
-- all are parsed with.
data Heads = Heads !Limits !(MutableArray RealWorld Entry) !(MutablePrimArray RealWorld Word64)

data Entry
  = Vacant
  | Entry !ByteString !Reading

-- | What bytes say, and whether that refers to none of them but to a copy.
data Reading = Reading {readingIsCopied :: !Bool, readingParsed :: !Parsed}

-- | Entries: a power of two.
places :: Int
places = 128

-- | In bytes: with a hundred fields such an entry takes some 10 KB, with those of a browser 1.5.
longest :: Int
longest = 1024

-- | Nothing has come.
newHeads :: Limits -> IO Heads
newHeads limits = do
  seen <- newPrimArray places
  setPrimArray seen 0 places 0
  entries <- newArray places Vacant
  pure (Heads limits entries seen)

-- | 'parseRequest'. See Note [Heads that have come before].
readHead :: Heads -> Int -> ByteString -> Reading
readHead (Heads limits entries seen) scanned given
  | scanned > 0 || B.length given > longest = Reading False (parseRequest limits scanned given)
  | otherwise = unsafeDupablePerformIO $ do
      let !hash = hashOf 128 given
          !place = fromIntegral (hash `unsafeShiftR` 57)
      readArray entries place >>= \case
        Entry bytes reading | bytes == given -> pure reading
        _ -> do
          before <- readPrimArray seen place
          if before == hash
            then do
              let !own = B.copy given
                  !reading = Reading True (parseRequest limits 0 own)
              reading <$ writeArray entries place (Entry own reading)
            else do
              writePrimArray seen place hash
              pure $! Reading False (parseRequest limits 0 given)
-- The arrays are read each time that it is called.
{-# NOINLINE readHead #-}
