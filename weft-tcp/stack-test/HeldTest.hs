-- |
-- Description : Kept bytes against a list of them
module HeldTest (tests) where

import Data.ByteString qualified as B
import Data.Word (Word8)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (castPtr)
import Test.Tasty
import Test.Tasty.QuickCheck
import Weft.Tcp.Sequence
import Weft.Tcp.Stack.Held qualified as Held

tests :: TestTree
tests =
  testGroup
    "kept bytes"
    [ testProperty "appended, dropped at the front, read anywhere" whole,
      testProperty "pieces come in any order" anyOrder,
      testProperty "small pieces are joined, in any order" joined
    ]

-- Numbers wrap in about half of the cases.
starts :: Gen Seq
starts = Seq <$> elements [0, 1000, maxBound - 5, maxBound - 300]

whole :: Property
whole = forAll starts $ \from -> forAll (listOf (resize 40 arbitrary)) $ \pieces (NonNegative a) (NonNegative b) (NonNegative c) ->
  let everything = B.concat (map (B.pack :: [Word8] -> B.ByteString) pieces)
      dropped = min a (B.length everything)
      left = B.drop dropped everything
      skipped = min b (B.length left)
      taken = min c (B.length left - skipped)
      held = Held.dropFront dropped (foldl (\h piece -> Held.append (from `advance` fromIntegral (Held.size h)) (B.pack piece) h) Held.heldNothing pieces)
      first = from `advance` fromIntegral dropped
   in cover 30 (taken > 0) "some are read" . ioProperty $ do
        copied <- allocaBytes (max 1 (B.length left)) (\p -> Held.copyFront p (B.length left) held >> B.packCStringLen (castPtr p, B.length left))
        pure $
          B.concat (Held.slices (first `advance` fromIntegral skipped) taken held) === B.take taken (B.drop skipped left)
            .&&. Held.size held === B.length left
            .&&. copied === left
            .&&. Held.isEmpty held === B.null left

anyOrder :: Property
anyOrder = forAll starts $ \from -> forAll (listOf (resize 20 arbitrary)) $ \pieces ->
  let bytes = map B.pack pieces :: [B.ByteString]
      places = zip (scanl (+) 0 (map B.length bytes)) bytes
   in forAll (shuffle places) $ \shuffled ->
        let held = foldl (\h (at, b) -> Held.insertAt from (from `advance` fromIntegral at) b h) Held.heldNothing shuffled
         in B.concat (Held.slices from (Held.size held) held) === B.concat bytes

-- Single bytes, first every second one, as a hostile peer sends them, or in any order.
joined :: Property
joined = forAll starts $ \from -> forAll (elements [600, 5000]) $ \n ->
  let evens = [0, 2 .. n - 1] ++ [1, 3 .. n - 1]
   in forAll (oneof [pure [0 .. n - 1], pure (reverse [0 .. n - 1]), pure evens, shuffle [0 .. n - 1]]) $ \places ->
        let byte at = B.singleton (fromIntegral at)
            held = foldl (\h at -> Held.insertAt from (from `advance` fromIntegral at) (byte at) h) Held.heldNothing places
            appended = foldl (\h at -> Held.append (from `advance` fromIntegral at) (byte at) h) Held.heldNothing [0 .. n - 1]
            pieces h = map (B.length . snd) (Held.heldPieces h)
         in conjoin
              [ counterexample (show (pieces h)) (length (pieces h) <= 2 * n `div` 512 + 1)
                  .&&. B.concat (Held.slices from n h) === B.concat (map byte [0 .. n - 1])
                | h <- [held, appended]
              ]
