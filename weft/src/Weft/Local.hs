-- |
-- State of a thread: values under typed keys, which only this thread sees (the
-- "stack-local state" of Li 2008, section 4.3.5).
--
-- >>> import Weft
-- >>> :{
-- run $ do
--   user <- newInheritedLocal "nobody"
--   withLocal user "alice" (getLocal user)
-- :}
-- "alice"
--
-- Reading and writing take time logarithmic in the number of keys that a thread has set. What a child
-- inherits it inherits when it is forked; later changes in either are not seen by the other.
module Weft.Local
  ( Local,
    newLocal,
    newInheritedLocal,
    getLocal,
    setLocal,
    modifyLocal,
    withLocal,
  )
where

import Control.Monad.Catch (bracket)
import Control.Monad.IO.Class (MonadIO (..))
import Control.Monad.Primitive (RealWorld)
import Data.IntMap.Lazy qualified as IntMap
import Data.Primitive.PrimVar
import GHC.Exts (Any)
import System.IO.Unsafe (unsafePerformIO)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Core.Trace

-- | A key for values of one type, with the value of threads that have set none.
--
-- Only values of the key's type are ever stored under its number: so the coercions here are right.
data Local a = Local
  { localNumber :: {-# UNPACK #-} !Int,
    localInherited :: !Bool,
    localDefault :: a
  }

-- | A key whose values children do not inherit: they begin with the default.
--
-- A key at the top level of a module is made with 'unsafePerformIO' and a @NOINLINE@
-- pragma, and its type must not be polymorphic.
newLocal :: (MonadIO m) => a -> m (Local a)
newLocal = newKey False

-- | A key whose values children inherit when they are forked.
newInheritedLocal :: (MonadIO m) => a -> m (Local a)
newInheritedLocal = newKey True

newKey :: (MonadIO m) => Bool -> a -> m (Local a)
newKey inherited value = liftIO ((\number -> Local number inherited value) <$> fetchAddInt numbers 1)

numbers :: PrimVar RealWorld Int
numbers = unsafePerformIO (newPrimVar 0)
{-# NOINLINE numbers #-}

-- | This thread's value.
getLocal :: Local a -> Thread a
getLocal key = maybe (localDefault key) unsafeCoerce . found key . stateContext . tcbState <$> self

-- | Change this thread's value. The value is evaluated first.
setLocal :: Local a -> a -> Thread ()
setLocal key !a = put key (Just (unsafeCoerce a))

-- | Change this thread's value with a function.
modifyLocal :: Local a -> (a -> a) -> Thread ()
modifyLocal key f = getLocal key >>= setLocal key . f

-- | Run a part of this thread with another value; the former one is back afterwards. Children that the
-- part forks inherit the value, if the key's are inherited, and keep it.
withLocal :: Local a -> a -> Thread b -> Thread b
withLocal key a body = bracket exchange (put key) (const body)
  where
    exchange = do
      before <- found key . stateContext . tcbState <$> self
      before <$ setLocal key a

found :: Local a -> Context -> Maybe Any
found key context = IntMap.lookup (localNumber key) (contextLocals context)

-- Outside user code, so it must be short: the map is lazy in its values, which are evaluated already.
put :: Local a -> Maybe Any -> Thread ()
put key value = changeContext $ \context ->
  context
    { contextLocals = alter (contextLocals context),
      contextInherited = if localInherited key then alter (contextInherited context) else contextInherited context
    }
  where
    alter = IntMap.alter (const value) (localNumber key)
