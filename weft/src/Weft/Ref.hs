-- |
-- Variables that threads of a run may share without a lock.
--
-- A 'Ref' is an 'IORef' and costs what that costs. But a simulation (package @weft-sim@) sees which
-- threads read and write it: two threads that get at one variable, at least one of them writing, with
-- nothing that orders the two, are a /data race/, and the report names both places. Every access is a
-- point at which another thread may come in between, so that lost updates are found. Use
-- 'atomicModifyRef', "Weft.Mutex", "Weft.MVar" or "Weft.STM" for what threads change together.
--
-- >>> import Weft
-- >>> import Weft.Concurrently
-- >>> :{
-- run $ do
--   hits <- newRef (0 :: Int)
--   forConcurrently_ [1 .. 100 :: Int] (\_ -> atomicModifyRef_ hits (+ 1))
--   atomicReadRef hits
-- :}
-- 100
--
-- Nothing here waits, and a thread is not cancelled here. Variables belong to no thread and no run.
module Weft.Ref
  ( Ref,
    newRef,
    newRefNamed,

    -- * Plain access
    readRef,
    writeRef,
    modifyRef,
    modifyRef',

    -- * Atomic access
    atomicModifyRef,
    atomicModifyRef_,
    atomicReadRef,
    atomicWriteRef,
  )
where

import Data.IORef
import Data.Text (Text)
import GHC.Stack (CallStack, HasCallStack, callStack, withFrozenCallStack)
import Weft.Internal.Core.Atomic (freshNumber)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync (immediate)

-- | A variable that holds an @a@.
data Ref a = Ref !(IORef a) {-# UNPACK #-} !Int !Text

-- | Are they the same variable?
instance Eq (Ref a) where
  Ref a _ _ == Ref b _ _ = a == b

-- | A variable with this value, which is not evaluated.
newRef :: a -> Thread (Ref a)
newRef = newRefNamed mempty

-- | 'newRef' with a label, for reports.
newRefNamed :: Text -> a -> Thread (Ref a)
newRefNamed name a = internal $ \home _ -> do
  number <- freshNumber home
  ref <- newIORef a
  pure (Ref ref number name)

-- | The value. Not ordered with what other threads do.
readRef :: (HasCallStack) => Ref a -> Thread a
readRef ref@(Ref var _ _) = atOnce callStack Reads ref (readIORef var)
{-# INLINE readRef #-}

-- | Replace the value by one that is not evaluated.
writeRef :: (HasCallStack) => Ref a -> a -> Thread ()
writeRef ref@(Ref var _ _) a = atOnce callStack Writes ref (writeIORef var a)
{-# INLINE writeRef #-}

-- | Read and then write: a change of another thread in between is lost. The new value is not evaluated.
modifyRef :: (HasCallStack) => Ref a -> (a -> a) -> Thread ()
modifyRef ref f = withFrozenCallStack (readRef ref >>= \a -> writeRef ref (f a))
{-# INLINE modifyRef #-}

-- | 'modifyRef' that evaluates the new value before it writes it.
modifyRef' :: (HasCallStack) => Ref a -> (a -> a) -> Thread ()
modifyRef' ref f = withFrozenCallStack (readRef ref >>= \a -> let !b = f a in writeRef ref b)
{-# INLINE modifyRef' #-}

-- | Replace the value in one step, and answer something. The new value is evaluated. Such steps order
-- threads: what one did before its step is seen by the other after its own.
atomicModifyRef :: (HasCallStack) => Ref a -> (a -> (a, b)) -> Thread b
atomicModifyRef ref@(Ref var _ _) f = modifying callStack ref (atomicModifyIORef' var f)
{-# INLINE atomicModifyRef #-}

-- | 'atomicModifyRef' without a result.
atomicModifyRef_ :: (HasCallStack) => Ref a -> (a -> a) -> Thread ()
atomicModifyRef_ ref@(Ref var _ _) f = modifying callStack ref (atomicModifyIORef' var (\a -> (f a, ())))
{-# INLINE atomicModifyRef_ #-}

-- | The value, ordered as 'atomicModifyRef' orders.
atomicReadRef :: (HasCallStack) => Ref a -> Thread a
atomicReadRef ref@(Ref var _ _) = modifying callStack ref (atomicModifyIORef' var (\a -> (a, a)))
{-# INLINE atomicReadRef #-}

-- | Replace the value, ordered as 'atomicModifyRef' orders. The value is evaluated.
atomicWriteRef :: (HasCallStack) => Ref a -> a -> Thread ()
atomicWriteRef ref@(Ref var _ _) a = modifying callStack ref (atomicModifyIORef' var (const (a, ())))
{-# INLINE atomicWriteRef #-}

-- | An access that evaluates nothing, done on the worker like any operation.
atOnce :: CallStack -> AccessKind -> Ref a -> IO b -> Thread b
atOnce stack kind ref io = immediate (sight stack kind ref) (const io)

-- | An access that evaluates what the user gave: user code.
modifying :: CallStack -> Ref a -> IO b -> Thread b
modifying stack ref = effectSeen (sight stack Modifies ref)

sight :: CallStack -> AccessKind -> Ref a -> Sight b
sight stack kind (Ref _ number name) = Accesses (AccessTo number name kind) stack
