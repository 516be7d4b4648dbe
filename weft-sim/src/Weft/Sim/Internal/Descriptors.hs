{-# OPTIONS_HADDOCK not-home #-}

-- | Descriptors of simulated machines, and what they stand for. The numbers that a machine gives to
-- sockets, pipes and files, and tables from these to what they stand for: only if it is of the
-- asking machine and is not closed. A number is used again as soon as it is closed, so an entry is
-- good for one serial.
module Weft.Sim.Internal.Descriptors
  ( -- * Numbers
    takeDescriptor,
    giveDescriptor,
    firstDescriptor,

    -- * Tables
    Table,
    newTable,
    enlist,
    strike,
    strikeAll,
    entriesOf,
    entryAt,
    withEntry,
    refuseReal,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (forM, unless)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
import Data.Word (Word32)
import Foreign.C.Error (eBADF, errnoToIOError)
import Foreign.C.Types (CInt)
import System.IO.Error (ioeSetErrorString)
import Weft.Internal.Core.Trace (Trace (..))
import Weft.Internal.Os.Descriptor (Descriptor (..), newDescriptor)
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The number of the first descriptor that is simulated. No real one is as large, so that a
-- descriptor of one world used in the other is noticed.
firstDescriptor :: CInt
firstDescriptor = 1_000_000

-- | The lowest number that is free on a machine; 'Nothing' if it has none left (@EMFILE@).
takeDescriptor :: World -> Machine -> IO (Maybe Descriptor)
takeDescriptor world machine = do
  used <- readIORef (machineDescriptors machine)
  if IntSet.size used >= min perMachine (descriptorLimit (worldConditions world))
    then pure Nothing
    else do
      let n = lowestFree used
      writeIORef (machineDescriptors machine) (IntSet.insert n used)
      Just <$> newDescriptor (firstDescriptor + fromIntegral (machineNumber machine * perMachine + n))

lowestFree :: IntSet -> Int
lowestFree used = go 0 (IntSet.toAscList used)
  where
    go n (m : rest) | m == n = go (n + 1) rest
    go n _ = n

-- | The number is free: what waits for one on this machine is tried again.
giveDescriptor :: Machine -> CInt -> IO ()
giveDescriptor machine number = do
  modifyIORef' (machineDescriptors machine) (IntSet.delete (fromIntegral (number - firstDescriptor) `mod` perMachine))
  starved <- readIORef (machineStarved machine)
  unless (null starved) $ writeIORef (machineStarved machine) [] >> sequence_ (reverse starved)

-- | A descriptor's number says which machine it is of.
perMachine :: Int
perMachine = 100_000

newtype Table a = Table (IORef (IntMap (Listed a)))

data Listed a = Listed !Word32 !Machine !a

newTable :: IO (Table a)
newTable = Table <$> newIORef IntMap.empty

enlist :: Table a -> Machine -> Descriptor -> a -> IO ()
enlist (Table ref) machine d a =
  modifyIORef' ref (IntMap.insert (fromIntegral (descriptorNumber d)) (Listed (descriptorSerial d) machine a))

-- | Close a descriptor. What it stood for; 'Nothing' if it was closed before.
strike :: Table a -> Descriptor -> IO (Maybe a)
strike table@(Table ref) d =
  lookUp table d >>= \case
    Nothing -> pure Nothing
    Just (Listed _ machine a) -> do
      modifyIORef' ref (IntMap.delete (fromIntegral (descriptorNumber d)))
      Just a <$ giveDescriptor machine (descriptorNumber d)

strikeAll :: Table a -> Machine -> IO [a]
strikeAll (Table ref) machine = do
  (gone, left) <- IntMap.partition (isOf machine) <$> readIORef ref
  writeIORef ref left
  forM (IntMap.toList gone) $ \(number, Listed _ _ a) -> a <$ giveDescriptor machine (fromIntegral number)

entriesOf :: Table a -> Machine -> IO [a]
entriesOf (Table ref) machine = (\entries -> [a | e@(Listed _ _ a) <- IntMap.elems entries, isOf machine e]) <$> readIORef ref

isOf :: Machine -> Listed a -> Bool
isOf machine (Listed _ m _) = m == machine

lookUp :: Table a -> Descriptor -> IO (Maybe (Listed a))
lookUp (Table ref) d = do
  entries <- readIORef ref
  pure $! case IntMap.lookup (fromIntegral (descriptorNumber d)) entries of
    Just entry@(Listed serial _ _) | serial == descriptorSerial d -> Just entry
    _ -> Nothing
{-# OPAQUE lookUp #-}

-- | What a descriptor stands for, on any machine; 'Nothing' if it is closed.
entryAt :: Table a -> Descriptor -> IO (Maybe a)
entryAt table d = fmap (\(Listed _ _ a) -> a) <$> lookUp table d

-- | Use what a descriptor stands for, in a call of this name. Fails with @EBADF@ if it is closed, or
-- is of another world or machine.
withEntry :: World -> Table a -> String -> Descriptor -> Ask -> (a -> IO Trace) -> IO Trace
withEntry world table what d ask use
  | descriptorNumber d < firstDescriptor = Throw <$> refuseReal world what d
  | otherwise =
      lookUp table d >>= \case
        Just (Listed _ machine a)
          | machine == askMachine ask -> use a
          | otherwise -> Throw <$> foreigner world what d ("of machine " <> show machine <> "; a thread on " <> show (askMachine ask) <> " cannot use it")
        Nothing -> pure (Throw (failure what Nothing eBADF))
{-# INLINE withEntry #-}

refuseReal :: World -> String -> Descriptor -> IO SomeException
refuseReal world what d = foreigner world what d "of the operating system; inside a simulation only those work that were opened there"

foreigner :: World -> String -> Descriptor -> String -> IO SomeException
foreigner world what d why = do
  let text = show d <> " is " <> why
  worldWarn world (what <> ": " <> text)
  pure (toException (ioeSetErrorString (errnoToIOError what eBADF Nothing Nothing) text))
