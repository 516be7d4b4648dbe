{-# OPTIONS_HADDOCK not-home #-}

-- | The links from one machine to another: how long what is sent takes, and whether it arrives.
-- Their settings may be changed while the simulation runs.
module Weft.Sim.Internal.Network.Links
  ( LinkSettings (..),
    goodLink,
    Links,
    newLinks,
    Link (..),
    linkFrom,
    Path (..),
    pathFrom,
    arrivalOver,
    backlogOf,
    isPassable,
    isLossy,
  )
where

import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (fromMaybe)
import Weft.Sim.Internal.World

-- | The troubles of a link.
data LinkSettings = LinkSettings
  { -- | Nothing passes.
    linkCut :: !Bool,
    -- | On top of what the conditions say, in nanoseconds.
    linkExtraDelay :: !Int64,
    -- | Of segments and datagrams, on top of what the conditions say for datagrams. A segment
    -- that is lost is sent again.
    linkLoss :: !Double,
    -- | Bytes in a second, in place of what the conditions say; 0: without limit.
    linkRate :: !(Maybe Int)
  }
  deriving stock (Eq, Show)

-- | As the conditions say, and nothing else.
goodLink :: LinkSettings
goodLink = LinkSettings False 0 0 Nothing

data Link = Link
  { linkNow :: !(IORef LinkSettings),
    -- | Until when it transmits what was given to it.
    linkBusy :: !(IORef Int64)
  }
  deriving stock (Eq)

-- | All links that were ever used, by the numbers of their machines.
newtype Links = Links (IORef (IntMap (IntMap Link)))

newLinks :: IO Links
newLinks = Links <$> newIORef IntMap.empty

linkFrom :: Links -> Machine -> Machine -> IO Link
linkFrom (Links ref) a b = do
  links <- readIORef ref
  case IntMap.lookup (machineNumber a) links >>= IntMap.lookup (machineNumber b) of
    Just link -> pure link
    Nothing -> do
      link <- Link <$> newIORef goodLink <*> newIORef 0
      writeIORef ref (IntMap.insertWith IntMap.union (machineNumber a) (IntMap.singleton (machineNumber b) link) links)
      pure link

-- | How bytes get from one end to the other.
data Path
  = -- | Through memory, in no time: Unix-domain sockets and pipes.
    Through
  | -- | Within a machine, with its addresses.
    Loopback
  | Over !Link
  deriving stock (Eq)

pathFrom :: Links -> Machine -> Machine -> IO Path
pathFrom links a b
  | a == b = pure Loopback
  | otherwise = Over <$> linkFrom links a b

-- | When what is sent now arrives, if it is the given number of bytes and nothing gets lost.
arrivalOver :: World -> Path -> Int -> IO Int64
arrivalOver world path size = do
  now <- clock (worldEvents world)
  case path of
    Through -> pure now
    Loopback -> (now +) <$> lasting (worldRandom world) (loopbackDelay conditions)
    Over link -> do
      settings <- readIORef (linkNow link)
      let rate = fromMaybe (linkBandwidth conditions) (linkRate settings)
      delay <- lasting (worldRandom world) (linkDelay conditions)
      begin <-
        if rate <= 0
          then pure now
          else do
            busy <- readIORef (linkBusy link)
            let end = max now busy + fromIntegral ((size + overhead) * 1_000_000_000 `div` rate)
            end <$ writeIORef (linkBusy link) end
      pure (begin + delay + linkExtraDelay settings)
  where
    conditions = worldConditions world
    -- The headers of IP and TCP.
    overhead = 40

-- | For how long a link will transmit what was given to it, in nanoseconds; 0 for other paths.
backlogOf :: World -> Path -> IO Int64
backlogOf world = \case
  Over link -> (\busy now -> max 0 (busy - now)) <$> readIORef (linkBusy link) <*> clock (worldEvents world)
  _ -> pure 0

isPassable :: Path -> IO Bool
isPassable = \case
  Over link -> not . linkCut <$> readIORef (linkNow link)
  _ -> pure True

isLossy :: World -> Path -> IO Bool
isLossy world = \case
  Over link -> readIORef (linkNow link) >>= chance (worldRandom world) . linkLoss
  _ -> pure False
