{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_GHC -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Stacks, and the switch from one to another
--
-- A HEC is a bound OS thread with a stack above its base. A switch captures the stack; at the base it is
-- committed, and the next stack is entered. Everything here is called on the HEC's own
-- OS thread.
module Weft.Substrate.Internal.Stack
  ( -- * Stacks
    newStack,
    newStackIn,
    switch,
    switchFrom,
    switchWith,
    SCont,
    newSCont,

    -- * At the base
    Tag (..),
    tag,
    base,
    enter,
    goOn,

    -- * Errors of use
    NotSuspended (..),
    CannotSwitch (..),
    named,
  )
where

import Control.Exception (Exception (..), SomeException (..), throwIO)
import Control.Exception.Base (NoMatchingContinuationPrompt (..))
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Typeable (cast)
import GHC.Exts
import GHC.IO (IO (..), unIO)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Os.Capture (newTag)
import Weft.Internal.Os.Masked (pendingHere, receivePending)
import Weft.Substrate.Internal.Commit
import Weft.Substrate.Internal.Ground
import Weft.Substrate.Internal.Local (newSlots)
import Weft.Substrate.Internal.Place
import Weft.Substrate.Internal.Transaction
import Weft.Substrate.Internal.Types

-- Note [The base of a HEC]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
--     base of the HEC | prompt | frames of the stack ... | switch
--                              '--- captured by control0# --'
--
-- The function that control0# calls runs at the base, without the prompt, and enters the next stack under a new prompt, in tail
-- position: so the base does not grow, and no frame comes between. In a capture GHC looks at each frame and
-- copies it, so the operations here and in libraries leave few: a call in tail position leaves none. For the same reason
-- what follows the end of a library's stack is done at the base ("Weft.Substrate.Internal.Hec"), and not by the stack.
--
-- A switch runs its transaction in the stack that switches: exceptions are raised there, and if
-- it chooses that very stack it is committed without a capture. Otherwise it is captured, and
-- the base commits: the stack is whole in the heap before any thread can know that it was left
-- (Note [One step] in "Weft.Substrate.Internal.Commit"). If the reads do not hold any more, the
-- base runs the transaction again, as a part of that stack that has no frames: an exception is
-- raised in the stack when it goes on.
--
-- The base is masked, so that no exception of GHC's can drop what is left of a stack while only
-- the base has it. A stack begins unmasked. Its masking frames are captured with it, and a
-- capture always leads into the masked base, so GHC raises nothing at a capture (its test
-- T27651). Entering may lead out of it. So the base looks before whether an exception is pending,
-- receives it in a regular way, and has it raised in the stack that it enters.

-- | The end of every HEC's part of an OS thread's stack.
data Tag = Tag (PromptTag# ())

tag :: Tag
tag = unsafePerformIO (IO (\s -> case newTag s of (# s1, t #) -> (# s1, Tag t #)))
{-# NOINLINE tag #-}

-- | A stack that will run this, unmasked, when a HEC first switches to it. When the action returns, or
-- throws, the HEC ends that runs it then: a library ends the action with a 'switch' that does not
-- come back. A stack that nothing refers to any more is collected; its finalizers do not run.
newStack :: IO () -> IO StackId
newStack = newStackIn Nothing unmaskAsyncExceptions#

-- | A stack in which a library keeps something, and that begins in a masking state, which it enters from that of
-- the base.
newStackIn :: Maybe owner -> (Answer -> Answer) -> IO () -> IO StackId
newStackIn owner begins (IO io) = newSlots owner first
  where
    first :: Rest
    first answer = begins (\s0 -> case answer s0 of (# s1, () #) -> io s1)

-- | Run a transaction that chooses a stack, and have this HEC go on with that one, in one step. This
-- stack goes on here when a HEC switches to it. To choose the own stack is to stay.
--
-- If the transaction throws, the exception is raised here; if the chosen stack is running, has ended
-- or was already switched to, that is 'NotSuspended'. Nothing is written then. Where GHC cannot
-- capture a stack (inside a value that is evaluated lazily, in a callback from C) it is
-- 'CannotSwitch'. In its transaction, 'sleepHEC' has the HEC sleep with this stack on it.
-- (Li 2008, section 4.3.4.)
switch :: PTM StackId -> IO ()
switch p = stackHere >>= \(h, here) -> switchFrom h here p

-- | 'switch', for code that has just asked on which HEC and in which stack it is.
switchFrom :: HEC -> StackId -> PTM StackId -> IO ()
switchFrom !h !here p = case hecGoverned h of
  Free -> IO (switching h here p (switch p))
  Governed {} -> switchClaiming (claiming p)
{-# INLINE switchFrom #-}

-- | The transaction of a switch on a HEC whose stacks can be displaced: that the HEC runs this stack, and then the other, is
-- a part of it.
claiming :: PTM StackId -> PTM StackId
claiming p = do
  h <- getHEC
  here <- getStackId
  target <- p
  case hecGoverned h of
    Governed running _ _ | target /= here -> target <$ writePVar running (Just target)
    _ -> pure target

-- | Switch by a transaction that is 'claiming'.
switchClaiming :: PTM StackId -> IO ()
switchClaiming p = IO $ \s -> case unIO stackHere s of
  (# s1, (h, here) #) -> switching h here p (switchClaiming p) s1

-- | Switch from this stack on this HEC. The last argument does so from where it is called: once the stack has come back that
-- was displaced, or has slept. In a lazy value another may go on then.
switching :: HEC -> StackId -> PTM StackId -> IO () -> State# RealWorld -> (# State# RealWorld, () #)
switching h here (PTM m) again = attempt 0#
  where
    attempt k s = case begin s of
      (# s1, n #) -> case m (On h here) Nil n s1 of
        (# s2, l, n1, target #) -> case n1 of
          Conflict -> case failed k s2 of s3 -> attempt (k +# 1#) s3
          Asleep -> case goToSleep l s2 of s3 -> unIO again s3
          Away -> case unIO comeBack s2 of (# s3, () #) -> unIO again s3
          _
            | target == here -> case commit l n1 s2 of
                (# s3, Done #) -> (# s3, () #)
                (# s3, _ #) -> case failed k s3 of s4 -> attempt (k +# 1#) s4
            | otherwise -> leave h here l n1 target (PTM m) s2
{-# INLINE switching #-}

-- | A stack. (The 2007 workshop version of the substrate.)
type SCont = StackId

-- | 'newStack'. (The 2007 workshop version of the substrate.)
newSCont :: IO () -> IO SCont
newSCont = newStack

-- | 'switch', told the own stack. (The 2007 workshop version of the substrate.)
switchWith :: (StackId -> PTM StackId) -> IO ()
switchWith f = switch (getStackId >>= f)

-- | Leave this stack, and commit at the base. In tail position, so it adds no frame to what is captured.
leave :: HEC -> StackId -> Log -> Int# -> StackId -> PTM StackId -> State# RealWorld -> (# State# RealWorld, () #)
leave h here l0 n target m s0
  | planted CommitBeforeCapture s0 = case commit l0 n s0 of (# s1, _ #) -> leaving Nil s1
  | otherwise = leaving l0 s0
  where
    leaving l s = case h of
      HEC {hecTag = t} -> control0# t (\mine s1 -> left h here mine l n target m s1) (point s)
    {-# INLINE leaving #-}

-- | At the base: a stack was left, and its rest is here, and only here, until its transaction is committed.
left ::
  HEC -> StackId -> Rest -> Log -> Int# -> StackId -> PTM StackId -> State# RealWorld -> (# State# RealWorld, () #)
left h here mine l n target m s = case hecGoverned h of
  Free -> settle h here mine l n target m 0# s
  -- The stack may have been displaced meanwhile, and have got another HEC.
  Governed {} -> case unIO stackHere s of (# s1, (now, _) #) -> settle now here mine l n target m 0# s1

-- | Commit a switch, which has failed this often here, and enter the next stack.
settle ::
  HEC ->
  StackId ->
  Rest ->
  Log ->
  Int# ->
  StackId ->
  PTM StackId ->
  Int# ->
  State# RealWorld ->
  (# State# RealWorld, () #)
settle h here@(StackId slots) mine l n target@(StackId wanted) m k s =
  case commitSwap l n slots mine wanted s of
    (# s1, Done, rest #) -> case writeMutVar# (hecStack h) target s1 of
      s2 -> case hecGoverned h of
        Free -> base h rest goOn s2
        Governed _ _ w -> case unIO (userBegins w) s2 of (# s3, () #) -> base h rest goOn s3
    (# s1, Failed, _ #) -> case failed k s1 of s2 -> rerun h here mine m (k +# 1#) s2
    (# s1, _, _ #) -> base h mine (unIO (throwIO NotSuspended)) s1
{-# INLINE settle #-}

-- | Enter a stack, with an answer.
base :: HEC -> Rest -> Answer -> State# RealWorld -> (# State# RealWorld, () #)
base h rest answer s = case pendingHere s of
  (# s1, 0# #) -> enter h rest answer s1
  (# s1, _ #) -> case unIO (raisedHere answer) s1 of (# s2, raised #) -> enter h rest raised s2
{-# INLINE base #-}

-- | To raise what is pending; if nothing is any more, the given answer. Only one can be raised; the others were meant
-- for the same OS thread.
raisedHere :: Answer -> IO Answer
raisedHere answer = do
  one <- newIORef answer
  receivePending (\e -> writeIORef one (unIO (throwIO e)))
  readIORef one

-- | 'base' where no exception can be pending that this stack would have to be handed: one that begins masked
-- as the base is. Nothing follows the prompt: a capture takes the prompt away, and what commits the switch then
-- enters the next stack in its place.
enter :: HEC -> Rest -> Answer -> State# RealWorld -> (# State# RealWorld, () #)
enter HEC {hecTag = t} rest answer = prompt# t (\s -> rest answer s)

goOn :: Answer
goOn s = (# s, () #)

-- | Run the transaction of a switch, which has failed this often here, again at the base.
rerun :: HEC -> StackId -> Rest -> PTM StackId -> Int# -> State# RealWorld -> (# State# RealWorld, () #)
rerun h here mine (PTM m) = run
  where
    run k s = case begin s of
      (# s1, n #) -> case catch# (body n) (\e s2 -> (# s2, Raised e #)) s1 of
        (# s2, Raised e #) -> base h mine (unIO (throwIO e)) s2
        (# s2, Chose l n1 target #) -> case n1 of
          Conflict -> case failed k s2 of s3 -> run (k +# 1#) s3
          Asleep -> case catch# (asleep l) (\e s3 -> (# s3, Just (e :: SomeException) #)) s2 of
            (# s3, Nothing #) -> run 0# s3
            (# s3, Just e #) -> base h mine (unIO (throwIO e)) s3
          Away -> base h mine (unIO (switchClaiming (PTM m))) s2
          _
            | target == here -> case commit l n1 s2 of
                (# s3, Done #) -> base h mine goOn s3
                (# s3, _ #) -> case failed k s3 of s4 -> run (k +# 1#) s4
            | otherwise -> settle h here mine l n1 target (PTM m) k s2
    body n s = case m (On h here) Nil n s of (# s1, l, n1, target #) -> (# s1, Chose l n1 target #)
    asleep l s = case goToSleep l s of s1 -> (# s1, Nothing #)

data Chosen = Chose Log Int# StackId | Raised SomeException

-- | The target of a 'switch' was running, had ended, or was switched to before. Raised in the
-- stack that tried to switch; nothing was written.
data NotSuspended = NotSuspended
  deriving stock (Eq)

instance Show NotSuspended where
  show NotSuspended = "switch: the stack that was chosen is not suspended: it is running, or has ended"

instance Exception NotSuspended

-- Note [What GHC cannot capture]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- control0# raises an exception of base where it finds no prompt. A handler around it would be two frames more in each
-- stack that is left, at which every capture looks. So the exception is GHC's, handlers of `CannotSwitch`
-- handle it, and where it leaves a stack it gets the name that it has here.

-- | A stack could not be captured. Nothing was written. A handler of 'SomeException' may see GHC's own exception
-- instead, 'NoMatchingContinuationPrompt', which handlers of this type handle, too.
data CannotSwitch = CannotSwitch
  deriving stock (Eq)

instance Show CannotSwitch where
  show CannotSwitch =
    "switch: GHC cannot suspend the stack here: inside a value that is evaluated lazily (unsafePerformIO, runST), or in a callback from foreign code"

instance Exception CannotSwitch where
  fromException (SomeException e) = case cast e of
    Just NoMatchingContinuationPrompt -> Just CannotSwitch
    Nothing -> cast e

-- | GHC's exception for a stack that it cannot capture as a 'CannotSwitch'; any other one as it is.
named :: SomeException -> SomeException
named e = maybe e (toException @CannotSwitch) (fromException e)
