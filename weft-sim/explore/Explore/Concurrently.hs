-- |
-- Description : Several things at once, under exploration
module Explore.Concurrently (scenarios) where

import Control.Exception (ErrorCall (..), SomeException)
import Control.Monad (forM_, replicateM_, unless, void)
import Data.IORef
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Concurrently
import Weft.Time (after, now)

scenarios :: [Scenario]
scenarios =
  [ small "concurrently/both" 2 "both results come" both,
    small "concurrently/fails" 2 "the exception of one comes as it was, and the other has ended" fails,
    small "concurrently/race" 2 "the loser has ended, finalizer included, when the winner's result comes" races,
    small "concurrently/race-fails" 2 "the first that ends decides, by its exception too" raceFails,
    small "concurrently/bounded" 2 "at most this many at a time, results in order" bounded,
    small "concurrently/cancelled" 2 "a thread that is cancelled has ended its parts" cancelled,
    drawn "concurrently/trees" "results are what a sequential run gives, no part outlives its call" trees
  ]

both :: Thread Complaints
both = expectEqual "results" ('a', 'b') <$> concurrently (yield >> pure 'a') (yield >> pure 'b')

fails :: Thread Complaints
fails = do
  log' <- newLog
  begin <- now
  outcome <- try (concurrently (yield >> throwM (ErrorCall "no")) (bracket_ (say log' 'b') (say log' 'f') (sleep (seconds 100))))
  end <- now
  got <- said log'
  pure (expect "the other was not interrupted" (end < after (seconds 50) begin) <> expect ("finalizers: " <> got) (got `elem` ["", "bf"]) <> either (expectEqual "exception" (ErrorCall "no")) (\((), ()) -> ["the exception was lost"]) outcome)

races :: Thread Complaints
races = do
  log' <- newLog
  let part c = bracket_ (say log' 'b') (yield >> say log' 'f') (yield >> pure c)
  outcome <- race (part 'l') (part 'r')
  got <- said log'
  pure (expectEqual "finalizers, for those that began" (length (filter (== 'b') got)) (length (filter (== 'f') got)) <> expect "results mixed up" (outcome `elem` [Left 'l', Right 'r']))

raceFails :: Thread Complaints
raceFails = do
  outcome <- try (race (throwM (ErrorCall "no") :: Thread ()) (pure 'r'))
  pure (expect (show outcome) (outcome `elem` [Left (ErrorCall "no"), Right (Right 'r')]))

bounded :: Thread Complaints
bounded = do
  inside <- liftIO (newIORef (0 :: Int))
  most <- liftIO (newIORef 0)
  results <- forConcurrentlyN 2 [1 .. 3 :: Int] $ \n -> do
    liftIO (modifyIORef' inside (+ 1) >> readIORef inside >>= modifyIORef' most . max)
    yield
    n * n <$ liftIO (modifyIORef' inside (subtract 1))
  top <- liftIO (readIORef most)
  pure (expectEqual "results" [1, 4, 9] results <> expect "more than two at a time" (top <= 2))

cancelled :: Thread Complaints
cancelled = do
  log' <- newLog
  let part = bracket_ (say log' 'b') (say log' 'f') (sleep (seconds 100))
  t <- forkOn 1 (concurrently_ part part `finally` say log' 'e')
  _ <- forkOn 0 (yield >> cancel t)
  quiet
  got <- said log'
  pure
    ( expectEqual "finalizers, for those that began" (length (filter (== 'b') got)) (length (filter (== 'f') got))
        <> expect ("parts ended after the call: " <> got) (null got || last got == 'e')
    )

-- | A calculation, and in which ways it is done at once.
data Tree
  = Leaf !Int !Int
  | Both Tree Tree
  | Race Tree Tree
  | Each !Int [Tree]
  | Boom

drawTree :: Int -> Draw Tree
drawTree depth =
  weighted $
    [(4, Leaf <$> between 0 3 <*> between 1 100), (1, pure Boom)]
      <> concat [[(3, Both <$> part <*> part), (3, Race <$> part <*> part), (2, Each <$> between 0 3 <*> several 0 3 part)] | depth > 0]
  where
    part = drawTree (depth - 1)

-- | All it may come to; 'Nothing' for the exception.
possible :: Tree -> [Maybe Int]
possible = \case
  Leaf _ n -> [Just n]
  Boom -> [Nothing]
  Both a b -> combined [a, b]
  Race a b -> possible a <> possible b
  Each _ parts -> combined parts
  where
    combined parts = [fmap sum (sequence outcomes) | outcomes <- mapM possible parts]

trees :: Draw (Thread Complaints)
trees = do
  tree <- drawTree 3
  blows <- several 0 2 (between 0 15)
  pure $ do
    alive <- liftIO (newIORef (0 :: Int))
    wrong <- newLog
    result <- newLog
    t <- forkOn 0 (try (evaluated alive wrong tree) >>= say result . either (\(ErrorCall _) -> Nothing) Just)
    forM_ (zip [1 ..] blows) $ \(w, turns) -> forkOn w (replicateM_ turns yield >> cancel t)
    quiet
    left <- liftIO (readIORef alive)
    got <- said result
    complaints <- said wrong
    pure . concat $
      [ complaints,
        expectEqual "parts alive at the end" 0 left,
        expect ("no sequential run gives " <> show got) (all (`elem` possible tree) got),
        expect "there is no result, and it was not cancelled" (not (null got) || not (null blows))
      ]

evaluated :: IORef Int -> Log String -> Tree -> Thread Int
evaluated alive wrong = \case
  Leaf turns n -> n <$ bracket_ (liftIO (modifyIORef' alive (+ 1))) (yield >> liftIO (modifyIORef' alive (subtract 1))) (replicateM_ turns yield)
  Boom -> throwM (ErrorCall "boom")
  Both a b -> call (uncurry (+) <$>) (\f -> concurrently (f a) (f b))
  Race a b -> call (fmap (either id id)) (\f -> race (f a) (f b))
  Each n parts -> call (fmap sum) (\f -> if n == 0 then mapConcurrently f parts else forConcurrentlyN n parts f)
  where
    -- Counts the parts of this call: none may be alive after it.
    call :: (Thread b -> Thread Int) -> ((Tree -> Thread Int) -> Thread b) -> Thread Int
    call total body = mask $ \restore -> do
      mine <- liftIO (newIORef (0 :: Int))
      let part t = bracket_ (liftIO (modifyIORef' mine (+ 1))) (liftIO (modifyIORef' mine (subtract 1))) (evaluated alive wrong t)
      outcome <- try (restore (total (body part)))
      left <- liftIO (readIORef mine)
      unless (left == 0) (void (say wrong (show left <> " parts were alive after their call")))
      either (\e -> throwM (e :: SomeException)) pure outcome
