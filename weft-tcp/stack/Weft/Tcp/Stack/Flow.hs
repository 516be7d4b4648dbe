{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Flows and their keys
--
-- Pure. The addresses and ports of a connection, and the key by which the tables of a stack have it.
module Weft.Tcp.Stack.Flow (Flow (..), flowKey) where

import Data.Bits (rotateL, shiftL, shiftR, xor, (.&.), (.|.))
import Data.Word (Word16, Word64)
import Weft.Tcp.Packet (Address (..))

-- | The addresses and ports of a connection.
data Flow = Flow
  { flowLocal :: !Address,
    flowLocalPort :: {-# UNPACK #-} !Word16,
    flowPeer :: !Address,
    flowPeerPort :: {-# UNPACK #-} !Word16
  }
  deriving stock (Eq)

-- | The key of a flow, a keyed hash of addresses and ports.
flowKey :: (Word64, Word64) -> Flow -> Int
flowKey (k0, k1) (Flow local localPort peer peerPort) = fromIntegral (final (address peer (address local (mix k0 (k1 `xor` ports)))))
  where
    ports = (fromIntegral localPort `shiftL` 16) .|. fromIntegral peerPort :: Word64
    address a h = case a of
      Address4 n -> mix h (fromIntegral n)
      Address6 x y -> mix (mix h x) y
    -- The secret goes in before, between and after what an attacker chooses.
    mix h x = let y = (h `xor` x) * 0x9e3779b97f4a7c15 in ((y `xor` (y `shiftR` 29)) + k1) `rotateL` 31
    final h = let y = (h `xor` k0) * 0xbf58476d1ce4e5b9 in (y `xor` (y `shiftR` 32)) .&. 0x7fffffffffffffff
