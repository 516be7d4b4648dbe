{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The foreign calls
--
-- The functions of @weft_ghc_io.c@.
module Weft.GhcIO.Internal.Foreign
  ( original,
    installHandler,
  )
where

import Foreign.Ptr (Ptr)
import Foreign.StablePtr (StablePtr)

-- | The function of @base@ with this index, as a static closure.
foreign import ccall unsafe "weft_ghc_io_original"
  original :: Int -> IO (Ptr ())

-- | Install the handler that runs in its place from now on.
foreign import ccall unsafe "weft_ghc_io_install"
  installHandler :: Int -> StablePtr a -> IO ()
