{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A log that is read after a power failure, with and without checksums
--
-- Records are written at the end and synced before the next is begun. After a crash, at any moment, the
-- log must hold those that were synced, and after them whole ones only. Without checksums it sometimes
-- holds what was never written; with them it never does.
module Test.TornLog (tests) where

import Control.Monad (forM_)
import Data.Bits (shiftL, shiftR, xor, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isPrefixOf)
import Data.Word (Word32)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Sim
import Weft.Time (nanoseconds)

tests :: TestTree
tests =
  testGroup
    "A log that was torn"
    [ testCase "without checksums is found within 200 seeds, each time" $
        forM_ [0 .. 4] $ \i ->
          findFailure defaultConfig [200 * i .. 200 * i + 199] (interrupted Bare) whole >>= \case
            Nothing -> assertFailure ("not found from seed " <> show (200 * i))
            Just failure -> kindOf failure @?= "value",
      testCase "with checksums passes two thousand" $
        check defaultConfig {configRaces = False} [0 .. 1_999] (interrupted Summed) whole
    ]

-- | Is there a checksum with each record?
data Format = Bare | Summed
  deriving stock (Eq)

records :: [ByteString]
records = [Char8.replicate (20 + 13 * i) (toEnum (97 + i)) | i <- [0 .. 7]]

encode :: Format -> Int -> ByteString -> ByteString
encode format at body = ByteString.cons (fromIntegral (ByteString.length body)) (sumOf format at body <> body)

sumOf :: Format -> Int -> ByteString -> ByteString
sumOf Bare _ _ = ""
sumOf Summed at body = ByteString.pack [fromIntegral (hash `shiftR` (8 * i)) | i <- [0 .. 3]]
  where
    hash = ByteString.foldl' (\h b -> (h `xor` fromIntegral b) * 0x01000193) (fromIntegral at * 0x9e3779b1 .|. 1) body :: Word32

-- | The records of a log, up to the first that is not whole as far as its format knows.
decode :: Format -> ByteString -> [ByteString]
decode format = go 0
  where
    go at bytes = case ByteString.uncons bytes of
      Just (size, rest)
        | size > 0,
          (given, behind) <- ByteString.splitAt (ByteString.length (sumOf format 0 "")) rest,
          (body, more) <- ByteString.splitAt (fromIntegral size) behind,
          ByteString.length body == fromIntegral size,
          given == sumOf format at body ->
            body : go (at + 1 + ByteString.length given + ByteString.length body) more
      _ -> []

-- | Write all of them, on a machine that loses its power at some moment: how many were synced, and what
-- is there when it runs again.
interrupted :: Format -> Thread (Int, [ByteString])
interrupted format = do
  desk <- newMachine "desk"
  synced <- liftIO (newIORef 0)
  onMachine desk (withFile "log" WriteOnly sync >> withFile "." Directory sync)
  fork_ . onMachine desk . withFile "log" WriteOnly $ \file -> do
    let write _ [] = pure ()
        write at (body : rest) = do
          let bytes = encode format at body
          writeAt file (fromIntegral at) bytes
          sync file
          liftIO (modifyIORef' synced (+ 1))
          write (at + ByteString.length bytes) rest
    write 0 records
  dice <- ByteString.foldl' (\n b -> n `shiftL` 8 .|. fromIntegral b) 0 <$> randomBytes 2
  -- Up to eight milliseconds: as long as it takes.
  sleep (nanoseconds (dice * 125))
  crash desk
  restart desk
  (,) <$> liftIO (readIORef synced) <*> onMachine desk (decode format <$> readWhole 10_000 "log")

whole :: Verdict (Int, [ByteString])
whole = flawlessAnd $ \(synced, found) -> case () of
  _
    | length found < synced -> Just ("of " <> show synced <> " records that were synced there are " <> show (length found))
    | found `isPrefixOf` records -> Nothing
    | otherwise -> Just ("it holds " <> show (last found))
