-- |
-- Description : Random direct programs, and the masking state across suspension
--
-- Programs that await, mask, restore, throw, catch and bracket, in direct style with
-- monadic parts in them, are run twice: as a thread, where every await suspends,
-- and in plain 'IO', where awaiting is running and where GHC says what must come
-- out. Both write down what they do and in which masking state.
module Test.Direct.Programs (tests, randomPrograms) where

import Control.Exception
import Control.Monad (forM, replicateM, replicateM_)
import Control.Monad.Catch qualified as Catch
import Data.IORef
import Data.List (isInfixOf)
import Test.Program (Fault (..))
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft (Thread)
import Weft qualified
import Weft.IO

tests :: TestTree
tests =
  testGroup
    "Direct programs"
    [ testProperty "the programs have what matters" coverage,
      testProperty "100,000 programs do as a thread what they do in IO" (randomPrograms 100_000),
      testGroup "the masking state across a suspension" masks
    ]

-- * Programs

-- | A step of a direct part.
data Step
  = Say Int
  | SayMasking
  | Awaits Operation
  | Fails Int
  | -- | The body, the handler.
    Catches [Step] [Step]
  | -- | Masked; then a part with the state outside of the mask.
    Masks [Step] [Step]
  | MasksFirmly [Step] [Step]
  | -- | Acquire, use, release.
    Brackets [Step] [Step] [Step]
  | Finally [Step] [Step]
  deriving stock (Eq, Show)

-- | An operation that is awaited.
data Operation
  = Yields
  | Sleeps
  | Answers Int
  | Raises Int
  | -- | Say the thread's masking state.
    TellsMasking
  | -- | A direct part, inside monadic constructs of each kind.
    Nested Around [Step]
  deriving stock (Eq, Show)

data Around = Plain | UnderMask | UnderFirmMask | UnderCatch Int | UnderFinally Int
  deriving stock (Eq, Show)

-- | The observations, in order.
data Event = Said Int | Masked MaskingState | Told MaskingState | Left' Int
  deriving stock (Eq, Show)

instance Arbitrary Step where
  arbitrary = sized step
  shrink = \case
    Awaits (Nested around p) -> p <> [Awaits (Nested Plain p) | around /= Plain] <> (Awaits . Nested around <$> shrink p)
    Awaits op -> [Awaits Yields | op /= Yields]
    Catches a b -> a <> b <> (uncurry Catches <$> shrink (a, b))
    Masks a b -> a <> b <> (uncurry Masks <$> shrink (a, b))
    MasksFirmly a b -> a <> b <> (uncurry MasksFirmly <$> shrink (a, b))
    Brackets a b c -> a <> b <> c <> [Brackets x y z | (x, y, z) <- shrink (a, b, c)]
    Finally a b -> a <> b <> (uncurry Finally <$> shrink (a, b))
    _ -> []

step :: Int -> Gen Step
step n
  | n <= 1 = leaf
  | otherwise =
      frequency
        [ (6, leaf),
          (3, Awaits <$> (Nested <$> around <*> part 2)),
          (4, Catches <$> part 2 <*> part 2),
          (3, Masks <$> part 2 <*> part 2),
          (2, MasksFirmly <$> part 2 <*> part 2),
          (3, Brackets <$> part 3 <*> part 3 <*> part 3),
          (2, Finally <$> part 2 <*> part 2)
        ]
  where
    part k = resize (n `div` k) (listOf (step (n `div` k)))
    around = oneof [pure Plain, pure UnderMask, pure UnderFirmMask, UnderCatch <$> name, UnderFinally <$> name]
    name = choose (0, 99)
    leaf =
      frequency
        [ (2, Say <$> name),
          (3, pure SayMasking),
          (3, Awaits <$> oneof [pure Yields, pure Yields, Answers <$> name, Raises <$> choose (0, 9), pure TellsMasking, pure Sleeps]),
          (1, Fails <$> choose (0, 9))
        ]

