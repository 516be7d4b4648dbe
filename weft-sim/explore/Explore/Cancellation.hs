-- |
-- Description : Cancellation and masks under exploration
module Explore.Cancellation (scenarios) where

import Control.Exception (ErrorCall (..))
import Control.Exception qualified as Ghc
import Control.Monad (forM_, replicateM_, when)
import Data.IORef
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.IO qualified as IO
import Weft.MVar
import Weft.Mask

scenarios :: [Scenario]
scenarios =
  [ small "cancellation/bracket" 3 "what was acquired is released once" brackets,
    small "cancellation/twice" 2 "a second cancellation does not cut a finalizer short that is masked" twice,
    small "cancellation/blocking" 2 "a thread in blocking ends when it is cancelled, or when that is over" blocked,
    small "cancellation/self" 2 "a thread that cancels itself goes no further than its next system call" self,
    small "cancellation/masked" 2 "a masked part that does not wait is not interrupted" masked,
    small "cancellation/result" 2 "an operation that has succeeded returns through the frames around it" result,
    small "cancellation/with" 2 "the exception of cancelWith arrives as it is" with',
    drawn "cancellation/random" "masks, finalizers and waits in any order, in both styles" random
  ]

brackets :: Thread Complaints
brackets = do
  log' <- newLog
  t <- forkOn 1 (bracket (say log' 'a') (\() -> say log' 'r') (\() -> yield))
  _ <- forkOn 0 (cancel t)
  quiet
  got <- said log'
  pure (expect got (got `elem` ["", "ar"]))

