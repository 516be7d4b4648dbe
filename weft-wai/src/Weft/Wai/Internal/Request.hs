{-# OPTIONS_GHC -O2 #-}
-- The field of a request that has its body may be set by its name, whatever it is called.
{-# OPTIONS_GHC -Wno-deprecations #-}

-- |
-- Description : Requests as WAI has them
-- Stability   : not home
--
-- Makes of a request of the server one of WAI. The strings of the server's are slices of
-- the connection's buffer, which is used again; those of WAI may be kept. So the head is
-- copied, once, and every string is a slice of the copy. What an application does not look
-- at is not made.
module Weft.Wai.Internal.Request
  ( toWai,
    clientKey,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal (ByteString (BS), mallocByteString)
import Data.Maybe (isJust)
import Data.Vault.Lazy qualified as Vault
import Data.Word (Word8)
import Foreign.ForeignPtr (ForeignPtr, plusForeignPtr, touchForeignPtr)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, minusPtr, plusPtr)
import Network.HTTP.Types (Header, decodePathSegments, hRange, hReferer, hUserAgent, http10, http11, parseQuery)
import Network.HTTP.Types.Header (hHost)
import Network.Wai.Internal qualified as Wai
import System.IO.Unsafe (unsafePerformIO)
import Weft.Http.Request
import Weft.Wai.Internal.Names

-- | The request; the action receives the next piece of its body. The flag: leave the target
-- as it is ('Weft.Wai.setNoParsePath').
toWai :: Bool -> IO ByteString -> Request -> IO Wai.Request
toWai unparsed receive (Request h _ client) = do
  mine <- copied h
  -- What costs no more to make than to keep for later is made.
  let !rawPath
        | unparsed = rebased mine (B.take (B.length (headTarget h) - B.length (headQuery h)) (headTarget h))
        | otherwise = rebased mine (headPath h)
      !rawQuery = rebased mine (headQuery h)
      !method = case headMethod h of
        Extension name -> rebased mine name
        known -> methodName known
      !size = case headFraming h of
        NoBody -> noLength
        FixedBody n -> Wai.KnownLength (fromIntegral n)
        ChunkedBody -> Wai.ChunkedBody
      fields = map (field mine) (headFields h)
      -- Of those in the copy: the names of the others may have been overwritten by then.
      valueOf name = lookup name fields
  pure
    Wai.Request
      { Wai.requestMethod = method,
        Wai.httpVersion = case headVersion h of
          Http10 -> http10
          Http11 -> http11,
        Wai.rawPathInfo = rawPath,
        Wai.rawQueryString = rawQuery,
        Wai.requestHeaders = fields,
        Wai.isSecure = isJust (clientSecurity client),
        Wai.remoteHost = clientAddress client,
        Wai.pathInfo = decodePathSegments rawPath,
        Wai.queryString = parseQuery rawQuery,
        Wai.requestBody = receive,
        Wai.vault = Vault.insert clientKey client Vault.empty,
        Wai.requestBodyLength = size,
        Wai.requestHeaderHost = valueOf hHost,
        Wai.requestHeaderRange = valueOf hRange,
        Wai.requestHeaderReferer = valueOf hReferer,
        Wai.requestHeaderUserAgent = valueOf hUserAgent
      }

-- | Of a request without a body.
noLength :: Wai.RequestBodyLength
noLength = Wai.KnownLength 0

-- | Under this key the vault of a request has what is known of its client.
clientKey :: Vault.Key Client
clientKey = unsafePerformIO Vault.newKey
{-# NOINLINE clientKey #-}

-- | A copy of a part of a buffer: where that was, its size, the copy.
data Copied = Copied !(Ptr Word8) !Int !(ForeignPtr Word8)

-- | Copy a head, from the target (or the method, where that is a slice) to the last value.
copied :: RequestHead -> IO Copied
copied h = do
  let BS targetContent targetLength = headTarget h
      start = case headMethod h of
        Extension (BS content _) -> unsafeForeignPtrToPtr content
        _ -> unsafeForeignPtrToPtr targetContent
      size = endOf (unsafeForeignPtrToPtr targetContent `plusPtr` targetLength) (headFields h) `minusPtr` start
  content <- mallocByteString size
  copyBytes (unsafeForeignPtrToPtr content) start size
  touchForeignPtr targetContent
  touchForeignPtr content
  pure (Copied start size content)

-- | The end of the last field, or else what is given.
endOf :: Ptr Word8 -> [Field] -> Ptr Word8
endOf end = \case
  [] -> end
  [Field name value] -> if B.null value then after name else after value
  _ : rest -> endOf end rest
  where
    after (BS content n) = unsafeForeignPtrToPtr content `plusPtr` n

-- | The same string in the copy. Only the address of the original is looked at, so that it
-- does not matter when. What is no slice of the buffer is a constant of the parser's (the
-- path of a target that has none), and stays.
rebased :: Copied -> ByteString -> ByteString
rebased (Copied start size content) (BS original n)
  | n == 0 = B.empty
  | offset >= 0 && offset + n <= size = BS (content `plusForeignPtr` offset) n
  | otherwise = BS original n
  where
    offset = unsafeForeignPtrToPtr original `minusPtr` start

field :: Copied -> Field -> Header
field mine (Field name value) = (headerName (rebased mine name), rebased mine value)
