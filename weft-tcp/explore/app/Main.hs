-- |
-- Description : The program weft-tcp-explore
module Main (main) where

import Explore.Command (exploring)
import Explore.Segments (scenarios)

main :: IO ()
main = exploring scenarios
