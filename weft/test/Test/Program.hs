{-# LANGUAGE GADTs #-}

-- |
-- Description : A small language of threads, and what its programs must do
--
-- Random programs that fork, yield, ask, throw, catch, mask, bracket and exit; their
-- translation to 'Thread'; and a reference interpreter that shares no code and no
-- technique with the library: an abstract machine over an explicit stack and an
-- explicit list of ready threads. "Weft.Model" is another, which shares 'Thread'.
module Test.Program
  ( -- * Programs
    Program,
    Statement (..),
    How (..),
    Fault (..),
    programSize,

    -- * What they do
    Event (..),
    Level (..),

    -- * The library's answer
    perform,
    answered,
    answeredBy,

    -- * The reference's answer
    reference,
  )
where

import Control.Exception (Exception, throw, throwIO)
import Control.Monad (void, when)
import Control.Monad.Catch (uninterruptibleMask_)
import Data.IORef
import Data.Type.Equality ((:~~:) (HRefl))
import GHC.Stack (emptyCallStack)
import Test.QuickCheck
import Test.Support (maskingNow)
import Type.Reflection (eqTypeRep, typeRep)
import Weft
import Weft.Internal.Core.Trace (MaskingState (..), Trace (..))
import Weft.Kernel (AnswerCall (..), Instance (..), Kernel (..), Opened (..), SystemCall (..), describe, request)

-- | Statements, one after the other.
type Program = [Statement]

-- | A statement of a thread.
data Statement
  = -- | Write a number into the log.
    Say Int
  | -- | Write the masking state into the log.
    SayMasking
  | Yields
  | -- | A system call whose answer, this number, comes after that number of turns.
    Asks Int
  | Forks Program
  | Fails How Int
  | -- | The body, the handler.
    Catches Program Program
  | -- | Masked; with true a part of the body (the second) runs restored.
    Masks Program Program
  | MasksFirmly Program
  | -- | Acquire, use, release.
    Brackets Program Program Program
  | Exits
  deriving stock (Eq, Show)

-- | Where an exception comes from; it must not matter.
data How = Monadic | InEffect | InPureCode | InForcedValue
  deriving stock (Eq, Show, Enum, Bounded)

-- | The exception of a program.
newtype Fault = Fault Int
  deriving stock (Eq, Show)

instance Exception Fault

-- | An observation of a run, in order. The first number is the thread, in the
-- order of forking.
data Event
  = Said Int Int
  | Masked Int Level
  | -- | An exception left the thread.
    Reported Int
  deriving stock (Eq, Show)

-- | A masking state, for the reference.
data Level = Open | Soft | Firm
  deriving stock (Eq, Ord, Show)

instance Arbitrary Statement where
  arbitrary = sized statement
  shrink = \case
    Forks p -> p <> (Forks <$> shrink p)
    Catches a b -> a <> b <> (uncurry Catches <$> shrink (a, b))
    Masks a b -> a <> b <> (uncurry Masks <$> shrink (a, b))
    MasksFirmly a -> a <> (MasksFirmly <$> shrink a)
    Brackets a b c -> a <> b <> c <> [Brackets x y z | (x, y, z) <- shrink (a, b, c)]
    Fails how n -> [Fails Monadic n | how /= Monadic]
    _ -> []

statement :: Int -> Gen Statement
statement n
  | n <= 1 = leaf
  | otherwise =
      frequency
        [ (6, leaf),
          (3, Forks <$> part 2),
          (4, Catches <$> part 2 <*> part 2),
          (2, Masks <$> part 2 <*> part 2),
          (1, MasksFirmly <$> part 2),
          (4, Brackets <$> part 3 <*> part 3 <*> part 3)
        ]
  where
    part k = resize (n `div` k) (listOf (statement (n `div` k)))
    leaf =
      frequency
        [ (6, Say <$> choose (0, 99)),
          (3, pure SayMasking),
          (3, pure (Forks [SayMasking])),
          (5, pure Yields),
          (3, Asks <$> choose (0, 3)),
          (3, Fails <$> arbitraryBoundedEnum <*> choose (0, 9)),
          (1, pure Exits)
        ]

-- | How many statements, counting a question once for each turn that it takes.
programSize :: Program -> Int
programSize = sum . map one
  where
    one = \case
      Asks n -> 1 + n
      Forks p -> 1 + programSize p
      Catches a b -> 1 + programSize a + programSize b
      Masks a b -> 1 + programSize a + programSize b
      MasksFirmly a -> 1 + programSize a
      Brackets a b c -> 1 + programSize a + programSize b + programSize c
      _ -> 1

-- | A program as a thread, given how to report an event and the counter that
-- numbers threads. 'Yields' is what both sides count as a turn.
perform :: (Event -> IO ()) -> IORef Int -> Program -> Thread ()
perform emit names = body 0
  where
    body me = mapM_ (one me)
    one :: Int -> Statement -> Thread ()
    one me = \case
      Say n -> liftIO (emit (Said me n))
      SayMasking -> maskingNow >>= liftIO . emit . Masked me . level
      Yields -> yield
      Asks n -> liftIO (newIORef n) >>= request . Question n >>= liftIO . emit . Said me
      Forks p -> do
        child <- liftIO (atomicModifyIORef' names (\n -> (n + 1, n)))
        -- Both ways to fork must behave alike.
        if even child then fork_ (labelled child p) else void (fork (labelled child p))
      Fails how n -> case how of
        Monadic -> throwM (Fault n)
        InEffect -> liftIO (throwIO (Fault n))
        InPureCode -> throw (Fault n)
        InForcedValue -> liftIO (pure (throw (Fault n))) >>= \x -> when x yield
      Catches a handler -> body me a `catch` \(Fault _) -> body me handler
      Masks a b -> mask (\restore -> body me a >> restore (body me b))
      MasksFirmly a -> uninterruptibleMask_ (body me a)
      Brackets a u r -> bracket (body me a) (\_ -> body me r) (\_ -> body me u)
      Exits -> exit
    -- An exception that leaves a thread is reported by the scheduler; here the report names the thread.
    labelled child p = body child p `catch` \(Fault n) -> liftIO (emit (Reported child)) >> throwM (Fault n)
    level = \case
      Unmasked -> Open
      MaskedInterruptible -> Soft
      MaskedUninterruptible -> Firm

-- | The question of 'Asks': the answer, and the turns left until it comes.
data Question a where
  Question :: Int -> IORef Int -> Question Int

instance Show (Question a) where
  show (Question n _) = "ask for " <> show n

-- | The answer, if it is time.
answered :: SystemCall a -> IO (Maybe a)
answered = \case
  Extend (e :: f b)
    | Just HRefl <- eqTypeRep (typeRep @f) (typeRep @Question),
      Question n left <- e -> do
        turns <- readIORef left
        if turns == 0 then pure (Just n) else Nothing <$ writeIORef left (turns - 1)
  other -> ioError (userError (describe other))

-- | A kernel whose 'Extend' is answered so. A thread without an answer yet yields, and asks again.
answeredBy :: Kernel -> (forall a. SystemCall a -> IO (Maybe a)) -> Kernel
answeredBy kernel answer = kernel {openKernel = fmap opened . openKernel kernel}
  where
    opened o = o {startKernel = fmap started . startKernel o}
    started i = case instanceAnswer i of
      AnswerCall inner ->
        i
          { instanceAnswer = AnswerCall $ \tcb call k -> case call of
              Extend _ -> maybe (Yield (\_ -> Call emptyCallStack call k)) k <$> answer call
              _ -> inner tcb call k
          }

-- | A thread of the reference machine: what is on its stack, and its masking.
data Machine = Machine Int [Item] Level

data Item
  = Do Statement
  | SetLevel Level
  | -- | Popped when the body ends; runs when an exception passes.
    Handler Program Level
  | -- | After the acquisition: what to do with the resource, its release, and the
    -- masking outside.
    Use Program Program Level
  | -- | Runs when the body ends, and when an exception passes, at this level.
    Release Program Level
  | -- | Go on with an exception after a release.
    Rethrow Unwinding
  | -- | The end of a thread's life.
    Watch

data Unwinding = Failing | Leaving
  deriving stock (Eq)

-- | The events of a program's run: thread 0 runs it, each thread in turn until it
-- yields or ends, threads that are forked go to the end of the list.
reference :: Program -> [Event]
reference program = turn 1 [Machine 0 (map Do program) Open]
  where
    turn _ [] = []
    turn names (Machine me stack lvl : others) = go names me stack lvl []
      where
        go n who items l children = case items of
          [] -> turn n (others <> reverse children)
          Do s : rest -> case s of
            Say k -> Said who k : go n who rest l children
            SayMasking -> Masked who l : go n who rest l children
            Yields -> turn n (others <> reverse (Machine who rest l : children))
            Asks k -> go n who (map Do (replicate k Yields <> [Say k]) <> rest) l children
            Forks p -> go (n + 1) who rest l (Machine n (map Do p <> [Watch]) l : children)
            Fails _ _ -> unwind n who rest l children Failing
            Catches a h -> go n who (map Do a <> (Handler h l : rest)) l children
            Masks a b -> go n who (map Do a <> (SetLevel l : map Do b) <> (SetLevel l : rest)) (max Soft l) children
            MasksFirmly a -> go n who (map Do a <> (SetLevel l : rest)) Firm children
            Brackets a u r -> go n who (map Do a <> (Use u r l : rest)) (max Soft l) children
            Exits -> unwind n who rest l children Leaving
          SetLevel l' : rest -> go n who rest l' children
          Use u r l' : rest -> go n who (map Do u <> (Release r l : SetLevel l' : rest)) l' children
          Handler _ _ : rest -> go n who rest l children
          Release r l' : rest -> go n who (map Do r <> rest) l' children
          Rethrow e : rest -> unwind n who rest l children e
          Watch : rest -> go n who rest l children
        -- An exception looks for the innermost item that cares.
        unwind n who items l children e = case items of
          [] -> turn n (others <> reverse children)
          Handler h l' : rest
            | Failing <- e -> go n who (map Do h <> (SetLevel l' : rest)) (max Soft l') children
          Release r l' : rest -> go n who (map Do r <> (Rethrow e : rest)) l' children
          Watch : rest
            | Failing <- e -> Reported who : unwind n who rest l children e
          _ : rest -> unwind n who rest l children e
