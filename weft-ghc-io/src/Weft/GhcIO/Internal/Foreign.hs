{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The foreign calls
--
-- What @weft_ghc_io.c@ offers.
module Weft.GhcIO.Internal.Foreign
  ( -- * Descriptors
    arm,
    reported,

    -- * Stand-ins
    original,
    installHandler,
  )
where

import Data.Int (Int32)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr)
import Foreign.StablePtr (StablePtr)

-- | Have an epoll instance report a descriptor once, level-triggered, for these bits. 0, or a
-- negated @errno@.
foreign import ccall unsafe "weft_ghc_io_arm"
  arm :: CInt -> CInt -> Int -> IO Int

-- | What it has reported, as pairs of descriptor and bits; the size of the memory in pairs.
-- Answers how many, and does not wait.
foreign import ccall unsafe "weft_ghc_io_reported"
  reported :: CInt -> Ptr Int32 -> Int -> IO Int

-- | The function of @base@ with this index, as a static closure.
foreign import ccall unsafe "weft_ghc_io_original"
  original :: Int -> IO (Ptr ())

-- | What is to run in its place from now on.
foreign import ccall unsafe "weft_ghc_io_install"
  installHandler :: Int -> StablePtr a -> IO ()
