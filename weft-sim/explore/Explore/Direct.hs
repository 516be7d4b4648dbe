-- |
-- Description : The direct style under exploration
module Explore.Direct (scenarios) where

import Control.Exception qualified as Ghc
import Control.Monad (replicateM_)
import Data.IORef
import Explore.Scenario
import Weft
import Weft.Channel qualified as Channel
import Weft.IO qualified as IO
import Weft.Mutex (newMutex, tryLock)

scenarios :: [Scenario]
scenarios =
  [ small "direct/lock" 3 "a mutex held in direct style is free when its thread was cancelled" lockFree,
    small "direct/bracket" 3 "what was acquired in plain IO is released once" brackets,
    small "direct/channel" 2 "direct and monadic threads pass values to each other" pipes,
    small "direct/yield" 2 "a yield that is cancelled raises in the plain code, which handles it" yields
  ]

lockFree :: Thread Complaints
lockFree = do
  mutex <- newMutex
  t <- forkOn 1 (IO.direct (replicateM_ 2 (IO.withMutex mutex IO.yield)))
  _ <- forkOn 0 (IO.direct (IO.withMutex mutex (IO.cancel t)))
  quiet
  expect "it is held" <$> tryLock mutex

brackets :: Thread Complaints
brackets = do
  open <- liftIO (newIORef (0 :: Int))
  due <- liftIO (newIORef (0 :: Int))
  t <- forkOn 1 (IO.direct (Ghc.bracket_ (modifyIORef' open (+ 1) >> modifyIORef' due (+ 1)) (modifyIORef' due (subtract 1) >> IO.yield >> modifyIORef' open (subtract 1)) (IO.yield >> IO.await (sleep (seconds 1)))))
  _ <- forkOn 0 (yield >> cancel t >> cancel t)
  quiet
  left <- liftIO (readIORef open)
  -- The release waits, and so may be interrupted by the second; but it has begun.
  (expect ("acquired and not released: " <> show left) (left `elem` [0, 1]) <>) . expectEqual "releases that have not begun" 0 <$> liftIO (readIORef due)

pipes :: Thread Complaints
pipes = do
  channel <- Channel.newChannel 1
  _ <- forkOn 1 (IO.direct (mapM_ (IO.await . Channel.send channel) "ab" >> IO.await (Channel.close channel)))
  let receiveAll = Channel.receive channel >>= maybe (pure "") (\c -> (c :) <$> receiveAll)
  expectEqual "received" "ab" <$> receiveAll

yields :: Thread Complaints
yields = do
  log' <- newLog
  let saying = IO.await . say log'
  t <- forkOn 1 (IO.direct ((saying 'b' >> IO.yield >> IO.yield >> saying 'e') `Ghc.catch` \e -> saying 'c' >> Ghc.throwIO (e :: Cancelled)))
  _ <- forkOn 0 (cancel t)
  quiet
  got <- said log'
  pure (expect got (got `elem` ["", "c", "bc", "be", "bec"]))