twice :: Thread Complaints
twice = do
  log' <- newLog
  t <-
    forkOn
      1
      ( mask $ \restore -> do
          _ <- try (restore (say log' 'b' >> sleep (seconds 100))) :: Thread (Either Cancelled ())
          liftIO (pure ())
          say log' 'f'
      )
  _ <- spread [cancel t, yield >> cancel t]
  quiet
  got <- said log'
  pure (expect got (got `elem` ["", "f", "bf"]))

blocked :: Thread Complaints
blocked = do
  log' <- newLog
  t <- forkOn 1 ((say log' 'b' >> blocking (pure ())) `finally` say log' 'f')
  _ <- forkOn 0 (cancel t)
  quiet
  got <- said log'
  pure (expect got (got `elem` ["", "f", "bf"]))

self :: Thread Complaints
self = do
  log' <- newLog
  _ <- forkOn 1 $ do
    me <- IO.direct IO.myThreadId
    cancel me
    yield
    say log' ()
  quiet
  expectEqual "went on" 0 . length <$> said log'

masked :: Thread Complaints
masked = do
  log' <- newLog
  t <- forkOn 1 (mask_ (say log' 1 >> yield >> liftIO (pure ()) >> yield >> say log' (2 :: Int)))
  _ <- forkOn 0 (cancel t)
  quiet
  got <- said log'
  pure (expect (show got) (got `elem` [[], [1, 2]]))

result :: Thread Complaints
result = do
  var <- newMVar 'a'
  log' <- newLog
  let taking = takeMVar var `catch` \(ErrorCall _) -> pure 'x'
  -- Masked but for the taking, so that only what was cancelled there is not said.
  victim <- mask_ (forkOn 1 (try (interruptible taking) >>= either (\Cancelled -> pure ()) (say log')))
  direct' <- mask_ (forkOn 0 (try (interruptible (IO.direct (IO.await taking))) >>= either (\Cancelled -> pure ()) (say log')))
  _ <- spread [cancel victim, cancel direct']
  quiet
  got <- said log'
  left <- tryTakeMVar var
  pure (expectEqual "taken or left" "a" (got <> maybe "" pure left))

with' :: Thread Complaints
with' = do
  log' <- newLog
  t <- mask_ (forkOn 1 (sleep (seconds 100) `catch` \e -> say log' (e :: ErrorCall)))
  _ <- forkOn 0 (cancelWith t (ErrorCall "stop"))
  quiet
  expectEqual "exceptions" [ErrorCall "stop"] <$> said log'

-- | A step of a thread. Each checks its own invariants while it runs.
data Act
  = Yields
  | Sleeps
  | Waits
  | Effects
  | Spawns
  | Bracketed [Act]
  | MaskedPart [Act]
  | Uninterruptibly [Act]
  | Catching [Act]
  | InDirect [Act]

drawAct :: Int -> Draw Act
drawAct depth =
  weighted $
    map (fmap pure) [(3, Yields), (2, Sleeps), (2, Waits), (2, Effects), (1, Spawns)]
      <> concat [[(3, Bracketed <$> parts), (2, MaskedPart <$> parts), (2, Uninterruptibly <$> parts), (2, Catching <$> parts), (2, InDirect <$> parts)] | depth > 0]
  where
    parts = several 0 3 (drawAct (depth - 1))

-- | The resources that are open, and the complaints.
data World = World {worldOpen :: !(IORef Int), worldWrong :: !(Log String), worldVar :: !(MVar ())}

random :: Draw (Thread Complaints)
random = do
  acts <- several 1 4 (drawAct 3)
  blows <- several 1 4 (between 0 20)
  pure $ do
    world <- World <$> liftIO (newIORef 0) <*> newLog <*> newMVar ()
    ended <- newLog
    t <- mask_ (forkOn 0 (try (interruptible (mapM_ (perform world) acts)) >>= \r -> say ended (either (\Cancelled -> ()) id r)))
    forM_ (zip [1 ..] blows) $ \(w, turns) -> forkOn w (replicateM_ turns yield >> cancel t)
    quiet
    open <- liftIO (readIORef (worldOpen world))
    wrong <- said (worldWrong world)
    over <- length <$> said ended
    value <- tryTakeMVar (worldVar world)
    pure (wrong <> expectEqual "acquired and not released" 0 open <> expectEqual "ends of the thread" 1 over <> expectEqual "the variable" (Just ()) value)

perform :: World -> Act -> Thread ()
perform world = \case
  Yields -> yield
  Sleeps -> sleep (milliseconds 1)
  Waits -> withMVar (worldVar world) (\() -> yield)
  Effects -> replicateM_ 3 (liftIO (pure ()))
  Spawns -> fork_ yield
  Bracketed parts -> do
    state <- getMaskingState
    bracket_ (opening 1) (opening (-1)) (checked state "in a bracket" >> mapM_ (perform world) parts)
    checked state "after a bracket"
  MaskedPart parts -> do
    before <- getMaskingState
    mask $ \restore -> restore (checked before "restored") >> mapM_ (perform world) parts
    checked before "after a mask"
  Uninterruptibly parts -> uninterruptibleMask_ (mapM_ (perform world) parts `onException` say (worldWrong world) "interrupted where nothing may interrupt")
  Catching parts -> do
    before <- getMaskingState
    mapM_ (perform world) parts `catch` \e -> do
      inside <- getMaskingState
      when (inside == Unmasked) $ say (worldWrong world) "a handler that is not masked"
      throwM (e :: Cancelled)
    checked before "after a handler"
  InDirect parts -> do
    before <- getMaskingState
    IO.direct $ do
      here <- Ghc.getMaskingState
      if here == before then pure () else IO.await (say (worldWrong world) ("direct: " <> show here <> " and not " <> show before))
      Ghc.bracket_ (IO.await (opening 1)) (IO.await (opening (-1))) (mapM_ (IO.await . perform world) parts)
    checked before "after a direct part"
  where
    opening n = liftIO (modifyIORef' (worldOpen world) (+ n))
    checked wanted where' = do
      is <- getMaskingState
      if is == wanted then pure () else say (worldWrong world) (where' <> ": " <> show is <> " and not " <> show wanted)
