-- |
-- An example: a day of virtual time.
module Simulation.Patience
  ( main,
    patiently,
    attempts,
  )
where

import Weft
import Weft.Ref
import Weft.Sim
import Weft.Time
import Weft.Timeout

main :: IO ()
main = do
  result <- simulate 0 defaultConfig attempts
  print (resultOutcome result)
  putStrLn (show (resultTime result `div` 1_000_000_000) <> " s in " <> show (resultSteps result) <> " steps")

-- | Try until it succeeds, with pauses that double, up to an hour.
patiently :: Thread Bool -> Thread ()
patiently try' = go (seconds 1)
  where
    go pause = do
      done <- try'
      if done
        then pure ()
        else sleep pause >> go (min (minutes 60) (pause <> pause))

-- | Something that works from a certain hour on, and how often it was tried.
attempts :: Thread Int
attempts = do
  tried <- newRef 0
  opening <- after (minutes (20 * 60)) <$> now
  _ <- timeout (minutes (24 * 60)) . patiently $ do
    modifyRef tried (+ 1)
    (>= opening) <$> now
  readRef tried
