{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Responses that are sent in one piece
--
-- Whether the bytes of a whole response can be had at once, and which, as its request is to be answered with
-- them. Pure; the hot path of a session asks here first, and "Weft.Http.Server.Outgoing" sends all others.
module Weft.Http.Server.Whole
  ( -- * Bytes
    atHand,
    bytesAtHand,
    wholeNow,
    sayingClose,
    worthCopying,

    -- * What requests decide
    isHead,
    isConnect,
    persistenceOf,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Weft.Http.Request
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Server.Wire
import Weft.Http.Status
import Weft.Internal.Core.Standing (samePointer)

-- | In octets: content up to this size is copied after its head, which costs less than two pieces.
worthCopying :: Int64
worthCopying = 4096

-- | The bytes of a whole response, if its handler had them and they are what this request is
-- to be answered with, given whether the connection can go on. They say that it does, in the way
-- of HTTP\/1.1.
atHand :: Request -> Bool -> Response -> Maybe ByteString
atHand request possible response
  | possible, Http11 <- requestVersion request, hasUsualContent request = bytesAtHand response
  | otherwise = Nothing
{-# INLINE atHand #-}

-- | 'atHand' for a request that may be answered with them.
bytesAtHand :: Response -> Maybe ByteString
bytesAtHand response
  | Just (Rendered bytes _) <- responseRendered response,
    inMemory (responseBody response),
    not (asksToClose response) =
      Just bytes
  | otherwise = Nothing
{-# INLINE bytesAtHand #-}

-- | A small response as the bytes that are to be sent, given whether the connection can go on,
-- and whether it does; if nothing else is to be done about it.
wholeNow :: Context -> Request -> Bool -> Response -> OwnFields -> Maybe (Bool, ByteString)
wholeNow context request !possible response own
  | possible,
    contextQuiet context,
    Bytes pieces <- responseBody response,
    Just fields <- knownFields response,
    hasUsualContent request,
    Http11 <- requestVersion request,
    not (hasNoBody (responseStatus response)),
    size <- bodyLength (responseBody response),
    size <= worthCopying =
      let !bytes = renderKnown own (responseStatus response) fields pieces size in Just (True, bytes)
  | otherwise = wholeSlowly context request possible response own
{-# OPAQUE wholeNow #-}

-- | Slow path, kept out of line so that GHC does not read first what it needs.
wholeSlowly :: Context -> Request -> Bool -> Response -> OwnFields -> Maybe (Bool, ByteString)
wholeSlowly context request possible response own = case responseBody response of
  NoContent -> whole []
  Bytes pieces | bodyLength (responseBody response) <= worthCopying -> whole pieces
  _ -> Nothing
  where
    whole pieces
      | not (contextQuiet context) || isHead request || hasNoBody (responseStatus response) = Nothing
      | otherwise =
          let !keep = goesOnAfter request possible response
           in case responseRendered response of
                Just (Rendered bytes fields)
                  | not keep, samePointer fields (responseFields response) -> Just (False, sayingClose (fromIntegral (bodyLength (responseBody response))) bytes)
                _ -> rendering keep pieces
    rendering keep pieces =
      case renderBefore own (persistenceOf request keep) True response pieces of
        Right bytes -> Just (keep, bytes)
        Left _ -> Nothing
{-# NOINLINE wholeSlowly #-}

-- | A rendered head, and this number of octets of content after it, which now says that the
-- connection ends.
sayingClose :: Int -> ByteString -> ByteString
sayingClose content bytes = B.concat [before, "Connection: close\r\n", end]
  where
    (before, end) = B.splitAt (B.length bytes - content - 2) bytes

-- | Whether the connection goes on after a response in memory, given whether it can. After a
-- success the client of @CONNECT@ takes all that comes for the tunnel.
goesOnAfter :: Request -> Bool -> Response -> Bool
goesOnAfter request possible response = possible && not (isConnect request) && not (asksToClose response)

-- Constructors, and not @==@: that of 'Method' is a call, which has names to compare.

isHead, isConnect :: Request -> Bool
isHead request = case requestMethod request of
  Head -> True
  _ -> False
isConnect request = case requestMethod request of
  Connect -> True
  _ -> False
{-# INLINE isHead #-}
{-# INLINE isConnect #-}

-- | Does a response have the content that its fields say, whatever its status?
hasUsualContent :: Request -> Bool
hasUsualContent request = not (isHead request || isConnect request)

-- | The words for the client, given whether the connection goes on.
persistenceOf :: Request -> Bool -> Persistence
persistenceOf request keep
  | not keep = Closing
  | requestVersion request == Http10 = PersistentSaid
  | otherwise = Persistent
{-# INLINE persistenceOf #-}
