{-# OPTIONS_HADDOCK not-home #-}

-- | The events that a worker records for a timeline, and their text in the trace event format of Chrome,
-- Perfetto and speedscope, one on a line. Pure. docs/observing.md describes events and file.
module Weft.Internal.Observe.Timeline.Event
  ( TimelineEvent (..),
    EventKind (..),
    Process (..),
    renderEvent,
    renderHead,
    renderCounter,
    separator,
    renderEnd,
  )
where

import Data.ByteString.Builder (Builder, char7, intDec, string7)
import Data.ByteString.Builder.Prim (BoundedPrim, condB, liftFixedToBounded, word8HexFixed, (>$<), (>*<))
import Data.ByteString.Builder.Prim qualified as Prim
import Data.ByteString.Short qualified as ShortByteString
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding (encodeUtf8BuilderEscaped)
import Data.Word (Word8)
import Weft.Internal.Core.Trace (Label, labelText)

-- | Something that a worker did. Times are nanoseconds since the timeline began.
data TimelineEvent = TimelineEvent
  { eventKind :: !EventKind,
    eventAt :: !Int,
    -- | How long it lasted. Of 'Ready': how many threads.
    eventFor :: !Int,
    -- | The number of the thread, or 0; of a poll, 1 if it has found something.
    eventThread :: !Int,
    eventLabel :: !Label
  }
  deriving stock (Eq, Show)

data EventKind
  = -- | It ran ready threads.
    Slice
  | -- | It ran this thread, from one dispatch to where that parked, yielded or ended.
    Dispatch
  | -- | It asked its kernel, without blocking.
    Poll
  | -- | It blocked in its kernel.
    Sleep
  | -- | Another carrier took it over from this thread.
    Takeover
  | -- | The length of its ready queue.
    Ready
  deriving stock (Eq, Show, Enum, Bounded)

newtype Process = Process Int

-- | An event of the worker with this index.
renderEvent :: Process -> Int -> TimelineEvent -> Builder
renderEvent process worker (TimelineEvent kind at long thread label) = case kind of
  Slice -> complete "slice" "worker" mempty
  Dispatch -> complete' name "thread" (args [numbered])
  Poll -> complete "poll" "kernel" (args [found])
  Sleep -> complete "sleep" "kernel" (args [found])
  Takeover ->
    object process tid 'i' at $
      key "s" (string7 "\"t\"")
        <> key "name" (string7 "\"takeover\"")
        <> key "cat" (string7 "\"worker\"")
        <> args [key' "from" (jsonString name), numbered]
  Ready -> renderCounter process tid at (Text.pack ("worker " <> show worker <> " ready")) long
  where
    tid = track worker
    complete what = complete' (Text.pack what)
    complete' what category rest =
      object process tid 'X' at $
        key "dur" (micros long)
          <> key "name" (jsonString what)
          <> key "cat" (char7 '"' <> string7 category <> char7 '"')
          <> rest
    numbered = key' "thread" (intDec thread)
    found = key' "found" (string7 (if thread /= 0 then "true" else "false"))
    name
      | not (ShortByteString.null label) = labelText label
      | thread > 0 = Text.pack ("thread " <> show thread)
      | otherwise = Text.pack "anonymous thread"

-- | The worker's track; 0 is for what belongs to none.
track :: Int -> Int
track worker = worker + 1

-- | The beginning of the file: the names of the process and of the given number of workers.
renderHead :: Process -> Text -> Int -> Builder
renderHead process name workers =
  char7 '['
    <> metadata 0 "process_name" (key' "name" (jsonString name))
    <> mconcat
      [ separator
          <> metadata (track w) "thread_name" (key' "name" (jsonString (Text.pack ("worker " <> show w))))
          <> separator
          <> metadata (track w) "thread_sort_index" (key' "sort_index" (intDec w))
        | w <- [0 .. workers - 1]
      ]
  where
    metadata tid what value = object process tid 'M' 0 (key "name" (char7 '"' <> string7 what <> char7 '"') <> args [value])

-- | The value of a counter, on this track.
renderCounter :: Process -> Int -> Int -> Text -> Int -> Builder
renderCounter process tid at name value =
  object process tid 'C' at (key "name" (jsonString name) <> args [key' "value" (intDec value)])

-- | Between two events. It comes before an event and not after one, so that the file
-- needs no more than a bracket to be whole, whenever the writing stops.
separator :: Builder
separator = string7 ",\n"

renderEnd :: Builder
renderEnd = string7 "\n]\n"

object :: Process -> Int -> Char -> Int -> Builder -> Builder
object (Process pid) tid phase at rest =
  string7 "{\"ph\":\""
    <> char7 phase
    <> char7 '"'
    <> key "pid" (intDec pid)
    <> key "tid" (intDec tid)
    <> key "ts" (micros at)
    <> rest
    <> char7 '}'

args :: [Builder] -> Builder
args fields = key "args" (char7 '{' <> commas fields <> char7 '}')
  where
    commas [] = mempty
    commas (f : fs) = f <> foldMap (char7 ',' <>) fs

key, key' :: String -> Builder -> Builder
key name value = char7 ',' <> key' name value
key' name value = char7 '"' <> string7 name <> string7 "\":" <> value

-- | Microseconds with three decimals, exactly.
micros :: Int -> Builder
micros ns = intDec whole <> char7 '.' <> intDec a <> intDec b <> intDec c
  where
    (whole, rest) = max 0 ns `quotRem` 1000
    (a, rest') = rest `quotRem` 100
    (b, c) = rest' `quotRem` 10

jsonString :: Text -> Builder
jsonString text = char7 '"' <> encodeUtf8BuilderEscaped escaped text <> char7 '"'

-- | Quotation marks, backslashes and control characters; the rest is as it is.
escaped :: BoundedPrim Word8
escaped =
  condB (\w -> w == 0x22 || w == 0x5c) (liftFixedToBounded ((,) 0x5c >$< (Prim.word8 >*< Prim.word8))) $
    condB (>= 0x20) (liftFixedToBounded Prim.word8) $
      liftFixedToBounded ((\w -> (0x5c, (0x75, (0x30, (0x30, w))))) >$< (Prim.word8 >*< Prim.word8 >*< Prim.word8 >*< Prim.word8 >*< word8HexFixed))
