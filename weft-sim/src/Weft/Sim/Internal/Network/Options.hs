{-# OPTIONS_HADDOCK not-home #-}

-- | Options of sockets. Options are numbers by level and name. Those that mean something here:
-- @SO_REUSEADDR@, @SO_REUSEPORT@, @IPV6_V6ONLY@, @SO_SNDBUF@ (the room of a stream), and
-- @SO_LINGER@: 0 has a close reset the connection. All others are remembered, and do nothing. What
-- the system's kernel refuses is refused.
module Weft.Sim.Internal.Network.Options (readOption, writeOption, lingersNot) where

import Data.IORef
import Data.Map.Strict qualified as Map
import Foreign.C.Error
import Foreign.C.Types (CInt)
import Network.Socket (Family (..), SocketOption (..), SocketType (..), packFamily)
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.World

readOption :: Network -> Sock -> SocketOption -> IO (Either Errno Int)
readOption net s (SockOpt level name) = case (level, name) of
  (1, 3) -> pure . Right $ case sockType s of
    Stream -> 1
    Datagram -> 2
    _ -> 5
  (1, 4) -> Right . maybe 0 (\(Errno e) -> fromIntegral e) <$> pendingError
  (1, 30) ->
    readIORef (sockRole s) >>= \case
      Listening _ -> pure (Right 1)
      _ -> pure (Right 0)
  (1, 38) -> pure . Right $ case (sockFamily s, sockType s) of
    (AF_UNIX, _) -> 0
    (_, Stream) -> protocolTcp
    _ -> 17
  (1, 39) -> pure (Right (fromIntegral (packFamily (sockFamily s))))
  _ | not (knows s level) -> pure (Left eOPNOTSUPP)
  _ -> Right . Map.findWithDefault (byDefault net level name) (level, name) <$> readIORef (sockOptions s)
  where
    pendingError =
      readIORef (sockRole s) >>= \case
        Streaming end -> takeError (endError end)
        Datagrams box -> takeError (boxError box)
        _ -> pure Nothing
    protocolTcp = 6

byDefault :: Network -> CInt -> CInt -> Int
byDefault net level name = case (level, name) of
  (1, 7) -> streamBuffer conditions
  (1, 8) -> streamBuffer conditions
  -- Time to live.
  (0, 2) -> 64
  (41, 16) -> 64
  -- Closing does not linger.
  (1, 13) -> -1
  (6, 13) -> cubic
  -- Maximum segment size.
  (6, 2) -> 536
  _ -> 0
  where
    conditions = worldConditions (netWorld net)

-- Levels: of all sockets (1), IP (0), TCP (6), UDP (17), IPv6 (41).
knows :: Sock -> CInt -> Bool
knows s level = case level of
  1 -> True
  0 -> family /= AF_UNIX
  6 -> family /= AF_UNIX && sockType s == Stream
  17 -> family /= AF_UNIX && sockType s == Datagram
  41 -> family == AF_INET6
  _ -> False
  where
    family = sockFamily s

-- The bytes of these names.
reno, cubic :: Int
reno = 0x6f6e6572
cubic = 0x6369627563

writeOption :: Sock -> SocketOption -> Int -> IO (Either Errno ())
writeOption s (SockOpt level name) value = case (level, name) of
  _ | not (knows s level) -> pure (Left (if sockFamily s == AF_UNIX then eOPNOTSUPP else eNOPROTOOPT))
  (1, n) | n `elem` [3, 4, 30, 38, 39] -> pure (Left eNOPROTOOPT)
  (41, 26) ->
    readIORef (sockBound s) >>= \case
      Unbound -> keep (signum (abs value))
      _ -> pure (Left eINVAL)
  -- The kernel takes twice of what it is told, for what it keeps beside the bytes.
  (1, 7) -> do
    let room = max 4_608 (2 * min 212_992 value)
    readIORef (sockRole s) >>= \case
      Streaming end -> setWord (flowWords (endOut end)) Capacity room >> serve (endWriters end)
      _ -> pure ()
    keep room
  (1, 8) -> keep (max 2_304 (2 * min 212_992 value))
  (1, 13)
    | value > 0 -> pure (Left eOPNOTSUPP)
    | otherwise -> keep (max (-1) value)
  (6, 13) | value `notElem` [reno, cubic] -> pure (Left eNOENT)
  -- These are on or off.
  (1, n) | n `elem` [1, 2, 5, 6, 9, 15] -> keep (signum (abs value))
  (6, 1) -> keep (signum (abs value))
  _ -> keep value
  where
    keep v = Right () <$ modifyIORef' (sockOptions s) (Map.insert (level, name) v)

-- | Is the connection to be reset when the socket is closed?
lingersNot :: Sock -> IO Bool
lingersNot s = (== Just 0) . Map.lookup (1, 13) <$> readIORef (sockOptions s)
