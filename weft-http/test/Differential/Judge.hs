-- |
-- Reads conversations with all parsers and says what is wrong.
module Differential.Judge
  ( Judged (..),
    judge,
    shrunk,
  )
where

import Control.Monad (forM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.List (transpose)
import Differential.Reading
import Differential.Reasons
import Differential.Weft
import Weft.Http.RequestHead (Fault)

-- | The verdict on one conversation.
data Judged = Judged
  { judgedConversation :: ByteString,
    judgedOurs :: Reading Fault,
    judgedTheirs :: [(String, Reading String)],
    judgedComparisons :: [(String, Comparison)],
    -- | If h11 and llhttp refuse what Weft accepts: do 'weftAccepts' explain it?
    judgedExplained :: Maybe Bool,
    -- | Violations of the rules.
    judgedWrong :: [String]
  }

-- | Read conversations with ours and with the peers.
judge :: [Peer] -> [ByteString] -> IO [Judged]
judge peers conversations = do
  theirs <- forM peers $ \peer -> map (peerName peer,) <$> peerRead peer conversations
  pure (zipWith one conversations (if null peers then map (const []) conversations else transpose theirs))
  where
    one conversation readings =
      let ours = readWeft conversation
          comparisons =
            [ (name, compareReadings peer ours reading)
              | (peer, (name, reading)) <- zip peers readings,
                not (or [who == name && known conversation ours | Misreading who known _ <- misreadings])
            ]
          explained = alone comparisons
       in Judged conversation ours readings comparisons explained (concatMap wrong comparisons <> ["h11 and llhttp refuse what we accept: " <> show comparisons | explained == Just False])
    wrong (name, comparison) = case comparison of
      Differ how -> [name <> " reads another request: " <> how]
      OnlyPeerAccepts fault
        | not (or [fault == allowed && name `elem` names | Refusal allowed names _ <- weftRefuses]) ->
            [name <> " accepts, and we refuse: " <> show fault]
      _ -> []
    -- Warp is not asked here: it accepts nearly everything.
    alone comparisons = case (lookup "h11" comparisons, lookup "llhttp" comparisons) of
      (Just (OnlyWeftAccepts i h11), Just (OnlyWeftAccepts j llhttp))
        | i == j ->
            Just (and [or [explains said | Acceptance name explains _ _ <- weftAccepts, name == who] | (who, said) <- [("h11", h11), ("llhttp", llhttp)]])
      _ -> Nothing

-- | As much left out of a conversation as can be while something is wrong with it.
shrunk :: [Peer] -> ByteString -> IO ByteString
shrunk peers whole = go (B.length whole `div` 2) 0 whole
  where
    go 0 _ text = pure text
    go size at text
      | at >= B.length text = go (size `div` 2) 0 text
      | otherwise = do
          let shorter = B.take at text <> B.drop (at + size) text
          judged <- judge peers [shorter]
          if all (null . judgedWrong) judged then go size (at + size) text else go size at shorter
