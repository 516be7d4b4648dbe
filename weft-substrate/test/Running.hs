{-# LANGUAGE GADTs #-}
{-# LANGUAGE TypeFamilies #-}

-- |
-- Description : Programs of the semantics, on the substrate itself
--
-- Used by two test-suites: over OS threads, and over the explorer.
module Running (Substrate, Running (..), newRunning, perform) where

import Control.Exception (Handler (..), SomeException, catch, catches, throwIO)
import Control.Monad (void)
import Data.IORef
import Data.Map.Strict qualified as Map
import Weft.Substrate
import Weft.Substrate.Internal.Takeover (displace)
import Weft.Substrate.Program
import Weft.Substrate.Semantics (Outcome)

-- | The world of the implementation.
data Substrate

type instance Variable Substrate = PVar

type instance Stack Substrate = StackId

type instance Hec Substrate = HEC

type instance Key Substrate = SLSKey

-- | A run.
data Running = Running
  { -- | What was said so far.
    runningSaid :: IORef Outcome,
    -- | How another HEC is started.
    runningFork :: IO () -> IO ()
  }

newRunning :: (IO () -> IO ()) -> IO Running
newRunning fork = (`Running` fork) <$> newIORef Map.empty

-- | Run a program in a stack of this name, on a HEC of its own.
perform :: Running -> String -> Program Substrate () -> IO ()
perform r name p =
  reporting r name (void (inCall (ending r name (io r name p))))

reporting :: Running -> String -> IO () -> IO ()
reporting r name act = act `catch` \e -> saying r name ("fails with " <> show (e :: SomeException))

ending :: Running -> String -> IO () -> IO ()
ending r name act = act `catch` \e -> saying r name ("ends with " <> show (e :: Problem))

saying :: Running -> String -> String -> IO ()
saying r name x = atomicModifyIORef' (runningSaid r) (\m -> (Map.insertWith (flip (<>)) name [x] m, ()))

io :: Running -> String -> Program Substrate a -> IO a
io r name = \case
  Return a -> pure a
  Bind m f -> io r name m >>= io r name . f
  Throw e -> throwIO e
  Catch m h -> io r name m `catch` (io r name . h)
  Atomic m -> atomicPTM (ptm m)
  NewStack other code -> newStack (ending r other (io r other code))
  Switch m -> switch (ptm m) `catches` [Handler (\NotSuspended -> throwIO Unsuspended)]
  NewKey a -> newSLSKey a
  SetLocal k a -> setSLS k a
  RaiseAsync e -> raiseAsync e >> error "raiseAsync came back"
  InCall other code -> runningFork r (perform r other code)
  -- Unwatched: what the semantics has of time is Tick.
  InCallWith away back other code ->
    runningFork r . reporting r other . void $
      inCallWith False (Handlers (\_ t -> ptm (away t)) (ptm . back)) (ending r other (io r other code))
  Tick h -> displace h Computes
  OutCall m -> outCall (io r name m)
  Say x -> saying r name x

ptm :: Transaction Substrate a -> PTM a
ptm = \case
  Pure a -> pure a
  Then m f -> ptm m >>= ptm . f
  ThrowT e -> throwPTM e
  CatchT m h -> catchPTM (ptm m) (ptm . h)
  New a -> newPVar a
  Get v -> readPVar v
  Put v a -> writePVar v a
  GetHec -> getHEC
  GetStack -> getStackId
  GetLocal k -> getSLS k
  Sleep -> sleepHEC
  Wake h -> wakeupHEC h
