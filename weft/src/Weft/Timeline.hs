-- |
-- A timeline of a run: what each worker did when, in the trace event format that
-- Perfetto (<https://ui.perfetto.dev>), Chrome (@chrome://tracing@) and speedscope show.
--
-- @
-- 'Weft.runWith' 'Weft.defaultSettings' {'Weft.settingTrace' = Just ('timelineTo' \"run.json\")} program
-- @
--
-- Each worker has a track: its slices and in them each thread that ran, named by its
-- label; its polls and sleeps; takeovers; the length of its ready queue. The number of
-- threads and what "Weft.Counters" has from the kernel are counters beside them. The
-- repository's @docs\/observing.md@ lists the events.
--
-- Without a timeline a worker runs the very loop that knows nothing of it. With one,
-- each dispatch costs a look at the clock and a record in memory that is not shared;
-- the file is written by a thread of GHC that no worker waits for. When the file cannot
-- be written any more ('Weft.settingReport' is told once), recording ends and the
-- program goes on.
module Weft.Timeline (Timeline (..), timelineTo) where

import Weft.Internal.Observe.Timeline.Writer
