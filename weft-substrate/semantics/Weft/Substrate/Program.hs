{-# LANGUAGE GADTs #-}
{-# LANGUAGE TypeFamilies #-}

-- |
-- Description : Programs over the substrate, as data
--
-- Programs that can be run by the semantics ("Weft.Substrate.Semantics"), which takes every
-- schedule, and on the substrate itself. The parameter @w@ is the world that runs them: it
-- says what a variable, a stack, a HEC and a key are.
module Weft.Substrate.Program
  ( -- * Worlds
    Variable,
    Stack,
    Hec,
    Key,

    -- * Programs
    Program (..),
    Transaction (..),
    Problem (..),
    atomically,
    variable,
  )
where

import Control.Exception (Exception)
import Control.Monad (ap, liftM)
import Data.Kind (Type)

-- | A variable of a world.
type family Variable w :: Type -> Type

-- | The name of a stack.
type family Stack w :: Type

-- | The name of a HEC.
type family Hec w :: Type

-- | A key of stack-local state.
type family Key w :: Type -> Type

-- | The exceptions of programs.
data Problem
  = Problem String
  | -- | A switch to a stack that is not suspended.
    Unsuspended
  deriving stock (Eq, Ord, Show)

instance Exception Problem

-- | A computation in @IO@, as far as the semantics has it. (Li 2008, figure 4.3.)
data Program w a where
  Return :: a -> Program w a
  Bind :: Program w a -> (a -> Program w b) -> Program w b
  Throw :: Problem -> Program w a
  Catch :: Program w a -> (Problem -> Program w a) -> Program w a
  Atomic :: Transaction w a -> Program w a
  -- | A stack that is called so, whose code this is.
  NewStack :: String -> Program w () -> Program w (Stack w)
  Switch :: Transaction w (Stack w) -> Program w ()
  NewKey :: a -> Program w (Key w a)
  SetLocal :: Key w a -> a -> Program w ()
  RaiseAsync :: Problem -> Program w a
  -- | From outside: a new HEC that runs this on a stack that is called so.
  InCall :: String -> Program w () -> Program w ()
  -- | 'InCall', with what is done about a stack that was displaced from the HEC, and one that has returned.
  InCallWith :: (Stack w -> Transaction w (Stack w)) -> (Stack w -> Transaction w ()) -> String -> Program w () -> Program w ()
  -- | From outside: the stack that a HEC runs is displaced, if it runs one and has handlers.
  Tick :: Hec w -> Program w ()
  -- | Without the HEC, which goes on. It must not throw.
  OutCall :: Program w () -> Program w ()
  -- | Say something: the one thing that is observed.
  Say :: String -> Program w ()

-- | A transaction.
data Transaction w a where
  Pure :: a -> Transaction w a
  Then :: Transaction w a -> (a -> Transaction w b) -> Transaction w b
  ThrowT :: Problem -> Transaction w a
  CatchT :: Transaction w a -> (Problem -> Transaction w a) -> Transaction w a
  New :: a -> Transaction w (Variable w a)
  Get :: Variable w a -> Transaction w a
  Put :: Variable w a -> a -> Transaction w ()
  GetHec :: Transaction w (Hec w)
  GetStack :: Transaction w (Stack w)
  GetLocal :: Key w a -> Transaction w a
  Sleep :: Transaction w a
  Wake :: Hec w -> Transaction w ()

instance Functor (Program w) where fmap = liftM

instance Applicative (Program w) where
  pure = Return
  (<*>) = ap

instance Monad (Program w) where (>>=) = Bind

instance Functor (Transaction w) where fmap = liftM

instance Applicative (Transaction w) where
  pure = Pure
  (<*>) = ap

instance Monad (Transaction w) where (>>=) = Then

-- | Run a transaction in one step.
atomically :: Transaction w a -> Program w a
atomically = Atomic

-- | A new variable, in a transaction of its own.
variable :: a -> Program w (Variable w a)
variable = Atomic . New
