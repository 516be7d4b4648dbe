module Weft.Internal.Core.Home (Home) where

data Home
