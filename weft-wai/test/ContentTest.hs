-- | Builders of every kind of step, run in memory of every size.
module ContentTest (tests) where

import Control.Exception (ErrorCall (..), try)
import Control.Monad (when)
import Data.Bifunctor (first)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Builder.Extra qualified as Builder
import Data.ByteString.Lazy qualified as Lazy
import Data.Foldable (for_)
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Wai.Internal.Content

-- | A part of a builder: copied, inserted as it is, or made octet by octet.
data Part = Copied Int | Inserted Int | Made Int
  deriving stock (Show)

instance Arbitrary Part where
  arbitrary = oneof [Copied <$> size, Inserted <$> size, Made <$> size]
    where
      size = frequency [(4, chooseInt (0, 20)), (2, chooseInt (200, 600)), (1, chooseInt (10_000, 40_000))]

building :: [Part] -> Builder
building = foldMap $ \case
  Copied n -> Builder.byteStringCopy (octets n)
  Inserted n -> Builder.byteStringInsert (octets n)
  Made n -> foldMap Builder.word8 (B.unpack (octets n))

octets :: Int -> ByteString
octets n = B.pack (take n (cycle [0 .. 250]))

built :: [Part] -> ByteString
built = Lazy.toStrict . Builder.toLazyByteString . building

few :: Gen a -> Gen [a]
few one = chooseInt (0, 6) >>= (`vectorOf` one)

tests :: TestTree
tests =
  testGroup
    "content"
    [ testProperty "a builder as far as it goes, and on" . forAll ((,) <$> few arbitrary <*> chooseInt (0, 20_000)) $ \(parts, most) -> ioProperty $ do
        given <- newIORef []
        whole <-
          gather most (building parts) >>= \case
            Whole pieces -> True <$ writeIORef given (reverse pieces)
            Begun pieces room build -> False <$ continue id (\piece -> modifyIORef' given (piece :)) pieces room build
        result <- B.concat . reverse <$> readIORef given
        pure . cover 20 whole "whole" . cover 10 (not whole) "begun" $
          result === built parts .&&. counterexample "is whole" (whole || B.length result > most),
      testProperty "many builders, handed on now and then" . forAll (few ((,) <$> few arbitrary <*> arbitrary)) $ \steps -> ioProperty $ do
        given <- newIORef []
        page <- newPage 512
        let give piece = modifyIORef' given (piece :)
        for_ steps $ \(parts, flushed) -> write page give (building parts) >> when flushed (handOn page give)
        handOn page give
        pieces <- reverse <$> readIORef given
        pure . cover 20 (length pieces > length steps) "more pieces than builders" $
          B.concat pieces === foldMap (built . fst) steps,
      testCase "small builders become one piece" $ do
        given <- newIORef []
        page <- newPage 512
        for_ ["a", "b", "c"] (write page undefined)
        handOn page (\piece -> modifyIORef' given (piece :))
        handOn page undefined
        readIORef given >>= (@?= ["abc"]),
      testCase "what a builder has written before it fails is not given" $ do
        given <- newIORef []
        page <- newPage 16
        let give piece = modifyIORef' given (piece :)
        write page give "before"
        outcome <- try (write page give ("lost" <> error "boom"))
        first (\(ErrorCall why) -> why) outcome @?= Left "boom"
        write page give ", after"
        handOn page give
        readIORef given >>= (@?= "before, after") . mconcat . reverse
    ]
