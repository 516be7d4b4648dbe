-- | The fields that an operator adds to responses, by patterns of paths. Checked when made. Pure.
module Weft.Http.Static.Rules
  ( HeaderRule,
    headerRule,
    rulePatterns,
    ruleFields,
    ruleAlways,
    fieldsFor,
    overriding,

    -- * Checks
    fieldProblem,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (mapMaybe)
import Weft.Http.Internal.Ascii
import Weft.Http.Request (Field (..), lookupFields)
import Weft.Http.Static.Glob

-- | Fields for the paths that fit one of some patterns.
data HeaderRule = HeaderRule
  { -- | What it applies to.
    rulePatterns :: ![Glob],
    -- | The fields that are set. An empty value takes the field away.
    ruleFields :: ![Field],
    -- | Whether it applies to errors and redirects, too.
    ruleAlways :: !Bool
  }
  deriving stock (Eq, Show)

-- | A rule, or the faults of its fields. The flag: apply it to errors and redirects, too.
headerRule :: [Glob] -> [Field] -> Bool -> Either [String] HeaderRule
headerRule patterns fields always = case mapMaybe fieldProblem fields of
  [] -> Right (HeaderRule patterns fields always)
  problems -> Left problems

-- | Why a field cannot be set by a rule.
--
-- >>> fieldProblem (Field "Cache-Control" "no-store")
-- Nothing
-- >>> fieldProblem (Field "Content-Length" "3")
-- Just "Content-Length is the server's own field"
fieldProblem :: Field -> Maybe String
fieldProblem (Field name value)
  | not (isToken name) = Just (show name <> " is not the name of a field")
  | lowered name `elem` ours = Just (C.unpack name <> " is the server's own field")
  | not (isFieldValue value) = Just ("the value of " <> C.unpack name <> " contains a control character")
  | trim value /= value = Just ("the value of " <> C.unpack name <> " begins or ends with a blank")
  | otherwise = Nothing
  where
    ours = ofConnection <> ofContent <> ["date", "server"]
    ofConnection = ["connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
    ofContent = ["accept-ranges", "content-encoding", "content-length", "content-range", "etag", "last-modified"]

-- | The fields that some rules set for a path: of the rules that fit, later ones win, field by field.
fieldsFor :: [HeaderRule] -> ByteString -> [Field]
fieldsFor rules path =
  foldl (flip replacing) [] [ruleFields rule | rule <- rules, any (`matchesGlob` path) (rulePatterns rule)]

-- | The second fields, overridden by the first. An empty value removes; a @Vary@ is added.
--
-- >>> overriding [Field "b" "2", Field "c" ""] [Field "A" "0", Field "B" "1", Field "C" "3"]
-- [Field {fieldName = "A", fieldValue = "0"},Field {fieldName = "b", fieldValue = "2"}]
overriding :: [Field] -> [Field] -> [Field]
overriding new old = filter (not . B.null . fieldValue) (replacing (map extended new) old)
  where
    extended field
      | eqCaseless "vary" (fieldName field) = field {fieldValue = B.intercalate ", " (filter (not . B.null) (lookupFields "vary" old <> [fieldValue field]))}
      | otherwise = field

replacing :: [Field] -> [Field] -> [Field]
replacing [] old = old
replacing new old = filter ((`notElem` map key new) . key) old <> new
  where
    key = lowered . fieldName
