-- |
-- The parser beside those of others: h11 (Python), llhttp (node) and warp.
--
-- Without arguments these are tests, on the same conversations every time. Otherwise:
--
-- > weft-http-differential fuzz MINUTES SEED   compare other conversations, for this time
-- > weft-http-differential read HEX            what does each parser read in this one?
module Main (main) where

import Control.Monad (forM_, unless)
import Data.ByteString.Char8 qualified as C
import Data.Char (toLower)
import Data.List (intercalate)
import Data.Map.Strict qualified as Map
import Differential.Conversation
import Differential.Engine
import Differential.Fuzz
import Differential.Judge
import Differential.Programs
import Differential.Reading
import Differential.Reasons
import Differential.Warp
import Differential.Weft
import System.Environment (getArgs)
import System.Exit (exitFailure)
import System.IO (hPutStrLn, stderr)
import Test.Tasty
import Test.Tasty.HUnit
import Text.Read (readMaybe)

main :: IO ()
main = withWarp $ \warp -> withPrograms $ \programs -> do
  let peers = programs <> [warp]
  getArgs >>= \case
    ["fuzz", minutes, seed]
      | Just m <- readMaybe minutes, Just s <- readMaybe seed -> fuzz peers m s >>= \well -> unless well exitFailure
    ["read", text] -> explain peers (unhex (C.pack text))
    "fuzz" : _ -> hPutStrLn stderr "usage: weft-http-differential fuzz MINUTES SEED" >> exitFailure
    _ -> defaultMain (withResource (judge peers (map conversationOf [1 .. 20_000])) (const (pure ())) (tests peers))

tests :: [Peer] -> IO [Judged] -> TestTree
tests peers conversations =
  localOption (mkTimeout 240_000_000) . testGroup "beside h11, llhttp and warp" $
    [ testCase "nobody reads another request in what Weft accepts" $ do
        judged <- conversations
        case [j | j <- judged, not (null (judgedWrong j))] of
          [] -> pure ()
          found@(first : _) ->
            assertFailure . intercalate "\n" $
              (show (length found) <> " conversations, of which the first is")
                : show (judgedConversation first)
                : ("weft: " <> show (judgedOurs first))
                : [name <> ": " <> show reading | (name, reading) <- judgedTheirs first]
                  <> judgedWrong first,
      testCase "conversations of every kind" $ do
        judged <- conversations
        let endings = counted [outcome (readingEnding (judgedOurs j)) | j <- judged]
            lengths = counted [min 3 (length (readingMessages (judgedOurs j))) | j <- judged]
            bodies = counted [C.null (messageBody m) | j <- judged, m <- readingMessages (judgedOurs j)]
            often what least counts = assertBool (show counts) (Map.findWithDefault 0 what counts >= (least :: Int))
        forM_ [("clean", 4000), ("closed", 1500), ("partial", 800), ("refused", 4000)] $ \(what, least) -> often what least endings
        forM_ [(0, 4000), (1, 2000), (2, 3000), (3, 1000)] $ \(what, least) -> often what least lengths
        often False 3000 bodies,
      testCase "the engine reads what the parser reads" $ do
        -- An unknown value of Expect is answered before a handler is asked.
        let strange text = let (before, rest) = C.breakSubstring "Expect: 100-continue\r\n" text in mentions before || (not (C.null rest) && strange (C.drop 22 rest))
            mentions = C.isInfixOf "xpect" . C.map toLower
            texts = filter (not . strange) (map conversationOf [100_001 .. 104_000])
        seen <- engineReads texts
        case [(text, answers) | (text, answers) <- zip texts seen, answers `notElem` expectedOf (readWeft text)] of
          [] -> pure ()
          found@((text, answers) : _) ->
            assertFailure . intercalate "\n" $
              [show (length found) <> " conversations, of which the first is", show text, "parser: " <> show (readWeft text), "engine: " <> show answers],
      testCase "what warp is known to misread occurs" $ do
        judged <- conversations
        forM_ misreadings $ \(Misreading _ known why) -> assertBool why (any (\j -> known (judgedConversation j) (judgedOurs j)) judged)
    ]
      -- Without them it would not be known what they accept.
      <> [ testCase "every reason to refuse what another accepts occurs" $ do
             judged <- conversations
             let met = counted [(name, show fault) | j <- judged, (name, OnlyPeerAccepts fault) <- judgedComparisons j]
                 missing = [fault | Refusal fault names _ <- weftRefuses, and [Map.notMember (name, show fault) met | name <- names]]
             missing @?= []
           | length peers == 3
         ]
      <> [ testCase ("Weft accepts what " <> name <> " refuses: " <> why) $ do
             judged <- judge peers [example]
             case [c | Judged {judgedComparisons = comparisons} <- judged, (who, c) <- comparisons, who == name] of
               [OnlyWeftAccepts _ said] | explains said -> pure ()
               other -> assertFailure (show other)
           | Acceptance name explains why example <- weftAccepts,
             name `elem` map peerName peers
         ]
  where
    counted :: (Ord k) => [k] -> Map.Map k Int
    counted keys = Map.fromListWith (+) [(k, 1) | k <- keys]
