-- |
-- Description : Weft's threads, written in plain IO
--
-- The threads of "Weft.Bench.Style.Monadic", started in the same way on the same
-- worker, with an 'IO' loop in them: the direct style of the package @weft@ by its
-- public interface.
module Weft.Bench.Style.Direct (directStyle) where

import Weft (fork_)
import Weft.Bench.Style.Monadic (Writing (..), weftStyle)
import Weft.Bench.Style.Type (Style)
import Weft.IO (direct)
import Weft.IO qualified as IO

-- | 'fork_' and 'direct'.
directStyle :: Style
directStyle =
  weftStyle "direct" fork_ $
    Writing
      { spinning = \end n -> direct (spin end n),
        napping = \before instant afterwards -> direct (before >> IO.sleepUntil instant >> afterwards)
      }

-- As in the monadic style each thread has a counter of its own, in its loop.
spin :: IO () -> Int -> IO ()
spin end n = do
  IO.yield
  if n > 0 then spin end (n - 1) else end
