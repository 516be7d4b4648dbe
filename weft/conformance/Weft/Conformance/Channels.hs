-- |
-- Description : Channels
--
-- Bounds, order and ends in litmus programs with every allowed outcome, and against a
-- model.
module Weft.Conformance.Channels (channels) where

import Control.Exception (ErrorCall)
import Control.Monad (forM, forM_, replicateM_, void, when)
import Data.IORef
import Data.List (sort)
import Data.Maybe (catMaybes, isNothing)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft
import Weft.Channel qualified as Channel
import Weft.Conformance.Check
import Weft.Conformance.Litmus
import Weft.Conformance.Waiting
import Weft.Conformance.World

-- | Channels.
channels :: World -> TestTree
channels world = testGroup "channels" (queues world)

queues :: World -> [TestTree]
queues world =
  catMaybes
    [ ordered world "a full channel holds the sender back" $
        allowed world [["sent 1", "sent 2", "got 1", "got 2", "got 3", "sent 3"]] $ \say -> do
          c <- Channel.newChannel 2
          wait <- spawn (forM_ [1 .. 3 :: Int] (\i -> Channel.send c i >> say ("sent " <> show i)))
          yield
          replicateM_ 3 (Channel.receive c >>= mapM_ (say . ("got " <>) . show))
          wait,
      ordered world "what was sent before the end is received, then the end" $
        allowed world [["Just 'a'", "Just 'b'", "Nothing", "EndOfChannel", "closed"]] $ \say -> do
          c <- Channel.newUnboundedChannel
          mapM_ (Channel.send c) ['a', 'b']
          Channel.close c >> Channel.close c
          replicateM_ 3 (Channel.receive c >>= say . show)
          Channel.tryReceive c >>= say . show
          Channel.send c 'c' `catch` \(Channel.ChannelClosed _) -> say "closed",
      ordered world "the end reaches receivers and senders that wait" $
        allowed world [["end", "refused"]] $ \say -> do
          c <- Channel.newChannel 1
          receiving <- spawn (Channel.receive c >>= \a -> when (isNothing (a :: Maybe ())) (say "end"))
          yield
          Channel.close c
          receiving
          d <- Channel.newChannel 1
          Channel.send d 'x'
          sending <- spawn (Channel.send d 'y' `catch` \(Channel.ChannelClosed _) -> say "refused")
          yield
          Channel.close d
          sending,
      always "a channel without room is refused" . running world $
        try (void (Channel.newChannel 0 :: Thread (Channel.Channel ()))) >>= throws (const True :: ErrorCall -> Bool),
      always "all arrives once, each sender's in order" $
        forM_ [1, 3, 1000] $ \room -> do
          got <- newIORef []
          running world $ do
            c <- Channel.newChannel room
            senders <- forM [0 .. 3 :: Int] $ \s -> spawnOn (Just s) (forM_ [1 .. 500 :: Int] (\i -> Channel.send c (s, i)))
            receivers <- forM [0 .. 1] $ \r -> spawnOn (Just r) $ do
              let go acc = Channel.receive c >>= maybe (pure (reverse acc)) (go . (: acc))
              mine <- go []
              liftIO (atomicModifyIORef' got (\lists -> (mine : lists, ())))
            sequence_ senders
            Channel.close c
            sequence_ receivers
          lists <- readIORef got
          sort (concat lists) @?= [(s, i) | s <- [0 .. 3], i <- [1 .. 500]]
          -- A receiver sees each sender's values in their order.
          forM_ lists $ \list -> forM_ [0 .. 3] $ \s -> let mine = [i | (s', i) <- list, s' == s] in mine @?= sort mine,
      Just (testProperty "is a queue with a bound and an end" (channelModel world))
    ]

data Step = TrySend Int | TryReceive | Close
  deriving stock (Show)

instance Arbitrary Step where
  arbitrary = frequency [(20, TrySend <$> arbitrary), (10, pure TryReceive), (1, pure Close)]

-- | Without waiting, against a sequence.
channelModel :: World -> Property
channelModel world = forAll (chooseInt (1, 4)) $ \room -> forAll arbitrary $ \steps ->
  let expected = model room Seq.empty False steps
   in checkCoverage
        . cover 5 (Left (Just False) `elem` expected) "full"
        . cover 5 (Right Channel.NotYet `elem` expected) "empty"
        . cover 2 (Right Channel.EndOfChannel `elem` expected) "ended"
        . ioProperty
        $ do
          got <- running world $ do
            c <- Channel.newChannel room
            forM (steps :: [Step]) $ \case
              TrySend a -> Left . either (\(Channel.ChannelClosed _) -> Nothing) Just <$> try (Channel.trySend c a)
              TryReceive -> Right <$> Channel.tryReceive c
              Close -> Left Nothing <$ Channel.close c
          pure (got === expected)
  where
    model :: Int -> Seq Int -> Bool -> [Step] -> [Either (Maybe Bool) (Channel.Received Int)]
    model _ _ _ [] = []
    model room held shut (step : rest) = case step of
      TrySend a
        | shut -> Left Nothing : model room held shut rest
        | Seq.length held < room -> Left (Just True) : model room (held |> a) shut rest
        | otherwise -> Left (Just False) : model room held shut rest
      TryReceive -> case held of
        a :<| left -> Right (Channel.Received a) : model room left shut rest
        Empty -> Right (if shut then Channel.EndOfChannel else Channel.NotYet) : model room held shut rest
      Close -> Left Nothing : model room held True rest
