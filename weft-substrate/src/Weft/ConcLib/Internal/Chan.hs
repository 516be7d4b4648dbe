{-# OPTIONS_HADDOCK hide #-}

-- |
-- Description : Channels without a bound
--
-- A list whose end is an empty 'MVar', and an 'MVar' for each of its ends. As GHC's.
module Weft.ConcLib.Internal.Chan (Chan, newChan, writeChan, readChan, dupChan, getChanContents, writeList2Chan) where

import Control.Exception (mask_)
import System.IO.Unsafe (unsafeInterleaveIO)
import Weft.ConcLib.Internal.MVar

-- | A channel: values are read in the order in which they were written.
data Chan a = Chan (MVar (Stream a)) (MVar (Stream a))

type Stream a = MVar (Item a)

data Item a = Item a (Stream a)

-- | A channel that is empty.
newChan :: IO (Chan a)
newChan = do
  hole <- newEmptyMVar
  Chan <$> newMVar hole <*> newMVar hole

-- | Write at the end. Does not wait for readers.
writeChan :: Chan a -> a -> IO ()
writeChan (Chan _ end) a = do
  new <- newEmptyMVar
  mask_ $ do
    old <- takeMVar end
    putMVar old (Item a new)
    putMVar end new

-- | Read the first; wait for one. Interruptible while it waits.
readChan :: Chan a -> IO a
readChan (Chan front _) = modifyMVar front $ \stream -> do
  Item a rest <- readMVar stream
  pure (rest, a)

-- | Another channel, empty now, that has everything that is written to either from now on.
dupChan :: Chan a -> IO (Chan a)
dupChan (Chan _ end) = do
  hole <- readMVar end
  front <- newMVar hole
  pure (Chan front end)

-- | Write all.
writeList2Chan :: Chan a -> [a] -> IO ()
writeList2Chan c = mapM_ (writeChan c)

-- | All values that are still to be read, each read when it is needed. The reader waits in a lazy value then, so it is for
-- threads of "Weft.ConcLib.OS", and of "Weft.ConcLib.MP" with 'Weft.ConcLib.MP.settingPreempts'.
getChanContents :: Chan a -> IO [a]
getChanContents c = unsafeInterleaveIO (readChan c >>= \a -> (a :) <$> getChanContents c)
