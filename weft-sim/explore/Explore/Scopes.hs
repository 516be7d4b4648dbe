-- |
-- Description : Scopes under exploration
module Explore.Scopes (scenarios) where

import Control.Exception (ErrorCall (..), Exception (..), SomeException)
import Control.Monad (forM_, replicateM_, unless, void, when)
import Data.ByteString.Short (toShort)
import Data.IORef
import Data.List (sort)
import Data.Text qualified as Text
import Data.Text.Encoding (encodeUtf8)
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Internal.Core.Trace (labelText)
import Weft.Mask (interruptible, mask_, uninterruptibleMask_)
import Weft.Scope
import Weft.Time (after, now)

scenarios :: [Scenario]
scenarios =
  [ small "scopes/waits" 2 "a scope ends after its threads, and these have run" waits,
    small "scopes/failure" 2 "a failure cancels the others, and is raised in the owner with its label" failure,
    small "scopes/two-failures" 2 "of two failures one is raised, and it is one of them" twoFailures,
    small "scopes/daemon" 2 "a daemon is cancelled when the children have ended, and its finalizer has run" daemon,
    small "scopes/late-fork" 2 "a thread that forks into a scope that is ending gets ScopeEnded or is ended with it" lateFork,
    small "scopes/owner-cancelled" 2 "when the owner is cancelled its threads have ended before it has" ownerCancelled,
    small "scopes/masked-fork" 2 "what a thread that is forked masked was given is released, though its scope ends first" maskedFork,
    small "scopes/cancel-scope" 2 "cancelScope ends the threads, from inside or outside" cancelling,
    drawn "scopes/trees" "no thread of a tree outlives its scope, each finalizer runs once, no failure is lost" trees
  ]

