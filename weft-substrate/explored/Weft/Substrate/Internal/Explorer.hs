{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : All schedules of a program on the substrate, within a bound
--
-- Runs a program again and again, each time with another schedule, until all schedules with at most
-- that many preemptions have been run. A schedule is the list of the choices at its points.
module Weft.Substrate.Internal.Explorer (Exploration (..), explore, simplest, replay) where

import Weft.Substrate.Internal.Ground (Bug, Choice (..), Ending, underScript)

-- | A program, and the bounds of its exploration.
data Exploration a = Exploration
  { exploreBug :: Maybe Bug,
    -- | How often a HEC that could go on is stopped, at most, in one schedule.
    explorePreemptions :: Int,
    -- | This number of schedules is enough.
    exploreLimit :: Int,
    -- | After a schedule with this outcome, too.
    exploreUntil :: a -> Bool,
    -- | A new instance of the program, and what it has shown when it has ended so.
    exploreProgram :: IO (IO (), Ending -> IO a)
  }

-- | The outcome of each schedule, in the order in which they were run. A schedule is run once.
explore :: Exploration a -> IO [([Int], a)]
explore e = go (0 :: Int) [[]]
  where
    go _ [] = pure []
    go n (script : rest)
      | n >= exploreLimit e = pure []
      | otherwise = do
          (made, outcome) <- runScript e script
          let taken = map choiceTaken made
              spent = scanl (+) (0 :: Int) [if choiceCould c && choiceTaken c /= 0 then 1 else 0 | c <- made]
              others =
                [ take i taken <> [other]
                  | (i, c, before) <- drop (length script) (zip3 [0 ..] made spent),
                    not (choiceCould c) || before < explorePreemptions e,
                    other <- [1 .. choiceOptions c - 1]
                ]
          ((taken, outcome) :) <$> if exploreUntil e outcome then pure [] else go (n + 1) (others <> rest)

-- | A schedule with an outcome of the kind that 'exploreUntil' is about, as one that has it, and simpler: none of
-- its choices can be left to the default, which is that the HEC that runs goes on.
simplest :: Exploration a -> [Int] -> IO [Int]
simplest e schedule = go (0 :: Int) (short schedule)
  where
    go i script = case break (/= 0) (drop i script) of
      (_, []) -> pure script
      (before, _ : after) -> do
        let at = i + length before
            other = short (take at script <> (0 : after))
        (made, outcome) <- runScript e other
        if exploreUntil e outcome then go 0 (short (map choiceTaken made)) else go (at + 1) script
    short = reverse . dropWhile (== 0) . reverse

-- | The outcome of a schedule.
replay :: Exploration a -> [Int] -> IO a
replay e schedule = snd <$> runScript e schedule

-- | The choices of a run by this script, and its outcome.
runScript :: Exploration a -> [Int] -> IO ([Choice], a)
runScript e script = do
  (program, observed) <- exploreProgram e
  (ending, made) <- underScript (exploreBug e) script program
  (,) made <$> observed ending
