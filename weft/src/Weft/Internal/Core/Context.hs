{-# OPTIONS_HADDOCK not-home #-}

-- | The context of a thread. Immutable, and shared with siblings until it changes.
module Weft.Internal.Core.Context
  ( Context (..),
    rootContext,
    Label,
    labelText,
    labelBehind,
    Priority,
    Locals,
    limitScope,
  )
where

import Data.ByteString.Short (ShortByteString)
import Data.ByteString.Short qualified as ShortByteString
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Text.Encoding.Error qualified as Text
import GHC.Exts (Any)

data Context = Context
  { contextLabel :: !Label,
    contextPriority :: !Priority,
    -- | The number of the thread that forked it, 0 for none.
    contextParent :: !Int,
    -- | The number of the scope that owns it, 0 for none; or 'limitScope'.
    contextScope :: !Int,
    -- | Its local state ("Weft.Local"): what its children inherit, and the rest.
    contextInherited :: !Locals,
    contextLocals :: !Locals
  }

-- | Values by the number of their key.
type Locals = IntMap Any

rootContext :: Context
rootContext = Context mempty 0 0 0 IntMap.empty IntMap.empty

-- | In place of a scope's number: the thread is the alarm of its parent's time limit ("Weft.Timeout").
limitScope :: Int
limitScope = -1

-- | A name for people: shown in reports and dumps. UTF-8.
type Label = ShortByteString

-- | As text; what is not UTF-8 is replaced.
labelText :: Label -> Text
labelText = Text.decodeUtf8With Text.lenientDecode . ShortByteString.fromShort

-- | The label in parentheses, to follow the thread's name; empty without a label.
labelBehind :: Label -> String
labelBehind label
  | ShortByteString.null label = ""
  | otherwise = " (" <> Text.unpack (labelText label) <> ")"

-- | Smaller runs sooner, under the policies that look at it. Default 0.
type Priority = Int
