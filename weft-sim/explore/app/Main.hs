-- |
-- Description : The program weft-explore
module Main (main) where

import Explore.Catalogue (catalogue)
import Explore.Command (exploring)

main :: IO ()
main = exploring catalogue
