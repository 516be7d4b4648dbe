-- |
-- Description : A fast scan for the end of a response
--
-- Scans the head of a response in place for what a load needs: the status and the length. It
-- accepts only usual heads: final responses of HTTP/1.1 with a @Content-Length@ or without
-- content. It leaves all others to the full parser ("Weft.Http.Internal.ResponseHead"), which
-- also detects malformed ones. Allocates nothing.
module Weft.Cli.Load.Scan (scanHead, incomplete, unusual) where

import Data.Bits ((.|.))
import Data.ByteString.Internal (memchr)
import Data.Word (Word16, Word32, Word64, Word8)
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
-- 'incomplete' or 'unusual'. The flag says that the response has no content whatever its fields
-- say (HEAD). The two cells receive status and content length.
scanHead :: Cells -> Int -> Int -> Bool -> Ptr Word8 -> Int -> Int -> IO Int
scanHead cells statusCell lengthCell bare p from to
  | to - from < 16 = pure incomplete
  | otherwise = do
      version <- peekByteOff p from :: IO Word64
      blank <- byte (from + 8)
      a <- digit (from + 9)
      b <- digit (from + 10)
      c <- digit (from + 11)
      let status = 100 * a + 10 * b + c
      if version /= 0x312e312f50545448 || blank /= 0x20 || a < 2 || a > 5 || b < 0 || b > 9 || c < 0 || c > 9
        then pure unusual
        else do
          pokeCell cells statusCell status
          pokeCell cells lengthCell 0
          nextLine (from + 12) (if bare || status == 204 || status == 304 then without else unknown)
  where
    byte :: Int -> IO Word8
    byte = peekByteOff p
    digit i = (\w -> fromIntegral w - 0x30) <$> byte i :: IO Int

    -- The length before it is known, and when there is no content.
    unknown = -1
    without = -2

    -- From inside a line to the beginning of the next one.
    nextLine :: Int -> Int -> IO Int
    nextLine !i !size = do
      found <- memchr (p `plusPtr` i) 0x0a (fromIntegral (to - i))
      if found == nullPtr then pure incomplete else line (found `minusPtr` p + 1) size

    line !i !size
      | i + 1 >= to = pure incomplete
      | otherwise = do
          w <- byte i
          case w of
            0x0d -> do
              feed <- byte (i + 1)
              if feed /= 0x0a || size == unknown then pure unusual else (i + 2) <$ pokeCell cells lengthCell (max 0 size)
            0x0a -> pure unusual
            _
              | w .|. 0x20 == 0x63 -> fieldC i size
              | w .|. 0x20 == 0x74 -> fieldT i size
              | otherwise -> nextLine i size

    -- "Content-Length" and "Connection".
    fieldC i size
      | i + 16 > to = lastLine i
      | otherwise = do
          front <- peekByteOff p i :: IO Word64
          case front .|. 0x2020202020202020 of
            -- content-
            0x2d746e65746e6f63 -> do
              leng <- peekByteOff p (i + 8) :: IO Word32
              th <- peekByteOff p (i + 12) :: IO Word16
              colon <- byte (i + 14)
              if leng .|. 0x20202020 == 0x676e656c && th .|. 0x2020 == 0x6874 && colon == 0x3a
                then number (i + 15) size
                else nextLine i size
            -- connecti
            0x697463656e6e6f63 -> do
              on <- peekByteOff p (i + 8) :: IO Word16
              colon <- byte (i + 10)
              if on .|. 0x2020 == 0x6e6f && colon == 0x3a then connection (i + 11) size else nextLine i size
            _ -> nextLine i size

    -- A short line at the end of the input: wait for more, or leave it to the full parser.
    lastLine i = do
      found <- memchr (p `plusPtr` i) 0x0a (fromIntegral (to - i))
      pure (if found == nullPtr then incomplete else unusual)

    -- "Transfer-Encoding" begins with "tr", and so does "trailer", which needs no distinction.
    fieldT i size = do
      second <- byte (i + 1)
      if second .|. 0x20 == 0x72 then pure unusual else nextLine i size

    -- One length, of at most 15 digits; for HEAD and the like it is not the content's.
    number i size = do
      w <- byte i
      if w == 0x20 then number' (i + 1) else number' i
      where
        number' j
          | size >= 0 = pure unusual
          | otherwise = digits j j 0
        digits start j !n
          | j >= to = pure incomplete
          | otherwise = do
              w <- byte j
              if
                | w - 0x30 < 10 -> if j - start >= 15 then pure unusual else digits start (j + 1) (10 * n + fromIntegral w - 0x30)
                | w == 0x0d && j > start -> nextLine j (if size == without then without else n)
                | otherwise -> pure unusual

    -- Any value but keep-alive is unusual.
    connection i size = do
      w <- byte i
      let j = if w == 0x20 then i + 1 else i
      if j + 12 > to
        then lastLine j
        else do
          keepAli <- peekByteOff p j :: IO Word64
          ve <- peekByteOff p (j + 8) :: IO Word16
          end <- byte (j + 10)
          -- keep-ali
          if keepAli .|. 0x2020202020202020 == 0x696c612d7065656b && ve .|. 0x2020 == 0x6576 && end == 0x0d
            then nextLine j size
            else pure unusual
