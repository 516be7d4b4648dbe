-- |
-- Description : State of threads and shared variables, under exploration
module Explore.Locals (scenarios) where

import Control.Monad (replicateM_)
import Explore.Scenario
import Weft
import Weft.Local
import Weft.Ref

scenarios :: [Scenario]
scenarios =
  [ small "locals/inherited" 2 "a child keeps what it inherited, whatever its parent does" inherited,
    small "locals/restored" 2 "the former value is back when a part was cancelled" restored,
    small "refs/atomic" 2 "atomic changes lose nothing" atomic
  ]

inherited :: Thread Complaints
inherited = do
  key <- newInheritedLocal 'd'
  own <- newLocal 'o'
  log' <- newLog
  withLocal key 'a' $ do
    setLocal own 'x'
    _ <- spread [yield >> getLocal key >>= say log', getLocal own >>= say log']
    setLocal key 'b'
  mine <- getLocal key
  quiet
  got <- said log'
  pure (expectEqual "what the children see" "ao" (if got == "oa" then "ao" else got) <> expectEqual "the former value" 'd' mine)

restored :: Thread Complaints
restored = do
  key <- newLocal 'd'
  log' <- newLog
  t <- forkOn 1 (mask $ \restore -> do
    _ <- try (restore (withLocal key 'a' (sleep (seconds 100)))) :: Thread (Either Cancelled ())
    getLocal key >>= say log')
  _ <- forkOn 0 (cancel t)
  quiet
  got <- said log'
  pure (expect got (got `elem` ["", "d"]))

atomic :: Thread Complaints
atomic = do
  ref <- newRef (0 :: Int)
  _ <- spread (replicate 2 (replicateM_ 2 (atomicModifyRef_ ref (+ 1))))
  quiet
  expectEqual "the sum" 4 <$> atomicReadRef ref
