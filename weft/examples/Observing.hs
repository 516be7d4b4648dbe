-- |
-- An example: what @docs/observing.md@ shows.
module Observing
  ( main,
    report,
  )
where

import Weft
import Weft.Counters
import Weft.Timeline

main :: IO ()
main = runWith defaultSettings {settingTrace = Just (timelineTo "run.json")} program

report :: Thread ()
report = do
  c <- counters
  liftIO (mapM_ print (named c))

program :: Thread ()
program = sleep (milliseconds 1) >> report
