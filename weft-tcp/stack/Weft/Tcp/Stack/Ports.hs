{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Who has which port
--
-- Ports of TCP and of UDP, which are independent of each other, and common to all shards. Everything here runs in
-- the turn of one.
module Weft.Tcp.Stack.Ports
  ( claimPort,
    changePort,
    unbind,
    freePort,
    bindingsAt,
    udpPort,
    conflicts,
    isBoth,
    roll,
  )
where

import Control.Monad ((>=>))
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Word (Word16, Word32)
import Foreign.C.Error
import Network.Socket (Family (..))
import Weft.Tcp.Packet (Address (..), sameFamily)
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.State

-- | The place of a port of UDP in 'stackPorts'. That of a port of TCP is its number.
udpPort :: Word16 -> Int
udpPort port = 0x10000 + fromIntegral port

placeOf :: Role -> Word16 -> Int
placeOf = \case
  Datagrams _ -> udpPort
  _ -> fromIntegral

-- | The sockets that have a port.
bindingsAt :: Stack -> Int -> IO [Binding]
bindingsAt st place = IntMap.findWithDefault [] place <$> readIORef (stackPorts st)

-- | Give a socket this port at an address, or a free one if it is 0.
claimPort :: Stack -> Sock -> Address -> Word16 -> IO (Either Errno Word16)
claimPort st sock address port = do
  let o = sockOptions sock
      place = placeOf (sockRole sock)
      mine = Binding (sockNumber sock) address (isBoth sock o) (optReuseAddr o) (optReusePort o) Nothing
      -- A port that the stack chose is shared with other addresses at most.
      unshared = not . any (conflicts mine {bindingReuse = False, bindingShare = False})
      claim suits p = changePort st (place p) $ \there -> if suits there then (mine : there, Right p) else (there, Left eADDRINUSE)
      -- Another shard may take it in between.
      chosen = freePort st (fmap unshared . bindingsAt st . place) >>= maybe (pure (Left eADDRINUSE)) (claim unshared >=> either (const chosen) (pure . Right))
  if port == 0 then chosen else claim (not . any (conflicts mine)) port

-- | Change the sockets that have a port, atomically.
changePort :: Stack -> Int -> ([Binding] -> ([Binding], a)) -> IO a
changePort st place use = atomicModifyIORef' (stackPorts st) $ \m ->
  let (after, a) = use (IntMap.findWithDefault [] place m)
   in (if null after then IntMap.delete place m else IntMap.insert place after m, a)

-- | A socket that is closed gives its port back.
unbind :: Stack -> Sock -> IO ()
unbind st sock = do
  let role = sockRole sock
      free port = changePort st (placeOf role port) (\there -> (filter ((/= sockNumber sock) . bindingSock) there, ()))
  case role of
    Bound _ port -> free port
    Listening l -> free (listenerPort l)
    Connected c -> free (connLocalPort c)
    Datagrams ref -> readIORef ref >>= free . udpLocalPort
    Fresh -> pure ()

-- | Does it take IPv4 as well as IPv6?
isBoth :: Sock -> SocketOptions -> Bool
isBoth sock o = sockFamily sock == AF_INET6 && not (optOnly6 o)

-- | Two sockets have one port only for different addresses, or if both allow it: and none listens
-- there, or both share it.
conflicts :: Binding -> Binding -> Bool
conflicts a b = overlap && not (bindingShare a && bindingShare b) && not (reused a && reused b)
  where
    reused x = bindingReuse x && unlistened x
    unlistened = null . fmap listenerPort . bindingListener
    overlap = bindingAddress a == bindingAddress b || covers a b || covers b a
    covers x y = isUnspecified (bindingAddress x) && (sameFamily (bindingAddress x) (bindingAddress y) || bindingBoth x)

-- | A port that is free by this test, from a random one on (RFC 6056, section 3.3.1).
freePort :: Stack -> (Word16 -> IO Bool) -> IO (Maybe Word16)
freePort st isFree = do
  first <- (`mod` span') <$> roll st
  let go i
        | i == span' = pure Nothing
        | otherwise = do
            let p = fromIntegral (low + (first + i) `mod` span')
            free <- isFree p
            if free then pure (Just p) else go (i + 1)
  go 0
  where
    low = 32768
    span' = 28232 :: Word32

-- | A number that cannot be told from those before it without the stack's secret.
roll :: Stack -> IO Word32
roll st = do
  secret <- secretOf st
  n <- readIORef (stackDice st)
  writeIORef (stackDice st) $! n + 1
  pure (sealOf 2 secret (Flow (Address4 0) 0 (Address4 0) 0) n)
