-- | The owner of an exchange: any sequence of what threads do to one against a model that has the
-- stages by name, and threads of GHC's that claim at the same time.
module ExchangeTest (tests) where

import Control.Concurrent
import Control.Exception (IOException, try)
import Control.Monad (forM, forM_, replicateM_)
import Data.Maybe (isJust)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Http.Server.Exchange
import Weft.Http.Server.Types (SinkError)

tests :: TestTree
tests =
  testGroup
    "exchange"
    [ testProperty "does what its stages say" stages,
      testCase "of threads that claim at the same time one owns the response" claimed,
      testCase "of a claim and the end of the application one is first" concluded
    ]

-- | An action on an exchange.
data Deed = Claims | Settles Bool | Begins | Takes | Rests | Closes | Fails | Concludes | Informs | Receives | Released | Stops
  deriving stock (Eq, Show)

instance Arbitrary Deed where
  arbitrary = oneof (pure (Settles True) : pure (Settles False) : map pure [Claims, Begins, Takes, Rests, Closes, Fails, Concludes, Informs, Receives, Released, Stops])

data Stage = Unanswered | Sending | Resting | Closing | Settled Bool | Over
  deriving stock (Eq, Show)

-- | The stage, whether the head is out, whether a thread receives, whether the body is over.
data Model = Model Stage Bool Bool Bool

-- | Each action answers as the model does.
stages :: [Deed] -> Property
stages deeds = ioProperty $ do
  exchange <- newExchange
  let go _ [] = pure (property True)
      go model (d : rest) = do
        said <- perform exchange d
        let (expected, model') = modelled model d
        if said == expected then go model' rest else pure (counterexample (show d <> " answers " <> show said <> ", and not " <> show expected) False)
  go (Model Unanswered False False False) deeds

perform :: Exchange -> Deed -> IO String
perform exchange = \case
  Claims -> granted <$> claim exchange
  Settles goesOn -> "" <$ settle exchange goesOn
  Begins -> "" <$ beginContent exchange
  Takes -> either (\e -> show (e :: SinkError)) granted <$> try (takeContent exchange)
  Rests -> "" <$ restContent exchange
  Closes -> granted <$> closeContent exchange
  Fails -> "" <$ failContent exchange
  Concludes ->
    conclude exchange >>= \case
      Unsent -> pure "unsent"
      UnderWay -> pure "under way"
      Done goesOn -> pure (show goesOn)
  Informs -> beginInforming exchange >>= \stage -> show (isJust stage) <$ mapM_ (endInforming exchange) stage
  Receives -> either (\(_ :: IOException) -> "refused") (const "receives") <$> try (beginReceiving exchange)
  Released -> "" <$ endReceiving exchange
  Stops -> show <$> stopReceiving exchange
  where
    granted = \case
      Claimed -> "claimed"
      NotYet -> "not yet"
      Refused -> "refused"

modelled :: Model -> Deed -> (String, Model)
modelled model@(Model stage out receives over) = \case
  Claims -> owning Unanswered (at Sending)
  Settles goesOn -> ("", if open then at (Settled goesOn) else model)
  Begins -> ("", if open then at Resting else model)
  Takes
    | stage `elem` [Closing, Over] || settled -> ("the response that was written to has ended", model)
    | otherwise -> owning Resting (Model Sending True receives over)
  Rests -> ("", if stage == Sending then at Resting else model)
  Closes -> owning Resting (at Closing)
  Fails -> ("", if open then at Over else model)
  Concludes -> case stage of
    Settled goesOn -> (show goesOn, model)
    Unanswered -> ("unsent", at Over)
    _ -> ("under way", at Over)
  Informs -> (show (not out && stage `elem` [Unanswered, Resting]), model)
  Receives
    | receives || over -> ("refused", model)
    | otherwise -> ("receives", Model stage out True over)
  Released -> ("", Model stage out False over)
  Stops -> (show receives, Model stage out receives True)
  where
    at stage' = Model stage' out receives over
    settled = case stage of Settled _ -> True; _ -> False
    open = not settled && stage /= Over
    owning from to = if stage == from then ("claimed", to) else ("refused", model)

-- | Do these at the same time.
together :: [IO a] -> IO [a]
together acts = do
  begin <- newEmptyMVar
  results <- forM acts $ \act -> do
    result <- newEmptyMVar
    result <$ forkIO (readMVar begin >> act >>= putMVar result)
  putMVar begin ()
  mapM takeMVar results

claimed :: Assertion
claimed = replicateM_ 500 $ do
  exchange <- newExchange
  claims <- together (replicate 6 (claim exchange))
  length (filter (== Claimed) claims) @?= 1

concluded :: Assertion
concluded = forM_ [1 .. 500 :: Int] $ \i -> do
  exchange <- newExchange
  let claiming' = (== Claimed) <$> claim exchange
      concluding = conclude exchange >>= \case Unsent -> pure True; _ -> pure False
  firsts <- together (if even i then [claiming', concluding] else [concluding, claiming'])
  length (filter id firsts) @?= 1
