{-# OPTIONS_HADDOCK not-home #-}

-- | Has this process begun a simulation? For code below all threads, which must not ask each thread
-- of GHC's whether it carries a simulated run. From any OS thread.
module Weft.Internal.Os.Simulated (everSimulated, noteSimulation) where

import Data.IORef
import System.IO.Unsafe (unsafePerformIO)

simulated :: IORef Bool
simulated = unsafePerformIO (newIORef False)
{-# NOINLINE simulated #-}

-- | Has any simulated run begun in this process?
-- | Has any simulated run begun in this process?
everSimulated :: IO Bool
everSimulated = readIORef simulated

noteSimulation :: IO ()
noteSimulation = writeIORef simulated True
