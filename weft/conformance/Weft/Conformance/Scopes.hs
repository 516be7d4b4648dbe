{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Scopes own their threads
--
-- The end of a scope comes after the end of its threads, in every way a scope can
-- end; what its handles do then; and random trees of scopes.
module Weft.Conformance.Scopes (scopes) where

import Control.Exception (ErrorCall (..), SomeException)
import Control.Monad (forM, forM_, forever, replicateM_, void, when)
import Data.IORef
import Data.List (isInfixOf, sort)
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Mask (uninterruptibleMask_)
import Weft.Scope

-- | The life of scopes.
scopes :: World -> TestTree
scopes world =
  testGroup
    "scopes"
    [ testGroup "ends" (ends world),
      testGroup "handles" (handles world),
      testProperty "random trees of scopes leave nobody behind" (trees world)
    ]

ends :: World -> [TestTree]
ends world =
  [ testCase "the scope waits for its children when the body has returned" . running world $ do
      done <- liftIO (newIORef (0 :: Int))
      r <- withScope $ \s -> do
        forM_ [1 .. 10 :: Int] $ \i -> forkInWith s defaultForkOptions {forkWorker = Just i} (replicateM_ i yield >> liftIO (atomicModifyIORef' done (\n -> (n + 1, ()))))
        pure 'r'
      r `is` 'r'
      liftIO (readIORef done) >>= (`is` 10),
    testCase "daemons are cancelled then, and their finalizers run before the end" . running world $ do
      (say, said) <- liftIO newLog
      withScope $ \s -> do
        ready <- newGate
        _ <- forkDaemonIn s ((openGate ready () >> block) `finally` (yield >> sleep (milliseconds 1) >> say "finalizer"))
        waitGate ready
        _ <- forkIn s (yield >> say "child")
        say "body"
      say "end"
      (parts, rest) <- splitAt 2 <$> liftIO said
      (if anyOrder world then sort parts else parts) `is` ["body", "child"]
      rest `is` ["finalizer", "end"],
    testCase "an exception of the body cancels the children and is raised after their end" . running world $ do
      (say, said) <- liftIO newLog
      r <- try . withScope $ \s -> do
        ready <- newGate
        forkIn_ s ((openGate ready () >> block) `finally` (yield >> say "finalizer"))
        waitGate ready
        throwM (ErrorCall "body") :: Thread ()
      r `is` Left (ErrorCall "body")
      liftIO said >>= (`is` ["finalizer"]),
    testCase "cancelling the owner in its body ends the children" (running world (owner True)),
    testCase "and while it waits for them" (running world (owner False)),
    testCase "a cancelled owner waits for finalizers, though it is cancelled again" . running world $ do
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
    testCase "nested: the inner ends before the outer, both after their threads" . running world $ do
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
    testCase "awaitAll waits for children and not for daemons" . running world . withScope $ \s -> do
      n <- liftIO (newIORef (0 :: Int))
      _ <- forkDaemonIn s (forever (sleep (seconds 1000)))
      replicateM_ 5 (forkIn_ s (yield >> liftIO (atomicModifyIORef' n (\k -> (k + 1, ())))))
      awaitAll s
      liftIO (readIORef n) >>= (`is` 5),
    testCase "cancelScope cancels all and leaves the body alone" . running world . withScope $ \s -> do
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

handles :: World -> [TestTree]
handles world =
  [ testCase "after its end a scope takes no thread, and says so at the call" . running world $ do
      s <- withScope pure
      r <- try (forkIn s (pure ()))
      liftIO (either (\e -> assertBool (show e) ("has ended" `isInfixOf` show (e :: ScopeEnded))) (\_ -> assertFailure "forked") r)
      cancelScope s
      awaitAll s,
    testCase "nor after cancelScope, and the body goes on" . running world $ do
      r <- withScope $ \s -> cancelScope s >> try (forkIn_ s (pure ()))
      liftIO (either (\(_ :: ScopeEnded) -> True) (const False) r @?= True),
    testCase "children may fork into the scope while the owner waits" . running world $ do
      n <- liftIO (newIORef (0 :: Int))
      let grow :: Scope -> Int -> Thread ()
          grow s d = liftIO (atomicModifyIORef' n (\k -> (k + 1, ()))) >> when (d > 0) (replicateM_ 2 (forkIn_ s (yield >> grow s (d - 1))))
      withScope (`grow` 8)
      liftIO (readIORef n) >>= (`is` 511),
    testCase "a result can be read after the end" . running world $ do
      child <- withScope (\s -> forkIn s (pure 'x'))
      awaitChild child >>= (`is` 'x'),
    testCase "waiting for a child can be cancelled, and leaves nothing behind" . running world . withScope $ \s -> do
      child <- forkIn s (block :: Thread ())
      replicateM_ 100 $ do
        ended <- newGate
        t <- fork (awaitChild child `finally` openGate ended ())
        yield
        cancel t
        waitGate ended
      cancelScope s
  ]

-- | The act of a thread in a random tree, and its children.
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
trees :: World -> Property
trees world = property $ \tree -> monadicIO $ do
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
    running world $ do
      _ <- try (grow 0 tree) :: Thread (Either SomeException ())
      (,) <$> liftIO (readIORef begun) <*> liftIO (readIORef ended)
  Q.monitor (counterexample (show (begun, ended)))
  Q.monitor (classify (begun > 5) "more than five threads")
  Q.assert (begun == ended)
  where
    -- Blocks until another thread ends it, and for a moment at most.
    withTimeLimit body = withScope $ \s -> do
      _ <- forkDaemonIn s body :: Thread (Child ())
      replicateM_ 5 yield
