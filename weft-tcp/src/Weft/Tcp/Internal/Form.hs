{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Values written as bytes, and read strictly
--
-- A 'Form' writes a value and reads it: what it reads is what it writes, field by field, so that the two
-- cannot differ in their order. Reading refuses what no value is written as, and bytes that are left over; it
-- takes no more memory than the bytes account for.
module Weft.Tcp.Internal.Form
  ( Form,
    written,
    readWith,

    -- * Parts
    field,
    must,
    tagged,
    Variant (..),

    -- * Values
    number8,
    number16,
    number32,
    number64,
    time,
    real,
    flag,
    member,
    optional,
    many,
    payload,
  )
where

import Control.Monad (guard)
import Data.Bifunctor (first)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Data.Maybe (catMaybes, listToMaybe)
import Data.Word (Word16, Word32, Word64, Word8)
import GHC.Float (castDoubleToWord64, castWord64ToDouble)
import Weft.Tcp.Internal.Bytes

-- | How the part of an @s@ that is an @a@ is written, and an @a@ is read.
data Form s a = Form !(s -> Builder) !(ByteString -> Maybe (a, ByteString))

instance Functor (Form s) where
  fmap f (Form put get) = Form put (fmap (\(a, rest) -> let !b = f a in (b, rest)) . get)

instance Applicative (Form s) where
  pure a = Form (const mempty) (\b -> Just (a, b))
  Form putF getF <*> Form putA getA =
    Form (\s -> putF s <> putA s) $ \b -> do
      (f, b') <- getF b
      (a, rest) <- getA b'
      let !r = f a
      Just (r, rest)

-- | A value as bytes.
written :: Form s a -> s -> ByteString
written (Form put _) = build . put

-- | The value that these bytes are, all of them.
readWith :: Form s a -> ByteString -> Maybe a
readWith (Form _ get) b = case get b of
  Just (a, rest) | B.null rest -> Just a
  _ -> Nothing

-- | A part of a larger value.
field :: (s -> t) -> Form t a -> Form s a
field part (Form put get) = Form (put . part) get

-- | Refuse other values when reading.
must :: (a -> Bool) -> Form s a -> Form s a
must holds (Form put get) = Form put $ \b -> do
  r@(a, _) <- get b
  r <$ guard (holds a)

-- | One of several kinds of values: whether a value is of the kind, and how it is written.
data Variant a = forall b. Variant (a -> Maybe b) (b -> a) (Form b b)

-- | Values of several kinds, each with its place in the list in front.
tagged :: [Variant a] -> Form a a
tagged variants = Form put get
  where
    numbered = zip [0 :: Word8 ..] variants
    put a = maybe mempty (\(n, p) -> byte8 n <> p) (firstJust [(,) n . putOf form <$> match a | (n, Variant match _ form) <- numbered])
    putOf (Form p _) = p
    firstJust = listToMaybe . catMaybes
    get b = do
      (n, rest) <- B.uncons b
      variant <- lookup n numbered
      case variant of
        Variant _ make (Form _ g) -> first make <$> g rest

fixed :: Int -> (a -> Builder) -> (ByteString -> a) -> Form a a
fixed n put get = Form put $ \b -> if B.length b < n then Nothing else let !a = get b in Just (a, B.drop n b)

-- | One byte.
number8 :: Form Word8 Word8
number8 = fixed 1 byte8 (`octet` 0)

-- | Two bytes, in network order.
number16 :: Form Word16 Word16
number16 = fixed 2 byte16 (`word16` 0)

-- | Four bytes, in network order.
number32 :: Form Word32 Word32
number32 = fixed 4 byte32 (`word32` 0)

-- | Eight bytes, in network order.
number64 :: Form Word64 Word64
number64 = fixed 8 byte64 (`word64` 0)

-- | A time in microseconds: 'maxBound', or far enough from both ends for sums.
time :: Form Int64 Int64
time = must (\t -> t == maxBound || abs t <= maxBound `div` 2 + 1) (fromIntegral <$> field fromIntegral number64)

-- | A finite number.
real :: Form Double Double
real = must (\x -> not (isNaN x || isInfinite x)) (castWord64ToDouble <$> field castDoubleToWord64 number64)

-- | 0 or 1.
flag :: Form Bool Bool
flag = member

-- | A value of an enumeration.
member :: forall a. (Enum a, Bounded a) => Form a a
member = toEnum . fromIntegral <$> must ((<= fromEnum (maxBound :: a)) . fromIntegral) (field (fromIntegral . fromEnum) number8)

-- | A value or none.
optional :: Form a a -> Form (Maybe a) (Maybe a)
optional form = tagged [Variant (maybe (Just ()) (const Nothing)) (const Nothing) (pure ()), Variant id Just form]

-- | Values, at most this number, none of which is empty in its written form.
many :: forall a. Int -> Form a a -> Form [a] [a]
many most (Form put get) = Form (\as -> byte32 (fromIntegral (length as)) <> foldMap put as) $ \b -> do
  guard (B.length b >= 4)
  let n = fromIntegral (word32 b 0)
  guard (n <= most && n <= B.length b)
  go n (B.drop 4 b)
  where
    go :: Int -> ByteString -> Maybe ([a], ByteString)
    go 0 b = Just ([], b)
    go n b = do
      (a, rest) <- get b
      (as, left) <- go (n - 1) rest
      Just (a : as, left)

-- | Bytes, which get memory of their own when they are read.
payload :: Form ByteString ByteString
payload = Form (\b -> byte32 (fromIntegral (B.length b)) <> bytes b) $ \b -> do
  guard (B.length b >= 4)
  let n = fromIntegral (word32 b 0)
      rest = B.drop 4 b
  guard (n <= B.length rest)
  let !own = B.copy (B.take n rest)
  Just (own, B.drop n rest)
