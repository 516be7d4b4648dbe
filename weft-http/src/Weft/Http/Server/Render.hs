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
    asksToClose,
    errorResponse,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft.Http.Internal.Ascii (eqCaseless, splitCommas)
import Weft.Http.Page (errorPage, pagePolicy, pageType)
import Weft.Http.Request (Field (..))
import Weft.Http.Response hiding (Field (..))
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

-- | The head of a response, or the field that cannot be sent. The flag: the client
-- understands chunks.
renderResponseHead :: ByteString -> ByteString -> Persistence -> Bool -> Response -> Either BadField ByteString
renderResponseHead name date persistence chunks response =
  renderHead (responseStatus response) (dated (served (framed (others <> connection))))
  where
    given = responseFields response
    -- Almost always none is: then the fields are used as they are.
    others = if any isOurs given then filter (not . isFraming) given else given
    has field = any (eqCaseless field . fieldName) given
    dated = if has "date" then id else (Field "Date" date :)
    served = if B.null name || has "server" then id else (Field "Server" name :)
    framed
      | hasNoBody (responseStatus response) = id
      | otherwise = case responseBody response of
          Switch _ -> id
          Withheld -> id
          body -> case knownLength body of
            Just n -> (contentLength n :)
            Nothing | chunks -> (Field "Transfer-Encoding" "chunked" :)
            Nothing -> id
    connection = case (responseBody response, persistence) of
      (Switch _, _) | statusCode (responseStatus response) == 101 -> [Field "Connection" "Upgrade"]
      (Switch _, _) -> []
      (_, Persistent) -> []
      (_, PersistentSaid) -> [Field "Connection" "keep-alive"]
      (_, Closing) -> [Field "Connection" "close"]
    isOurs field = case B.length (fieldName field) of
      10 -> isFraming field
      14 -> isFraming field
      17 -> isFraming field
      _ -> False
    isFraming (Field n _) = eqCaseless "content-length" n || eqCaseless "connection" n || eqCaseless "transfer-encoding" n

-- | Does the handler want the connection to end?
asksToClose :: Response -> Bool
asksToClose response = any asks (responseFields response)
  where
    asks (Field name value) = B.length name == 10 && eqCaseless "connection" name && any (eqCaseless "close") (splitCommas value)

-- | The very bytes of a response whose body is in memory, for a persistent
-- connection; 'Nothing' where it has another body or a field that cannot be sent.
renderWhole :: ByteString -> ByteString -> Response -> Maybe ByteString
renderWhole name date response = case responseBody response of
  NoContent -> whole []
  Bytes pieces -> whole pieces
  _ -> Nothing
  where
    whole pieces = either (const Nothing) (\h -> Just (B.concat (h : pieces))) (renderResponseHead name date Persistent True response)

-- | A small page that says what went wrong.
errorResponse :: Status -> ByteString -> Response
errorResponse status detail
  | hasNoBody status = plain status [] B.empty
  | otherwise = plain status [Field "Content-Type" pageType, Field "Content-Security-Policy" pagePolicy] (errorPage status detail)
