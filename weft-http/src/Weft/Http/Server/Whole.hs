{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Can a response be sent in one piece, and what are its bytes? The hot path asks here first.
module Weft.Http.Server.Whole
  ( atHand,
    bytesAtHand,
    renderedNow,
    Whole (..),
    wholeNow,
    sayingClose,
    isHead,
    isConnect,
    persistenceOf,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Weft.Http.Server.Layout
import Weft.Http.Server.Render
import Weft.Http.Server.State
import Weft.Http.Server.Wire
import Weft.Internal.Core.Standing (samePointer)

-- | The bytes of a whole response, if its handler had them, for this request and a connection that stays.
atHand :: Request -> Bool -> Response -> Maybe ByteString
atHand request possible response
  | possible, Http11 <- requestVersion request, not (isHead request || isConnect request) = bytesAtHand response
  | otherwise = Nothing
{-# INLINE atHand #-}

-- | 'atHand' for a request that may be answered with them.
bytesAtHand :: Response -> Maybe ByteString
bytesAtHand response
  | inMemory (responseBody response) = renderedNow response
  | otherwise = Nothing

-- | The bytes of a response, or of its head if it has a file, that were rendered with the fields that it has.
renderedNow :: Response -> Maybe ByteString
renderedNow response = case responseRendered response of
  Just (Rendered bytes fields) | samePointer fields (responseFields response) -> Just bytes
  _ -> Nothing

-- | A small response as the bytes that are to be sent, and whether the connection goes on after it.
data Whole
  = Whole !Bool {-# NOUNPACK #-} !ByteString
  | -- | It has to be sent in another way.
    NotWhole

-- | Render a small response, given whether the connection can go on.
wholeNow :: Context -> Layout -> Request -> Bool -> Response -> IO Whole
wholeNow context layout request !possible response
  | not (contextQuiet context) || isHead request || hasNoBody (responseStatus response) = pure NotWhole
  | otherwise = case responseBody response of
      NoContent -> whole 0 []
      -- To copy it after its head costs less than two pieces.
      Bytes pieces | size <- lengths pieces, size <= 4096 -> whole size pieces
      _ -> pure NotWhole
  where
    whole size pieces = do
      own <- readIORef (serverOwnFields (contextServer context))
      layOut layout own (responseStatus response) (responseFields response) >>= \case
        Right beginning -> do
          let !keep = possible && not (isConnect request || beginningCloses beginning)
          pure $! Whole keep (renderSized beginning (persistenceOf request keep) size size pieces)
        Left _ -> pure NotWhole
{-# OPAQUE wholeNow #-}

-- | A rendered head, which now says that the connection ends.
sayingClose :: ByteString -> ByteString
sayingClose h = B.dropEnd 2 h <> "Connection: close\r\n\r\n"

-- Constructors, and not @==@: that of 'Method' is a call, which has names to compare.

isHead, isConnect :: Request -> Bool
isHead request = case requestMethod request of
  Head -> True
  _ -> False
isConnect request = case requestMethod request of
  Connect -> True
  _ -> False

-- | The words for the client, given whether the connection goes on.
persistenceOf :: Request -> Bool -> Persistence
persistenceOf request keep
  | not keep = Closing
  | requestVersion request == Http10 = PersistentSaid
  | otherwise = Persistent
