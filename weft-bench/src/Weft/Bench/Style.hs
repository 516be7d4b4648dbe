-- |
-- Description : The styles of thread that this program can measure
--
-- A style is a way to write threads in Haskell. To add one, write a module that
-- exports its 'Style' and name it in 'styles': the commands @yield@ and @timers@,
-- and the comparisons with the peers, then know it.
module Weft.Bench.Style (styles, module Weft.Bench.Style.Type) where

import Weft.Bench.Style.Direct (directStyle)
import Weft.Bench.Style.Ghc (ghcStyle)
import Weft.Bench.Style.Monadic (monadicStyle, numberedStyle)
import Weft.Bench.Style.Type

-- | All styles, the default first.
styles :: [Style]
styles = [monadicStyle, numberedStyle, directStyle, ghcStyle]
