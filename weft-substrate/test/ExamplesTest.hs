-- |
-- Description : The schedulers of docs/substrate.md
module ExamplesTest (tests) where

import Control.Exception
import Control.Monad
import Data.IORef
import Held
import Hierarchy qualified
import Library (limited)
import Priorities qualified
import Scheduler qualified
import Stealing qualified
import Test.Tasty
import Test.Tasty.HUnit

tests :: TestTree
tests =
  testGroup
    "schedulers of the documentation"
    [ testCase "in sixty lines" (says "scheduler.txt" Scheduler.example),
      testCase "HECs that steal, of which there is one" (says "stealing.txt" (Stealing.example 1)),
      testCase "priorities" (says "priorities.txt" Priorities.example),
      testCase "groups of groups" (says "hierarchy.txt" Hierarchy.example),
      testCase "two HECs lose no thread" (limited nothingLost),
      testCase "a HEC that is kept is stolen from" (limited stolen)
    ]

-- | The output of an example is the one in the documentation.
says :: FilePath -> ((String -> IO ()) -> IO ()) -> Assertion
says file example = do
  said <- newIORef []
  example (\x -> modifyIORef' said (x :))
  r <- readIORef said
  shown <- readFile ("examples/" <> file) `catch` \(_ :: IOException) -> readFile ("weft-substrate/examples/" <> file)
  reverse r @?= lines shown

-- Which HEC runs which thread is open.
nothingLost :: Assertion
nothingLost = replicateM_ 20 $ do
  said <- newIORef []
  Stealing.example 2 (\x -> atomicModifyIORef' said (\xs -> (x : xs, ())))
  r <- readIORef said
  forM_ "abc" (\name -> reverse (filter ((== [name]) . take 1) r) @?= [name : " 1", name : " 2"])
  length r @?= 6

stolen :: Assertion
stolen = replicateM_ 20 $ do
  h <- held
  heldProgram h
  wrong h >>= (@?= [])
