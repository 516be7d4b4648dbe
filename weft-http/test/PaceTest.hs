-- | The arithmetic of minimum rates. What it does to clients is a scenario of the simulator
-- (@http\/pace@).
module PaceTest (tests) where

import Data.Int (Int64)
import Test.QuickCheck
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft
import Weft.Http.Server
import Weft.Http.Server.Pace
import Weft.Time (durationNanoseconds)

tests :: TestTree
tests =
  testGroup
    "pace"
    [ testProperty "a client that is never slower than the rate is never out of time" keepsUp,
      testProperty "a client that is not out of time has sent what the rate asks for" sendsEnough,
      testProperty "what was sent quickly makes up for no more than the grace period" notSavedUp,
      testCase "a byte at a time" byteAtATime,
      testCase "a grace period without an end" $
        creditAfter (MinimumRate 240 (seconds maxBound)) 0 second 0 240 @?= second + 240 * (second `div` 240),
      testCase "a large buffer that becomes free at once is worth its time" lumps
    ]

second :: Int64
second = 1_000_000_000

-- | A wait in nanoseconds, and the octets that ended it.
type Step = (Int64, Int64)

rateOf :: Gen MinimumRate
rateOf = MinimumRate <$> elements [1, 7, 240, 5_000, 1_000_000] <*> (seconds <$> choose (1, 20))

worth :: MinimumRate -> Int64 -> Int64
worth rate n = n * (second `div` rateOctets rate)

-- | The credit before each wait; until one takes longer.
credits :: MinimumRate -> Int64 -> [Step] -> [(Int64, Step)]
credits rate lump = go (durationNanoseconds (rateGrace rate))
  where
    go credit = \case
      [] -> []
      step@(waited, n) : rest
        | waited > credit -> [(credit, step)]
        | otherwise -> (credit, step) : go (creditAfter rate lump credit waited n) rest

survived :: [(Int64, Step)] -> [Step]
survived steps = [step | (credit, step@(waited, _)) <- steps, waited <= credit]

keepsUp :: Property
keepsUp = forAll rateOf $ \rate -> forAll (steps rate) $ \given ->
  length (survived (credits rate 0 given)) === length given
  where
    -- Each piece comes in the time it is worth, and none is worth more than the grace period.
    steps rate = listOf $ do
      n <- choose (1, max 1 (durationNanoseconds (rateGrace rate) `div` worth rate 1))
      waited <- choose (0, min (worth rate n) (durationNanoseconds (rateGrace rate)))
      pure (waited, n)

anySteps :: Gen [Step]
anySteps = listOf ((,) <$> frequency [(3, choose (0, second)), (1, choose (0, 30 * second))] <*> frequency [(3, choose (1, 100)), (1, choose (1, 100_000))])

sendsEnough :: Property
sendsEnough = forAll rateOf $ \rate -> forAll anySteps $ \given ->
  let lived = survived (credits rate 0 given)
      waited = sum (map fst lived)
      worthAll = worth rate (sum (map snd lived))
   in cover 20 (length lived < length given) "out of time" . counterexample (show (waited, worthAll)) $
        waited <= durationNanoseconds (rateGrace rate) + worthAll

notSavedUp :: Property
notSavedUp = forAll rateOf $ \rate -> forAll (choose (1, 1_000)) $ \quick ->
  let after' = iterate (\credit -> creditAfter rate 0 credit 0 1) (durationNanoseconds (rateGrace rate)) !! quick
   in after' === durationNanoseconds (rateGrace rate) + worth rate 1

byteAtATime :: Assertion
byteAtATime = do
  let rate = MinimumRate 240 (seconds 5)
      alive every = length (survived (credits rate 0 (replicate 10_000 (every, 1))))
  -- 250 a second.
  alive 4_000_000 @?= 10_000
  -- One a second: five seconds.
  alive second @?= 5
  -- Just inside of a time limit of thirty seconds.
  alive (29 * second) @?= 0

lumps :: Assertion
lumps = do
  let rate = MinimumRate 240 (seconds 5)
      -- The socket takes 300 kB at once, and then 100 kB whenever the client has read them.
      alive every = length (survived (credits rate 0 ((0, 300_000) : replicate 100 (every, 100_000))))
  -- 400 octets a second.
  alive (250 * second) @?= 101
  -- 200 octets a second.
  assertBool (show (alive (500 * second))) (alive (500 * second) < 30)
