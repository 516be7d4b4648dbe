{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Who has which port
--
-- Ports of TCP and of UDP, which are independent of each other. Everything here runs in the stack's
-- turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Ports
  ( claimPort,
    unbind,
    freePort,
    bindingsAt,
    udpPort,
    conflicts,
    isBoth,
    roll,
  )
where

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
      alone p = not . any (conflicts mine {bindingReuse = False, bindingShare = False}) <$> bindingsAt st (place p)
  chosen <- if port == 0 then freePort st alone else pure (Just port)
  case chosen of
    Nothing -> pure (Left eADDRINUSE)
    Just p -> do
      others <- bindingsAt st (place p)
      if any (conflicts mine) others
        then pure (Left eADDRINUSE)
        else Right p <$ modifyIORef' (stackPorts st) (IntMap.insertWith (<>) (place p) [mine])

-- | A socket that is closed gives its port back.
unbind :: Stack -> Sock -> IO ()
unbind st sock = do
  let role = sockRole sock
      others bindings = case filter ((/= sockNumber sock) . bindingSock) bindings of
        [] -> Nothing
        left -> Just left
      free port = modifyIORef' (stackPorts st) (IntMap.update others (placeOf role port))
  case role of
    Bound _ port -> free port
    Listening l -> free (listenerPort l)
    Connected c -> free (connLocalPort c)
    Datagrams ref -> readIORef ref >>= free . udpLocalPort
    Fresh -> pure ()

-- | Does it take IPv4 as well as IPv6?
isBoth :: Sock -> Options -> Bool
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
