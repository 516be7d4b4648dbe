{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Refusing to wait in simulated runs
--
-- The descriptors and the clock of libraries are real.
module Weft.GhcIO.Internal.Simulation
  ( NotSimulated (..),
    refuseSimulation,
  )
where

import Control.Exception (Exception)
import Control.Monad (when)
import Control.Monad.Catch (throwM)
import Data.Maybe (isJust)
import Weft.Internal.Core.Trace (Home (..), Thread, internal)

-- | A library waits in a simulated run.
newtype NotSimulated = NotSimulated String

instance Show NotSimulated where
  show (NotSimulated what) =
    what
      <> ": weft-ghc-io cannot simulate a wait of a library, since the descriptor and the clock are real. "
      <> "Use the operations of Weft in simulated runs, or give the code what it waits with as an argument."

instance Exception NotSimulated

-- | Fail with 'NotSimulated' in a simulated run.
refuseSimulation :: String -> Thread ()
refuseSimulation what = do
  simulated <- internal (\home _ -> pure (isJust (homeProbe home)))
  when simulated (throwM (NotSimulated what))
