{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The tests of the event manager
--
-- One suite for every source of "Weft.EventManager.Source", and what only real ones have.
module Main (main) where

import Control.Exception (try)
import Control.Monad (unless)
import Data.List (isInfixOf)
import PlainEcho qualified
import System.Environment (setEnv)
import Test.Events.Conformance (conformance)
import Test.Events.Races (races)
import Test.Events.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.EventManager.Source (hasKqueue, kqueue)

main :: IO ()
main = do
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain . adjustOption limited $
    testGroup
      "events"
      [ testGroup "conformance" (map conformance rigs),
        testGroup "threads" (map races realRigs),
        testCase "a build without kqueue says so" $
          unless hasKqueue $
            try kqueue >>= \case
              Left e -> assertBool (show e) ("cabal flag kqueue" `isInfixOf` show (e :: IOError))
              Right _ -> assertFailure "it has one",
        testCase "the example of docs/events.md" (PlainEcho.conversation ["one", "two"] >>= (@?= ["one", "two"]))
      ]

limited :: Timeout -> Timeout
limited = \case
  NoTimeout -> mkTimeout 60_000_000
  chosen -> chosen
