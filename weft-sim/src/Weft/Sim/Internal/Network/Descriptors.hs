{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The table of a simulated kernel's descriptors for sockets and pipes
--
-- From a descriptor to what it stands for: only if it is of this machine and is not closed. A
-- number is used again as soon as it is closed, so an entry is good for one serial.
module Weft.Sim.Internal.Network.Descriptors
  ( enlist,
    strike,
    isOpenSock,
    thingAt,
    withThing,
    withSocket,
    withRole,
  )
where

import Control.Exception (toException)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isJust)
import Foreign.C.Error (eBADF, eNOTSOCK)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.Trace (Trace (..))
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

enlist :: Network -> Machine -> Descriptor -> Thing -> IO ()
enlist net machine d thing =
  modifyIORef' (netEntries net) (IntMap.insert (fromIntegral (descriptorNumber d)) (DescriptorEntry (descriptorSerial d) machine thing))

-- | It is closed: its number is free, and accepts that wait for one are tried again. What it
-- stood for; 'Nothing' if it was closed before.
strike :: Network -> Descriptor -> IO (Maybe Thing)
strike net d =
  entryAt net d >>= \case
    Nothing -> pure Nothing
    Just (DescriptorEntry _ machine thing) -> do
      modifyIORef' (netEntries net) (IntMap.delete (fromIntegral (descriptorNumber d)))
      giveDescriptor machine (descriptorNumber d)
      starved <- readIORef (netStarved net)
      for_ (IntMap.lookup (machineNumber machine) starved) $ \waiting -> do
        writeIORef (netStarved net) (IntMap.delete (machineNumber machine) starved)
        sequence_ (reverse waiting)
      pure (Just thing)

entryAt :: Network -> Descriptor -> IO (Maybe DescriptorEntry)
entryAt net d = do
  entries <- readIORef (netEntries net)
  pure $! case IntMap.lookup (fromIntegral (descriptorNumber d)) entries of
    Just entry@(DescriptorEntry serial _ _) | serial == descriptorSerial d -> Just entry
    _ -> Nothing
{-# OPAQUE entryAt #-}

-- | The thing of a descriptor, on any machine; 'Nothing' if it is closed.
thingAt :: Network -> Descriptor -> IO (Maybe Thing)
thingAt net d = fmap (\(DescriptorEntry _ _ thing) -> thing) <$> entryAt net d

isOpenSock :: Network -> Sock -> IO Bool
isOpenSock net s = isJust <$> thingAt net (sockDescriptor s)

-- | Use the thing of a descriptor, in a call of this name.
withThing :: Network -> String -> Descriptor -> (Thing -> Answering a) -> Answering a
withThing net what d use ask k
  | descriptorNumber d < firstDescriptor = do
      let text = what <> ": " <> show d <> " is a descriptor of the operating system; inside a simulation only those work that were opened there"
      worldWarn (netWorld net) text
      pure (Throw (toException (userError text)))
  | otherwise =
      entryAt net d >>= \case
        Just (DescriptorEntry _ machine thing)
          | machine == askMachine ask -> use thing ask k
          | otherwise -> do
              worldWarn (netWorld net) (what <> ": " <> show d <> " is of machine " <> show machine <> "; a thread on " <> show (askMachine ask) <> " cannot use it")
              bad
        Nothing -> bad
  where
    bad = refuse what eBADF ask k
{-# INLINE withThing #-}

withSocket :: Network -> String -> Socket -> (Sock -> Answering a) -> Answering a
withSocket net what s use = withThing net what (socketDescriptor s) $ \case
  ThingSocket sock -> use sock
  ThingPipe _ -> refuse what eNOTSOCK
{-# INLINE withSocket #-}

-- | 'withSocket', with what the socket is there for now.
withRole :: Network -> String -> Socket -> (Sock -> Role -> Answering a) -> Answering a
withRole net what s use = withSocket net what s $ \sock ask k -> readIORef (sockRole sock) >>= \role -> use sock role ask k
{-# INLINE withRole #-}
