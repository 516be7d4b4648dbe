-- |
-- Weft's reading of a conversation: the parser of heads and the decoder of bodies, as the
-- server uses them one after the other.
module Differential.Weft
  ( readWeft,
    message,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Differential.Reading
import Weft.Http.Body
import Weft.Http.RequestHead

-- | Ours.
readWeft :: ByteString -> Reading Fault
readWeft = go []
  where
    go done bytes = case parseRequest defaultLimits 0 bytes of
      Incomplete _ -> Reading (reverse done) (if C.all (`elem` ("\r\n" :: String)) bytes then Clean else Partial)
      Bad fault -> Reading (reverse done) (Refused fault)
      Parsed h used -> body h [] (bodyDecoder defaultLimits (headFraming h)) (B.drop used bytes)
      where
        body h pieces decoder input = case decode decoder input of
          More _ -> Reading (reverse done) Partial
          Piece here rest next -> body h (here : pieces) next rest
          Broken fault -> Reading (reverse done) (Refused fault)
          End trailers rest ->
            let done' = message h (B.concat (reverse pieces)) trailers : done
             in if isPersistent h then go done' rest else Reading (reverse done') Closed

-- | A request in the terms of the comparison.
message :: RequestHead -> ByteString -> [Field] -> Message
message h content trailers =
  Message
    { messageMethod = methodName (headMethod h),
      messageTarget = headTarget h,
      messagePath = headPath h <> headQuery h,
      messageFields = pairs (headFields h),
      messageBody = content,
      messageTrailers = pairs trailers
    }
  where
    pairs fields = [(name, value) | Field name value <- fields]
