{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The names of Unix-domain sockets
--
-- Which socket is meant by a path. Binding makes a name in the file system of the socket's machine
-- ("Weft.Sim.Internal.Disk"), which may be renamed and removed there and outlives the socket; the
-- socket that is bound to it is known here. A name that begins with a NUL is in no file system and
-- ends with its socket.
--
-- A crash leaves the names as it leaves those of files: a recent one may be lost, and of those
-- that are left no socket is bound to any.
module Weft.Sim.Internal.Network.Paths
  ( bindPath,
    socketAt,
    releasePath,
    forgetPaths,
    pathName,
  )
where

import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Map.Strict qualified as Map
import Foreign.C.Error
import Network.Socket (SockAddr (..))
import Weft.Sim.Internal.Disk (findSocket, nameSocket)
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.World

-- | Bind a socket, once, to a name that nothing has.
bindPath :: Network -> Sock -> SockAddr -> IO (Either Errno ())
bindPath net s address =
  readIORef (sockBound s) >>= \case
    Unbound -> case address of
      SockAddrUnix path@(c : _)
        | c == '\0' -> do
            taken <- Map.member (Abstract here path) <$> readIORef (netPaths net)
            if taken then pure (Left eADDRINUSE) else Right <$> occupy path (Abstract here path)
        | otherwise ->
            nameSocket (netDisks net) (sockMachine s) (Char8.pack path) >>= traverse (occupy path . InFile here)
      _ -> pure (Left eINVAL)
    _ -> pure (Left eINVAL)
  where
    here = machineNumber (sockMachine s)
    occupy path place = do
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

-- | The socket of a place is closed. A name in a file system stays.
releasePath :: Network -> SocketPath -> IO ()
releasePath net place = modifyIORef' (netPaths net) (Map.delete place)

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
