-- |
-- Description : Threads of GHC's for threads of Weft
--
-- The promises of 'onGhcThread': its action may do what GHC's threads may, has all operations
-- of Weft, ends before its thread goes on, and is interrupted with it.
module Test.Guests (tests) where

import Control.Concurrent (forkIO, myThreadId, newEmptyMVar, putMVar, readMVar, takeMVar, threadDelay)
import Control.Concurrent qualified as Ghc
import Control.Exception
import Control.Monad
import Data.IORef
import Data.List (nub, sort)
import GHC.Conc qualified as Ghc (BlockReason (..), ThreadStatus (..), threadStatus)
import System.Timeout qualified as Ghc
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft (Thread, liftIO)
import Weft qualified
import Weft.Channel qualified as Weft
import Weft.IO (CannotSuspend (..), await)
import Weft.IO qualified as IO
import Weft.Internal.Core.Direct.Hosted (Performer (..), hosted)
import Weft.Internal.Os.Masked (pendAgain)
import Weft.MVar qualified as Weft
import Weft.Outside (onGhcThread, runThread, withRunner)
import Weft.Time (milliseconds)

tests :: TestTree
tests =
  testGroup
    "Threads of GHC's for threads of Weft"
    (testCase "nothing comes between an action and its await" unescaped : [testGroup (describeConfig c) (map (\(name, test) -> testCase name (test c)) promises) | c <- configurations])

promises :: [(String, Config -> Assertion)]
promises =
  [ ("results and exceptions come back", results),
    ("it blocks, and its worker goes on", blocks),
    ("await, by what it was given and by itself, masked or not", awaits),
    ("await, masked uninterruptibly, while an exception is pending", firmly),
    ("it is a thread of its own, the same throughout, unmasked", identity),
    ("a time limit of GHC's ends its await, and what that has begun", limited),
    ("a cancellation is thrown to it, and comes when it has ended", cancelled),
    ("one that ends by itself although it was cancelled", stubborn),
    ("await where nothing can be suspended still says so", nowhere),
    ("a thousand at a time", many),
    ("what is thrown at it when it has ended hurts nobody", tardy),
    ("a cancellation that comes too late for it does not hit the next", overtaken),
    ("who interrupts a thread that has just ended is answered", answered)
  ]

data Boom = Boom
  deriving stock (Eq, Show)

instance Exception Boom

guest :: ((forall x. Thread x -> IO x) -> IO a) -> Thread a
guest action = withRunner (`onGhcThread` action)

results :: Config -> Assertion
results config = do
  outcome <- running config $ do
    a <- guest (\_ -> pure 'a')
    e <- Weft.try (guest (\_ -> throwIO Boom))
    n <- guest (\perform -> perform (Weft.yield >> pure (1 :: Int)))
    f <- Weft.try (guest (\perform -> perform (Weft.throwM Boom)))
    pure (a, e :: Either Boom (), n, f :: Either Boom ())
  outcome @?= ('a', Left Boom, 1, Left Boom)

-- | The worker's other thread is what it waits for.
blocks :: Config -> Assertion
blocks config = do
  said <- running config $ do
    box <- liftIO newEmptyMVar
    back <- Weft.newEmptyMVar
    Weft.fork_ (liftIO (putMVar box 'b') >> Weft.putMVar back 'c')
    guest $ \perform -> (,) <$> takeMVar box <*> perform (Weft.takeMVar back)
  said @?= ('b', 'c')

awaits :: Config -> Assertion
awaits config = do
  seen <- running config $ guest $ \perform -> do
    a <- perform (pure 'a')
    b <- await (Weft.yield >> pure 'b')
    c <- mask_ ((,) <$> await (Weft.yield >> pure 'c') <*> getMaskingState)
    d <- uninterruptibleMask_ ((,) <$> await (pure 'd') <*> getMaskingState)
    e <- try (await (Weft.throwM Boom))
    IO.yield
    f <- IO.concurrently (pure 'f') (IO.sleep (milliseconds 1))
    released <- newIORef False
    g <- bracket (await (pure 'g')) (\_ -> await Weft.yield >> writeIORef released True) pure
    state <- getMaskingState
    done <- readIORef released
    pure (a, b, c, d, e :: Either Boom (), f, g, state, done)
  seen @?= ('a', 'b', ('c', MaskedInterruptible), ('d', MaskedUninterruptible), Left Boom, ('f', ()), 'g', Unmasked, True)