-- | A program, given what tells the events and how to await.
interpret :: (Event -> IO ()) -> (Operation -> IO ()) -> [Step] -> IO ()
interpret emit awaiting = mapM_ one
  where
    body = interpret emit awaiting
    one = \case
      Say n -> emit (Said n)
      SayMasking -> getMaskingState >>= emit . Masked
      Awaits operation -> awaiting operation
      Fails n -> throwIO (Fault n)
      Catches a b -> body a `catch` \(Fault n) -> emit (Left' n) >> body b
      Masks a b -> mask (\restore -> body a >> restore (body b))
      MasksFirmly a b -> uninterruptibleMask (\restore -> body a >> restore (body b))
      Brackets a u r -> bracket (body a) (\_ -> body r) (\_ -> body u)
      Finally a b -> body a `finally` body b

-- | As a thread: every await is one.
asThread :: (Event -> IO ()) -> [Step] -> Thread ()
asThread emit = direct . interpret emit (await . perform)
  where
    perform :: Operation -> Thread ()
    perform = \case
      Yields -> Weft.yield
      Sleeps -> Weft.sleep (Weft.seconds 0)
      Answers n -> direct (pure n) >>= tell . Said
      Raises n -> Weft.throwM (Fault n)
      TellsMasking -> maskingNow >>= tell . Told
      Nested around p ->
        let inner = asThread emit p >> perform TellsMasking
         in case around of
              Plain -> inner
              UnderMask -> Catch.mask (\restore -> inner >> restore inner)
              UnderFirmMask -> Catch.uninterruptibleMask_ inner
              UnderCatch n -> inner `Catch.catch` \(Fault _) -> tell (Said n)
              UnderFinally n -> inner `Catch.finally` tell (Said n)
    tell = Weft.liftIO . emit

-- | In plain 'IO', by GHC's own means.
asIO :: (Event -> IO ()) -> [Step] -> IO ()
asIO emit = interpret emit perform
  where
    perform = \case
      Yields -> pure ()
      Sleeps -> pure ()
      Answers n -> emit (Said n)
      Raises n -> throwIO (Fault n)
      TellsMasking -> getMaskingState >>= emit . Told
      Nested around p ->
        let inner = asIO emit p >> perform TellsMasking
         in case around of
              Plain -> inner
              UnderMask -> mask (\restore -> inner >> restore inner)
              UnderFirmMask -> uninterruptibleMask_ inner
              UnderCatch n -> inner `catch` \(Fault _) -> emit (Said n)
              UnderFinally n -> inner `finally` emit (Said n)

-- | Events of a run, with what came out.
observe :: ((Event -> IO ()) -> IO (Either Fault ())) -> IO ([Event], Either Fault ())
observe act = do
  events <- newIORef []
  r <- act (\e -> modifyIORef' events (e :))
  (,r) . reverse <$> readIORef events

-- | Steps of a size that suspends a few times.
programs :: Gen [Step]
programs = resize 12 (listOf (sized step))

-- | The cases that the random programs cover.
coverage :: Property
coverage = checkCoverage . forAll programs $ \p ->
  let text = show p
      has word = word `isInfixOf` text
   in cover 15 (has "Raises") "an awaited operation fails"
        . cover 15 (has "Nested") "a direct part in a monadic one"
        . cover 10 (has "Brackets" && has "Awaits") "an await beside a bracket"
        . cover 10 ((has "Masks" || has "MasksFirmly") && has "Awaits") "an await beside a mask"
        $ True

-- | In batches, each in one run of the scheduler, all threads at the same time.
-- | About the given number of programs.
randomPrograms :: Int -> Property
randomPrograms count = withMaxSuccess (count `div` batch) (forAllShrink (vectorOf batch programs) shrink (monadicIO . agrees))
  where
    batch = 200

agrees :: [[Step]] -> Q.PropertyM IO ()
agrees batch = do
  wanted <- Q.run (mapM (\p -> observe (\emit -> try (asIO emit p))) batch)
  got <- Q.run . runningQuietly $ do
    waits <- forM batch $ \p -> do
      events <- Weft.liftIO (newIORef [])
      wait <- spawn (Weft.try (asThread (\e -> modifyIORef' events (e :)) p))
      pure (wait >>= \r -> (,r) . reverse <$> Weft.liftIO (readIORef events))
    sequence waits
  Q.monitor (counterexample (unlines ["program " <> show p <> "\n  wanted " <> show w <> "\n  got    " <> show g | (p, w, g) <- zip3 batch wanted got, w /= g]))
  Q.assert (got == wanted)

-- * Masks, one by one

-- | Every way to come into a state, with the state in it.
masks :: [TestTree]
masks =
  [ testCase (unwords (map fst path) <> ", then " <> what) $ do
      states <- runningQuietly . direct $ nest (map snd path) $ do
        before <- getMaskingState
        operation
        afterwards <- getMaskingState
        thread <- await maskingNow
        pure (before, afterwards, thread)
      wanted <- nest (map snd path) getMaskingState
      states @?= (wanted, wanted, wanted)
    | path <- concatMap paths [0 .. 3],
      (what, operation) <- [("yield", yield), ("await", await (replicateM_ 2 Weft.yield)), ("a failure", await (Weft.yield >> Weft.throwM (Fault 1)) `catch` \(Fault _) -> pure ())]
  ]
  where
    paths :: Int -> [[(String, Layer)]]
    paths n = replicateM n layers
    layers =
      [ ("mask", Layer mask_),
        ("firm mask", Layer uninterruptibleMask_),
        ("restore", Layer (\io -> mask (\restore -> restore io))),
        ("firm restore", Layer (\io -> uninterruptibleMask (\restore -> restore io))),
        ("handler", Layer (\io -> throwIO (Fault 0) `catch` \(Fault _) -> io)),
        ("interruptible", Layer interruptible)
      ]
    nest ls io = foldr (\(Layer l) rest -> l rest) io ls

newtype Layer = Layer (forall a. IO a -> IO a)
