-- |
-- Description : Actions that another thread of GHC's performs, cancelled by the thousand
--
-- Note [Actions elsewhere] in "Weft.Internal.Core.Interrupt": an action is masked as its thread
-- is, and one that has succeeded has its result delivered. So a masked acquisition is either
-- interrupted with nothing done, or released. What is counted: permits.
module Test.Elsewhere (tests) where

import Control.Concurrent (MVar, forkIO, newEmptyMVar, newMVar, putMVar, takeMVar, tryReadMVar)
import Control.Concurrent qualified as Ghc
import Control.Exception
import Control.Monad
import Data.IORef
import Data.Maybe (isJust)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft (Thread, liftIO)
import Weft qualified
import Weft.Conformance.Check (Dice, newDice, roll)
import Weft.Conformance.Waiting (isCondemned)
import Weft.MVar qualified as Weft
import Weft.Mask qualified as Weft
import Weft.Outside

tests :: TestTree
tests =
  testGroup
    "Actions on another thread of GHC's"
    [ testGroup
        "what is acquired under a mask is released, however often it is cancelled"
        [ testCase (describeConfig c <> ", " <> name) (test c)
          | c <- configurations,
            (name, test) <-
              [ ("blocking", permits (const Weft.blocking)),
                ("onGhcThread", permits (\runner act -> onGhcThread runner (\_ -> act))),
                ("runThread", permitsOutside)
              ]
        ],
      testGroup
        "the masking state is that of the thread"
        [ testCase name $ runningQuietly (withRunner (states . way)) >>= (@?= [Unmasked, MaskedInterruptible, MaskedUninterruptible])
          | (name, way) <- [("blocking", const Weft.blocking), ("onGhcThread", \r act -> onGhcThread r (\_ -> act))] :: [(String, Runner -> IO MaskingState -> Thread MaskingState)]
        ],
      testCase "runThread: a thread that has succeeded answers, and the exception comes after that" afterwards
    ]
  where
    states way = mapM (\mask' -> mask' (way getMaskingState)) [id, Weft.mask_, Weft.uninterruptibleMask_]

-- | How many cancellations and exceptions are to arrive.
arrivals :: Int
arrivals = 1_000

-- | Twelve threads take and give back four permits.
permits :: (Runner -> IO () -> Thread ()) -> Config -> Assertion
permits way config = do
  slots <- replicateM 4 (newMVar ())
  acquired <- newIORef (0 :: Int)
  released <- newIORef (0 :: Int)
  hits <- newIORef (0 :: Int)
  running config . withRunner $ \runner -> do
    over <- liftIO (newIORef False)
    let count ref = atomicModifyIORef' ref (\n -> (n + 1, ()))
        use slot = Weft.bracket (way runner (takeMVar slot >> count acquired)) (\() -> liftIO (count released >> putMVar slot ())) (\() -> Weft.yield)
        loop slot = do
          stop <- liftIO (readIORef over)
          unless stop $ ((use slot >> Weft.allowInterrupt) `Weft.catch` \Weft.Cancelled -> liftIO (count hits)) >> loop slot
    started <- forM (zip [0 ..] (concat (replicate 3 slots))) $ \(i, slot) -> do
      done <- newGate
      t <- Weft.forkWith Weft.defaultForkOptions {Weft.forkWorker = Just i} (Weft.mask_ (loop slot >> openGate done ()))
      pure (t, done)
    dice <- newDice 5
    cancelAtRandom dice (readIORef hits) (map fst started)
    liftIO (writeIORef over True)
    forM_ started $ \(t, done) -> Weft.cancel t >> waitGate done
  (,) <$> readIORef acquired <*> readIORef released >>= uncurry (@?=)
  full <- mapM tryReadMVar slots
  assertBool "a permit is gone" (all isJust full)

-- | Until that many have arrived: of several for one thread some come to nothing.
cancelAtRandom :: Dice -> IO Int -> [Weft.ThreadId] -> Thread ()
cancelAtRandom dice arrived targets = go
  where
    go = do
      target <- (targets !!) <$> roll dice (length targets)
      pause <- roll dice 3
      condemned <- liftIO (isCondemned target)
      if condemned then Weft.yield else Weft.cancel target >> when (pause == 0) Weft.yield
      n <- liftIO arrived
      when (n < arrivals) go

data Boom = Boom
  deriving stock (Eq, Show)

instance Exception Boom

-- | Threads of GHC's do the same, by threads of Weft.
permitsOutside :: Config -> Assertion
permitsOutside config = do
  acquired <- newIORef (0 :: Int)
  released <- newIORef (0 :: Int)
  hits <- newIORef (0 :: Int)
  left <- running config . withRunner $ \runner -> do
    slots <- replicateM 2 (Weft.newMVar ())
    over <- liftIO (newIORef False)
    let count ref = atomicModifyIORef' ref (\n -> (n + 1, ()))
        acquire slot = Weft.takeMVar slot >> liftIO (count acquired)
        release slot = liftIO (count released) >> Weft.putMVar slot ()
        use slot = bracket (runThread runner (acquire slot)) (\() -> uninterruptibleMask_ (runThread runner (release slot))) (\() -> allowInterrupt)
        loop slot = do
          stop <- readIORef over
          unless stop $ (use slot `catch` \Boom -> count hits) >> loop slot
    started <- liftIO . forM (concat (replicate 3 slots)) $ \slot -> do
      done <- newEmptyMVar
      t <- mask_ (forkIO (loop slot >> putMVar done ()))
      pure (t, done)
    -- Each throw returns when it has arrived.
    Weft.blocking $ do
      forM_ [1 .. arrivals `div` 2] $ \i -> do
        -- However slow the machine is, something is acquired between some of the rounds.
        when (i `mod` 8 == 0) $ readIORef acquired >>= grows acquired
        forM_ started $ \(t, _) -> do
          replicateM_ (i `mod` 8) Ghc.yield
          throwTo t Boom
      writeIORef over True
      forM_ started $ \(t, done) -> forkIO (throwTo t Boom) >> takeMVar (done :: MVar ())
    mapM Weft.tryTakeMVar slots
  (,) <$> readIORef acquired <*> readIORef released >>= uncurry (@?=)
  left @?= [Just (), Just ()]
  n <- readIORef hits
  k <- readIORef acquired
  assertBool ("both must occur often: " <> show (n, k)) (n > arrivals && k > 20)
  where
    grows ref seen = readIORef ref >>= \now -> when (now == seen) (Ghc.yield >> grows ref seen)

-- | A thread throws at a masked caller while it waits for a thread that cannot be interrupted:
-- the caller has the result, and the exception comes at the end of the mask, once.
afterwards :: Assertion
afterwards = do
  outcomes <- runningQuietly . withRunner $ \runner -> replicateM 50 $ do
    begun <- Weft.newEmptyMVar
    gate <- Weft.newEmptyMVar
    (caller, end) <- liftIO $ do
      end <- newEmptyMVar
      caller <- forkIO $ do
        got <- newIORef False
        outcome <- try . mask_ $ do
          runThread runner (Weft.uninterruptibleMask_ (Weft.putMVar begun () >> Weft.takeMVar gate))
          writeIORef got True
        interruptible (pure ())
        readIORef got >>= putMVar end . (outcome,)
      pure (caller, end)
    Weft.takeMVar begun
    Weft.blocking (throwTo caller Boom)
    Weft.putMVar gate ()
    Weft.blocking (takeMVar end)
  outcomes @?= replicate 50 (Left Boom, True)
