-- | A fast scan of the head of a response, in place, for the status and the length. It accepts only
-- usual heads: final responses of HTTP/1.1 with a @Content-Length@ or without content; all others
-- are for the full parser ("Weft.Http.Internal.ResponseHead"). Allocates nothing.
module Weft.Cli.Load.Scan (scanHead, incomplete, unusual) where

import Data.Bits ((.|.))
import Data.ByteString.Internal (memchr)
import Data.Word (Word64, Word8)
import Foreign.Ptr (Ptr, minusPtr, nullPtr, plusPtr)
import Foreign.Storable (peekByteOff)
import Weft.Cli.Load.Cells

-- | The head is not complete yet.
incomplete :: Int
incomplete = 0

-- | The full parser has to decide.
unusual :: Int
unusual = -1

-- | The end of the head that begins at one offset, in memory that is valid up to another; or
-- 'incomplete' or 'unusual'. The flag: it has no content whatever it says (HEAD). The two cells
-- receive status and length.
scanHead :: Cells -> Int -> Int -> Bool -> Ptr Word8 -> Int -> Int -> IO Int
scanHead cells statusCell lengthCell bare p from to
  | to - from < 16 = pure incomplete
  | otherwise = do
      version <- peekByteOff p from :: IO Word64
      space <- byte (from + 8)
      a <- digit (from + 9)
      b <- digit (from + 10)
      c <- digit (from + 11)
      let status = 100 * a + 10 * b + c
      if version /= 0x312e312f50545448 || space /= 0x20 || a < 2 || a > 5 || b < 0 || b > 9 || c < 0 || c > 9
        then pure unusual
        else do
          pokeCell cells statusCell status
          pokeCell cells lengthCell 0
          line (from + 11) (if bare || status == 204 || status == 304 then without else unknown)
  where
    byte :: Int -> IO Word8
    byte = peekByteOff p
    digit i = (\w -> fromIntegral w - 0x30) <$> byte i :: IO Int

    -- The eight bytes there, letters in lower case.
    eight :: Int -> IO Word64
    eight i = (.|. 0x2020202020202020) <$> peekByteOff p i

    -- The length before it is known, and when there is no content.
    unknown = -1
    without = -2

    -- The rest of the head, from inside a line or its beginning.
    line :: Int -> Int -> IO Int
    line !i !size = do
      found <- memchr (p `plusPtr` i) 0x0a (fromIntegral (to - i))
      if found == nullPtr then pure incomplete else upTo (found `minusPtr` p) i size

    -- The rest of the head, given where the line ends whose part, or beginning, is at hand.
    upTo !end !i !size = do
      w <- byte i
      if
        | end == i -> pure unusual
        | w == 0x0d -> if end /= i + 1 || size == unknown then pure unusual else (end + 1) <$ pokeCell cells lengthCell (max 0 size)
        -- "Transfer-Encoding" begins with "tr", and so does "trailer", which needs no distinction.
        | w .|. 0x20 == 0x74 -> byte (i + 1) >>= \second -> if second .|. 0x20 == 0x72 then pure unusual else line (end + 1) size
        | w .|. 0x20 == 0x63 && end - i >= 11 -> do
            front <- eight i
            back <- eight (i + 3)
            -- "connecti" and "nection:".
            if front == 0x697463656e6e6f63 && back == 0x3a6e6f697463656e then connection end size =<< blank (i + 11) else fieldC end i size
        | otherwise -> line (end + 1) size

    fieldC !end !i !size
      | end - i < 15 = line (end + 1) size
      | otherwise = do
          front <- eight i
          back <- eight (i + 7)
          if
            -- "content-" and "-length:".
            | front /= 0x2d746e65746e6f63 || back /= 0x3a6874676e656c2d -> line (end + 1) size
            | size >= 0 -> pure unusual
            | otherwise -> blank (i + 15) >>= \start -> digits end size start start 0

    blank i = (\w -> if w == 0x20 then i + 1 else i) <$> byte i

    -- One length, of at most 15 digits; for HEAD and the like it is not the content's.
    digits !end !size !start !j !n = do
      w <- byte j
      if
        | w - 0x30 < 10 -> digits end size start (j + 1) (10 * n + fromIntegral w - 0x30)
        | w == 0x0d && j + 1 == end && j > start && j - start <= 15 -> line (end + 1) (if size == without then without else n)
        | otherwise -> pure unusual

    -- Any value but keep-alive is unusual: "keep-ali" and "ep-alive".
    connection !end !size !i
      | end /= i + 11 = pure unusual
      | otherwise = do
          front <- eight i
          back <- eight (i + 2)
          w <- byte (i + 10)
          if front == 0x696c612d7065656b && back == 0x6576696c612d7065 && w == 0x0d then line (end + 1) size else pure unusual
