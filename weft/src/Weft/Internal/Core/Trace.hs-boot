module Weft.Internal.Core.Trace (Trace) where

data Trace
