{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Responses as bytes
-- Stability   : not home
--
-- Adds to a response what is the server's business (@Date@, @Server@,
-- @Content-Length@, @Connection@) and renders its head. Pure.
module Weft.Http.Server.Render
  ( Persistence (..),
    renderResponseHead,
    renderWhole,
    errorResponse,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft.Http.Page (errorPage, pagePolicy, pageType)
import Weft.Http.Response
import Weft.Http.Server.Types
import Weft.Http.Status

-- | What the head says about the connection.
data Persistence
  = -- | It goes on; HTTP/1.1 need not say so.
    Persistent
  | -- | It goes on, and a client of HTTP/1.0 wants to be told.
    PersistentSaid
  | -- | It ends after this response.
    Closing
  deriving stock (Eq, Show)

-- | The head of a response, or the field that cannot be sent.
renderResponseHead :: ByteString -> ByteString -> Persistence -> Response -> Either BadField ByteString
renderResponseHead name date persistence response =
  renderHead (responseStatus response) (Field "Date" date : server (len (responseFields response <> connection)))
  where
    server = if B.null name then id else (Field "Server" name :)
    len
      | hasNoBody (responseStatus response) = id
      | otherwise = (contentLength (bodyLength (responseBody response)) :)
    connection = case persistence of
      Persistent -> []
      PersistentSaid -> [Field "Connection" "keep-alive"]
      Closing -> [Field "Connection" "close"]

-- | The very bytes of a response whose body is in memory, for a persistent
-- connection; 'Nothing' where it has another body or a field that cannot be sent.
renderWhole :: ByteString -> ByteString -> Response -> Maybe ByteString
renderWhole name date response = case responseBody response of
  NoContent -> whole []
  Bytes pieces -> whole pieces
  _ -> Nothing
  where
    whole pieces = either (const Nothing) (\h -> Just (B.concat (h : pieces))) (renderResponseHead name date Persistent response)

-- | A small page that says what went wrong.
errorResponse :: Status -> ByteString -> Response
errorResponse status detail
  | hasNoBody status = plain status [] B.empty
  | otherwise = plain status [Field "Content-Type" pageType, Field "Content-Security-Policy" pagePolicy] (errorPage status detail)