-- | The awaits wait, without being interrupted, and what is pending comes after the mask.
firmly :: Config -> Assertion
firmly config = do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  running config $ do
    gate <- Weft.newEmptyMVar
    outcome <- guest $ \perform -> try @Boom $ do
      uninterruptibleMask_ $ do
        pendAgain (toException Boom)
        await (Weft.fork_ (Weft.yield >> liftIO (say "opens") >> Weft.putMVar gate ()))
        await (Weft.takeMVar gate) >> say "awaited"
        perform Weft.yield >> IO.yield >> say "yielded"
        try (await (Weft.throwM (ErrorCall "own"))) >>= either (\(ErrorCall e) -> say e) pure
        getMaskingState >>= say . show
      say "goes on"
    liftIO (say (show outcome))
  readIORef said >>= (@?= ["opens", "awaited", "yielded", "own", "MaskedUninterruptible", "Left Boom"]) . reverse

identity :: Config -> Assertion
identity config = do
  (outer, inner, states) <- running config $ do
    outer <- liftIO myThreadId
    (inner, states) <- guest $ \perform -> do
      before <- myThreadId
      state <- getMaskingState
      perform Weft.yield
      await (Weft.sleep (milliseconds 1))
      later <- myThreadId
      state' <- getMaskingState
      pure ([before, later], [state, state'])
    pure (outer, inner, states)
  length (nub inner) @?= 1
  assertBool "a thread of its own" (outer `notElem` inner)
  states @?= [Unmasked, Unmasked]

-- | The channel has no sender; nothing waits in it afterwards.
limited :: Config -> Assertion
limited config = do
  (early, late, value) <- running config $ do
    channel <- Weft.newChannel 1
    guest $ \perform -> do
      early <- Ghc.timeout 2_000 (await (Weft.receive channel))
      late <- Ghc.timeout 60_000_000 (await (Weft.yield >> pure 'l'))
      perform (Weft.send channel 'v')
      value <- await (Weft.receive channel)
      pure (early, late, value)
  (early, late, value) @?= (Nothing, Just 'l', Just 'v')

cancelled :: Config -> Assertion
cancelled config = do
  said <- newIORef []
  let say x = atomicModifyIORef' said (\l -> (x : l, ()))
  running config $ do
    begun <- Weft.newEmptyMVar
    ended <- Weft.newEmptyMVar
    child <-
      Weft.fork $
        guest (\perform -> (perform (Weft.putMVar begun ()) >> forever (threadDelay 1_000_000)) `finally` (await Weft.yield >> say "released"))
          `Weft.finally` (liftIO (say "went on") >> Weft.putMVar ended ())
    Weft.takeMVar begun
    Weft.cancel child
    Weft.takeMVar ended
  readIORef said >>= (@?= ["released", "went on"]) . reverse

-- | Its result is delivered, and the cancellation is on its way all the same.
stubborn :: Config -> Assertion
stubborn config = do
  end <- running config $ do
    begun <- Weft.newEmptyMVar
    over <- liftIO newEmptyMVar
    result <- Weft.newEmptyMVar
    child <- Weft.fork $ Weft.mask $ \restore -> do
      outcome <- Weft.try (guest (\perform -> uninterruptibleMask_ (perform (Weft.putMVar begun ()) >> readMVar over)))
      later <- Weft.try (restore Weft.yield)
      Weft.putMVar result (either (\e -> show (e :: SomeException)) show outcome, either (\Weft.Cancelled -> "cancelled") show later)
    Weft.takeMVar begun
    Weft.cancel child
    liftIO (putMVar over 'o')
    Weft.takeMVar result
  end @?= ("'o'", "cancelled")

nowhere :: Config -> Assertion
nowhere config = do
  inFork <- running config $ guest $ \_ -> do
    box <- newEmptyMVar
    _ <- forkIO (try (await Weft.yield) >>= putMVar box)
    takeMVar box
  inFork @?= Left NothingToSuspend

many :: Config -> Assertion
many config = do
  results' <- running config $ do
    gate <- liftIO newEmptyMVar
    replies <- Weft.newUnboundedChannel
    withRunner $ \runner -> do
      forM_ [1 .. 1_000 :: Int] $ \n -> Weft.fork_ $ do
        m <- onGhcThread runner (\perform -> readMVar gate >> perform Weft.yield >> Ghc.yield >> await (pure n))
        Weft.send replies m
      liftIO (putMVar gate ())
      replicateM 1_000 (Weft.receive replies)
  sort results' @?= map Just [1 .. 1_000]

-- | The thread of GHC's may serve another by then.
tardy :: Config -> Assertion
tardy config = do
  ends <- running config $ withRunner $ \runner -> do
    first <- onGhcThread runner (\_ -> myThreadId)
    -- Received while it waits, or dead already: in either case this returns.
    liftIO $ do
      thrown <- newEmptyMVar
      _ <- forkIO (throwTo first Boom >> putMVar thrown ())
      takeMVar thrown
    replicateM 3 (onGhcThread runner (\perform -> perform Weft.yield >> pure 'e'))
  ends @?= "eee"

-- | The exception that interrupts an action is on its way when the action ends; the thread of GHC's, on
-- another capability, is given the next one at once.
overtaken :: Config -> Assertion
overtaken config = do
  outcomes <- running config $ withRunner $ \runner -> replicateM 100 $ do
    begun <- Weft.newEmptyMVar
    ended <- Weft.newEmptyMVar
    over <- liftIO newEmptyMVar
    child <-
      Weft.fork $
        onGhcThread runner (\perform -> uninterruptibleMask_ (perform (Weft.putMVar begun ()) >> readMVar over))
          `Weft.finally` Weft.putMVar ended ()
    Weft.takeMVar begun
    Weft.cancel child
    Weft.yield
    liftIO (putMVar over ())
    -- The worker stays awake, so that GHC's scheduler does not run here.
    let wait = Weft.tryTakeMVar ended >>= maybe (Weft.yield >> wait) pure
    wait
    Weft.try (onGhcThread runner (\_ -> evaluate (sum [1 .. 100_000 :: Int])))
  [displayException e | Left e <- outcomes :: [Either SomeException Int]] @?= []

-- | An exception thrown at the thread arrives in the action, wherever that is.
unescaped :: Assertion
unescaped = do
  arrived <- newIORef (0 :: Int)
  ended <- newEmptyMVar
  let performer = Performer (\_ -> throwIO Boom)
      action =
        let loop = do
              n <- readIORef arrived
              unless (n >= count) $ do
                interruptible (void (try @Boom (await Weft.yield))) `catch` \(ErrorCall _) -> writeIORef arrived (n + 1)
                loop
         in loop
  capabilities <- Ghc.getNumCapabilities
  when (capabilities < 2) (Ghc.setNumCapabilities 2)
  begun <- newEmptyMVar
  -- From another capability, so that it does not arrive between two time slices only.
  target <- mask_ (Ghc.forkOnWithUnmask 0 (\unmask -> try (unmask (hosted performer (mask_ (putMVar begun () >> action)))) >>= putMVar ended))
  _ <- Ghc.forkOn 1 (takeMVar begun >> replicateM_ count (throwTo target (ErrorCall "thrown")))
  takeMVar ended >>= either (\e -> assertFailure ("escaped: " <> show (e :: SomeException))) pure
  readIORef arrived >>= (@?= count)
  where
    count = 2_000

-- | With this fuel one in sixteen steps of a thread is looked at for a cancellation, and
-- which these are depends on how many there were before.
answered :: Config -> Assertion
answered config = forM_ [0 .. 31] $ \steps -> do
  outcome <- Weft.runWith (settingsFor config) {Weft.settingFuel = 16, Weft.settingSlice = 1} $ withRunner $ \runner -> do
    begun <- liftIO newEmptyMVar
    goOn <- liftIO newEmptyMVar
    box <- liftIO newEmptyMVar
    Weft.blocking $ do
      caller <- forkIO (try (runThread runner (busy begun goOn steps)) >>= putMVar box)
      takeMVar begun
      throwTo caller Boom
      -- It has had the thread cancelled, and waits for its end.
      untilWaits caller
      putMVar goOn ()
      -- Longer than any test waits.
      Ghc.timeout 60_000_000 (takeMVar box)
  outcome @?= Just (Left Boom)
  where
    -- Is cancelled in its effect, and then does not look for that.
    busy begun goOn steps = do
      () <- Weft.uninterruptibleMask (\_ -> liftIO (putMVar begun () >> takeMVar goOn))
      replicateM_ steps (Weft.mask (\_ -> pure ()))
    untilWaits thread =
      Ghc.threadStatus thread >>= \case
        Ghc.ThreadBlocked Ghc.BlockedOnMVar -> pure ()
        _ -> Ghc.yield >> untilWaits thread
