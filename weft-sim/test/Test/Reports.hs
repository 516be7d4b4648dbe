{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : What a person gets to read
--
-- The lines that matter of a report for each kind of failure; and that the line which says how to see
-- it again can be taken at its word.
module Test.Reports (tests) where
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Control.Monad
import Weft
import Weft.Mutex
import Weft.Ref
import Weft.Channel qualified as Channel
import Weft.MVar
import Weft.Mask
import Weft.Sim

tests :: TestTree
tests = testCase "show" $ do
  forM_ [deadlock, stackedrace, throws, forever', leftOne, uncaught] $ \p -> do
     f <- findFailure defaultConfig{configMaxSteps=100} [0..999] p flawless
     forM_ f $ \x -> do
        putStrLn "=================="
        renderFailure p x >>= putStrLn
        y <- shrinkFailure 500 p flawless x
        renderFailure p y >>= putStrLn

deadlock, stackedrace, throws, forever', leftOne, uncaught :: Thread ()
deadlock = do
  a <- newMutexNamed "accounts"
  b <- newMutexNamed "ledger"
  together [label "payer" >> withMutex a (withMutex b (pure ())), label "auditor" >> withMutex b (withMutex a (pure ()))]
stackedrace = do
  r <- newRefNamed "balance" (0::Int)
  together [modifyRef r (+1), modifyRef r (+1)]
throws = do
  c <- Channel.newChannelNamed "jobs" 1
  fork_ (Channel.send c (0 :: Int))
  x <- Channel.receive c
  when (x == Just 0) (throwM (userError "no job"))
forever' = do
  v <- newMVar (0 :: Int)
  fork_ (forever (modifyMVar_ v (pure . (+1))))
  forever yield
leftOne = do
  v <- newEmptyMVarNamed "never"
  fork_ (uninterruptibleMask_ (takeMVar v) :: Thread ())
  sleep (seconds 1)
uncaught = do
  fork_ (label "worker" >> sleep (milliseconds 1) >> throwM (userError "oops"))
  sleep (seconds 1)
