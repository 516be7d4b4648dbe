{-# OPTIONS_HADDOCK not-home #-}

-- | The requests of a load, rendered before it begins. With several, or with a range of numbers in
-- a URL, each connection chooses one at random; otherwise all send the same bytes.
module Weft.Cli.Load.Source
  ( Pattern (..),
    parsePattern,
    Weighted (..),
    parseList,
    Source,
    newSource,
    sourceLargest,
    nextRequests,
  )
where

import Control.Monad (foldM)
import Data.Bits (unsafeShiftR, xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe qualified as U
import Data.Char (isDigit)
import Data.Primitive.PrimArray
import Data.Primitive.SmallArray
import Data.Word (Word64, Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Weft.Buffer
import Weft.Cli.Load.Cells
import Weft.Http.Internal.Ascii (decimalWidth, pokeDecimal)
import Weft.Internal.Core.Buffer (unsafeSlice)

-- | Text with ranges of numbers: some text, then each range with the text after it.
data Pattern = Pattern !ByteString ![(Int, Int, ByteString)]
  deriving stock (Eq, Show)

-- | Read @/file{0..99}.html@.
--
-- >>> parsePattern (C.pack "/file{0..99}.html")
-- Right (Pattern "/file" [(0,99,".html")])
parsePattern :: ByteString -> Either String Pattern
parsePattern text = case C.break (== '{') text of
  (before, rest)
    | B.null rest -> Right (Pattern before [])
    | otherwise -> do
        (low, afterLow) <- number (B.drop 1 rest)
        afterDots <- maybe wrong Right (B.stripPrefix ".." afterLow)
        (high, afterHigh) <- number afterDots
        behind <- maybe wrong Right (B.stripPrefix "}" afterHigh)
        if low > high then Left "a range must not end before it begins" else Right ()
        Pattern between more <- parsePattern behind
        pure (Pattern before ((low, high, between) : more))
  where
    wrong = Left "a range is written as in /file{0..99}"
    number t = case C.readInt t of
      Just (n, rest) | C.all isDigit (B.take 1 t), n < 10 ^ (15 :: Int) -> Right (n, rest)
      _ -> wrong

-- | A value, and its weight in a random choice.
data Weighted a = Weighted {weightOf :: !Int, weighted :: !a}
  deriving stock (Eq, Show)

-- | Read a list of URLs, one on each line, with an optional weight after it. Ignores empty lines
-- and those that begin with @#@. Errors name their line.
parseList :: ByteString -> Either String [Weighted ByteString]
parseList content = concat <$> traverse line (zip [1 :: Int ..] (C.lines content))
  where
    line (n, text) = case C.words text of
      [] -> Right []
      comment : _ | "#" `B.isPrefixOf` comment -> Right []
      [url] -> Right [Weighted 1 url]
      [url, weight]
        | Just (w, "") <- C.readInt weight, w >= 1, w <= 1_000_000 -> Right [Weighted w url]
        | otherwise -> Left ("line " <> show n <> ": the weight is not a number from 1 to 1000000")
      _ -> Left ("line " <> show n <> ": not a URL and a weight")

data Source
  = -- | One request repeated: its length, and many copies of it in a row.
    Always !Int !ByteString
  | -- | One of these requests, each with the sum of the weights up to it.
    AtRandom !(SmallArray Pattern) !(PrimArray Int) !Int

newSource :: Int -> [Weighted Pattern] -> Source
newSource depth = \case
  [Weighted _ (Pattern bytes [])] -> Always (B.length bytes) (B.concat (replicate depth bytes))
  several ->
    AtRandom
      (smallArrayFromList (map weighted several))
      (primArrayFromList (drop 1 (scanl (+) 0 (map weightOf several))))
      (maximum (map (longest . weighted) several))
  where
    longest (Pattern before ranges) = B.length before + sum [length (show high) + B.length behind | (_, high, behind) <- ranges]

sourceLargest :: Source -> Int
sourceLargest = \case
  Always size _ -> size
  AtRandom _ _ size -> size

-- | The bytes of this number of requests. They may be in the buffer, and are valid until it is
-- written again; the cell holds the state of the dice.
nextRequests :: Source -> Cells -> Int -> Buffer -> Int -> IO ByteString
nextRequests source cells dice buffer count = case source of
  Always size bytes -> pure (U.unsafeTake (count * size) bytes)
  AtRandom patterns sums _ -> do
    n <- withBuffer buffer $ \p ->
      let go !left !at
            | left == 0 = pure at
            | otherwise = do
                pattern' <- choose patterns sums
                go (left - 1 :: Int) =<< write p at pattern'
       in go count 0
    pure (unsafeSlice buffer 0 n)
  where
    choose patterns sums
      | sizeofSmallArray patterns == 1 = pure (indexSmallArray patterns 0)
      | otherwise = do
          r <- roll cells dice (indexPrimArray sums (sizeofPrimArray sums - 1))
          let find low high
                | low >= high = low
                | indexPrimArray sums middle > r = find low middle
                | otherwise = find (middle + 1) high
                where
                  middle = (low + high) `div` 2
          pure (indexSmallArray patterns (find 0 (sizeofPrimArray sums - 1)))
    write p at (Pattern before ranges) = do
      next <- copy p at before
      foldM (range p) next ranges
    range p at (low, high, behind) = do
      r <- roll cells dice (high - low + 1)
      next <- decimal p at (low + r)
      copy p next behind

copy :: Ptr Word8 -> Int -> ByteString -> IO Int
copy p at bytes = U.unsafeUseAsCStringLen bytes $ \(from, n) -> (at + n) <$ copyBytes (p `plusPtr` at) (castPtr from) n

decimal :: Ptr Word8 -> Int -> Int -> IO Int
decimal p at n = (at + decimalWidth (fromIntegral n)) <$ pokeDecimal (p `plusPtr` at) (fromIntegral n)

-- | A number from 0 to below the given one, by splitmix64, which needs one word of state and
-- accepts any seed.
roll :: Cells -> Int -> Int -> IO Int
roll cells dice bound = do
  before <- peekCell cells dice
  let state = fromIntegral before + 0x9e3779b97f4a7c15 :: Word64
      a = (state `xor` (state `unsafeShiftR` 30)) * 0xbf58476d1ce4e5b9
      b = (a `xor` (a `unsafeShiftR` 27)) * 0x94d049bb133111eb
      c = b `xor` (b `unsafeShiftR` 31)
  pokeCell cells dice (fromIntegral state)
  pure (fromIntegral ((c `unsafeShiftR` 1) `rem` fromIntegral bound))
