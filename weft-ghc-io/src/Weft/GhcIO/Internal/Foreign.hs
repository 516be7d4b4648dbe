{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The foreign calls
--
-- What @weft_ghc_io.c@ offers.
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

-- | What is to run in its place from now on.
foreign import ccall unsafe "weft_ghc_io_install"
  installHandler :: Int -> StablePtr a -> IO ()
