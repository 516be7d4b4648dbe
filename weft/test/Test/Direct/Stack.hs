-- |
-- Description : Stacks of IO code that suspends
--
-- Handlers, brackets, callbacks, transformers, coroutines, a million frames.
module Test.Direct.Stack (onTheStack) where

import Control.Exception
import Control.Monad
import Control.Monad.Trans.Class (lift)
import Control.Monad.Trans.Reader (ReaderT, ask, runReaderT)
import Control.Monad.Trans.State.Strict (StateT, execStateT, get, modify', put)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Test.Program (Fault (..))
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft qualified
import Weft.IO hiding (atomically)

onTheStack :: TestTree
onTheStack =
  testGroup
    "what may be on the stack"
    [ testCase "a suspended release, handler and finally, in order" finalizers,
      testCase "the exception of an awaited operation, raised at its await" raisedAtAwait,
      testCase "a callback (withFile-shaped)" callback,
      testCase "StateT over IO, and ReaderT" transformers,
      testCase "a pipeline of coroutines" pipeline,
      testCase "10,000 frames" (deep 10_000),
      testCase "1,000,000 frames, over many chunks of stack" (deep 1_000_000)
    ]

finalizers :: Assertion
finalizers = do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
      release x = say ("release " <> x) >> yield >> say ("released " <> x)
  r <- runningQuietly . direct . try $ do
    bracket (yield >> say "acquired" >> pure 'r') (const (release "outer")) $ \_ -> do
      yield
      (bracket_ yield (release "inner") (await (Weft.yield >> Weft.throwM (Fault 1))) `catch` \(Fault n) -> yield >> say ("caught " <> show n) >> yield >> throwIO (Fault 2))
        `finally` release "middle"
  r @?= (Left (Fault 2) :: Either Fault ())
  readIORef said
    >>= (@?= ["acquired", "release inner", "released inner", "caught 1", "release middle", "released middle", "release outer", "released outer"]) . reverse

raisedAtAwait :: Assertion
raisedAtAwait = do
  (before, got, state) <- runningQuietly . direct $ do
    ref <- newIORef (0 :: Int)
    got <- try @Fault . forM_ [1 .. 5 :: Int] $ \i -> do
      await (if i == 3 then Weft.throwM (Fault 3) else Weft.yield)
      modifyIORef' ref (+ 1)
    before <- readIORef ref
    _ <- try @Fault (await (Weft.throwM (Fault 4)))
    state <- getMaskingState
    pure (before, got, state)
  (before, got, show state) @?= (2, Left (Fault 3), "Unmasked")

-- | A library that opens, calls back, and closes; it knows nothing of threads.
withThing :: IORef [String] -> (Int -> IO a) -> IO a
withThing said = bracket (modifyIORef' said ("open" :) >> pure 7) (\_ -> modifyIORef' said ("close" :))

callback :: Assertion
callback = do
  said <- newIORef []
  (a, b) <- runningQuietly . direct $ do
    a <- withThing said (\x -> yield >> pure (x + 1))
    b <- try @Fault (withThing said (\_ -> yield >> await (Weft.throwM (Fault 1))))
    _ <- withThing said (\_ -> traverse (<$ yield) [1 .. 100 :: Int])
    pure (a, b)
  (a, b) @?= (8, Left (Fault 1) :: Either Fault ())
  readIORef said >>= (@?= concat (replicate 3 ["close", "open"]))

transformers :: Assertion
transformers = do
  n <- runningQuietly . direct $ runReaderT body (10 :: Int)
  n @?= (110, 10)
  where
    body :: ReaderT Int IO (Int, Int)
    body = do
      step <- ask
      s <- lift (execStateT (replicateM_ 10 (add step)) 10)
      turns' <- lift (await (pure 10))
      pure (s, turns')
    add :: Int -> StateT Int IO ()
    add k = do
      lift yield
      s <- get
      lift (mask_ yield)
      put s
      modify' (+ k)

-- | A conduit in miniature: a producer, a transformer and a consumer, each written as
-- sequential code over an effect of its own.
data Pipe i o m r
  = Finished r
  | Perform (m (Pipe i o m r))
  | Emit o (Pipe i o m r)
  | Demand (Maybe i -> Pipe i o m r)

instance (Monad m) => Functor (Pipe i o m) where
  fmap = liftM

instance (Monad m) => Applicative (Pipe i o m) where
  pure = Finished
  (<*>) = ap

instance (Monad m) => Monad (Pipe i o m) where
  p >>= f = case p of
    Finished r -> f r
    Perform m -> Perform (fmap (>>= f) m)
    Emit o rest -> Emit o (rest >>= f)
    Demand k -> Demand (k >=> f)

perform :: (Monad m) => m a -> Pipe i o m a
perform m = Perform (Finished <$> m)

-- | The consumer drives.
fuse :: (Monad m) => Pipe i x m () -> Pipe x o m r -> Pipe i o m r
fuse up down = case down of
  Finished r -> Finished r
  Perform m -> Perform (fuse up <$> m)
  Emit o rest -> Emit o (fuse up rest)
  Demand k -> case up of
    Finished () -> fuse up (k Nothing)
    Perform m -> Perform (fmap (`fuse` down) m)
    Emit x rest -> fuse rest (k (Just x))
    Demand k' -> Demand (\i -> fuse (k' i) down)

runPipe :: (Monad m) => Pipe () () m r -> m r
runPipe = \case
  Finished r -> pure r
  Perform m -> m >>= runPipe
  Emit () rest -> runPipe rest
  Demand k -> runPipe (k Nothing)

pipeline :: Assertion
pipeline = do
  total <- runningQuietly . direct $ do
    (r, w) <- openPipe
    fork_ (forM_ [1 .. 50 :: Int] (\i -> writePipe w (Char8.pack (show i <> "\n")) >> yield) `finally` closePipe w)
    runPipe (bytesOf r `fuse` linesOf Char8.empty `fuse` summing 0) `finally` closePipe r
  total @?= (1275 :: Int)
  where
    bytesOf r = do
      b <- perform (readPipe r 3)
      unless (Char8.null b) (Emit b (bytesOf r))
    linesOf rest = case Char8.elemIndex '\n' rest of
      Just i -> Emit (Char8.take i rest) (linesOf (Char8.drop (i + 1) rest))
      Nothing -> Demand (maybe (pure ()) (linesOf . (rest <>)))
    summing n = Demand $ \case
      Nothing -> pure n
      Just line -> perform (await Weft.yield) >> summing (n + maybe 0 fst (Char8.readInt line))

-- | Suspend, twice, at the bottom of the given number of calls that are not finished.
deep :: Int -> Assertion
deep frames = do
  n <- runningQuietly . direct $ go frames
  n @?= frames
  where
    go :: Int -> IO Int
    go 0 = 0 <$ (yield >> await (pure ()))
    go n = (+ 1) <$> go (n - 1)
    {-# NOINLINE go #-}
