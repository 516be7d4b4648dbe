{-# LANGUAGE GADTs #-}
{-# LANGUAGE MagicHash #-}

-- |
-- Description : What happened in a simulated run, step by step
-- Stability   : not home
--
-- The words for one step, and how a list of them is shown: a line for each, with a
-- column for each thread. Recorded by the driver, only when somebody wants it.
module Weft.Sim.Internal.Timeline
  ( Moment (..),
    Who (..),
    describeNode,
    describeCall,
    isVisible,
    isYield,
    isEffect,
    isSystemCall,
    mayWait,
    nodeTag,
    placeOf,
    renderTimeline,
    showTime,
  )
where

import Control.Exception (SomeException)
import Data.ByteString.Short qualified as ShortByteString
import Data.Int (Int64)
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import GHC.Exts (Int (..), dataToTag#)
import GHC.Stack (CallStack, SrcLoc (..), getCallStack)
import Numeric (showFFloat)
import Weft.Internal.SystemCall (SystemCall (..), describe)
import Weft.Internal.Time (Instant (..))
import Weft.Internal.Trace

-- | Something that happened.
data Moment = Moment
  { -- | At which step of the run; 0 for what the world does between them.
    momentStep :: !Int,
    -- | Virtual, in nanoseconds since the start.
    momentTime :: !Int64,
    -- | Who did it.
    momentWho :: !Who,
    -- | What, in words.
    momentText :: String
  }

-- | Who did it.
data Who
  = -- | The thread with this number and label.
    ByThread !Int !Label
  | -- | The simulated world: network, disks, clocks, faults.
    ByWorld
  | -- | A message between workers.
    ByMessage !Int
  deriving stock (Eq, Ord)

-- | May another thread notice whether something else happens before this node?
isVisible :: Trace -> Bool
isVisible = \case
  Effect _ -> True
  Access {} -> True
  Yield _ -> True
  YieldDirect _ _ -> True
  Lock _ _ -> True
  Unlock _ _ -> True
  Take _ _ -> True
  Put {} -> True
  Try _ _ -> True
  Give _ _ -> True
  Call _ _ -> True
  CallAt {} -> True
  Internal _ -> True
  Direct _ -> True
  Reenter _ -> True
  _ -> False

-- | Does the thread give way to others of its own accord?
isYield :: Trace -> Bool
isYield = \case
  Yield _ -> True
  YieldDirect _ _ -> True
  _ -> False

-- | May its thread have to wait for something that it did not ask for by name?
mayWait :: Trace -> Bool
mayWait = \case
  Call (SleepUntil _) _ -> False
  Call _ _ -> True
  CallAt {} -> True
  Lock _ _ -> True
  Take _ _ -> True
  Put {} -> True
  Try _ _ -> True
  _ -> False

-- | Does the thread look for a cancellation there?
isSystemCall :: Trace -> Bool
isSystemCall = \case
  Yield _ -> True
  YieldDirect _ _ -> True
  Lock _ _ -> True
  Take _ _ -> True
  Put {} -> True
  Try _ _ -> True
  Call _ _ -> True
  CallAt {} -> True
  _ -> False

-- | Does it run an action of the program?
isEffect :: Trace -> Bool
isEffect = \case
  Effect _ -> True
  Access access _ _ -> accessKind access == Affects
  Direct _ -> True
  Reenter _ -> True
  _ -> False

-- | A node in words, in a run that began at this time; 'Nothing' for what is of no interest.
-- Operations on objects are described by what they touch.
describeNode :: Int64 -> Trace -> Maybe String
describeNode start = \case
  Effect _ -> Just "effect"
  Access access stack _ -> Just (describeAccess access <> maybe "" (" at " <>) (placeOf stack))
  Yield _ -> Just "yield"
  YieldDirect _ _ -> Just "yield"
  Lock _ _ -> Just "lock"
  Unlock _ _ -> Just "unlock"
  Take _ _ -> Just "take"
  Put {} -> Just "put"
  Try _ _ -> Just ""
  Give _ _ -> Just ""
  Call request _ -> Just (describeCall start request)
  CallAt stack request _ -> Just (describeCall start request <> maybe "" (" at " <>) (placeOf stack))
  Fork {} -> Just ""
  ForkAnonymous _ _ -> Just ""
  Internal _ -> Just ""
  Direct _ -> Just "effect"
  Reenter _ -> Just "effect"
  Done -> Just "end"
  Throw e -> Just ("raise " <> oneLine e)
  _ -> Nothing
  where
    oneLine :: SomeException -> String
    oneLine = unwords . lines . show

-- | A system call, with times as the timeline has them.
describeCall :: Int64 -> SystemCall a -> String
describeCall start = \case
  SleepUntil (Instant t) -> "sleep until " <> showTime (t - start)
  request -> describe request

-- | Where in the program, as @file:line:column in package:module@.
placeOf :: CallStack -> Maybe String
placeOf stack = case getCallStack stack of
  (_, place) : _ -> Just (srcLocFile place <> ":" <> show (srcLocStartLine place) <> ":" <> show (srcLocStartCol place))
  [] -> Nothing

-- | A small number for the kind of a node.
nodeTag :: Trace -> Int
nodeTag trace = I# (dataToTag# trace)
{-# INLINE nodeTag #-}

describeAccess :: Access -> String
describeAccess access
  | accessKind access == Affects = what <> name
  | otherwise = what <> " variable " <> show (accessVariable access) <> name
  where
    name = if Text.null (accessName access) then "" else " (" <> Text.unpack (accessName access) <> ")"
    what = case accessKind access of
      Reads -> "read"
      Writes -> "write"
      Modifies -> "modify"
      Affects -> "effect"

-- | As a table: the step, the time, who, what. What a thread does in one go without
-- anything in between is indented under its first line.
renderTimeline :: [Moment] -> [String]
renderTimeline moments = zipWith line (Nothing : map (Just . momentWho) moments) moments
  where
    width = maximum (5 : map (length . nameOf . momentWho) moments)
    line before m =
      concat
        [ pad 7 (show (momentStep m)),
          " ",
          pad 12 (showTime (momentTime m)),
          "  ",
          padRight width (if before == Just (momentWho m) then "" else nameOf (momentWho m)),
          "  ",
          momentText m
        ]
    nameOf who = Map.findWithDefault "" who names
    names = Map.fromList [(momentWho m, name (momentWho m)) | m <- moments]
    name = \case
      ByThread n label
        | ShortByteString.null label -> "thread " <> show n
        | otherwise -> "thread " <> show n <> " " <> Text.unpack (labelText label)
      ByWorld -> "world"
      ByMessage w -> "to worker " <> show w
    pad n text = replicate (n - length text) ' ' <> text
    padRight n text = text <> replicate (n - length text) ' '

-- | Nanoseconds as seconds with six digits behind the point.
showTime :: Int64 -> String
showTime t = showFFloat (Just 6) (fromIntegral t / 1e9 :: Double) "s"
