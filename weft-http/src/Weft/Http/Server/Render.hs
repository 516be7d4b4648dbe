{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Responses as bytes
--
-- Adds to a response what is the server's business (@Date@, @Server@,
-- @Content-Length@, @Connection@) and renders its head. Pure.
module Weft.Http.Server.Render
  ( OwnFields,
    ownFields,
    Persistence (..),
    renderResponseHead,
    renderBefore,
    renderWhole,
    renderTogether,
    knownFields,
    renderKnown,
    asksToClose,
    errorResponse,
  )
where

import Control.Monad (void)
import Data.Bits (complement, (.&.), (.|.))
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
import Weft.Http.Request (Field (..))
import Weft.Http.Response (BadField, checkField)
import Weft.Http.Server.Types
import Weft.Http.Status
import Weft.Internal.Core.Standing (samePointer)

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
  deriving stock (Eq, Show)

-- | The head of a response, or the field that cannot be sent. The flag: the client
-- understands chunks.
renderResponseHead :: OwnFields -> Persistence -> Bool -> Response -> Either BadField ByteString
renderResponseHead own persistence chunks response = renderBefore own persistence chunks response []

-- | The head with these bytes after it, in one string: one pass over the fields, one
-- allocation, one copy of the content.
renderBefore :: OwnFields -> Persistence -> Bool -> Response -> [ByteString] -> Either BadField ByteString
renderBefore (OwnFields both dateSize) persistence chunks response pieces = case scan 0 0 given of
  Faulty bad -> Left bad
  -- Not a thunk: the caller sends it.
  Scanned size seen -> Right $! I.unsafeCreate total write
    where
      own
        | seen .&. (seenDate .|. seenServer) == 0 = both
        | seen .&. seenDate == 0 = B.take dateSize both
        | seen .&. seenServer == 0 = B.drop dateSize both
        | otherwise = B.empty
      total =
        B.length line
          + B.length own
          + framingWidth
          + size
          + B.length connection
          + 2
          + lengths pieces
      write start = do
        p1 <- put start line
        p2 <- put p1 own
        p3 <- putFraming p2
        p4 <- putFields seen given p3
        p5 <- put p4 connection
        p6 <- lineEnd p5
        void (putAll pieces p6)
  where
    given = responseFields response
    line = statusLine (responseStatus response)
    framing
      | hasNoBody (responseStatus response) = Unsaid
      | otherwise = case responseBody response of
          Switch _ -> Unsaid
          Withheld -> Unsaid
          body -> case knownLength body of
            Just n -> Length n
            Nothing -> if chunks then InChunks else Unsaid
    framingWidth = case framing of
      Unsaid -> 0
      Length n -> lengthWidth n
      InChunks -> B.length chunkedField
    putFraming p = case framing of
      Unsaid -> pure p
      Length n -> putLength p n
      InChunks -> put p chunkedField
    connection = case (responseBody response, persistence) of
      (Switch _, _) | statusCode (responseStatus response) == 101 -> "Connection: Upgrade\r\n"
      (Switch _, _) -> ""
      (_, Persistent) -> ""
      (_, PersistentSaid) -> "Connection: keep-alive\r\n"
      (_, Closing) -> "Connection: close\r\n"

lengthWidth :: Int64 -> Int
lengthWidth n = 18 + decimalWidth n

