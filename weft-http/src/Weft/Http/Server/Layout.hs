{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Keeps what responses to one request head begin with: the next one mostly begins so, too.
module Weft.Http.Server.Layout (Layout (NoLayout), newLayout, layOut, isLiteralField) where

import Data.ByteString qualified as B
import Data.ByteString.Internal (ByteString (BS))
import Data.IORef
import GHC.ForeignPtr (ForeignPtr (..), ForeignPtrContents (..))
import Weft.Http.Request (Field (..))
import Weft.Http.Response (BadField)
import Weft.Http.Server.Render
import Weft.Http.Status
import Weft.Internal.Core.Standing (samePointer)

-- Note [Heads that are sent again]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Requests with one head are mostly answered with the same status and fields. From the second response
-- on the bytes that these make are kept with the head. A later response begins with them if its status
-- and all its fields are equal, in the same second: only the cost changes.
--
--   * A list of literals of the program is compared by address first, and kept as it is. Of others a
--     copy is kept, because they may be slices of something large.
--   * After a few that differ, the responses to this head vary, and no more are compared.
--   * What is kept stays as long as the request's head is known, and is small.
--   * Workers share it without a lock: it is immutable, and a lost store costs one more rendering.

data Layout
  = Layout {-# UNPACK #-} !(IORef Laid)
  | -- | Of a head that is not known.
    NoLayout

data Laid
  = Unanswered
  | Answered
  | -- | How often others came; the code of the status, the fields, the server's own fields, and what these are rendered to.
    Laid !Int !Int [Field] !OwnFields !(Either BadField Beginning)
  | Varying

newLayout :: IO Layout
newLayout = Layout <$> newIORef Unanswered

-- | The beginning of a response with this status and these fields, or a field that cannot be sent. See Note [Heads that are sent again].
layOut :: Layout -> OwnFields -> Status -> [Field] -> IO (Either BadField Beginning)
layOut layout !own status !fields = case layout of
  NoLayout -> pure (renderBeginning own status fields)
  Layout ref ->
    readIORef ref >>= \case
      Laid _ code known before rendered | code == statusCode status, same fields known, samePointer own before -> pure rendered
      before -> anew ref before own status fields
{-# OPAQUE layOut #-}

anew :: IORef Laid -> Laid -> OwnFields -> Status -> [Field] -> IO (Either BadField Beginning)
anew ref before own status fields = rendered <$ (writeIORef ref $! next)
  where
    !rendered = renderBeginning own status fields
    next = case before of
      Unanswered -> Answered
      Answered -> laid 0 (kept fields)
      Laid misses code known _ _
        -- In another second.
        | code == statusCode status, same fields known -> laid misses known
        | misses < 8 -> laid (misses + 1) (kept fields)
      _ -> Varying
    laid misses known = case rendered of
      -- At most 128 are kept.
      Right beginning | B.length (beginningBytes beginning) <= 4096 -> Laid misses (statusCode status) known own rendered
      _ -> Varying

-- | Are the fields equal? Mostly their addresses are.
same :: [Field] -> [Field] -> Bool
same fields known = samePointer fields known || go fields known
  where
    go [] [] = True
    go (Field name value : rest) (Field name' value' : rest') = name == name' && value == value' && go rest rest'
    go _ _ = False

-- | Equal fields, whose strings keep no larger memory.
kept :: [Field] -> [Field]
kept fields
  | all isLiteralField fields = fields
  | otherwise = foldr (\(Field name value) others -> others `seq` ((: others) $! Field (B.copy name) (B.copy value))) [] fields

isLiteralField :: Field -> Bool
isLiteralField (Field name value) = isLiteral name && isLiteral value
  where
    isLiteral = \case
      BS (ForeignPtr _ FinalPtr) _ -> True
      _ -> False
