{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Has this process begun a simulation?
--
-- For code that stands below all threads, also those of GHC's, and must not ask each of them whether
-- it carries a simulated run. From any OS thread.
module Weft.Internal.Os.Simulated (everSimulated, noteSimulation) where

import Data.IORef
import System.IO.Unsafe (unsafePerformIO)

simulated :: IORef Bool
simulated = unsafePerformIO (newIORef False)
{-# NOINLINE simulated #-}

-- | Has any simulated run begun in this process?
everSimulated :: IO Bool
everSimulated = readIORef simulated

-- | Note that a simulation begins.
noteSimulation :: IO ()
noteSimulation = writeIORef simulated True
