{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Closing a descriptor that a library owns
--
-- What @closeFdWith@ does beside closing: those who wait for the descriptor are told.
module Weft.GhcIO.Internal.Close
  ( closing,
  )
where

import Control.Exception (finally, mask_)
import Foreign.C.Types (CInt)
import Weft.GhcIO.Internal.Table

-- | Run the action that closes this number; then the Weft threads that waited for it
-- fail with @EBADF@. From any OS thread. See Note [A number that is closed].
closing :: CInt -> IO a -> IO a
closing number close = mask_ $ do
  waits <- beginClosing number
  close `finally` (endClosing number >> mapM_ (answer ClosedMeanwhile) waits)
