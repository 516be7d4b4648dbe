-- |
-- Scopes in direct style: the operations of "Weft.Scope" in plain 'IO', each
-- 'await' before the one of the same name, which describes it. "Weft.IO" exports them again.
module Weft.IO.Scope
  ( withScope,
    awaitAll,
    cancelScope,
    forkIn,
    forkIn_,
    forkInWith,
    forkTryIn,
    forkDaemonIn,
    forkDaemonInWith,
    awaitChild,
    resultOf,
  )
where

import Control.Exception (Exception, SomeException)
import Weft (ForkOptions)
import Weft.Internal.Core.Direct
import Weft.Scope (Child, Scope)
import Weft.Scope qualified as Scope

-- | See 'Weft.Scope.withScope'.
withScope :: (Scope -> IO a) -> IO a
withScope body = await (Scope.withScope (direct . body))

-- | See 'Weft.Scope.awaitAll'.
awaitAll :: Scope -> IO ()
awaitAll = await . Scope.awaitAll

-- | See 'Weft.Scope.cancelScope'.
cancelScope :: Scope -> IO ()
cancelScope = await . Scope.cancelScope

-- | See 'Weft.Scope.forkIn'.
forkIn :: Scope -> IO a -> IO (Child a)
forkIn scope = await . Scope.forkIn scope . direct

-- | See 'Weft.Scope.forkIn_'.
forkIn_ :: Scope -> IO () -> IO ()
forkIn_ scope = await . Scope.forkIn_ scope . direct

-- | See 'Weft.Scope.forkInWith'.
forkInWith :: Scope -> ForkOptions -> IO a -> IO (Child a)
forkInWith scope options = await . Scope.forkInWith scope options . direct

-- | See 'Weft.Scope.forkTryIn'.
forkTryIn :: (Exception e) => Scope -> IO a -> IO (Child (Either e a))
forkTryIn scope = await . Scope.forkTryIn scope . direct

-- | See 'Weft.Scope.forkDaemonIn'.
forkDaemonIn :: Scope -> IO a -> IO (Child a)
forkDaemonIn scope = await . Scope.forkDaemonIn scope . direct

-- | See 'Weft.Scope.forkDaemonInWith'.
forkDaemonInWith :: Scope -> ForkOptions -> IO a -> IO (Child a)
forkDaemonInWith scope options = await . Scope.forkDaemonInWith scope options . direct

-- | See 'Weft.Scope.awaitChild'.
awaitChild :: Child a -> IO a
awaitChild = await . Scope.awaitChild

-- | See 'Weft.Scope.resultOf'.
resultOf :: Child a -> IO (Either SomeException a)
resultOf = await . Scope.resultOf
