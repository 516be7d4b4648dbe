-- | Status line and fields to bytes. Checked: with a line end a client could write its own response.
module Weft.Http.Response
  ( -- * Rendering
    renderHead,
    renderFields,
    BadField (..),

    -- * Fields
    Field (..),
    checkField,
    contentLength,
    interimContinue,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Data.Maybe (mapMaybe)
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
renderHead = renderFields . statusLine

-- | Render a first line, which has its line end and is not checked, and fields.
renderFields :: ByteString -> [Field] -> Either BadField ByteString
renderFields line fields = case mapMaybe checkField fields of
  bad : _ -> Left bad
  [] -> Right (B.concat (line : concat [[name, ": ", value, "\r\n"] | Field name value <- fields] <> ["\r\n"]))

-- | The fault of a field, if it has one.
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
