{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: what a file holds when the power fails.
module Simulation.Saving
  ( main,
    careless,
    careful,
    interrupted,
    whole,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Weft
import Weft.File
import Weft.Sim
import Weft.Time

main :: IO ()
main = do
  check defaultConfig [0 .. 999] (interrupted careful) whole
  check defaultConfig [0 .. 999] (interrupted careless) whole

-- | Replace what a file holds.
careless, careful :: ByteString -> Thread ()
careless text = do
  withFile "settings.new" WriteOnly $ \file -> writeAt file 0 text
  renamePath "settings.new" "settings"
careful text = do
  withFile "settings.new" WriteOnly $ \file -> writeAt file 0 text >> sync file
  renamePath "settings.new" "settings"
  withFile "." Directory sync

-- | Save twice, on a machine that loses its power at some moment of the second time: what
-- is there when it runs again.
interrupted :: (ByteString -> Thread ()) -> Thread ByteString
interrupted save = do
  desk <- newMachine "desk"
  onMachine desk (careful "old")
  fork_ (onMachine desk (save "new"))
  dice <- randomBytes 1
  sleep (microseconds (10 * sum (map fromIntegral (ByteString.unpack dice))))
  crash desk
  restart desk
  onMachine desk (readWhole 100 "settings")

whole :: Verdict ByteString
whole = flawlessAnd (\text -> if text `elem` ["old", "new"] then Nothing else Just ("the file holds " <> show text))
