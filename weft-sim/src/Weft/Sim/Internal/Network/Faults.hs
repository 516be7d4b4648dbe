{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The network as the steering of a simulation sees it: links that are cut and heal, machines that
-- lose their power, and what a thread waits for on the network.
module Weft.Sim.Internal.Network.Faults
  ( setLink,
    setLinks,
    LinkSettings (..),
    goodLink,
    cut,
    cutOneWay,
    heal,
    resetConnections,
    crashMachine,
    describeWait,
  )
where

import Control.Monad (unless)
import Data.Foldable (for_)
import Data.IORef
import Foreign.C.Error (eCONNRESET)
import Weft.Internal.Core.SystemCall hiding (describe)
import Weft.Internal.Kernel.Peer (socketOf)
import Weft.Internal.Os.Address (showAddress)
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Network.Ports
import Weft.Sim.Internal.Network.Segments (cancelAlarm, die)
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.World

-- | Change the link from one machine to another.
setLink :: Network -> Machine -> Machine -> (LinkSettings -> LinkSettings) -> IO ()
setLink net a b change = do
  link <- linkFrom (netLinks net) a b
  before <- readIORef (linkNow link)
  let now = change before
  writeIORef (linkNow link) now
  unless (now == before) . note (netWorld net) $
    "link from " <> show a <> " to " <> show b <> told before now
  where
    told before now
      | linkCut now && not (linkCut before) = " is cut"
      | linkCut before && not (linkCut now) = " is whole again"
      | otherwise = " is now " <> show now

-- | Change the links from the machines of one group to those of another.
setLinks :: Network -> [Machine] -> [Machine] -> (LinkSettings -> LinkSettings) -> IO ()
setLinks net as bs change = for_ [(a, b) | a <- as, b <- bs, a /= b] $ \(a, b) -> setLink net a b change

cut :: Network -> [Machine] -> [Machine] -> IO ()
cut net as bs = cutOneWay net as bs >> cutOneWay net bs as

-- | Nothing passes from the machines of one group to those of another; the other way is as it was.
cutOneWay :: Network -> [Machine] -> [Machine] -> IO ()
cutOneWay net as bs = setLinks net as bs (\l -> l {linkCut = True})

heal :: Network -> [Machine] -> [Machine] -> IO ()
heal net as bs = setLinks net as bs whole >> setLinks net bs as whole
  where
    whole l = l {linkCut = False}

-- | Every connection of a machine is reset, as by a firewall that has forgotten it: both ends fail.
resetConnections :: Network -> Machine -> IO ()
resetConnections net machine = do
  things <- entriesOf (netThings net) machine
  for_ [sock | ThingSocket sock <- things] $ \sock ->
    readIORef (sockRole sock) >>= \case
      Streaming end -> readIORef (endPeer end) >>= mapM_ (\peer -> die net peer eCONNRESET) >> die net end eCONNRESET
      _ -> pure ()

-- | A machine has lost its power: its sockets and pipes are gone, no peer is told, no thread that
-- waits is answered. Whether the machine is up is for the caller to say.
crashMachine :: Network -> Machine -> IO ()
crashMachine net machine = do
  writeIORef (machineStarved machine) []
  gone <- strikeAll (netThings net) machine
  for_ gone $ \case
    ThingReader end -> forget end
    ThingWriter end -> forget end
    ThingSocket sock -> do
      release net sock
      readIORef (sockRole sock) >>= \case
        Fresh -> pure ()
        Streaming end -> forget end
        Datagrams box -> mapM_ desert [boxReaders box, boxSenders box]
        Listening l -> do
          writeIORef (listenerClosed l) True
          mapM_ desert [listenerAccepting l, listenerConnecting l]
          readIORef (listenerQueue l) >>= mapM_ forget
  forgetPaths net machine
  where
    forget end = do
      setFlag (endFlags end) Closed True
      cancelAlarm net end
      mapM_ desert [endReaders end, endWriters end]

-- | The peer of the socket of a call, for reports.
describeWait :: Network -> SystemCall a -> IO (Maybe String)
describeWait net = \case
  Connect s _ _ -> about s
  request -> maybe (pure Nothing) about (socketOf request)
  where
    about s =
      entryAt (netThings net) (socketDescriptor s) >>= \case
        Just (ThingSocket sock) -> describeSock sock
        _ -> pure Nothing
    describeSock sock =
      readIORef (sockRole sock) >>= \case
        Fresh -> pure Nothing
        Streaming end -> pure (Just (", peer " <> show (endRemote end)))
        Listening l -> pure (Just (", listening on " <> showAddress (listenerAddress l)))
        Datagrams box ->
          readIORef (boxPeer box) >>= \case
            Just peer -> pure (Just (", peer " <> showAddress peer))
            Nothing -> (\a -> Just (", bound to " <> show a)) <$> localName sock
