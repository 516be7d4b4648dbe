{-# OPTIONS_HADDOCK not-home #-}

-- | Has any simulated run begun in this process? For code below all threads, which must not ask each thread
-- of GHC's whether it carries one. From any OS thread.
module Weft.Internal.Os.Simulated (everSimulated, noteSimulation) where

import Data.IORef
import System.IO.Unsafe (unsafePerformIO)

simulated :: IORef Bool
simulated = unsafePerformIO (newIORef False)
{-# NOINLINE simulated #-}

everSimulated :: IO Bool
everSimulated = readIORef simulated

noteSimulation :: IO ()
noteSimulation = writeIORef simulated True
