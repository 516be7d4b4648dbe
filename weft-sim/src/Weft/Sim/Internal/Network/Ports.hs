{-# OPTIONS_HADDOCK not-home #-}

-- | Which socket has which address: the ports of every machine, the owner of each address, and the
-- names of the Unix domain. Binding makes a name in the file system of the socket's machine
-- ("Weft.Sim.Internal.Disk.Names"), which outlives the socket. A name that begins with a NUL is in
-- no file system and ends with its socket.
module Weft.Sim.Internal.Network.Ports
  ( -- * Machines
    destination,
    Destination (..),
    sourceFor,

    -- * Binding
    bindInet,
    bindSomewhere,
    ensureBound,
    sourceAddress,
    release,
    countAccepted,

    -- * Finding
    listenersAt,
    boxesAt,
    isTaken,
    localName,

    -- * Paths
    bindPath,
    socketAt,
    forgetPaths,
    pathName,
  )
where

import Control.Monad (filterM)
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (find)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Foreign.C.Error
import Network.Socket (Family (..), SockAddr (..), SocketOption (..), SocketType (..), tupleToHostAddress)
import Weft.Sim.Internal.Disk.Names (findSocket, nameSocket)
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.World

data Destination
  = ToMachine !Machine
  | -- | It could be a machine's of the same network, but is no machine's.
    ToNobody
  | NoRoute

-- | Where an address leads, as one machine sees it.
destination :: Network -> Machine -> IP -> IO Destination
destination net here ip = case ip of
  _ | isLoopback ip || isAny ip -> pure (ToMachine here)
  V6 _ -> pure NoRoute
  V4 host
    | host `elem` machineAddresses here -> pure (ToMachine here)
    | otherwise -> maybe (nobody host) ToMachine . IntMap.lookup (fromIntegral host) <$> readIORef (worldOwners (netWorld net))
  where
    nobody host = if any (sameNetwork host) (machineAddresses here) then ToNobody else NoRoute

-- | The address from which a machine sends to another one.
sourceFor :: Machine -> IP -> IP
sourceFor here to
  | isLoopback to || isAny to = loopbackOf to
  | otherwise = case to of
      V4 host
        | host `elem` own -> to
        | Just a <- find (sameNetwork host) own -> V4 a
      _ -> case own of
        a : _ -> V4 a
        [] -> V4 (tupleToHostAddress (127, 0, 0, 1))
  where
    own = machineAddresses here

localName :: Sock -> IO SockAddr
localName s =
  readIORef (sockBound s) >>= \case
    Unbound -> pure (unspecified (sockFamily s))
    BoundInet ip port -> pure (toProgram (sockFamily s) ip port)
    BoundWith ip port -> pure (toProgram (sockFamily s) ip port)
    BoundPath path _ -> pure (SockAddrUnix path)

-- The key of a port in the tables.
portKey :: Machine -> SocketType -> Port -> Int
portKey machine kind port = machineNumber machine * 0x20000 + (if kind == Stream then 0 else 0x10000) + port

socketKey :: Sock -> Port -> Int
socketKey s = portKey (sockMachine s) (sockType s)

-- | Is this option set to something else than 0?
optionIs :: Sock -> SocketOption -> IO Bool
optionIs s (SockOpt level name) = maybe False (/= 0) . Map.lookup (level, name) <$> readIORef (sockOptions s)

onlyV6 :: Sock -> IO Bool
onlyV6 s = if sockFamily s == AF_INET6 then optionIs s IPv6Only else pure False

inetOf :: Sock -> IO (Maybe (IP, Bool))
inetOf s =
  readIORef (sockBound s) >>= \case
    BoundInet ip _ -> Just . (ip,) <$> onlyV6 s
    _ -> pure Nothing

isListening :: Sock -> IO Bool
isListening s =
  readIORef (sockRole s) >>= \case
    Listening _ -> pure True
    _ -> pure False

-- | Bind a socket, once, to one of its machine's addresses; with port 0 to any that is free.
bindInet :: Network -> Sock -> IP -> Port -> IO (Either Errno ())
bindInet net s ip port = do
  let own = case ip of
        _ | isAny ip || isLoopback ip -> True
        V4 host -> host `elem` machineAddresses (sockMachine s)
        V6 _ -> False
  before <- readIORef (sockBound s)
  taken <- isTaken net s ip port
  if
    | not own -> pure (Left eADDRNOTAVAIL)
    | before /= Unbound -> pure (Left eINVAL)
    | port == 0 -> bindSomewhere net s ip
    | taken -> pure (Left eADDRINUSE)
    | otherwise -> Right <$> occupy net s ip port

-- | Does this socket keep another one from this address?
--
-- As on Linux: sockets may share an address if all have set @SO_REUSEPORT@, or if all
-- have set @SO_REUSEADDR@ and no other one listens.
isTaken :: Network -> Sock -> IP -> Port -> IO Bool
isTaken net s ip port = do
  mine <- (,) ip <$> onlyV6 s
  others <- filter (/= s) . IntMap.findWithDefault [] (socketKey s port) <$> readIORef (netPorts net)
  accepted <- IntMap.findWithDefault 0 (socketKey s port) <$> readIORef (netAccepted net)
  address <- optionIs s ReuseAddr
  shared <- optionIs s ReusePort
  let inTheWay o =
        inetOf o >>= \case
          Just theirs | overlap mine theirs -> do
            address' <- optionIs o ReuseAddr
            shared' <- optionIs o ReusePort
            listening' <- isListening o
            pure (not (shared && shared') && not (address && address' && not listening'))
          _ -> pure False
  conflicts <- filterM inTheWay others
  pure (not (null conflicts) || (accepted > 0 && not address && not shared))

bindSomewhere :: Network -> Sock -> IP -> IO (Either Errno ())
bindSomewhere net s ip = do
  let key = portKey (sockMachine s) (sockType s) 0
  start <- IntMap.findWithDefault firstFree key <$> readIORef (netNextPort net)
  ports <- readIORef (netPorts net)
  accepted <- readIORef (netAccepted net)
  let free p = IntMap.notMember (key + p) ports && IntMap.notMember (key + p) accepted
  case find free ([start .. lastFree] <> [firstFree .. start - 1]) of
    Nothing -> pure (Left eADDRINUSE)
    Just p -> do
      modifyIORef' (netNextPort net) (IntMap.insert key (if p == lastFree then firstFree else p + 1))
      Right <$> occupy net s ip p
  where
    firstFree = 49152
    lastFree = 65535

-- | 'bindSomewhere', unless the socket has an address.
ensureBound :: Network -> Sock -> IP -> IO (Either Errno ())
ensureBound net s ip =
  readIORef (sockBound s) >>= \case
    Unbound -> bindSomewhere net s ip
    _ -> pure (Right ())

-- | From where a socket sends to an address; one that is bound to all addresses sends from one of
-- them.
sourceAddress :: Sock -> IP -> IO (IP, Port)
sourceAddress s to =
  readIORef (sockBound s) >>= \case
    BoundInet own port | not (isAny own) -> pure (own, port)
    BoundInet _ port -> pure (sourceFor (sockMachine s) to, port)
    _ -> pure (sourceFor (sockMachine s) to, 0)

occupy :: Network -> Sock -> IP -> Port -> IO ()
occupy net s ip port = do
  modifyIORef' (netPorts net) (IntMap.insertWith (<>) (socketKey s port) [s])
  writeIORef (sockBound s) (BoundInet ip port)

-- | The socket does not need its address any more.
release :: Network -> Sock -> IO ()
release net s = do
  bound <- readIORef (sockBound s)
  writeIORef (sockBound s) Unbound
  case bound of
    BoundInet _ port -> modifyIORef' (netPorts net) (IntMap.update (nonEmpty . filter (/= s)) (socketKey s port))
    BoundWith _ port -> countAccepted net s port (-1)
    -- A name in a file system stays.
    BoundPath _ place -> for_ place $ \p -> modifyIORef' (netPaths net) (Map.delete p)
    Unbound -> pure ()
  where
    nonEmpty others = if null others then Nothing else Just others

countAccepted :: Network -> Sock -> Port -> Int -> IO ()
countAccepted net s port change = modifyIORef' (netAccepted net) (IntMap.alter by (socketKey s port))
  where
    by now = let n = fromMaybe 0 now + change in if n <= 0 then Nothing else Just n

-- | The listeners at an address of a machine: the sockets that are bound to this very address, or
-- else those bound to all.
listenersAt :: Network -> Machine -> IP -> Port -> IO [Sock]
listenersAt net machine ip port = boundAt net machine Stream ip port >>= filterM isListening

-- | The socket that receives datagrams there.
boxesAt :: Network -> Machine -> IP -> Port -> IO [Sock]
boxesAt net machine = boundAt net machine Datagram

boundAt :: Network -> Machine -> SocketType -> IP -> Port -> IO [Sock]
boundAt net machine kind ip port = do
  socks <- IntMap.findWithDefault [] (portKey machine kind port) <$> readIORef (netPorts net)
  exact <- filterM (fmap (maybe False ((== ip) . fst)) . inetOf) socks
  if null exact then filterM (fmap (maybe False (`covers` ip)) . inetOf) socks else pure exact

-- | Bind a socket, once, to a name that nothing has.
bindPath :: Network -> Sock -> SockAddr -> IO (Either Errno ())
bindPath net s address =
  readIORef (sockBound s) >>= \case
    Unbound -> case address of
      SockAddrUnix path@(c : _)
        | c == '\0' -> do
            taken <- Map.member (Abstract here path) <$> readIORef (netPaths net)
            if taken then pure (Left eADDRINUSE) else Right <$> name path (Abstract here path)
        | otherwise ->
            nameSocket (netDisks net) (sockMachine s) (Char8.pack path) >>= traverse (name path . InFile here)
      _ -> pure (Left eINVAL)
    _ -> pure (Left eINVAL)
  where
    here = machineNumber (sockMachine s)
    name path place = do
      modifyIORef' (netPaths net) (Map.insert place s)
      writeIORef (sockBound s) (BoundPath path (Just place))

-- | The socket that a path leads to, on this machine. @ECONNREFUSED@ if no socket is bound to
-- the file there.
socketAt :: Network -> Machine -> String -> IO (Either Errno Sock)
socketAt net machine path = case path of
  '\0' : _ -> bound (Abstract here path)
  _ -> findSocket (netDisks net) machine (Char8.pack path) >>= either (pure . Left) (bound . InFile here)
  where
    here = machineNumber machine
    bound place = maybe (Left eCONNREFUSED) Right . Map.lookup place <$> readIORef (netPaths net)

-- | A machine has lost its power: no socket there is bound to anything.
forgetPaths :: Network -> Machine -> IO ()
forgetPaths net machine = modifyIORef' (netPaths net) (Map.filterWithKey (\place _ -> placeMachine place /= machineNumber machine))
  where
    placeMachine = \case
      InFile m _ -> m
      Abstract m _ -> m

-- | The name of a socket, as its peers see it; perhaps none.
pathName :: Sock -> IO SockAddr
pathName s =
  readIORef (sockBound s) >>= \case
    BoundPath path _ -> pure (SockAddrUnix path)
    _ -> pure (SockAddrUnix "")
