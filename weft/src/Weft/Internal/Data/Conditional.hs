{-# OPTIONS_HADDOCK not-home #-}

-- | Conditions that are asked for where they are used.
module Weft.Internal.Data.Conditional (ifM, whenM, unlessM, (&&^), (||^)) where

import Control.Monad (unless, when)

ifM :: (Monad m) => m Bool -> m a -> m a -> m a
ifM condition yes no = condition >>= \b -> if b then yes else no

whenM, unlessM :: (Monad m) => m Bool -> m () -> m ()
whenM condition act = condition >>= \b -> when b act
unlessM condition act = condition >>= \b -> unless b act

infixr 3 &&^

infixr 2 ||^

-- | The second is asked only if the first does not decide.
(&&^), (||^) :: (Monad m) => m Bool -> m Bool -> m Bool
a &&^ b = ifM a b (pure False)
a ||^ b = ifM a (pure True) b
