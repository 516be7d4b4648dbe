{-# LANGUAGE GADTs #-}

-- |
-- Description : The laws of threads
--
-- 'Thread' as functor, applicative and monad, observed through its trace and
-- through running it; the laws of throwing, catching and masking; and random
-- concurrent programs against a reference interpreter ("Test.Program") and the model
-- ("Weft.Model").
module Test.Laws (tests) where

-- The laws are stated as they are; what hlint would simplify is what is tested.
{- HLINT ignore "Functor law" -}
{- HLINT ignore "Monad law, left identity" -}
{- HLINT ignore "Monad law, right identity" -}
{- HLINT ignore "Use fmap" -}
{- HLINT ignore "Use >>" -}
{- HLINT ignore "Use >=>" -}

import Control.Exception (ErrorCall (..), SomeException, fromException, throw, throwIO)
import Control.Monad (ap, join, liftM, replicateM_, void)
import Control.Monad.Catch (ExitCase (..))
import Data.IORef
import Data.Maybe (isJust, isNothing)
import Test.Program
import Test.QuickCheck.Monadic (monadicIO, run)
import Test.QuickCheck.Monadic qualified as Q
import Test.Support hiding (running)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft hiding (run)
import Weft.Internal.Core.Scheduler (ThreadExit)
import Weft.Internal.Core.Trace (MaskingState (..))
import Weft.Kernel (request)
import Weft.Model (runModel)
import Weft.Policy (bands)
import Weft.Trace

tests :: TestTree
tests =
  testGroup
    "Laws"
    [ testGroup "Functor, Applicative, Monad" monadLaws,
      testGroup "exceptions" exceptionLaws,
      testGroup "bracket releases once" bracketLaws,
      testProperty "random programs do what the reference and the model say" (withMaxSuccess 400 programs),
      -- That ends as soon as it is certain, after fewer programs.
      testProperty "random programs are of every kind" (checkCoverage programs)
    ]

-- * Functor, Applicative, Monad

-- | A step that any trace can show: a call that only this test answers.
data Step a where
  Step :: Int -> Step Int

deriving stock instance Show (Step a)

-- | A description of a thread that results in a number.
data Piece = Tick Int | Rest | Spin | Guarded [Piece] | Broken
  deriving stock (Show)

instance Arbitrary Piece where
  arbitrary = sized $ \n ->
    frequency
      [ (4, Tick <$> choose (0, 9)),
        (2, pure Rest),
        (1, pure Spin),
        (1, Guarded <$> resize (n `div` 2) arbitrary),
        (1, pure Broken)
      ]

-- | A thread for the pieces, given what a tick is.
build :: (Int -> Thread Int) -> [Piece] -> Thread Int
build tick = fmap sum . mapM piece
  where
    piece = \case
      Tick n -> tick n
      Rest -> 1 <$ yield
      Spin -> 2 <$ fork_ (void (tick 3))
      Guarded ps -> build tick ps `catch` \(Fault n) -> pure n
      Broken -> throwM (Fault 7)

-- | The observable behaviour of a thread: its outline, and its events until it ends. Whether a thread
-- that it has forked has another step after that depends on where a slice ends.
seen :: ((Int -> Thread Int) -> Thread Int) -> IO (String, [Int], Maybe Int)
seen make = do
  let shown = outlineWith (Answers (const Nothing)) 60 (trace (make (request . Step)))
      further = outline 60 (trace (make (<$ yield) >>= throwM . Fault))
  events <- newIORef []
  let say n = liftIO (modifyIORef' events (n :))
  result <- runningQuietly (try (make (\n -> n <$ say n)) <* say ended)
  logged <- readIORef events
  pure (shown <> further, dropWhile (/= ended) logged, either (\(Fault _) -> Nothing) Just result)
  where
    ended = -1

same :: ((Int -> Thread Int) -> Thread Int) -> ((Int -> Thread Int) -> Thread Int) -> Property
same a b = monadicIO $ do
  (x, y) <- run ((,) <$> seen a <*> seen b)
  Q.monitor (counterexample (show x <> "\n" <> show y))
  Q.assert (x == y)

monadLaws :: [TestTree]
monadLaws =
  [ testProperty "pure is a left unit" $ \n ps -> same (\t -> pure n >>= after' ps t) (\t -> after' ps t n),
    testProperty "pure is a right unit" $ \ps -> same (\t -> build t ps >>= pure) (`build` ps),
    testProperty "binding is associative" $ \ps qs rs ->
      same
        (\t -> (build t ps >>= after' qs t) >>= after' rs t)
        (\t -> build t ps >>= \n -> after' qs t n >>= after' rs t),
    testProperty "fmap id" $ \ps -> same (\t -> fmap id (build t ps)) (`build` ps),
    testProperty "fmap composes" $ \ps (Fn f) (Fn g) ->
      same (\t -> fmap (f . g) (build t ps)) (\t -> fmap f (fmap g (build t ps))) .&&. same (\t -> fmap f (build t ps)) (\t -> liftM f (build t ps)),
    testProperty "<*> is ap" $ \ps qs (Fn2 f) ->
      same (\t -> (f <$> build t ps) <*> build t qs) (\t -> (f <$> build t ps) `ap` build t qs),
    testProperty "*> and <*" $ \ps qs ->
      same (\t -> build t ps *> build t qs) (\t -> build t ps >>= \_ -> build t qs)
        .&&. same (\t -> build t ps <* build t qs) (\t -> build t ps >>= \a -> a <$ build t qs),
    testProperty "throw is a left zero" $ \n ps ->
      same (\t -> throwM (Fault n) >>= after' ps t) (\_ -> throwM (Fault n))
  ]
  where
    after' ps t n = (+ n) <$> build t (Tick n : ps)

-- * Exceptions

exceptionLaws :: [TestTree]
exceptionLaws =
  [ testCase "catch of pure" $ runningQuietly (pure 'a' `catch` \(_ :: SomeException) -> pure 'b') >>= (@?= 'a'),
    testCase "catch of throw is the handler" $
      runningQuietly (throwM (Fault 1) `catch` \(Fault n) -> pure n) >>= (@?= 1),
    testCase "the innermost handler of that type is taken" $
      runningQuietly
        ( ((throwM (Fault 1) `catch` \(ErrorCall _) -> pure "inner other") `catch` \(Fault _) -> pure "middle")
            `catch` \(_ :: SomeException) -> pure "outer"
        )
        >>= (@?= "middle"),
    testCase "an exception in a handler goes outwards" $
      runningQuietly ((throwM (Fault 1) `catch` \(Fault n) -> throwM (Fault (n + 1))) `catch` \(Fault n) -> pure n)
        >>= (@?= 2),
    testCase "a handler is gone after its body" $
      runningQuietly (try ((pure () `catch` \(Fault _) -> pure ()) >> throwM (Fault 3))) >>= (@?= (Left (Fault 3) :: Either Fault ())),
    testCase "handlers survive a yield and a wait" $
      runningQuietly ((yield >> sleep (milliseconds 1) >> throwM (Fault 1)) `catch` \(Fault n) -> n <$ yield) >>= (@?= 1),
    testCase "from pure code, an effect, a blocking action and a failed pattern" $ do
      let caught body = runningQuietly (body `catch` \(Fault n) -> pure n)
      caught (throw (Fault 1)) >>= (@?= 1)
      caught (yield >> throw (Fault 2)) >>= (@?= 2)
      caught (liftIO (throwIO (Fault 3))) >>= (@?= 3)
      caught (blocking (throwIO (Fault 4))) >>= (@?= 4)
      runningQuietly (try (do Just x <- pure Nothing; pure (x :: Int)))
        >>= either (\(_ :: IOError) -> pure ()) (\_ -> assertFailure "no failure"),
    testCase "mask masks, restore restores, and the end of both restores" $
      runningQuietly
        ( do
            (inside, restored) <- mask (\restore -> (,) <$> maskingNow <*> restore maskingNow)
            outside <- maskingNow
            pure [inside, restored, outside]
        )
        >>= (@?= [MaskedInterruptible, Unmasked, Unmasked]),
    testCase "restore inside nested masks goes back to the outer mask only" $
      runningQuietly (mask (\_ -> uninterruptibleMask (\restore -> (,) <$> maskingNow <*> restore maskingNow)))
        >>= (@?= (MaskedUninterruptible, MaskedInterruptible)),
    testCase "mask does not weaken a firmer mask" $
      runningQuietly (uninterruptibleMask (\_ -> mask (\restore -> (,) <$> maskingNow <*> restore maskingNow)))
        >>= (@?= (MaskedUninterruptible, MaskedUninterruptible)),
    testCase "a handler runs masked, and after it the mask is that of the catch" $
      runningQuietly
        ( do
            inside <- throwM (Fault 1) `catch` \(Fault _) -> maskingNow
            afterwards <- maskingNow
            firm <- uninterruptibleMask (\_ -> throwM (Fault 1) `catch` \(Fault _) -> maskingNow)
            pure [inside, afterwards, firm]
        )
        >>= (@?= [MaskedInterruptible, Unmasked, MaskedUninterruptible]),
    testCase "an exception out of a masked part restores the mask of the catch" $
      runningQuietly ((mask (\_ -> throwM (Fault 1)) `catch` \(Fault _) -> pure ()) >> maskingNow) >>= (@?= Unmasked),
    testCase "a child inherits the mask" $
      runningQuietly (join (mask (\_ -> spawn maskingNow))) >>= (@?= MaskedInterruptible)
  ]

-- * Bracket

-- | Each way out of a body, with the case that the release is told.
waysOut :: [(String, Thread (), String)]
waysOut =
  [ ("a result", pure (), "success"),
    ("throwM", throwM (Fault 1), "Fault 1"),
    ("an error in pure code", throw (Fault 2), "Fault 2"),
    ("an error in pure code after a wait", yield >> throw (Fault 3), "Fault 3"),
    ("an exception in an effect", liftIO (throwIO (Fault 4)), "Fault 4"),
    ("an exception in a blocking action", blocking (throwIO (Fault 5)), "Fault 5"),
    ("exit", exit, "ThreadExit")
  ]

bracketLaws :: [TestTree]
bracketLaws =
  testCase
    "a release that fails does not skip the outer one, and its exception wins"
    ( do
        released <- newIORef []
        let release is = liftIO (modifyIORef' released (is :))
        outcome <- runningQuietly (try ((throwM (Fault 1) `finally` (release "inner" >> throwM (Fault 2))) `finally` release "outer"))
        outcome @?= (Left (Fault 2) :: Either Fault ())
        readIORef released >>= (@?= ["outer", "inner"])
    )
    : [ testCase (style <> ": " <> way) $ do
          released <- newIORef []
          let release is = liftIO (modifyIORef' released (is :))
          outcome <- runningQuietly (try (construct release body))
          readIORef released >>= (@?= expected what)
          isJust (either (\(e :: SomeException) -> Just e) (const Nothing) outcome) @?= (what /= "success")
        | (way, body, what) <- waysOut,
          (style, construct, expected) <- styles
      ]
  where
    styles :: [(String, (String -> Thread ()) -> Thread () -> Thread (), String -> [String])]
    styles =
      [ ("bracket", \r b -> bracket (pure ()) (\_ -> r "once") (const b), const ["once"]),
        ("finally", \r b -> b `finally` r "once", const ["once"]),
        ("onException", \r b -> b `onException` r "once", \what -> ["once" | what /= "success"]),
        ( "generalBracket",
          \r b ->
            fst <$> generalBracket (pure ()) (\_ -> r . told) (const b),
          pure
        ),
        ( "nested, the inner first",
          \r b -> bracket (pure ()) (\_ -> r "outer") (\_ -> (b `finally` r "inner") `finally` r "middle"),
          const ["outer", "middle", "inner"]
        ),
        ( "a release that waits, masked",
          \r b -> b `finally` (yield >> sleep (milliseconds 1) >> maskingNow >>= r . show),
          const ["MaskedInterruptible"]
        )
      ]
    told = \case
      ExitCaseSuccess () -> "success"
      ExitCaseException e -> show e
      ExitCaseAbort -> "abort"

-- * Random programs

-- | Under every slice and two ways to be first-in-first-out, a program's events
-- are those of the reference and of the model, and what leaves a thread is reported once.
programs :: Property
programs = forAllShrink (scale (`div` 2) arbitrary) shrink $ \program ->
  forAll (elements [1, 2, 3, 256]) $ \slice ->
    forAll arbitrary $ \ownPolicy ->
      let wanted = reference program
          reports = [who | Reported who <- wanted]
       in cover 10 (not (null reports)) "an exception leaves a thread"
            . cover 10 (any brackets program) "a bracket"
            . cover 10 (any asks program) "a system call that waits"
            . cover 5 (length [() | Masked _ Firm <- wanted] + length [() | Masked _ Soft <- wanted] > 0) "a masked part"
            . cover 20 (length (filter forks program) > 1) "several threads"
            . monadicIO
            $ do
              model <- run (observed modelled program)
              -- No thread has more turns than the program has statements.
              real <- run (observed (scheduled slice ownPolicy (programSize program + 2)) program)
              Q.monitor . counterexample . unlines $ zipWith (<>) ["reference ", "model     ", "scheduler "] (map show [(wanted, length reports), model, real])
              Q.assert (model == (wanted, length reports) && real == model)
  where
    brackets = \case Brackets {} -> True; _ -> False
    forks = \case Forks {} -> True; _ -> False
    asks = \case Asks n -> n > 0; _ -> False

-- | The observable behaviour of a program, given how to run it: its events, and the number of reported
-- exceptions.
observed :: (Thread () -> IO Int) -> Program -> IO ([Event], Int)
observed execute program = do
  events <- newIORef []
  names <- newIORef 1
  reported <- execute (perform (\e -> modifyIORef' events (e :)) names program `catch` \(Fault _) -> pure ())
  (,reported) . reverse <$> readIORef events

-- | By the model, for which the end of a thread by 'exit' is an exception like any other.
modelled :: Thread () -> IO Int
modelled thread = length . filter (isNothing . fromException @ThreadExit . snd) <$> runModel answered thread

-- | By the scheduler, which is to go on for this number of turns.
scheduled :: Int -> Bool -> Int -> Thread () -> IO Int
scheduled slice ownPolicy turns thread = do
  uncaught <- newIORef (0 :: Int)
  let settings = settingsFor (Config Poll 1)
  runWith
    settings
      { settingSlice = slice,
        settingPolicy = if ownPolicy then bands "one band" 1 (\_ _ -> 0) else settingPolicy settings,
        settingKernel = settingKernel settings `answeredBy` answered,
        settingUncaught = \_ _ _ -> modifyIORef' uncaught (+ 1)
      }
    -- Each turn of this thread lets every other have one.
    (fork_ thread >> replicateM_ turns yield)
  readIORef uncaught
