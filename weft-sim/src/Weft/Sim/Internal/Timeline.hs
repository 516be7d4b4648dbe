{-# LANGUAGE GADTs #-}
{-# LANGUAGE MagicHash #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The events of a simulated run, step by step: the words for one step, and how a list of them is
-- shown, a line for each. Recorded by the driver, only when it is wanted.
module Weft.Sim.Internal.Timeline
  ( Moment (..),
    Who (..),
    describeNode,
    describeCall,
    isVisible,
    Traits (..),
    traitsOf,
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
import Data.List (intercalate)
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import GHC.Exts (Int (..), dataToTag#)
import GHC.Stack (CallStack, SrcLoc (..), getCallStack)
import Numeric (showFFloat)
import Weft.Internal.Core.SystemCall (SystemCall (..), describe)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Instant (..))
import Weft.Sim.Internal.Events (worldStart)

-- | Something that happened.
data Moment = Moment
  { -- | At which step of the run; 0 for what the world does between them.
    momentStep :: !Int,
    -- | Virtual, in nanoseconds since the start.
    momentTime :: !Int64,
    -- | The thread or part of the world that did it.
    momentWho :: !Who,
    -- | What, in words.
    momentText :: String
  }

-- | An actor in a simulated run.
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
  Yield _ -> True
  Perform op _ _ -> case primitiveSight op of
    Unseen _ -> False
    Masks _ -> False
    _ -> True
  Call {} -> True
  Enter _ -> True
  _ -> False

-- | Does the thread give way to others of its own accord? Does it look for a cancellation there?
-- Does it run an action of the program?
data Traits = Traits {isYield, isSystemCall, isEffect :: !Bool}

traitsOf :: Trace -> Traits
traitsOf = \case
  Effect _ -> Traits False False True
  Enter _ -> Traits False False True
  Call {} -> Traits False True False
  Yield _ -> Traits True True False
  Perform op _ _ -> case primitiveSight op of
    Yields -> Traits True True False
    Accesses access _ -> Traits False (primitiveLooks op) (accessKind access == Affects)
    Begins -> Traits False (primitiveLooks op) True
    Resumes -> Traits False (primitiveLooks op) True
    _ -> Traits False (primitiveLooks op) False
  _ -> Traits False False False

-- | May its thread have to wait for something that it did not ask for by name?
mayWait :: Trace -> Bool
mayWait = \case
  Call _ (SleepUntil _) _ -> False
  trace -> isSystemCall (traitsOf trace) && not (isYield (traitsOf trace))

-- | A node in words; 'Nothing' for what is of no interest.
describeNode :: Trace -> Maybe String
describeNode = \case
  Effect _ -> Just "effect"
  Yield _ -> Just "yield"
  Perform op _ _ -> case primitiveSight op of
    Unseen _ -> Nothing
    Masks _ -> Nothing
    Bookkeeping -> Just ""
    Awaits (BlockedOn _ request) -> Just (describe request)
    Uses uses -> Just (intercalate ", " (map describeUse uses))
    Accesses access stack -> Just (describeAccess access <> at stack)
    Begins -> Just "effect"
    Resumes -> Just "effect"
    Yields -> Just "yield"
  Call stack request _ -> Just (describeCall request <> at stack)
  Fork {} -> Just ""
  Enter _ -> Just "effect"
  Done -> Just "end"
  Throw e -> Just ("raise " <> oneLine e)
  _ -> Nothing
  where
    at = maybe "" (" at " <>) . placeOf
    oneLine :: SomeException -> String
    oneLine = unwords . lines . show

-- | As in @lock mutex 7 (accounts)@: the object's name is what stands before the comma.
describeUse :: Use -> String
describeUse (Use verb (BlockedOn _ request)) = verb <> " " <> takeWhile (/= ',') (describe request)

describeCall :: SystemCall a -> String
describeCall = \case
  SleepUntil (Instant t) -> "sleep until " <> showTime (t - worldStart)
  request -> describe request

placeOf :: CallStack -> Maybe String
placeOf stack = case getCallStack stack of
  (_, place) : _ -> Just (srcLocFile place <> ":" <> show (srcLocStartLine place) <> ":" <> show (srcLocStartCol place))
  [] -> Nothing

nodeTag :: Trace -> Int
nodeTag trace = I# (dataToTag# trace)

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

-- | As a table: the step, the time, the thread, the action. What a thread does in one go without
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

-- | Nanoseconds as seconds with six digits after the point.
showTime :: Int64 -> String
showTime t = showFFloat (Just 6) (fromIntegral t / 1e9 :: Double) "s"
