{-# LANGUAGE PatternSynonyms #-}
{-# LANGUAGE ViewPatterns #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Flows and their hashes
--
-- Pure. The addresses and ports of a connection, and the hash by which the tables of a stack find it.
module Weft.Tcp.Stack.Flow (Flow (Flow, flowLocal, flowLocalPort, flowPeer, flowPeerPort), flowHash) where

import Data.Bits (rotateL, shiftL, shiftR, xor, (.&.), (.|.))
import Data.Word (Word16, Word32, Word64)
import Weft.Tcp.Packet (Address (..))

-- | The addresses and ports of a connection, in few words: each connection keeps one.
data Flow
  = Flow4 {-# UNPACK #-} !Word32 {-# UNPACK #-} !Word32 {-# UNPACK #-} !Word16 {-# UNPACK #-} !Word16
  | Flow6 {-# UNPACK #-} !Word64 {-# UNPACK #-} !Word64 {-# UNPACK #-} !Word64 {-# UNPACK #-} !Word64 {-# UNPACK #-} !Word16 {-# UNPACK #-} !Word16

-- Most flows of a table differ in the peer's port.
instance Eq Flow where
  Flow4 a b p q == Flow4 a' b' p' q' = q == q' && b == b' && p == p' && a == a'
  Flow6 a1 a2 b1 b2 p q == Flow6 a1' a2' b1' b2' p' q' = q == q' && b2 == b2' && b1 == b1' && p == p' && a2 == a2' && a1 == a1'
  _ == _ = False

-- | Addresses of one version; of two versions those of version 4 become mapped ones (RFC 4291, section 2.5.5.2).
pattern Flow :: Address -> Word16 -> Address -> Word16 -> Flow
pattern Flow {flowLocal, flowLocalPort, flowPeer, flowPeerPort} <- (parts -> (flowLocal, flowLocalPort, flowPeer, flowPeerPort))
  where
    Flow (Address4 a) p (Address4 b) q = Flow4 a b p q
    Flow a p b q = case (wide a, wide b) of
      ((a1, a2), (b1, b2)) -> Flow6 a1 a2 b1 b2 p q

{-# COMPLETE Flow #-}

parts :: Flow -> (Address, Word16, Address, Word16)
parts = \case
  Flow4 a b p q -> (Address4 a, p, Address4 b, q)
  Flow6 a1 a2 b1 b2 p q -> (Address6 a1 a2, p, Address6 b1 b2, q)

wide :: Address -> (Word64, Word64)
wide = \case
  Address4 n -> (0, 0xffff00000000 .|. fromIntegral n)
  Address6 a b -> (a, b)

-- | A keyed hash of addresses and ports.
flowHash :: (Word64, Word64) -> Flow -> Int
flowHash (k0, k1) flow = fromIntegral (final addresses)
  where
    addresses = case flow of
      Flow4 a b p q -> mix (mix (start p q) (fromIntegral a)) (fromIntegral b)
      Flow6 a1 a2 b1 b2 p q -> mix (mix (mix (mix (start p q) a1) a2) b1) b2
    start p q = mix k0 (k1 `xor` ((fromIntegral p `shiftL` 16) .|. fromIntegral q))
    -- The secret goes in before, between and after what an attacker chooses.
    mix h x = let y = (h `xor` x) * 0x9e3779b97f4a7c15 in ((y `xor` (y `shiftR` 29)) + k1) `rotateL` 31
    final h = let y = (h `xor` k0) * 0xbf58476d1ce4e5b9 in (y `xor` (y `shiftR` 32)) .&. 0x7fffffffffffffff
