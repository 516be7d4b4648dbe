{-# LANGUAGE GADTs #-}

-- |
-- An example: a system call of one's own, and the event loop that answers it.
--
-- A message bus that the library knows nothing about: threads publish lines on a
-- topic and wait for the next line of one. The requests are data ('Bus'); a kernel
-- is taught to hand them to a loop ('withBus'); the loop, on an OS thread of its
-- own, keeps the waiters and answers them (Li & Zdancewic 2007, section 4.2). The
-- loop here reads a channel; it could as well read a device or a C library's queue.
module OwnCall
  ( Bus (..),
    publish,
    next,
    withBus,
  )
where

import Control.Concurrent (Chan, forkIO, killThread, newChan, readChan, writeChan)
import Control.Exception (bracket)
import Control.Monad (forM_, void)
import Data.Map.Strict qualified as Map
import Weft (Thread)
import Weft.Kernel

-- | The requests.
data Bus a where
  Publish :: String -> String -> Bus ()
  Next :: String -> Bus String

deriving stock instance Show (Bus a)

-- | Publish a line on a topic.
publish :: String -> String -> Thread ()
publish topic line = request (Publish topic line)

-- | Wait for the next line of a topic.
next :: String -> Thread String
next topic = request (Next topic)

-- | A request with the waiter for its answer.
data Asked = forall a. Asked (Bus a) (Waiter a)

-- | A kernel that also answers the requests of a bus, while the body runs.
withBus :: Kernel -> (Kernel -> IO r) -> IO r
withBus kernel body = do
  asked <- newChan
  bracket (forkIO (loop asked Map.empty)) killThread $ \_ ->
    body (extend (\bus waiter -> writeChan asked (Asked bus waiter)) kernel)

-- | The event loop: the waiters for each topic.
loop :: Chan Asked -> Map.Map String [Waiter String] -> IO ()
loop asked waiting =
  readChan asked >>= \case
    Asked (Next topic) waiter -> loop asked (Map.insertWith (flip (<>)) topic [waiter] waiting)
    Asked (Publish topic line) publisher -> do
      forM_ (Map.findWithDefault [] topic waiting) $ \w -> deliver w (Answered line)
      void (deliver publisher (Answered ()))
      loop asked (Map.delete topic waiting)
