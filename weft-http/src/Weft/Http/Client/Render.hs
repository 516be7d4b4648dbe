{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The head of a request as bytes
--
-- Checks and renders the request line and the fields: a field's value must not become another
-- field or request. Pure.
module Weft.Http.Client.Render (renderRequest) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.Foldable (traverse_)
import Data.Maybe (isNothing)
import Weft.Http.Client.Types
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Types (Field (..), Method (..), lookupField, methodName)
import Weft.Http.Response (BadField (..), checkField)

-- | Render a head, with these standard fields unless the request has one of the name.
renderRequest :: [Field] -> Request -> Either BadField ByteString
renderRequest standard request = do
  traverse_ (maybe (Right ()) Left . checkField) fields
  traverse_ reserved (standard <> own)
  if isToken method then Right () else Left (BadName method)
  if "/" `B.isPrefixOf` path && B.all isTargetByte path then Right () else Left (BadValue "the path of the request")
  pure . build $
    Builder.byteString method
      <> " "
      <> Builder.byteString path
      <> " HTTP/1.1\r\n"
      <> foldMap field fields
      <> "\r\n"
  where
    method = methodName (requestMethod request)
    path = urlPath (requestUrl request)
    own = requestFields request
    fields = host <> own <> filter (\f -> isNothing (lookupField (lowered (fieldName f)) own)) standard <> framing
    host = [Field "Host" (authority (urlTarget (requestUrl request))) | isNothing (lookupField "host" own)]
    framing = case requestBody request of
      Empty -> [Field "Content-Length" "0" | requestMethod request `elem` [Post, Put, Patch]]
      Whole bytes -> Field "Content-Length" (renderDecimal (fromIntegral (B.length bytes))) : expect
      Streamed (Just n) _ -> Field "Content-Length" (renderDecimal n) : expect
      Streamed Nothing _ -> Field "Transfer-Encoding" "chunked" : expect
    expect = [Field "Expect" "100-continue" | requestExpectContinue request]
    -- The client alone sends the framing fields.
    reserved (Field name _)
      | any (`eqCaseless` name) ["content-length", "transfer-encoding", "expect"] = Left (BadName name)
      | otherwise = Right ()
    field (Field name value) = Builder.byteString name <> ": " <> Builder.byteString value <> "\r\n"