waits :: Thread Complaints
waits = do
  log' <- newLog
  withScope $ \scope -> do
    forkIn_ scope (yield >> say log' 'a')
    forkIn_ scope (say log' 'b')
  expectEqual "who had run when the scope ended" "ab" . sort <$> said log'

labelled :: String -> ForkOptions
labelled name = defaultForkOptions {forkLabel = toShort (encodeUtf8 (Text.pack name))}

failure :: Thread Complaints
failure = do
  log' <- newLog
  begin <- now
  outcome <- try . withScope $ \scope -> do
    _ <- forkInWith scope (labelled "bad") (yield >> throwM (ErrorCall "no"))
    _ <- forkInWith scope (labelled "good") (sleep (seconds 10) `finally` say log' ())
    sleep (seconds 20)
  end <- now
  finalizers <- said log'
  pure $
    expect "the others were not interrupted" (end < after (seconds 5) begin) <> expect ("finalizers that have run: " <> show (length finalizers)) (length finalizers <= 1) <> case outcome of
      Left f -> expectEqual "label of the failure" (Text.pack "bad") (labelText (failedLabel f))
      Right () -> ["the failure was lost"]

twoFailures :: Thread Complaints
twoFailures = do
  outcome <- try . withScope $ \scope -> do
    forM_ ["one", "two"] $ \name -> forkInWith scope (labelled name) (throwM (ErrorCall name))
    yield
  pure $ case outcome of
    Left f -> expect ("the failure is none of them: " <> show f) (labelText (failedLabel f) `elem` map Text.pack ["one", "two"])
    Right () -> ["both failures were lost"]

daemon :: Thread Complaints
daemon = do
  log' <- newLog
  withScope $ \scope -> do
    _ <- forkDaemonIn scope ((say log' 'b' >> sleep (seconds 100)) `finally` (yield >> say log' 'f'))
    forkIn_ scope (yield >> say log' 'c')
  got <- said log'
  pure (expect ("began, child, finalizer: " <> got) ('c' `elem` got && (('b' `elem` got) `implies` (last (filter (/= 'c') got) == 'f'))))

implies :: Bool -> Bool -> Bool
implies a b = not a || b

lateFork :: Thread Complaints
lateFork = do
  alive <- liftIO (newIORef (0 :: Int))
  log' <- newLog
  let body = bracket_ (liftIO (modifyIORef' alive (+ 1))) (liftIO (modifyIORef' alive (subtract 1))) yield
  outside <- liftIO (newIORef Nothing)
  _ <- forkOn 1 $ do
    given <- liftIO (readIORef outside)
    forM_ given $ \scope -> try (forkIn_ scope body) >>= either (\(ScopeEnded _) -> say log' 'e') (\() -> say log' 'f')
  withScope $ \scope -> do
    liftIO (writeIORef outside (Just scope))
    forkIn_ scope body
  left <- liftIO (readIORef alive)
  quiet
  later <- liftIO (readIORef alive)
  pure (expectEqual "threads alive after the end of their scope" (0, 0) (left, later))

ownerCancelled :: Thread Complaints
ownerCancelled = do
  log' <- newLog
  owner <- forkOn 1 . flip finally (say log' 'o') . withScope $ \scope -> do
    forkIn_ scope ((say log' 'b' >> sleep (seconds 100)) `finally` (yield >> say log' 'f'))
    yield
  _ <- forkOn 0 (yield >> cancel owner)
  quiet
  got <- said log'
  pure (expect ("began, finalizer, owner: " <> got) (got `elem` ["o", "bfo", "fo", ""]))

maskedFork :: Thread Complaints
maskedFork = do
  held <- liftIO (newIORef (0 :: Int))
  let count by = liftIO (modifyIORef' held (+ by))
  withScope $ \scope -> do
    mask_ $ do
      count 1
      forkIn_ scope (interruptible (sleep (seconds 100)) `finally` count (-1))
    cancelScope scope
  expectEqual "what is still held when the scope has ended" 0 <$> liftIO (readIORef held)

cancelling :: Thread Complaints
cancelling = do
  log' <- newLog
  withScope $ \scope -> do
    forkIn_ scope ((say log' 'b' >> sleep (seconds 100)) `finally` say log' 'f')
    forkIn_ scope (yield >> cancelScope scope)
    awaitAll scope
  got <- said log'
  pure (expect ("began, finalizer: " <> got) (got `elem` ["", "f", "bf"]))

-- A tree of scopes -------------------------------------------------------------------

data Leaf
  = Yields !Int
  | Sleeps !Int
  | Fails
  | Exits

-- | A step of a body within its scope.
data Twig
  = Child !Bool Branch
  | Daemon Branch
  | Tries Branch
  | Awaits
  | CancelsScope
  | Then Leaf

-- | A thread: it has a masked finalizer that may wait, and does something, or owns a scope.
data Branch = Branch
  { branchSlow :: !Bool,
    branchDoes :: Either Leaf [Twig]
  }

drawLeaf :: Draw Leaf
drawLeaf = weighted [(4, Yields <$> between 0 3), (3, Sleeps <$> between 1 5), (2, pure Fails), (1, pure Exits)]

drawBranch :: Int -> Draw Branch
drawBranch depth = Branch <$> chance 30 <*> weighted ((3, Left <$> drawLeaf) : [(3, Right <$> several 1 3 (drawTwig (depth - 1))) | depth > 0])

drawTwig :: Int -> Draw Twig
drawTwig depth =
  weighted
    [ (5, Child <$> chance 30 <*> drawBranch depth),
      (2, Daemon <$> drawBranch depth),
      (2, Tries <$> drawBranch depth),
      (1, pure Awaits),
      (1, pure CancelsScope),
      (2, Then <$> drawLeaf)
    ]

-- | Counts of the whole tree.
data Tally = Tally {tallyBegun, tallyEnded, tallyAlive :: !(IORef Int), tallyWrong :: !(Log String)}

trees :: Draw (Thread Complaints)
trees = do
  twigs <- several 1 4 (drawTwig 2)
  blows <- several 0 2 (between 0 15)
  pure $ do
    tally <- Tally <$> liftIO (newIORef 0) <*> liftIO (newIORef 0) <*> liftIO (newIORef 0) <*> newLog
    done <- newLog
    owner <- forkOn 0 (void (try (owning tally twigs) :: Thread (Either ChildFailed ())) `catch` quietly >> say done ())
    forM_ (zip [1 ..] blows) $ \(w, turns) -> forkOn w (replicateM_ turns yield >> cancel owner)
    quiet
    alive <- liftIO (readIORef (tallyAlive tally))
    begun <- liftIO (readIORef (tallyBegun tally))
    ended <- liftIO (readIORef (tallyEnded tally))
    wrong <- said (tallyWrong tally)
    pure (wrong <> expectEqual "threads alive at the end" 0 alive <> expectEqual "finalizers, for the threads begun" begun ended)
  where
    quietly :: ErrorCall -> Thread ()
    quietly _ = pure ()

owning :: Tally -> [Twig] -> Thread ()
owning tally twigs = mask $ \restore -> do
  mine <- liftIO (newIORef (0 :: Int))
  failed <- liftIO (newIORef False)
  outcome <- try (restore (withScope (\scope -> forM_ twigs (\t -> twig scope mine failed t `catch` refused))))
  left <- liftIO (readIORef mine)
  bad <- liftIO (readIORef failed)
  unless (left == 0) $ say (tallyWrong tally) (show left <> " threads were alive after the end of their scope")
  case outcome of
    Right () -> do
      when bad $ say (tallyWrong tally) "a failure was lost"
    Left e -> throwM (e :: SomeException)
  where
    -- The scope was cancelled, or a thread of it has failed, which is raised at its end.
    refused (ScopeEnded _) = pure ()
    twig scope mine failed = \case
      Child plain b
        | plain -> forkIn_ scope (counting mine failed b)
        | otherwise -> void (forkIn scope (counting mine failed b))
      Daemon b -> void (forkDaemonIn scope (counting mine failed b))
      Tries b -> void (forkTryIn scope (expected mine b) :: Thread (Child (Either ErrorCall ())))
      Awaits -> awaitAll scope
      CancelsScope -> cancelScope scope
      Then leaf -> leafOf leaf
    counting mine failed b =
      thread tally mine b `catch` \e -> do
        -- In the handler, masked: what ends a thread so is a failure of its scope.
        unless (harmless e) (liftIO (writeIORef failed True))
        throwM e
    -- Only ErrorCall is a result here: that of a scope within is none.
    expected mine b =
      thread tally mine b `catch` \e -> case fromException e of
        Just (ChildFailed {}) -> throwM (ErrorCall "a scope within has failed")
        Nothing -> throwM (e :: SomeException)

harmless :: SomeException -> Bool
harmless e = case fromException e of
  Just Cancelled -> True
  Nothing -> case fromException e of
    Just (ScopeEnded _) -> True
    Nothing -> show e == "ThreadExit" || isInterrupt
  where
    isInterrupt = take 9 (show e) == "a thread "

thread :: Tally -> IORef Int -> Branch -> Thread ()
thread tally mine b = bracket_ begin end $ either leafOf (owning tally) (branchDoes b)
  where
    begin = liftIO $ do
      modifyIORef' (tallyBegun tally) (+ 1)
      modifyIORef' (tallyAlive tally) (+ 1)
      modifyIORef' mine (+ 1)
    end = do
      if branchSlow b then uninterruptibleMask_ (sleep (milliseconds 3)) else yield
      liftIO $ do
        modifyIORef' (tallyEnded tally) (+ 1)
        modifyIORef' (tallyAlive tally) (subtract 1)
        modifyIORef' mine (subtract 1)

leafOf :: Leaf -> Thread ()
leafOf = \case
  Yields n -> replicateM_ n yield
  Sleeps n -> sleep (milliseconds n)
  Fails -> throwM (ErrorCall "leaf")
  Exits -> exit
