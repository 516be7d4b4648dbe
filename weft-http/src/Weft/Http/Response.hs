-- |
-- Description : Response heads
--
-- Status line and fields to bytes, in one allocation or straight into a buffer that is going to be
-- sent. Names and values are checked first, because they may come from a handler that put a piece
-- of the request into them: a line end there would let a client write its own response.
module Weft.Http.Response
  ( -- * Rendering
    renderHead,
    BadField (..),

    -- ** Into a buffer
    headLength,
    pokeHead,

    -- * Fields
    Field (..),
    checkField,
    contentLength,
    interimContinue,
  )
where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as I
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (poke, pokeByteOff)
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Types (Field (..))
import Weft.Http.Status

-- | A field that must not be sent; the string is its name as given.
data BadField
  = -- | The name is no token.
    BadName !ByteString
  | -- | The value contains a control character (CR, LF and NUL among them).
    BadValue !ByteString
  deriving stock (Eq, Show)

-- | A whole head: status line, fields in the given order, empty line.
--
-- >>> renderHead ok200 [Field "Content-Length" "0"]
-- Right "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
-- >>> renderHead ok200 [Field "Location" "/a\r\nSet-Cookie: b"]
-- Left (BadValue "Location")
renderHead :: Status -> [Field] -> Either BadField ByteString
renderHead status fields = render <$> headLength status fields
  where
    render size = I.unsafeCreate size $ \p -> void (pokeHead p status fields)

-- | The length of a head in bytes, if every field may be sent.
headLength :: Status -> [Field] -> Either BadField Int
headLength status = go (B.length (statusLine status) + 2)
  where
    go !size = \case
      [] -> Right size
      field : rest -> case checkField field of
        Nothing -> go (size + B.length (fieldName field) + B.length (fieldValue field) + 4) rest
        Just bad -> Left bad

-- | Write a head to memory that has room for its 'headLength', which must have
-- been a 'Right'. Gives the position after it.
pokeHead :: Ptr Word8 -> Status -> [Field] -> IO (Ptr Word8)
pokeHead start status fields = copy start (statusLine status) >>= go fields
  where
    go [] p = lineEnd p
    go (Field name value : rest) p = do
      q <- copy p name
      poke q 0x3a
      pokeByteOff q 1 SP
      copy (q `plusPtr` 2) value >>= lineEnd >>= go rest
    lineEnd p = do
      poke p CR
      pokeByteOff p 1 LF
      pure (p `plusPtr` 2)
    copy :: Ptr Word8 -> ByteString -> IO (Ptr Word8)
    copy p b = U.unsafeUseAsCStringLen b $ \(from, n) ->
      (p `plusPtr` n) <$ copyBytes p (castPtr from) n

-- | What is wrong with a field, if anything.
checkField :: Field -> Maybe BadField
checkField (Field name value)
  | not (isToken name) = Just (BadName name)
  | not (isFieldValue value) = Just (BadValue name)
  | otherwise = Nothing

-- | @Content-Length@.
--
-- >>> contentLength 305
-- Field {fieldName = "Content-Length", fieldValue = "305"}
contentLength :: Int64 -> Field
contentLength = Field "Content-Length" . renderDecimal

-- | The whole interim response that a client with 'Weft.Http.Request.ExpectContinue' waits for.
interimContinue :: ByteString
interimContinue = "HTTP/1.1 100 Continue\r\n\r\n"
