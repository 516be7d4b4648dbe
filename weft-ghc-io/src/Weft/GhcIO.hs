-- |
-- Libraries inside Weft threads, unchanged.
--
-- A program that depends on this package is linked so that 'install' can put other code in the
-- place of four functions of @base@. From then on, in a direct thread ('Weft.IO.direct'),
--
-- * @threadWaitRead@ and @threadWaitWrite@, and with them the waits of @network@, of 'System.IO.Handle's on
--   sockets, pipes and terminals, of @process@, and of everything built on those,
-- * 'Control.Concurrent.threadDelay',
-- * 'System.Timeout.timeout'
--
-- suspend the thread of Weft instead of the OS thread that carries it. A cancellation or a time
-- limit ends them as it ends operations of Weft, masking states hold, and
-- 'GHC.Conc.closeFdWith' wakes the threads that wait for a descriptor with the error that GHC gives.
-- Threads of GHC's wait as before. So do direct threads inside of what GHC must
-- finish in one go, as @unsafePerformIO@ and lazy input; there they occupy an OS thread.
--
-- @
-- import Weft.GhcIO qualified as GhcIO
-- import Weft.IO qualified as IO
--
-- main :: IO ()
-- main = GhcIO.'install' >> IO.run serve
-- @
--
-- @docs\/ghc-io.md@ has the operations that are not replaced, and their behaviour: an
-- 'Control.Concurrent.MVar' or an @atomically@
-- that blocks, and a blocking foreign call, occupy an OS thread, and the worker goes on with another.
--
-- The idea that a program need not change for its waits to scale is that of O'Sullivan &
-- Tibell 2010, who changed the run-time system for it.
module Weft.GhcIO
  ( install,
    NotRelinked (..),
    NotSimulated (..),
  )
where

import Control.Exception (Exception, throwIO)
import Control.Monad (unless)
import Weft.GhcIO.Internal.Relink (installHandlers)
import Weft.GhcIO.Internal.Simulation (NotSimulated (..))

-- | Have the waits of libraries suspend Weft threads from now on, in the whole process. Call it
-- first in @main@; to call it again changes nothing.
--
-- Looks whether this program was linked so that it works, and throws 'NotRelinked' if not.
install :: IO ()
install = installHandlers >>= \installed -> unless installed (throwIO NotRelinked)

-- | This program was not linked with the options of the package or not with @-threaded@, or its @base@ is not
-- one that they are for. Libraries wait as without this package.
data NotRelinked = NotRelinked
  deriving stock (Eq)

instance Show NotRelinked where
  show NotRelinked =
    "weft-ghc-io: the waits of base in this program are not ours. The program must be linked, statically and with -threaded, "
      <> "with the ld-options of the package weft-ghc-io (cabal and ghc --make do so if it depends on the package; "
      <> "ghci and ghc -dynamic do not), and by a GHC whose base the package knows: 9.6 to 9.10. "
      <> "(ld --wrap=..._threadWaitRead1_info, and so on: see ld-options in weft-ghc-io.cabal)"

instance Exception NotRelinked
