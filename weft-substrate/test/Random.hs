{-# LANGUAGE RankNTypes #-}

-- |
-- Description : Random programs over the substrate
--
-- Two or three HECs, two variables, and two stacks that know each other: what they do is a list of
-- instructions, so that a failing one can be printed and made smaller.
module Random (Plan, programOf) where

import Control.Monad (forM_, unless)
import Test.QuickCheck
import Weft.Substrate.Program

-- | The statements of the main stack, the two other stacks and one or two other HECs.
data Plan = Plan [Statement] [Statement] [Statement] [[Statement]]
  deriving stock (Show)

data Statement
  = -- | A transaction, which says what it has read.
    Do [Step]
  | -- | A switch to one of the stacks, after some steps.
    Go [Step] Which
  deriving stock (Show)

data Which = Main | First | Second | Self
  deriving stock (Show, Eq, Enum, Bounded)

data Step
  = Read Bool
  | Write Bool Int
  | -- | From one variable to the other.
    Move Bool
  | Fail
  | -- | Steps and a handler.
    Try [Step] [Step]
  | WakeMain
  | -- | Sleep while the variable is zero.
    SleepOn Bool
  deriving stock (Show)

instance Arbitrary Plan where
  arbitrary = Plan <$> statements 3 <*> statements 2 <*> statements 2 <*> (choose (1, 2) >>= \n -> vectorOf n (statements 2))
  shrink (Plan a b c ds) =
    [Plan a' b c ds | a' <- shrinkList shrinkStatement a]
      <> [Plan a b' c ds | b' <- shrinkList shrinkStatement b]
      <> [Plan a b c' ds | c' <- shrinkList shrinkStatement c]
      <> [Plan a b c ds' | ds' <- shrinkList (shrinkList shrinkStatement) ds]

statements :: Int -> Gen [Statement]
statements most = do
  n <- choose (1, most)
  vectorOf n (frequency [(3, Do <$> steps 2), (2, Go <$> steps 1 <*> elements [minBound ..])])

steps :: Int -> Gen [Step]
steps depth = do
  n <- choose (0, 3)
  vectorOf n . frequency $
    [ (4, Read <$> arbitrary),
      (3, Write <$> arbitrary <*> choose (0, 2)),
      (3, Move <$> arbitrary),
      (1, pure Fail),
      (2, pure WakeMain),
      (1, SleepOn <$> arbitrary)
    ]
      <> [(2, Try <$> steps (depth - 1) <*> steps 0) | depth > 0]

shrinkStatement :: Statement -> [Statement]
shrinkStatement = \case
  Do s -> Do <$> shrinkList shrinkStep s
  Go s w -> Do s : (Go <$> shrinkList shrinkStep s <*> pure w)

shrinkStep :: Step -> [Step]
shrinkStep = \case
  Try a b -> a <> b <> [Try a' b | a' <- shrinkList shrinkStep a] <> [Try a b' | b' <- shrinkList shrinkStep b]
  _ -> []

-- | The program of a plan.
programOf :: Plan -> forall w. Program w ()
programOf (Plan a b c ds) = do
  x <- variable (1 :: Int)
  y <- variable (1 :: Int)
  hec <- Atomic GetHec
  main <- Atomic GetStack
  others <- variable []
  let pick v = if v then x else y
      step = \case
        Read v -> (: []) <$> Get (pick v)
        Write v n -> [] <$ Put (pick v) n
        Move v -> do
          n <- Get (pick v)
          Put (pick v) 0
          m <- Get (pick (not v))
          [] <$ Put (pick (not v)) (n + m)
        Fail -> ThrowT (Problem "fails")
        Try s h -> CatchT (concat <$> mapM step s) (\_ -> concat <$> mapM step h)
        WakeMain -> [] <$ Wake hec
        SleepOn v -> Get (pick v) >>= \n -> if n == 0 then Sleep else pure []
      statement = \case
        Do s -> (Atomic (concat <$> mapM step s) >>= \r -> unless (null r) (Say (show r))) `Catch` \e -> Say (show e)
        Go s w -> (Switch (mapM_ step s >> target w) >> Say "back") `Catch` \e -> Say (show e)
      target = \case
        Self -> GetStack
        Main -> pure main
        w -> (!! fromEnum w) . (main :) <$> Get others
  first <- NewStack "first" (mapM_ statement b)
  second <- NewStack "second" (mapM_ statement c)
  Atomic (Put others [first, second])
  forM_ (zip [0 :: Int ..] ds) (\(i, d) -> InCall ("other " <> show i) (mapM_ statement d))
  mapM_ statement a
