-- |
-- The event view: a thread as the lazy trace of its system calls.
--
-- A trace is a value, and can be looked at without running it. Where it goes on depends on an answer
-- from outside; 'outline' shows how far one can see without any, and 'outlineWith' supplies answers.
--
-- >>> import Weft
-- >>> putStr (outline 10 (trace (do { yield; _ <- fork (sleep (seconds 1)); yield })))
-- yield
-- fork
-- | read the clock
-- | ...
-- yield
-- done
module Weft.Trace
  ( -- * Traces
    Trace,
    trace,

    -- * Looking at them
    outline,
    outlineWith,
    Answers (..),
    noAnswers,

    -- * Nodes
    Node (..),
    node,
  )
where

import Control.Exception (SomeException)
import Data.List (intercalate)
import Weft.Internal.Core.SystemCall (SystemCall, describe)
import Weft.Internal.Core.Trace

-- | The trace of a thread that is run for its effects.
trace :: Thread a -> Trace
trace = toTrace

-- | The first node of a trace, without what follows.
data Node
  = NodeDone
  | NodeParked
  | NodeEffect
  | NodeYield
  | NodeFork
  | NodeThrow SomeException
  | NodeCatch
  | NodeMask
  | NodeLeave
  | NodeSelf
  | -- | With its description.
    NodeCall String
  deriving stock (Show)

-- | Force a trace to its first node.
node :: Trace -> Node
node = \case
  Done -> NodeDone
  Parked -> NodeParked
  Effect _ -> NodeEffect
  Yield _ -> NodeYield
  Perform op _ _ -> case primitiveSight op of
    Unseen _ -> NodeSelf
    Masks _ -> NodeMask
    Yields -> NodeYield
    _ -> NodeEffect
  Fork {} -> NodeFork
  Throw e -> NodeThrow e
  Catch _ _ -> NodeCatch
  Leave _ _ -> NodeLeave
  Call _ request _ -> NodeCall (describe request)
  Enter _ -> NodeEffect

-- | Answers to assume while looking at a trace.
newtype Answers = Answers {assume :: forall a. SystemCall a -> Maybe a}

-- | Assume nothing.
noAnswers :: Answers
noAnswers = Answers (const Nothing)

-- | At most the given number of nodes of a trace, one on a line, a forked thread indented with a bar. Nothing is
-- run: an effect, or a call whose answer is not known, ends the view of its thread with an ellipsis.
outline :: Int -> Trace -> String
outline = outlineWith noAnswers

-- | 'outline' that continues after the calls whose answers are given.
outlineWith :: Answers -> Int -> Trace -> String
outlineWith answers limit = unlines . snd . go limit []
  where
    -- The nodes that are left; the handlers and masks that are open: an exception goes on in its handler.
    go :: Int -> [SomeException -> Trace] -> Trace -> (Int, [String])
    go n handlers t
      | n <= 0 = (0, ["..."])
      | otherwise = case t of
          Done -> (n - 1, ["done"])
          Parked -> (n - 1, ["parked"])
          Effect _ -> (n - 1, ["effect", "..."])
          Perform op _ k -> case primitiveSight op of
            Unseen a -> line "self" (k a)
            Masks a -> lineWith (Throw : handlers) "mask" (k a)
            Bookkeeping -> (n - 1, ["effect", "..."])
            Awaits (BlockedOn _ request) -> (n - 1, [describe request, "..."])
            Uses uses -> (n - 1, [intercalate ", " [verb | Use verb _ <- uses], "..."])
            Accesses _ _ -> (n - 1, ["access", "..."])
            Begins -> (n - 1, ["direct", "..."])
            Resumes -> (n - 1, ["direct", "..."])
            Yields -> (n - 1, ["yield", "..."])
          Enter _ -> (n - 1, ["direct", "..."])
          Yield k -> line "yield" (k ())
          Fork _ child k -> forked child (k (ThreadId nobody))
          Throw e -> case handlers of
            h : rest -> lineWith rest ("throw " <> show e) (h e)
            [] -> (n - 1, ["throw " <> show e])
          Catch body h -> lineWith (h : handlers) "catch" (body ())
          Leave k a -> lineWith (drop 1 handlers) "leave" (k a)
          Call _ request k -> asked request k
      where
        asked :: SystemCall b -> (b -> Trace) -> (Int, [String])
        asked request k = case assume answers request of
          Just a -> line (describe request) (k a)
          Nothing -> (n - 1, [describe request, "..."])
        line = lineWith handlers
        lineWith frames text rest = (text :) <$> go (n - 1) frames rest
        forked child rest =
          let (left, below) = go (n - 1) [] (child ())
              (left', after) = go left handlers rest
           in (left', "fork" : map ("| " <>) below <> after)