putLength :: Ptr Word8 -> Int64 -> IO (Ptr Word8)
putLength p n = do
  q <- put p "Content-Length: "
  pokeDecimal q n
  lineEnd (q `plusPtr` decimalWidth n)
{-# INLINE putLength #-}

-- | The fields about the length of the content.
data ContentFraming = Unsaid | Length !Int64 | InChunks

chunkedField :: ByteString
chunkedField = "Transfer-Encoding: chunked\r\n"

-- | The octets that fields take, and what kinds of fields there are.
data Scanned = Scanned !Int !Int | Faulty !BadField

-- | Check the fields of a handler. Those that it may not set are left out.
scan :: Int -> Int -> [Field] -> Scanned
scan !size !seen = \case
  [] -> Scanned size seen
  field : rest
    | kind .&. seenOurs /= 0 -> scan size (seen .|. kind) rest
    | Just bad <- checkField field -> Faulty bad
    | otherwise -> scan (size + B.length (fieldName field) + B.length (fieldValue field) + 4) (seen .|. kind) rest
    where
      kind = kindOf field

-- | The bytes of a response's fields, if they were rendered.
knownFields :: Response -> Maybe ByteString
knownFields response = case responseRendered response of
  Just (RenderedFields bytes fields) | samePointer fields (responseFields response) -> Just bytes
  _ -> Nothing
{-# INLINE knownFields #-}

-- | Fields that responses have in common, as bytes, without those that say the length of the content. 'Nothing' where one cannot be
-- sent, or changes what the server says.
renderTogether :: [Field] -> Maybe Rendered
renderTogether !fields = case scan 0 0 fields of
  Scanned size seen | seen .&. complement seenLength == 0 -> Just (RenderedFields (I.unsafeCreate size (void . putFields seen fields)) fields)
  _ -> Nothing

-- | 'renderBefore' of such fields on a connection that goes on, before content of this size: nearly all
-- responses of an application, by little code.
renderKnown :: OwnFields -> Status -> ByteString -> [ByteString] -> Int64 -> ByteString
renderKnown (OwnFields own _) status fields pieces size = unsafeDupablePerformIO $ do
  content <- I.mallocByteString total
  unsafeWithForeignPtr content $ \start ->
    put start line >>= (`put` own) >>= (`putLength` size) >>= (`put` fields) >>= lineEnd >>= void . putAll pieces
  pure (I.BS content total)
  where
    line = statusLine status
    total = B.length line + B.length own + lengthWidth size + B.length fields + 2 + fromIntegral size
{-# NOINLINE renderKnown #-}

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

-- | As a bit; none for most fields.
kindOf :: Field -> Int
kindOf (Field n _) = case B.length n of
  4 | eqCaseless "date" n -> seenDate
  6 | eqCaseless "server" n -> seenServer
  10 | eqCaseless "connection" n -> seenConnection
  14 | eqCaseless "content-length" n -> seenLength
  17 | eqCaseless "transfer-encoding" n -> seenLength
  _ -> 0

seenDate, seenServer, seenLength, seenConnection :: Int
seenDate = 1
seenServer = 2
seenLength = 4
seenConnection = 8

-- | Fields that a handler may not set.
seenOurs :: Int
seenOurs = seenLength .|. seenConnection

lengths :: [ByteString] -> Int
lengths = go 0
  where
    go !n = \case
      [] -> n
      piece : rest -> go (n + B.length piece) rest

put :: Ptr Word8 -> ByteString -> IO (Ptr Word8)
put p (I.BS content n) = do
  unsafeWithForeignPtr content $ \from -> copyBytes p from n
  pure (p `plusPtr` n)
{-# INLINE put #-}

putAll :: [ByteString] -> Ptr Word8 -> IO (Ptr Word8)
putAll pieces p = case pieces of
  [] -> pure p
  piece : rest -> put p piece >>= putAll rest

lineEnd :: Ptr Word8 -> IO (Ptr Word8)
lineEnd p = do
  poke p 0x0d
  pokeByteOff p 1 (0x0a :: Word8)
  pure (p `plusPtr` 2)

-- | Does the handler want the connection to end?
asksToClose :: Response -> Bool
asksToClose response = case responseRendered response of
  Just known | samePointer (renderedFields known) (responseFields response) -> False
  _ -> anyCloses (responseFields response)
{-# INLINE asksToClose #-}

anyCloses :: [Field] -> Bool
anyCloses = any (\(Field name value) -> B.length name == 10 && eqCaseless "connection" name && any (eqCaseless "close") (splitCommas value))
{-# NOINLINE anyCloses #-}

-- | The very bytes of a response whose body is in memory, or of the head of one with a
-- file, for a persistent connection; 'Nothing' where it has another body, a field that
-- cannot be sent, or one that asks to close the connection.
renderWhole :: ByteString -> ByteString -> Response -> Maybe Rendered
renderWhole name date response = case responseBody response of
  _ | asksToClose response -> Nothing
  NoContent -> whole []
  Bytes pieces -> whole pieces
  FileBody {} -> whole []
  _ -> Nothing
  where
    whole pieces = case renderBefore (ownFields name date) Persistent True response pieces of
      Left _ -> Nothing
      Right bytes -> Just (Rendered bytes (responseFields response))

-- | A small page that says what went wrong.
errorResponse :: Status -> ByteString -> Response
errorResponse status detail
  | hasNoBody status = plain status [] B.empty
  | otherwise = plain status [Field "Content-Type" pageType, Field "Content-Security-Policy" pagePolicy] (errorPage status detail)
