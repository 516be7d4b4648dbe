-- | @--trace@: the file is there, whole after a signal and readable after the worst one,
-- and a disk that is full costs the timeline only.
module TimelineTest (tests) where

import Control.Monad
import Data.Aeson
import Data.Aeson.KeyMap qualified as KeyMap
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (isInfixOf, nub, (\\))
import Data.Text (Text)
import Harness
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.Posix.Signals (sigKILL, sigTERM)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Test.Waiting (eventuallyIO)

tests :: TestTree
tests =
  testGroup
    "timeline"
    [ testGroup "of a service" [testCase backend (ofService backend) | backend <- backends],
      testCase "of a program that was killed" killed,
      testCase "a name outside ASCII, in the C locale" strangeName,
      testCase "on a full disk: one message, and the service goes on" fullDisk
    ]

-- | The names of the events; all are objects with a phase, a process and a track.
namesIn :: B.ByteString -> IO [Text]
namesIn text = case eitherDecodeStrict text of
  Left wrong -> assertFailure (wrong <> ": " <> show (B.take 200 text))
  Right events -> do
    forM_ (events :: [Object]) $ \e -> forM_ ["ph", "pid", "tid", "ts", "name"] $ \key ->
      assertBool (show (encode e)) (KeyMap.member key e)
    pure (nub [name | e <- events, Just (String name) <- [KeyMap.lookup "name" e]])

ofService :: String -> IO ()
ofService backend = withSite $ \site -> do
  let file = site </> ".." </> "timeline.json"
  withServerIn [] [] site ["--backend", backend, "--workers", "2", "--trace", file] $ \server -> do
    replicateM_ 20 (get server "/hello.txt" >>= \reply -> replyStatus reply @?= 200)
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
    serverErrors server >>= (@?= "")
  names <- B.readFile file >>= namesIn
  ["process_name", "thread_name", "acceptor", "slice", "poll", "sleep", "threads", "worker 0 ready"] \\ names @?= []

-- | All that was written before is there. The last line may be half of one.
killed :: IO ()
killed = withSite $ \site -> do
  let file = site </> ".." </> "timeline.json"
  withServerIn [] [] site ["--trace", file] $ \server -> do
    _ <- get server "/hello.txt"
    eventuallyIO "the acceptor to be in the file" (B.isInfixOf "\"acceptor\"" <$> B.readFile file)
    stopWith sigKILL server
    void (waitForExit server)
  text <- B.readFile file
  names <- namesIn (whole text <> "]")
  assertBool (show names) ("acceptor" `elem` names)
  where
    whole text
      | "}" `B.isSuffixOf` text = text
      | otherwise = B.dropEnd 2 (fst (C.breakEnd (== '\n') text))

strangeName :: IO ()
strangeName = withSite $ \site -> do
  let file = site </> ".." </> "d\233ri\8364.json"
  withServerIn [] [("LC_ALL", "C"), ("LANG", "C")] site ["--trace", file] $ \server -> do
    stopWith sigTERM server
    waitForExit server >>= (@?= ExitSuccess)
  void (B.readFile file >>= namesIn)

fullDisk :: IO ()
fullDisk = withServer ["--trace", "/dev/full"] $ \server -> do
  eventuallyIO "a message" (not . null <$> serverErrors server)
  replicateM_ 3 (get server "/hello.txt" >>= \reply -> replyStatus reply @?= 200)
  stopWith sigTERM server
  waitForExit server >>= (@?= ExitSuccess)
  said <- serverErrors server
  length (lines said) @?= 1
  assertBool said ("/dev/full" `isInfixOf` said)
