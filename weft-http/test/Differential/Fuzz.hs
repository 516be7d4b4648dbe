-- |
-- The comparison for hours (@make fuzz@). Half of the conversations are generated, half
-- are made from a corpus by changing bytes: what came to an end of a kind that had not been
-- seen is put into it. With the same seed, and the same peers, everything happens again.
module Differential.Fuzz
  ( fuzz,
    explain,
  )
where

import Control.Monad (forM_, unless, when)
import Data.ByteString (ByteString)
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Differential.Conversation
import Differential.Judge
import Differential.Reading
import GHC.Clock (getMonotonicTime)
import System.IO
import Test.QuickCheck.Gen (unGen)
import Test.QuickCheck.Random (mkQCGen)

-- | The kind of an ending: that of each parser, with the reason of a refusal.
type Kind = String

-- | Compare for the given number of minutes, from a seed. Answers whether nothing was wrong.
fuzz :: [Peer] -> Double -> Int -> IO Bool
fuzz peers minutes seed = do
  start <- getMonotonicTime
  say ("seed " <> show seed <> ", beside " <> unwords (map peerName peers))
  let go :: Int -> Map Kind ByteString -> Double -> IO Bool
      go done corpus said = do
        now <- getMonotonicTime
        let late = now - start >= minutes * 60
        when (late || now - said >= 60) $
          say (show done <> " conversations, " <> show (Map.size corpus) <> " kinds of endings, " <> show (round (now - start) :: Int) <> " s")
        if late
          then pure True
          else do
            judged <- judge peers [make corpus n | n <- [done .. done + batch - 1]]
            case [j | j <- judged, not (null (judgedWrong j))] of
              found : _ -> do
                least <- shrunk peers (judgedConversation found)
                explain peers least
                pure False
              [] ->
                go (done + batch) (if Map.size corpus < 20_000 then Map.union corpus (Map.fromList [(kind j, judgedConversation j) | j <- judged]) else corpus) (if now - said >= 60 then now else said)
  go 0 Map.empty start
  where
    say text = putStrLn ("fuzz: " <> text) >> hFlush stdout
    batch = 1000
    -- Apart for each seed, whatever is drawn from each number.
    make corpus n
      | even n || Map.null corpus = conversationOf (number n)
      | otherwise =
          let size = Map.size corpus
              pick k = snd (Map.elemAt (k `mod` size) corpus)
           in unGen (mutated (pick (number n `div` 7)) (pick (number n `div` 10_007))) (mkQCGen (number n)) 30
    number n = seed * 1_000_003 + n

kind :: Judged -> Kind
kind j = unwords (show (min 3 (length (readingMessages ours))) : either' (readingEnding ours) : [name <> ":" <> told (readingEnding r) | (name, r) <- judgedTheirs j])
  where
    ours = judgedOurs j
    either' = \case
      Refused fault -> show fault
      other -> outcome other
    -- Without the part that quotes the request.
    told = \case
      Refused why -> takeWhile (/= ':') why
      other -> outcome other

-- | Say what every parser reads in a conversation, and what is wrong with that.
explain :: [Peer] -> ByteString -> IO ()
explain peers text = do
  judged <- judge peers [text]
  forM_ judged $ \j -> do
    putStrLn ("conversation: " <> show text)
    putStrLn ("in hexadecimal: " <> Lazy.unpack (Builder.toLazyByteString (Builder.byteStringHex text)))
    putStrLn ("weft: " <> show (judgedOurs j))
    forM_ (judgedTheirs j) $ \(name, reading) -> putStrLn (name <> ": " <> show reading)
    unless (null (judgedWrong j)) (putStrLn "wrong:")
    mapM_ (putStrLn . ("  " <>)) (judgedWrong j)
