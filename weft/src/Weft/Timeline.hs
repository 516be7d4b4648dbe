-- |
-- A timeline of a run: what each worker did when, in the trace event format that
-- Perfetto (<https://ui.perfetto.dev>), Chrome (@chrome://tracing@) and speedscope show.
--
-- @
-- 'Weft.runWith' 'Weft.defaultSettings' {'Weft.settingTrace' = Just ('timelineTo' \"run.json\")} program
-- @
--
-- Each worker has a track: its slices and in them each thread that ran, named by its label; its polls and
-- sleeps; takeovers; the length of its ready queue. @docs\/observing.md@ lists the events and counters.
--
-- Without a timeline a worker runs a loop that knows nothing of it. With one, each dispatch costs a look at
-- the clock and a record in memory, and a thread of GHC writes the file. When it cannot be written any more
-- ('Weft.settingReport' is told once), recording ends and the program goes on.
module Weft.Timeline (Timeline (..), timelineTo) where

import Weft.Internal.Observe.Timeline.Writer
