{-# OPTIONS_HADDOCK not-home #-}

-- | A thread's operations on itself. Its number, which an anonymous thread is given when it asks, its
-- context, and names for its effects.
module Weft.Internal.Core.Self (self, myself, changeContext, effectNamed) where

import Data.Text (Text)
import GHC.Stack (HasCallStack, callStack)
import Weft.Internal.Core.Trace

-- | The identity of this thread; an anonymous thread is given one.
myself :: Thread ThreadId
myself = Thread (Perform identify ())

-- | Replace what this thread says of itself. The function must be short.
changeContext :: (Context -> Context) -> Thread ()
changeContext change = Thread (Perform replaceContext change)

identify :: Primitive () ThreadId
identify = primitive (\here _ _ -> Got . ThreadId . tcbIdentity <$> numberedHere here) False (Unseen (ThreadId nobody))

replaceContext :: Primitive (Context -> Context) ()
replaceContext = primitive act False (Unseen ())
  where
    act here change _ = do
      Tcb identity state <- numberedHere here
      Got () <$ become here (Tcb identity state {stateContext = change (stateContext state)})

numberedHere :: Here -> IO Tcb
numberedHere here =
  currentTcb here >>= \tcb -> if isNobody (tcbIdentity tcb) then homeIdentify (hereHome here) tcb else pure tcb

-- | As 'Control.Monad.IO.Class.liftIO' (which cannot know its caller: it is a method of a class), and
-- the report of a simulation has this name and the place of the call where it has @effect@ otherwise.
effectNamed :: (HasCallStack) => Text -> IO a -> Thread a
effectNamed name = effectSeen (Accesses (AccessTo 0 name Affects) callStack)
