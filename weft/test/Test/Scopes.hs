{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Scopes own their threads
--
-- The end of a scope comes after the end of its threads, in every way a scope can
-- end; failures reach the owner; and the races of Note [The life of a scope] as litmus
-- programs, each with every outcome that is allowed.
module Test.Scopes (tests) where

import Control.Exception (ErrorCall (..), SomeException, fromException)
import Control.Monad (forM, forM_, forever, replicateM, replicateM_, unless, void, when)
import Data.IORef
import Data.List (isInfixOf, isPrefixOf)
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft
import Weft.Mask (mask_, uninterruptibleMask_)
import Weft.Scope

tests :: TestTree
tests =
  testGroup
    "Scopes"
    [ testGroup "ends" ends,
      testGroup "failures" failures,
      testGroup "handles" handles,
      testGroup "litmus" litmus,
      testGroup "properties" [testProperty "random trees of scopes leave nobody behind" trees]
    ]

-- | The same test in every configuration that differs for scopes.
everywhere :: TestName -> (Config -> Assertion) -> TestTree
everywhere name test = testCase name (mapM_ test [Config Epoll 1, Config Uring 1, Config Epoll 2])

-- | A log that threads of all workers write.
newLog :: IO (String -> Thread (), IO [String])
newLog = do
  events <- newIORef []
  pure (\what -> liftIO (atomicModifyIORef' events (\es -> (what : es, ()))), reverse <$> readIORef events)

is :: (Eq a, Show a) => a -> a -> Thread ()
is got wanted = liftIO (got @?= wanted)

-- | Wait for ever, in a system call.
block :: Thread a
block = newGate >>= waitGate

ends :: [TestTree]
ends =
  [ everywhere "the scope waits for its children when the body has returned" $ \c -> running c $ do
      done <- liftIO (newIORef (0 :: Int))
      r <- withScope $ \s -> do
        forM_ [1 .. 10 :: Int] $ \i -> forkInWith s defaultForkOptions {forkWorker = Just i} (replicateM_ i yield >> liftIO (atomicModifyIORef' done (\n -> (n + 1, ()))))
        pure 'r'
      r `is` 'r'
      liftIO (readIORef done) >>= (`is` 10),
    everywhere "daemons are cancelled then, and their finalizers run before the end" $ \c -> running c $ do
      (say, said) <- liftIO newLog
      withScope $ \s -> do
        ready <- newGate
        _ <- forkDaemonIn s ((openGate ready () >> block) `finally` (yield >> sleep (milliseconds 1) >> say "finalizer"))
        waitGate ready
        _ <- forkIn s (yield >> say "child")
        say "body"
      say "end"
      liftIO said >>= (`is` ["body", "child", "finalizer", "end"]),
    everywhere "an exception of the body cancels the children and is raised after their end" $ \c -> running c $ do
      (say, said) <- liftIO newLog
      r <- try . withScope $ \s -> do
        ready <- newGate
        forkIn_ s ((openGate ready () >> block) `finally` (yield >> say "finalizer"))
        waitGate ready
        throwM (ErrorCall "body") :: Thread ()
      r `is` Left (ErrorCall "body")
      liftIO said >>= (`is` ["finalizer"]),
    everywhere "cancelling the owner in its body ends the children" $ \c -> running c (owner True),
    everywhere "and while it waits for them" $ \c -> running c (owner False),
    everywhere "a cancelled owner waits for finalizers, though it is cancelled again" $ \c -> running c $ do
      (say, said) <- liftIO newLog
      ready <- newGate
      cleaning <- newGate
      goOn <- newGate
      ended <- newGate
      t <- fork . (`finally` openGate ended ()) . (`finally` say "owner") . withScope $ \s -> do
        forkIn_ s ((openGate ready () >> block) `finally` uninterruptibleMask_ (openGate cleaning () >> waitGate goOn >> say "child"))
      waitGate ready
      cancel t
      waitGate cleaning
      replicateM_ 3 (cancel t)
      replicateM_ 100 yield
      liftIO said >>= (`is` [])
      openGate goOn ()
      waitGate ended
      liftIO said >>= (`is` ["child", "owner"]),
    everywhere "nested: the inner ends before the outer, both after their threads" $ \c -> running c $ do
      (say, said) <- liftIO newLog
      r <- try . withScope $ \outer -> do
        ready <- newGate
        forkIn_ outer . (`finally` say "outer child") . withScope $ \inner -> do
          forkIn_ inner (openGate ready () >> block `finally` (yield >> say "inner child"))
          block `finally` say "inner body"
        waitGate ready
        throwM (ErrorCall "x") :: Thread ()
      r `is` Left (ErrorCall "x")
      liftIO said >>= (`is` ["inner body", "inner child", "outer child"]),
    everywhere "awaitAll waits for children and not for daemons" $ \c -> running c . withScope $ \s -> do
      n <- liftIO (newIORef (0 :: Int))
      _ <- forkDaemonIn s (forever (sleep (seconds 1000)))
      replicateM_ 5 (forkIn_ s (yield >> liftIO (atomicModifyIORef' n (\k -> (k + 1, ())))))
      awaitAll s
      liftIO (readIORef n) >>= (`is` 5),
    everywhere "cancelScope cancels all and leaves the body alone" $ \c -> running c . withScope $ \s -> do
      ran <- liftIO (newIORef (0 :: Int))
      gates <- forM [1 .. 4 :: Int] $ \i -> do
        ready <- newGate
        _ <- forkInWith s defaultForkOptions {forkWorker = Just i} ((openGate ready () >> block) `finally` liftIO (atomicModifyIORef' ran (\k -> (k + 1, ()))))
        pure ready
      mapM_ waitGate gates
      cancelScope s
      awaitAll s
      liftIO (readIORef ran) >>= (`is` 4)
  ]
  where
    owner early = do
      (say, said) <- liftIO newLog
      ready <- newGate
      ended <- newGate
      t <- fork . (`finally` openGate ended ()) . withScope $ \s -> do
        forkIn_ s ((openGate ready () >> block) `finally` (yield >> say "child"))
        when early (block `finally` say "body")
      waitGate ready
      -- The owner waits now, or soon.
      replicateM_ 10 yield
      cancel t
      waitGate ended
      liftIO said >>= (`is` (["body" | early] <> ["child"]))

failures :: [TestTree]
failures =
  [ everywhere "a failure interrupts the body, cancels the others and says who it was" $ \c -> running c $ do
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
    everywhere "a failure while the owner waits at the end" $ \c -> running c $ do
      r <- try (withScope (\s -> forkIn_ s (yield >> throwM (ErrorCall "late"))))
      causeOf r `is` Just (ErrorCall "late"),
    everywhere "the first failure counts; one in a finalizer when there was none" $ \c -> running c $ do
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
    everywhere "cancelled and leaving are no failures" $ \c -> running c . withScope $ \s -> do
      a <- forkIn s (block :: Thread ())
      b <- forkIn s (exit :: Thread ())
      cancel (childThread a)
      awaitAll s
      ra <- resultOf a
      liftIO (either show show ra @?= "Cancelled")
      rb <- resultOf b
      liftIO (either show show rb @?= "ThreadExit"),
    everywhere "awaitChild gives the result or ChildFailed; the owner's wait for another sibling says the cause" $ \c -> running c $ do
      r <- try . withScope $ \s -> do
        good <- forkIn s (block :: Thread Int)
        _ <- forkInWith s defaultForkOptions {forkWorker = Just 1} (throwM (ErrorCall "cause") :: Thread ())
        awaitChild good
      causeOf r `is` Just (ErrorCall "cause"),
    everywhere "an expected exception is a result" $ \c -> running c $ do
      r <- withScope $ \s -> do
        a <- forkTryIn s (yield >> throwM (ErrorCall "expected"))
        b <- forkIn s (replicateM_ 10 yield >> pure 'b')
        (,) <$> awaitChild a <*> awaitChild b
      r `is` (Left (ErrorCall "expected") :: Either ErrorCall (), 'b')
      unexpected <- try (withScope (\s -> forkTryIn s (throwM (ErrorCall "other") :: Thread ()) >>= awaitChild :: Thread (Either IOError ())))
      causeOf unexpected `is` Just (ErrorCall "other"),
    everywhere "a failure passes through nested scopes, wrapped at each" $ \c -> running c $ do
      r <- try . withScope $ \s -> forkIn_ s (withScope (\s' -> forkIn_ s' (throwM (ErrorCall "deep"))))
      case r of
        Left outer | Just inner <- fromException (failedWith outer) -> causeOf (Left inner) `is` Just (ErrorCall "deep")
        other -> liftIO (assertFailure (show other)),
    everywhere "an owner that forks when a thread has failed, before it is interrupted, gets the failure" $ \c -> running c $ do
      failed <- newGate
      r <- try . withScope $ \s -> mask_ $ do
        forkIn_ s (throwM (ErrorCall "x") `onException` openGate failed ())
        uninterruptibleMask_ (waitGate failed >> replicateM_ 20 yield)
        replicateM_ 10 (forkIn_ s (pure ()))
      causeOf r `is` Just (ErrorCall "x"),
    everywhere "a failure that comes when the body has been left hits nothing later" $ \c -> running c $ do
      r <- try . withScope $ \s -> mask_ (forkIn_ s (throwM (ErrorCall "x")) >> replicateM_ 3 yield)
      causeOf r `is` Just (ErrorCall "x")
      replicateM_ 10 yield
      sleep (microseconds' 1)
  ]
  where
    microseconds' = milliseconds

causeOf :: Either ChildFailed a -> Maybe ErrorCall
causeOf = either (fromException . failedWith) (const Nothing)

handles :: [TestTree]
handles =
  [ everywhere "after its end a scope takes no thread, and says so at the call" $ \c -> running c $ do
      s <- withScope pure
      r <- try (forkIn s (pure ()))
      liftIO (either (\e -> assertBool (show e) ("ScopeEnded" `isPrefixOf` show (e :: ScopeEnded))) (\_ -> assertFailure "forked") r)
      cancelScope s
      awaitAll s,
    everywhere "nor after cancelScope, and the body goes on" $ \c -> running c $ do
      r <- withScope $ \s -> cancelScope s >> try (forkIn_ s (pure ()))
      liftIO (either (\e -> "ScopeEnded" `isPrefixOf` show (e :: ScopeEnded)) (const False) r @?= True),
    everywhere "children may fork into the scope while the owner waits" $ \c -> running c $ do
      n <- liftIO (newIORef (0 :: Int))
      let grow :: Scope -> Int -> Thread ()
          grow s d = liftIO (atomicModifyIORef' n (\k -> (k + 1, ()))) >> when (d > 0) (replicateM_ 2 (forkIn_ s (yield >> grow s (d - 1))))
      withScope (`grow` 8)
      liftIO (readIORef n) >>= (`is` 511),
    everywhere "a result can be read after the end" $ \c -> running c $ do
      child <- withScope (\s -> forkIn s (pure 'x'))
      awaitChild child >>= (`is` 'x'),
    everywhere "waiting for a child can be cancelled, and leaves nothing behind" $ \c -> running c . withScope $ \s -> do
      child <- forkIn s (block :: Thread ())
      replicateM_ 100 $ do
        ended <- newGate
        t <- fork (awaitChild child `finally` openGate ended ())
        yield
        cancel t
        waitGate ended
      cancelScope s
  ]

-- | Programs in which two things race, run many times on one worker and on two. The
-- outcome must be one that is allowed; which of them came is not asserted.
litmus :: [TestTree]
litmus =
  [ allowed "(A) closing against arrival: the body runs to its end and is finalized, is cancelled in it, or never begins" [["never"], ["began", "cancelled"], ["began", "ended"]] $ \say -> do
      r <- try . withScope $ \s -> do
        _ <- forkInWith s defaultForkOptions {forkWorker = Just 1} ((say "began" >> yield >> say "ended") `catch` \Cancelled -> say "cancelled")
        throwM (ErrorCall "close") :: Thread ()
      r `is` Left (ErrorCall "close"),
    allowed "(B) the last child ends while a stranger forks: it runs whole, or is refused" [["ran"], ["refused"]] $ \say -> do
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
    allowed "(C) a failure against the end of the body: always raised, and nothing else" [["failed"]] $ \say -> do
      r <- try . withScope $ \s -> void (forkInWith s defaultForkOptions {forkWorker = Just 1} (throwM (ErrorCall "x") :: Thread ()))
      case r of
        Left (ChildFailed {}) -> say "failed"
        Right () -> say "lost"
      replicateM_ 3 yield,
    allowed "(D) a cancellation against the end of the scope: before it or after it" [["cancelled"], ["finished", "cancelled"], ["finished"]] $ \say -> do
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
    allowed "(E) a daemon that forks into its closing scope has not failed" [["end"]] $ \say -> do
      withScope $ \s -> do
        ready <- newGate
        _ <- forkDaemonIn s (mask_ (openGate ready () >> forever (yield >> forkIn_ s (pure ()))) :: Thread ())
        waitGate ready
        cancelScope s
      say "end"
  ]
  where
    allowed name outcomes program = testCase name . forM_ [Config Epoll 1, Config Epoll 2] $ \c -> do
      logs <- running c . replicateM 200 $ do
        (say, said) <- liftIO newLog
        () <- program say
        liftIO said
      forM_ logs $ \got -> unless (got' got `elem` outcomes) (assertFailure (show got <> " is not one of " <> show outcomes))
    -- (A) says nothing when the thread never began.
    got' [] = ["never"]
    got' es = es

-- | What a thread of a random tree does.
data Tree = Tree Act [(Bool, Tree)]
  deriving stock (Show)

data Act = Returns | Fails | Blocks | CancelsAll | Yields Int
  deriving stock (Eq, Show)

instance Arbitrary Tree where
  arbitrary = sized node
    where
      node n = do
        act <- frequency [(4, pure Returns), (2, pure Fails), (2, pure Blocks), (1, pure CancelsAll), (4, Yields <$> choose (0, 5))]
        k <- choose (0, min 3 n)
        Tree act <$> vectorOf k ((,) <$> arbitrary <*> node (n `div` (k + 1)))
  shrink (Tree a cs) = map snd cs <> [Tree a cs' | cs' <- shrinkList (const []) cs]

-- | Every thread of a tree has a scope of its own for its children. However it ends,
-- at the end of the outermost scope the threads that have begun have all ended, and
-- each ran its finalizer once.
trees :: Property
trees = forAll (choose (1, 2)) $ \workers -> property $ \tree -> monadicIO $ do
  (begun, ended) <- Q.run $ do
    begun <- newIORef (0 :: Int)
    ended <- newIORef (0 :: Int)
    let bump ref = liftIO (atomicModifyIORef' ref (\n -> (n + 1, ())))
        grow :: Int -> Tree -> Thread ()
        grow i (Tree act children) = bracket_ (bump begun) (yield >> bump ended) . withScope $ \s -> do
          forM_ (zip [i ..] children) $ \(j, (daemon, child)) ->
            if daemon
              then void (forkDaemonInWith s defaultForkOptions {forkWorker = Just j} (grow j child))
              else void (forkInWith s defaultForkOptions {forkWorker = Just j} (grow j child))
          case act of
            Returns -> pure ()
            Fails -> throwM (ErrorCall "tree")
            Blocks -> if null children then yield else void (withTimeLimit block)
            CancelsAll -> cancelScope s
            Yields n -> replicateM_ n yield
    running (Config Epoll workers) $ do
      _ <- try (grow 0 tree) :: Thread (Either SomeException ())
      (,) <$> liftIO (readIORef begun) <*> liftIO (readIORef ended)
  Q.monitor (counterexample (show (begun, ended)))
  Q.monitor (classify (begun > 5) "more than five threads")
  Q.assert (begun == ended)
  where
    -- Blocks until somebody else ends it, and for a moment at most.
    withTimeLimit body = withScope $ \s -> do
      _ <- forkDaemonIn s body :: Thread (Child ())
      replicateM_ 5 yield
