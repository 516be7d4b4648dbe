{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Adds to a response the server's fields (@Date@, @Server@, @Content-Length@, @Connection@). Pure.
module Weft.Http.Server.Render
  ( OwnFields,
    ownFields,
    Beginning (..),
    renderBeginning,
    Persistence (..),
    renderResponseHead,
    renderSized,
    renderWhole,
    errorResponse,
  )
where

import Control.Monad (void)
import Data.Bits ((.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as I
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, plusPtr)
import Foreign.Storable (poke, pokeByteOff)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import System.IO.Unsafe (unsafeDupablePerformIO)
import Weft.Http.Internal.Ascii (decimalWidth, eqCaseless, pokeDecimal, splitCommas)
import Weft.Http.Page (errorPage, pagePolicy, pageType)
import Weft.Http.Response (BadField, checkField)
import Weft.Http.Server.Types

-- | @Date@ and @Server@ as bytes, which are the same for all responses of a second.
data OwnFields
  = -- | Both lines, and the size of the first.
    OwnFields !ByteString !Int

-- | From the name of the server, which may be empty, and the date.
ownFields :: ByteString -> ByteString -> OwnFields
ownFields name date = OwnFields (dated <> served) (B.length dated)
  where
    served = if B.null name then "" else B.concat ["Server: ", name, "\r\n"]
    dated = B.concat ["Date: ", date, "\r\n"]

-- | The head's statement about the connection.
data Persistence
  = -- | It goes on; HTTP/1.1 need not say so.
    Persistent
  | -- | It goes on, and a client of HTTP/1.0 wants to be told.
    PersistentSaid
  | -- | It ends after this response.
    Closing
  | -- | Another protocol follows.
    Upgrading
  deriving stock (Eq, Show)

-- | The beginning of a head, which responses with the same status and fields share in one second.
data Beginning = Beginning
  { -- | It ends with the name of the field with the length.
    beginningBytes :: {-# UNPACK #-} !ByteString,
    -- | Does one of the fields ask to close the connection?
    beginningCloses :: !Bool
  }
  deriving stock (Eq, Show)

-- | Render a beginning, without the fields that a handler may not set; or name the field that cannot be sent.
renderBeginning :: OwnFields -> Status -> [Field] -> Either BadField Beginning
renderBeginning (OwnFields both dateSize) status fields = scan 0 0 fields
  where
    -- Check the fields, and measure those that are sent.
    scan !size !seen = \case
      [] -> Right $! Beginning (rendered size seen) (seen .&. seenClose /= 0)
      field : rest
        | kind .&. seenOurs /= 0 -> scan size (seen .|. kind) rest
        | Just bad <- checkField field -> Left bad
        | otherwise -> scan (size + B.length (fieldName field) + B.length (fieldValue field) + 4) (seen .|. kind) rest
        where
          kind = kindOf field
    line = statusLine status
    rendered size seen =
      I.unsafeCreate (B.length line + B.length own + size + B.length lengthName) $ \start ->
        put start line >>= (`put` own) >>= putFields seen fields >>= \p -> void (put p lengthName)
      where
        own
          | seen .&. (seenDate .|. seenServer) == 0 = both
          | seen .&. seenDate == 0 = B.take dateSize both
          | seen .&. seenServer == 0 = B.drop dateSize both
          | otherwise = B.empty
-- OPAQUE, so that its callers do not take apart what they mostly need not.
{-# OPAQUE renderBeginning #-}

lengthName :: ByteString
lengthName = "Content-Length: "

-- | The head of a response. The flag: the client understands chunks.
renderResponseHead :: Beginning -> Persistence -> Bool -> Response -> ByteString
renderResponseHead beginning persistence chunks response
  | hasNoBody (responseStatus response) = unsized ""
  | otherwise = case responseBody response of
      Streamed Nothing _ | chunks -> unsized "Transfer-Encoding: chunked\r\n"
      body -> maybe (unsized "") (\n -> renderSized beginning said n 0 []) (knownLength body)
  where
    unsized field = B.concat [B.dropEnd (B.length lengthName) (beginningBytes beginning), field, saidOf said, "\r\n"]
    said = case responseBody response of
      Switch _ | statusCode (responseStatus response) == 101 -> Upgrading
      Switch _ -> Persistent
      _ -> persistence

-- | A head that says this length of the content, with these octets of it after it, in one string.
renderSized :: Beginning -> Persistence -> Int64 -> Int64 -> [ByteString] -> ByteString
renderSized beginning persistence size octets pieces = unsafeDupablePerformIO $ do
  content <- I.mallocByteString total
  unsafeWithForeignPtr content $ \start -> do
    p <- put start (beginningBytes beginning)
    pokeDecimal p size
    lineEnd (p `plusPtr` width) >>= putSaid >>= lineEnd >>= void . putAll pieces
  pure (I.BS content total)
  where
    width = decimalWidth size
    said = saidOf persistence
    total = B.length (beginningBytes beginning) + width + B.length said + 4 + fromIntegral octets
    putSaid p = case persistence of
      Persistent -> pure p
      _ -> put p said
{-# NOINLINE renderSized #-}

saidOf :: Persistence -> ByteString
saidOf = \case
  Persistent -> B.empty
  PersistentSaid -> "Connection: keep-alive\r\n"
  Closing -> "Connection: close\r\n"
  Upgrading -> "Connection: Upgrade\r\n"

-- | Write fields, of which there are these kinds, without those that a handler may not set.
putFields :: Int -> [Field] -> Ptr Word8 -> IO (Ptr Word8)
putFields !seen fields p = case fields of
  [] -> pure p
  f@(Field n v) : rest
    -- Almost always none is.
    | seen .&. seenOurs /= 0, kindOf f .&. seenOurs /= 0 -> putFields seen rest p
    | otherwise -> do
        q <- put p n
        poke q 0x3a
        pokeByteOff q 1 (0x20 :: Word8)
        put (q `plusPtr` 2) v >>= lineEnd >>= putFields seen rest

-- | As bits; none for most fields.
kindOf :: Field -> Int
kindOf (Field n v) = case B.length n of
  4 | eqCaseless "date" n -> seenDate
  6 | eqCaseless "server" n -> seenServer
  10 | eqCaseless "connection" n -> if any (eqCaseless "close") (splitCommas v) then seenConnection .|. seenClose else seenConnection
  14 | eqCaseless "content-length" n -> seenLength
  17 | eqCaseless "transfer-encoding" n -> seenLength
  _ -> 0

seenDate, seenServer, seenLength, seenConnection, seenClose :: Int
seenDate = 1
seenServer = 2
seenLength = 4
seenConnection = 8
seenClose = 16

seenOurs :: Int
seenOurs = seenLength .|. seenConnection

put :: Ptr Word8 -> ByteString -> IO (Ptr Word8)
put p (I.BS content n) = do
  unsafeWithForeignPtr content $ \from -> copyBytes p from n
  pure (p `plusPtr` n)

putAll :: [ByteString] -> Ptr Word8 -> IO (Ptr Word8)
putAll pieces p = case pieces of
  [] -> pure p
  piece : rest -> put p piece >>= putAll rest

lineEnd :: Ptr Word8 -> IO (Ptr Word8)
lineEnd p = do
  poke p 0x0d
  pokeByteOff p 1 (0x0a :: Word8)
  pure (p `plusPtr` 2)

-- | The bytes of a response in memory, or of the head of one with a file, for a persistent connection;
-- 'Nothing' with another body, an invalid field, or one that asks to close.
renderWhole :: ByteString -> ByteString -> Response -> Maybe Rendered
renderWhole name date response = case (responseBody response, renderBeginning (ownFields name date) (responseStatus response) (responseFields response)) of
  (body, Right beginning)
    | not (beginningCloses beginning) -> case body of
        NoContent -> whole beginning []
        Bytes pieces -> whole beginning pieces
        FileBody {} -> whole beginning []
        _ -> Nothing
  _ -> Nothing
  where
    whole beginning pieces = Just $! Rendered (B.concat (renderResponseHead beginning Persistent True response : pieces)) (responseFields response)

-- | A small page that says what went wrong.
errorResponse :: Status -> ByteString -> Response
errorResponse status detail
  | hasNoBody status = plain status [] B.empty
  | otherwise = plain status [Field "Content-Type" pageType, Field "Content-Security-Policy" pagePolicy] (errorPage status detail)
