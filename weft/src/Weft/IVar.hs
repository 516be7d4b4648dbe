-- | Variables that are filled once: a result, handed over from one thread to any number of others (the
-- I-structures of Arvind, Nikhil and Pingali 1989).
--
-- >>> import Weft
-- >>> import Weft.Scope
-- >>> :{
-- run . withScope $ \scope -> do
--   answer <- newIVar
--   forkIn_ scope (fillWithin answer (fill_ answer "forty-two"))
--   readIVar answer
-- :}
-- "forty-two"
--
-- The result of a whole thread needs no variable ('Weft.Scope.forkIn', 'Weft.Scope.awaitChild').
--
-- A thread that waits for an 'IVar' that is never filled waits for ever. 'fillWithin' makes the end of a part
-- the latest time: then the readers of an empty variable fail with 'Abandoned'. An 'IVar' belongs to one run.
module Weft.IVar
  ( IVar,
    newIVar,
    newIVarNamed,

    -- * Filling
    fill,
    fill_,
    failIVar,
    fillWithin,
    Abandoned (..),

    -- * Reading
    readIVar,
    tryReadIVar,
    onFilled,
  )
where

import Control.Exception (Exception (..), SomeException)
import Control.Monad (void)
import Control.Monad.Catch (finally, mask_, throwM)
import Data.Text (Text)
import Weft.Internal.Core.Trace
import Weft.Internal.Sync.Choice
import Weft.Internal.Sync.MVar

-- | A variable that is filled once, with a value or an exception.
newtype IVar a = IVar (MVar (Either SomeException a))

instance Eq (IVar a) where
  IVar a == IVar b = a == b

-- | Raised in those that read an 'IVar' of which 'fillWithin' has ended and left it empty.
data Abandoned = Abandoned
  deriving stock (Eq, Show)

instance Exception Abandoned where
  displayException _ = "Weft.IVar: the thread that was to fill the variable has ended without"

-- | An empty variable.
newIVar :: Thread (IVar a)
newIVar = IVar <$> newEmptyMVar

-- | An empty variable with a label, for reports.
newIVarNamed :: Text -> Thread (IVar a)
newIVarNamed text = IVar <$> newEmptyMVarNamed text

-- | Fill it and wake all that wait for it; false if it had been filled. Never waits, and is not
-- cancelled. The value is not evaluated.
fill :: IVar a -> a -> Thread Bool
fill (IVar var) a = mask_ (tryPutMVar var (Right a))

-- | 'fill' where it does not matter if it had been filled.
fill_ :: IVar a -> a -> Thread ()
fill_ var a = void (fill var a)

-- | Fill it with an exception, which is raised in those that read it; false if it had been filled.
failIVar :: (Exception e) => IVar a -> e -> Thread Bool
failIVar (IVar var) e = mask_ (tryPutMVar var (Left (toException e)))

-- | Run a part of a thread which is to fill the variable. However the part ends: if the variable is empty
-- then, it fails with 'Abandoned'. A child that was cancelled before it began runs no part: for that, too,
-- there is 'Weft.Scope.awaitChild'.
fillWithin :: IVar a -> Thread b -> Thread b
fillWithin var body = body `finally` failIVar var Abandoned

-- | The value, or its exception, which is raised; wait until there is one. Cancellable while it waits.
readIVar :: IVar a -> Thread a
readIVar (IVar var) = readMVar var >>= either throwM pure

-- | The value, or the exception, if it was filled. Never waits.
tryReadIVar :: IVar a -> Thread (Maybe (Either SomeException a))
tryReadIVar (IVar var) = tryReadMVar var

-- | To find it filled, as 'readIVar' does.
onFilled :: IVar a -> Choice a
onFilled (IVar var) = onRead var `andThen` either throwM pure
