{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Failures in scopes, and their races
--
-- Failures reach the owner, and name the child; and the races of Note [The life of a
-- scope] as litmus programs, each with every outcome that is allowed.
module Weft.Conformance.ScopeFailures (scopeFailures) where

import Control.Exception (ErrorCall (..), fromException)
import Control.Monad (forever, replicateM_, void)
import Data.List (isInfixOf)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Litmus
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Mask (mask_, uninterruptibleMask_)
import Weft.Scope

-- | Failures, and races.
scopeFailures :: World -> TestTree
scopeFailures world = testGroup "failures of scopes" [testGroup "failures" (failures world), testGroup "litmus" (races world)]

failures :: World -> [TestTree]
failures world =
  [ testCase "a failure interrupts the body, cancels the others and says who it was" . running world $ do
      (say, said) <- liftIO newLog
      r <- try . withScope $ \s -> do
        ready <- newGate
        forkIn_ s ((openGate ready () >> block) `finally` say "sibling")
        waitGate ready
        bad <- forkInWith s defaultForkOptions {forkLabel = "the bad one"} (yield >> throwM (ErrorCall "bad") :: Thread ())
        _ <- block `finally` say "body" :: Thread ()
        pure (childThread bad)
      liftIO $ case r of
        Left failure -> do
          failedLabel failure @?= "the bad one"
          (fromException (failedWith failure) :: Maybe ErrorCall) @?= Just (ErrorCall "bad")
          assertBool (show failure) ("the bad one" `isInfixOf` show failure)
        Right _ -> assertFailure "no failure"
      sorted <- liftIO said
      liftIO (assertBool (show sorted) (sorted `elem` [["body", "sibling"], ["sibling", "body"]])),
    testCase "a failure while the owner waits at the end" . running world $ do
      r <- try (withScope (\s -> forkIn_ s (yield >> throwM (ErrorCall "late"))))
      causeOf r `is` Just (ErrorCall "late"),
    testCase "the first failure counts; one in a finalizer when there was none" . running world $ do
      r <- try . withScope $ \s -> do
        ready <- newGate
        forkIn_ s ((openGate ready () >> block) `finally` throwM (ErrorCall "second"))
        waitGate ready
        forkIn_ s (throwM (ErrorCall "first"))
      causeOf r `is` Just (ErrorCall "first")
      r' <- try . withScope $ \s -> do
        ready <- newGate
        _ <- forkDaemonIn s ((openGate ready () >> block) `finally` throwM (ErrorCall "finalizer") :: Thread ())
        waitGate ready
      causeOf r' `is` Just (ErrorCall "finalizer"),
    testCase "an owner that learns of a failure by a fork that is refused raises the failure" . running world $ do
      r <- try . withScope $ \s -> do
        forkIn_ s (throwM (ErrorCall "first"))
        -- The exception that is to interrupt the body cannot come between.
        uninterruptibleMask_ (forever (yield >> forkIn_ s (pure ())))
      causeOf (r :: Either ChildFailed ()) `is` Just (ErrorCall "first"),
    testCase "cancelled and leaving are no failures" . running world . withScope $ \s -> do
      a <- forkIn s (block :: Thread ())
      b <- forkIn s (exit :: Thread ())
      cancel (childThread a)
      awaitAll s
      ra <- resultOf a
      liftIO (either show show ra @?= show Cancelled)
      rb <- resultOf b
      liftIO (either show show rb @?= "ThreadExit"),
    testCase "awaitChild gives the result or ChildFailed; the owner's wait for another sibling says the cause" . running world $ do
      r <- try . withScope $ \s -> do
        good <- forkIn s (block :: Thread Int)
        _ <- forkInWith s defaultForkOptions {forkWorker = Just 1} (throwM (ErrorCall "cause") :: Thread ())
        awaitChild good
      causeOf r `is` Just (ErrorCall "cause"),
    testCase "an expected exception is a result" . running world $ do
      r <- withScope $ \s -> do
        a <- forkTryIn s (yield >> throwM (ErrorCall "expected"))
        b <- forkIn s (replicateM_ 10 yield >> pure 'b')
        (,) <$> awaitChild a <*> awaitChild b
      r `is` (Left (ErrorCall "expected") :: Either ErrorCall (), 'b')
      unexpected <- try (withScope (\s -> forkTryIn s (throwM (ErrorCall "other") :: Thread ()) >>= awaitChild :: Thread (Either IOError ())))
      causeOf unexpected `is` Just (ErrorCall "other"),
    testCase "a failure passes through nested scopes, wrapped at each" . running world $ do
      r <- try . withScope $ \s -> forkIn_ s (withScope (\s' -> forkIn_ s' (throwM (ErrorCall "deep"))))
      case r of
        Left outer | Just inner <- fromException (failedWith outer) -> causeOf (Left inner) `is` Just (ErrorCall "deep")
        other -> liftIO (assertFailure (show other)),
    testCase "a failure that comes when the body has been left hits nothing later" . running world $ do
      r <- try . withScope $ \s -> mask_ (forkIn_ s (throwM (ErrorCall "x")) >> replicateM_ 3 yield)
      causeOf r `is` Just (ErrorCall "x")
      replicateM_ 10 yield
      sleep (microseconds' 1)
  ]
  where
    microseconds' = milliseconds

causeOf :: Either ChildFailed a -> Maybe ErrorCall
causeOf = either (fromException . failedWith) (const Nothing)

-- | Programs in which two things race, run many times on one worker and on two. The
-- outcome must be one that is allowed; which of them came is not asserted.
races :: World -> [TestTree]
races world =
  [ litmus world "(A) closing against arrival: the body runs to its end and is finalized, is cancelled in it, or never begins and says nothing" [[], ["began", "cancelled"], ["began", "ended"]] $ \say -> do
      r <- try . withScope $ \s -> do
        _ <- forkInWith s defaultForkOptions {forkWorker = Just 1} ((say "began" >> yield >> say "ended") `catch` \Cancelled -> say "cancelled")
        throwM (ErrorCall "close") :: Thread ()
      r `is` Left (ErrorCall "close"),
    litmus world "(B) the last child ends while a stranger forks: it runs whole, or is refused" [["ran"], ["refused"]] $ \say -> do
      handle' <- newGate
      finished <- newGate
      _ <- forkWith defaultForkOptions {forkWorker = Just 1} . (`finally` openGate finished ()) $ do
        s <- waitGate handle'
        r <- try (forkIn_ s (say "ran"))
        case r of
          Left (ScopeEnded _) -> say "refused"
          Right () -> pure ()
      withScope (\s -> openGate handle' s >> forkIn_ s (pure ()))
      waitGate finished,
    litmus world "(C) a failure against the end of the body: always raised, and nothing else" [["failed"]] $ \say -> do
      r <- try . withScope $ \s -> void (forkInWith s defaultForkOptions {forkWorker = Just 1} (throwM (ErrorCall "x") :: Thread ()))
      case r of
        Left (ChildFailed {}) -> say "failed"
        Right () -> say "lost"
      replicateM_ 3 yield,
    litmus world "(D) a cancellation against the end of the scope: before it or after it" [["cancelled"], ["finished", "cancelled"], ["finished"]] $ \say -> do
      ended <- newGate
      started' <- newGate
      t <-
        forkWith defaultForkOptions {forkWorker = Just 1} . (`finally` openGate ended ()) $
          ( do
              withScope (\s -> openGate started' () >> forkIn_ s (pure ()) >> yield)
              say "finished"
              yield
          )
            `catch` \Cancelled -> say "cancelled"
      waitGate started'
      cancel t
      waitGate ended,
    litmus world "(E) a daemon that forks into its closing scope has not failed" [["end"]] $ \say -> do
      withScope $ \s -> do
        ready <- newGate
        _ <- forkDaemonIn s (mask_ (openGate ready () >> forever (yield >> forkIn_ s (pure ()))) :: Thread ())
        waitGate ready
        cancelScope s
      say "end"
  ]
