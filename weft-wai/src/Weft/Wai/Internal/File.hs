{-# OPTIONS_HADDOCK not-home #-}

-- | WAI's file responses as Warp has them: date and size, preconditions and ranges.
module Weft.Wai.Internal.File (sendingFile) where

import Control.Exception (IOException)
import Control.Exception qualified as E
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (find)
import Data.Int (Int64)
import Network.Wai.Internal qualified as Wai
import Weft (Thread)
import Weft.File (FileStatus (..))
import Weft.Http.Conditional
import Weft.Http.Date
import Weft.Http.ETag (parseETag)
import Weft.Http.Internal.Ascii (eqCaseless)
import Weft.Http.Range
import Weft.Http.Request
import Weft.Http.Server (Body (..), Response (..))
import Weft.Http.Server qualified as Server
import Weft.Http.Server.Types (knownLength)
import Weft.Http.Status
import Weft.Wai.Internal.Files

-- | Answer a request with a file or a part of it. Holds the file until the last function has returned.
sendingFile :: Files -> (forall a. Thread a -> IO a) -> Int64 -> Request -> Status -> [Field] -> ByteString -> Maybe Wai.FilePart -> (Response -> IO ()) -> IO ()
sendingFile files performing second request status fields path part send =
  E.bracket (E.try (acquire files performing second path)) (either (\(_ :: IOException) -> pure ()) (release performing)) $ \case
    Left _ -> send notThere
    Right found -> send (inHead (answered found))
  where
    notThere =
      inHead (Response notFound404 (Field "Content-Type" "text/plain; charset=utf-8" : filter (not . named "content-type") fields) (Bytes ["File not found"]) Nothing)

    answered found
      | Just p <- part = ofPart file p
      | status /= ok200 || isUnconditional (requestConditions request) = whole status
      | otherwise = case evaluatePreconditions (requestMethod request) (requestConditions request) validators of
          PreconditionFailed -> Response preconditionFailed412 dated NoContent Nothing
          NotModified -> Response notModified304 dated NoContent Nothing
          PerformWhole -> whole ok200
          Perform
            | Just range <- conditionRange (requestConditions request),
              requestMethod request == Get ->
                case resolveRange defaultRangeLimits size range of
                  Single r
                    | rangeLength r < size ->
                        Response partialContent206 (Field "Content-Range" (contentRange size r) : ranged) (sent file (rangeFirst r) (rangeLength r)) Nothing
                  Unsatisfiable ->
                    Response requestedRangeNotSatisfiable416 (Field "Content-Range" (unsatisfiedRange size) : dated) NoContent Nothing
                  -- Several ranges need not be honoured (RFC 9110, section 14.2).
                  _ -> whole ok200
            | otherwise -> whole ok200
      where
        file = foundFile found
        size = statusSize (foundStatus found)
        modified = HttpTime (statusModified (foundStatus found) `div` 1_000_000_000)
        validators =
          Validators
            { validatorETag = find (named "etag") fields >>= parseETag . fieldValue,
              validatorModified = Just modified,
              -- As warp has it.
              validatorExact = True,
              validatorNow = HttpTime second
            }
        dated = if any (named "last-modified") fields then fields else Field "Last-Modified" (foundModified found) : fields
        ranged = accepting dated
        whole code = Response code ranged (sent file 0 size) Nothing

    ofPart file (Wai.FilePart offset count size)
      | count < size && count > 0 = Response status (Field "Content-Range" (contentRange total range) : accepting fields) content Nothing
      | otherwise = Response status (accepting fields) content Nothing
      where
        total = fromIntegral size
        range = ByteRange (fromIntegral offset) (fromIntegral (offset + count - 1))
        content = sent file (fromIntegral offset) (fromIntegral count)

    accepting = (Field "Accept-Ranges" "bytes" :)
    -- The bracket releases it.
    sent file offset count = FileBody file [Server.FilePart B.empty offset count] B.empty (pure ())
    inHead response = case requestMethod request of
      Head -> response {responseBody = maybe NoContent Omitted (knownLength (responseBody response))}
      _ -> response
    named name = eqCaseless name . fieldName
