-- |
-- Description : A stack that waits on its OS thread, on every schedule
--
-- What "Weft.ConcLib.MP" does where GHC cannot capture a stack that has to wait: the HEC goes on without it,
-- and the transaction that leaves it with what it waits for suspends it. Meanwhile the HEC is taken away at any moment.
module Behind (behind) where

import Control.Monad (unless, void)
import Data.IORef
import Data.List (sort)
import Weft.Substrate
import Weft.Substrate.Internal.Ground (forkCarrier)
import Weft.Substrate.Internal.Place (hecHere, suspendHere)
import Weft.Substrate.Internal.Takeover (displace, leaveHEC)

-- | A program, and what its threads have said, in no order.
behind :: IO (IO (), IO [String])
behind = do
  said <- newIORef []
  queue <- newPVarIO []
  asleep <- newPVarIO Nothing
  end <- newPVarIO Nothing
  alive <- newPVarIO (2 :: Int)
  value <- newPVarIO Nothing
  waiter <- newPVarIO Nothing
  let say x = atomicModifyIORef' said (\xs -> (x : xs, ()))
      enqueue t = readPVar queue >>= writePVar queue . (<> [t]) >> readPVar asleep >>= mapM_ wakeupHEC
      next =
        readPVar queue >>= \case
          t : rest -> t <$ writePVar queue rest
          [] -> do
            n <- readPVar alive
            home <- readPVar end
            case home of
              Just t | n == 0 -> t <$ writePVar end Nothing
              _ -> getHEC >>= writePVar asleep . Just >> sleepHEC
      fork act = newStack (act >> atomicPTM (readPVar alive >>= writePVar alive . subtract 1) >> switch next) >>= atomicPTM . enqueue
      -- Again and again, as an MVar is taken.
      get = do
        h <- hecHere
        leaveHEC h CallsOut
        suspendHere $ do
          me <- getStackId
          readPVar value >>= maybe (writePVar waiter (Just me)) (const (enqueue me))
        readPVarIO value >>= maybe get pure
      put x = atomicPTM $ writePVar value (Just x) >> readPVar waiter >>= mapM_ enqueue >> writePVar waiter Nothing
      program = void . inCallWith False (Handlers (\_ _ -> next) enqueue) $ do
        h <- hecHere
        fork (get >>= \x -> unless (x == 'x') (say "another value") >> say "gets")
        fork (put 'x' >> say "puts")
        forkCarrier (displace h Computes)
        switch (getStackId >>= writePVar end . Just >> next)
        say "main"
  pure (program, sort <$> readIORef said)
