-- | Evaluates preconditions (RFC 9110, section 13.2.2) against the validators of a representation. Pure.
module Weft.Http.Conditional (Validators (..), Outcome (..), evaluatePreconditions) where

import Data.ByteString (ByteString)
import Weft.Http.Date
import Weft.Http.ETag
import Weft.Http.Internal.Types

-- | The validators of the selected representation.
data Validators = Validators
  { validatorETag :: !(Maybe ETag),
    validatorModified :: !(Maybe HttpTime),
    -- | Is 'validatorModified' the last change, and not set by a tool? Else @If-Range@ fails.
    validatorExact :: !Bool,
    -- | The @Date@ of the response. Another modification in its second or the one before may be unseen,
    -- so such a date is no strong validator yet (RFC 9110, section 8.8.2.2).
    validatorNow :: !HttpTime
  }
  deriving stock (Eq, Show)

-- | The task of the server.
data Outcome
  = -- | Perform the method; @Range@ applies if there is one.
    Perform
  | -- | Perform the method without @Range@: the client has part of another version.
    PerformWhole
  | -- | Answer 304 without a body.
    NotModified
  | -- | Answer 412.
    PreconditionFailed
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Evaluate the preconditions of a request that would otherwise succeed. Invalid dates are absent.
--
-- >>> let v = Validators (Just (Strong "a")) Nothing False (HttpTime 0)
-- >>> evaluatePreconditions Get noConditions {conditionIfNoneMatch = Just "\"a\""} v
-- NotModified
-- >>> evaluatePreconditions Put noConditions {conditionIfNoneMatch = Just "*"} v
-- PreconditionFailed
evaluatePreconditions :: Method -> Conditions -> Validators -> Outcome
evaluatePreconditions method conditions validators
  | conditions == noConditions = Perform
  | otherwise = changedInTheMeantime
  where
    reads304 = method == Get || method == Head

    -- Steps 1 and 2: If-Match, and only in its absence If-Unmodified-Since.
    changedInTheMeantime = case conditionIfMatch conditions of
      Just list
        | matches strongMatch list -> knownAlready
        | otherwise -> PreconditionFailed
      Nothing
        | Just since <- date conditionIfUnmodifiedSince,
          Just modified <- validatorModified validators,
          modified > since ->
            PreconditionFailed
        | otherwise -> knownAlready

    -- Steps 3 and 4: If-None-Match, and only in its absence If-Modified-Since.
    knownAlready = case conditionIfNoneMatch conditions of
      Just list
        | not (matches weakMatch list) -> partly
        | reads304 -> NotModified
        | otherwise -> PreconditionFailed
      Nothing
        | reads304,
          Just since <- date conditionIfModifiedSince,
          Just modified <- validatorModified validators,
          modified <= since ->
            NotModified
        | otherwise -> partly

    -- Step 5: If-Range, only with a Range and GET.
    partly = case conditionIfRange conditions of
      Just given
        | method == Get,
          Just _ <- conditionRange conditions,
          not (sameBytes given) ->
            PerformWhole
      _ -> Perform

    matches by list = case parseTagList list of
      AnyTag -> True
      Tags tags -> any (\tag -> any (by tag) (validatorETag validators)) tags

    sameBytes :: ByteString -> Bool
    sameBytes given
      | Just tag <- parseETag given = any (strongMatch tag) (validatorETag validators)
      | Just time <- parseDate given = validatorExact validators && validatorModified validators == Just time && settled time
      | otherwise = False
    settled (HttpTime modified) =
      let HttpTime now = validatorNow validators in modified < now - 1

    date field = field conditions >>= parseDate
