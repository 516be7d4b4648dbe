{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Messages to the operator, on standard error
--
-- All that this project says on standard error goes through here: a message is written
-- whole, by one @write(2)@ under one lock of the process, so that those of several OS
-- threads do not mix. GHC's own handle writes an unbuffered 'String' letter by letter.
-- From any OS thread; blocks while standard error is not read.
module Weft.Internal.Os.Report (reportToStderr, writeStderr, exceptionText) where

import Control.Exception (SomeException (..), displayException)
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (Builder, char7, charUtf8, toLazyByteString, word8)
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.Char (ord)
import Data.List (dropWhileEnd)
import Foreign.C.Types (CChar, CSize (..))
import Foreign.Ptr (Ptr)

foreign import ccall safe "weft_report" c_report :: Ptr CChar -> CSize -> IO ()

-- | One report, of one line or of several. Every line begins with the name of the library.
-- Newlines at the end are dropped.
reportToStderr :: String -> IO ()
reportToStderr text = writeStderr (concat ["weft: " <> line <> "\n" | line <- lines (dropWhileEnd (== '\n') text <> "\n")])

-- | This text and nothing else. In UTF-8, and never refused: a byte of a file's name
-- that is no text (GHC reads it as a surrogate) is that byte again.
writeStderr :: String -> IO ()
writeStderr text =
  unsafeUseAsCStringLen (ByteString.toStrict (toLazyByteString (foldMap encoded text))) $ \(start, n) ->
    c_report start (fromIntegral n)

-- | The text of an exception. GHC 9.10's 'displayException' of a 'SomeException' appends where
-- it was raised, which neither a log nor a client should get.
exceptionText :: SomeException -> String
exceptionText (SomeException e) = displayException e

encoded :: Char -> Builder
encoded c
  | c < '\xd800' || c > '\xdfff' = charUtf8 c
  | c >= '\xdc80' && c <= '\xdcff' = word8 (fromIntegral (ord c - 0xdc00))
  | otherwise = char7 '?'
