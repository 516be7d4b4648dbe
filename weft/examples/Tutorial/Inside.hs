{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: a program that gets stuck, and says how.
module Tutorial.Inside
  ( main,
    stuck,
    watchful,
  )
where

import Data.Text (Text)
import Data.Text.IO qualified as Text
import Weft
import Weft.Barrier
import Weft.Dump
import Weft.Mutex
import Weft.Scope

main :: IO ()
main = runWith watchful (stuck Text.putStrLn)

watchful :: Settings
watchful =
  defaultSettings
    { -- Name a thread that has held a worker for 50 milliseconds.
      settingStall = Just (milliseconds 50),
      -- When all threads wait for each other: say so, and end with an exception.
      settingDeadlock = RaiseDeadlock
    }

-- | Two threads lock the same two accounts, in opposite orders.
stuck :: (Text -> IO ()) -> Thread ()
stuck say = do
  alice <- newMutexNamed "account of Alice"
  bob <- newMutexNamed "account of Bob"
  both <- newBarrier 3
  let transfer name from to = do
        label name
        withMutex from $ do
          _ <- arrive both
          withMutex to (pure ())
  withScope $ \transfers -> do
    forkIn_ transfers (transfer "Alice to Bob" alice bob)
    forkIn_ transfers (transfer "Bob to Alice" bob alice)
    _ <- arrive both
    dumpThreads >>= liftIO . say
