-- |
-- A parser's reading of a conversation, and the rules by which two readings are compared.
--
-- A server that answers another request than the one a proxy has let pass is how requests
-- are smuggled. So when both accept, they must agree on every part of a request and, by
-- that, on where the next one begins. To refuse is always safe; it only must not happen
-- for reasons that are not known ("Differential.Reasons").
module Differential.Reading
  ( -- * Readings
    Reading (..),
    Message (..),
    Ending (..),
    outcome,

    -- * Comparing
    Peer (..),
    Comparison (..),
    compareReadings,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (isAlpha, toLower)
import Weft.Http.Internal.Framing (isTrailer)
import Weft.Http.RequestHead (Fault)

-- | The complete requests, and what came after them. @why@ is what a refusal says.
data Reading why = Reading
  { readingMessages :: [Message],
    readingEnding :: Ending why
  }
  deriving stock (Eq, Show)

-- | A request with its body.
data Message = Message
  { messageMethod :: ByteString,
    -- | As it was sent.
    messageTarget :: ByteString,
    -- | The target without scheme and authority.
    messagePath :: ByteString,
    messageFields :: [(ByteString, ByteString)],
    messageBody :: ByteString,
    messageTrailers :: [(ByteString, ByteString)]
  }
  deriving stock (Eq, Show)

-- | How the reading ended.
data Ending why
  = -- | With the last request; perhaps some empty lines.
    Clean
  | -- | Within a request, for which it waits.
    Partial
  | -- | With the input; it does not say whether within a request.
    Ended
  | -- | It closes the connection after the last request and looks no further.
    Closed
  | -- | What follows was no request.
    Refused why
  deriving stock (Eq, Show)

-- | In one word, for counting.
outcome :: Ending why -> String
outcome = \case
  Clean -> "clean"
  Partial -> "partial"
  Ended -> "ended"
  Closed -> "closed"
  Refused _ -> "refused"

-- | Another parser, and what it does not tell of a message.
data Peer = Peer
  { peerName :: String,
    -- | Reads conversations, in order.
    peerRead :: [ByteString] -> IO [Reading String],
    -- | The part of one of our messages that this peer reports.
    peerView :: Message -> Message,
    -- | Does it look for the end of a trailer section before it tells of the message?
    peerEndsTrailers :: Bool
  }

-- | The outcome of a comparison.
data Comparison
  = Agree
  | -- | The peer refuses the message of this number, which we accept.
    OnlyWeftAccepts Int String
  | -- | We refuse, for this reason, a message that the peer accepts.
    OnlyPeerAccepts Fault
  | -- | They have read different requests.
    Differ String
  deriving stock (Eq, Show)

-- | Hold our reading against that of a peer.
compareReadings :: Peer -> Reading Fault -> Reading String -> Comparison
compareReadings peer (Reading ours ourEnd) (Reading theirs theirEnd) = go (0 :: Int) ours theirs
  where
    go i (a : as) (b : bs)
      | common (peerView peer a) == common b = go (i + 1) as bs
      | otherwise = Differ ("message " <> show i <> ":\n  " <> show (common (peerView peer a)) <> "\n  " <> show (common b))
    go i (_ : _) [] = case theirEnd of
      Refused why -> OnlyWeftAccepts i why
      -- It may close where we go on.
      Closed -> Agree
      _ -> Differ ("message " <> show i <> " is complete for us, and not for the peer")
    go i [] (_ : _) = case ourEnd of
      Refused fault -> OnlyPeerAccepts fault
      Closed -> Agree
      Partial | length theirs == length ours + 1, not (peerEndsTrailers peer) -> Agree
      _ -> Differ ("message " <> show i <> " is complete for the peer, and not for us")
    go _ [] [] = case (ourEnd, theirEnd) of
      (Partial, Clean) -> Differ "we wait for the rest of a request that the peer has not seen"
      (Clean, Partial) -> Differ "the peer waits for the rest of a request that we have not seen"
      _ -> Agree

-- | Without what does not matter: the case of field names, blanks around values; and the trailer
-- fields that Weft leaves out.
common :: Message -> Message
common m = m {messageFields = map plain (messageFields m), messageTrailers = filter (isTrailer . fst) (map plain (messageTrailers m))}
  where
    plain (name, value) = (lower name, trimmed value)
    trimmed = C.dropWhileEnd blank . C.dropWhile blank
    blank c = c == ' ' || c == '\t'

lower :: ByteString -> ByteString
lower b = if B.null b then b else C.map (\c -> if isAlpha c && c < '\x80' then toLower c else c) b
