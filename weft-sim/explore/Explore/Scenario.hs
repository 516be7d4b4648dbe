-- |
-- Description : A program to explore, and its invariants
--
-- A scenario is a program that judges itself: it returns what is wrong, in sentences. What is
-- wrong in any program (an unhandled exception, a deadlock, a race, a thread left
-- over) need not be said. A scenario may draw its program from the seed, or be one small
-- program of which all schedules are wanted.
module Explore.Scenario
  ( Scenario (..),
    Kind (..),
    small,
    drawn,
    verdictOf,
    configOf,
    systematicConfig,

    -- * For programs
    Complaints,
    expect,
    expectEqual,
    Log,
    newLog,
    say,
    said,
    quiet,
    spread,
    forkOn,
  )
where

import Control.Applicative ((<|>))
import Control.Monad (void)
import Data.Bits (shiftR, (.&.))
import Data.IORef
import Explore.Draw
import Weft
import Weft.Sim hiding (Exception)

-- | Violated invariants, in sentences.
type Complaints = [String]

-- | Something to explore.
data Scenario = Scenario
  { -- | As @mutex/fair@.
    scenarioName :: String,
    -- | The invariant, in a line.
    scenarioAbout :: String,
    scenarioKind :: Kind,
    -- | How a seed is simulated: 'configOf', or what it needs instead.
    scenarioConfig :: Seed -> Config,
    scenarioProgram :: Seed -> Thread Complaints
  }

-- | The meaning of a seed for a scenario.
data Kind
  = -- | The program is always the same: all its schedules with this number of preemptions can be
    -- explored.
    Small !Int
  | -- | The seed draws another program.
    Drawn
  deriving stock (Eq, Show)

-- | One program, and how many preemptions suffice to look for.
small :: String -> Int -> String -> Thread Complaints -> Scenario
small name preemptions about program = Scenario name about (Small preemptions) configOf (const program)

-- | A program for each seed.
drawn :: String -> String -> Draw (Thread Complaints) -> Scenario
drawn name about program = Scenario name about Drawn configOf (`draw` program)

-- | Flawless, nothing to complain about, and no descriptor is left.
verdictOf :: Verdict Complaints
verdictOf r = flawlessAnd (\complaints -> if null complaints then Nothing else Just (unlines complaints)) r <|> descriptors
  where
    descriptors = case resultDescriptors r of
      0 -> Nothing
      n -> Just (Problem "descriptors" (show n <> (if n == 1 then " descriptor is" else " descriptors are") <> " open at the end"))

-- | How a seed is simulated: on one worker or two, with all ways to choose threads, in calm
-- and rough weather.
configOf :: Seed -> Config
configOf (Seed n) =
  defaultConfig
    { configWorkers = 1 + fromIntegral (n .&. 1),
      configStrategy = case (n `shiftR` 1) .&. 3 of
        0 -> Uniformly 0.1
        1 -> Uniformly 0.5
        2 -> ByPriority 3 200
        _ -> ByPriority 6 400,
      configConditions = if (n `shiftR` 3) .&. 1 == 0 then calm else rough,
      configMaxSteps = 200_000
    }

-- | How all schedules are explored, on the given number of workers.
systematicConfig :: Int -> Config
systematicConfig workers = defaultConfig {configWorkers = workers, configMaxSteps = 20_000}

-- | A sentence, if it does not hold.
expect :: String -> Bool -> Complaints
expect sentence holds = [sentence | not holds]

-- | A sentence with both values, if they differ.
expectEqual :: (Eq a, Show a) => String -> a -> a -> Complaints
expectEqual what wanted got = [what <> ": " <> show got <> ", and not " <> show wanted | got /= wanted]

-- | The messages of threads, in order.
newtype Log a = Log (IORef [a])

-- | Nothing said.
newLog :: Thread (Log a)
newLog = Log <$> liftIO (newIORef [])

-- | Say it, in one step.
say :: Log a -> a -> Thread ()
say (Log ref) a = liftIO (modifyIORef' ref (a :))

-- | The lines of a log, oldest first.
said :: Log a -> Thread [a]
said (Log ref) = liftIO (reverse <$> readIORef ref)

-- | Wait until no thread can run and none that sleeps for less than a minute sleeps: virtual
-- time passes only then.
quiet :: Thread ()
quiet = sleep (seconds 60)

-- | Fork threads, each on the next worker, so that with two workers half of them are
-- elsewhere.
spread :: [Thread ()] -> Thread [ThreadId]
spread bodies = sequence [forkOn i body | (i, body) <- zip [0 ..] bodies]

-- | Fork a thread on this worker, modulo their number.
forkOn :: Int -> Thread a -> Thread ThreadId
forkOn worker body = forkWith defaultForkOptions {forkWorker = Just worker} (void body)
