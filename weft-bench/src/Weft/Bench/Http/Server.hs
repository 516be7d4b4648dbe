-- |
-- Description : A server that runs and has answered rightly
--
-- Starts a server on a processor and a port of its own, asks it until it answers, and
-- stops it. What the driver knows of a running server is here.
module Weft.Bench.Http.Server (Server (..), Setting (..), startServer, stopServer, parseAllocated) where

import Control.Concurrent (threadDelay)
import Control.Exception (IOException, try)
import Data.ByteString.Char8 (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.IORef
import Data.Text (Text)
import Data.Text qualified as Text
import System.Directory (createDirectoryIfMissing)
import System.FilePath ((</>))
import System.Posix.User (getEffectiveUserID)
import Weft.Bench.Child
import Weft.Bench.Http.Config (Place (..))
import Weft.Bench.Http.Content
import Weft.Bench.Http.Launch
import Weft.Bench.Http.Name
import Weft.Bench.Http.Probe

-- | A server that runs and has answered.
data Server = Server
  { serverIs :: !ServerName,
    serverPort :: !Int,
    serverChild :: !Child,
    -- | bytes of its response's status line and headers
    serverHeadBytes :: !Int,
    -- | how many requests it has answered so far
    serverAsked :: !(IORef Integer),
    -- | where a Haskell program leaves its counters when it ends
    serverCounters :: !FilePath
  }

-- | Common to all servers of an experiment.
data Setting = Setting
  { settingPaths :: !Paths,
    settingContent :: !Content,
    -- | the directory that is served
    settingRoot :: !FilePath,
    -- | the processor that the servers stay on
    settingCpu :: !Int,
    -- | the most connections that will be open at a time
    settingConnections :: !Int,
    -- | the length of the listen queue
    settingBacklog :: !Int
  }

-- | Start a server on one processor and ask it until it answers, for at most ten
-- seconds. When it does not, or answers wrongly, it is stopped and the result says
-- why, with what it wrote to standard error.
startServer :: Nursery -> Setting -> ServerName -> IO (Either Text Server)
startServer nursery setting name = do
  port <- freePort
  root <- (== 0) <$> getEffectiveUserID
  let own = pathWork (settingPaths setting) </> Text.unpack (serverName name)
      counters = own </> "counters"
      place = Place port (settingRoot setting) own root (settingConnections setting) (settingBacklog setting)
  createDirectoryIfMissing True own
  command <- launchCommand (settingPaths setting) place (settingContent setting) counters name
  try (startChild nursery (pinned (settingCpu setting) command)) >>= \case
    Left e -> pure (Left (Text.pack (show (e :: IOException))))
    Right child ->
      awaitAnswer child port (contentSample (settingContent setting)) (1000 :: Int) >>= \case
        Right headBytes -> do
          asked <- newIORef 1
          pure (Right (Server name port child headBytes asked counters))
        Left why -> do
          stopChild nursery child
          message <- childComplaint child
          pure (Left (Text.strip (why <> "\n" <> message)))

-- The server has a hundredth of a second between two questions.
awaitAnswer :: Child -> Int -> (String, ByteString) -> Int -> IO (Either Text Int)
awaitAnswer child port (path, expected) tries =
  childExit child >>= \case
    Just code -> pure (Left ("it ended: " <> Text.pack (show code)))
    Nothing ->
      try (probe port path) >>= \case
        Right (Right answer)
          | answerStatus answer == 200 && answerBody answer == expected -> pure (Right (answerHeadBytes answer))
          | otherwise -> pure (Left ("it answers wrongly: " <> Text.take 300 (Text.pack (show answer))))
        Right (Left why) -> pure (Left ("it answers wrongly: " <> Text.pack why))
        Left e
          | tries <= 1 -> pure (Left ("it does not answer: " <> Text.pack (show (e :: IOException))))
          | otherwise -> threadDelay 10_000 >> awaitAnswer child port (path, expected) (tries - 1)

-- | Stop it. Answers how many bytes a Haskell program has allocated for each request
-- of its life; 'Nothing' for others.
stopServer :: Nursery -> Server -> IO (Maybe Double)
stopServer nursery server = do
  stopChild nursery (serverChild server)
  asked <- readIORef (serverAsked server)
  try (Bytes.readFile (serverCounters server)) >>= \case
    Left e -> let _ = e :: IOException in pure Nothing
    Right counters
      | isHaskell (serverIs server) && asked > 0 -> pure ((/ fromIntegral asked) . fromIntegral <$> parseAllocated counters)
      | otherwise -> pure Nothing

-- | Bytes allocated, of the counters that the run-time system leaves as a Haskell list
-- of pairs of strings (@+RTS -t --machine-readable@).
parseAllocated :: ByteString -> Maybe Integer
parseAllocated counters = case Bytes.breakSubstring key counters of
  (_, found)
    | Just (n, rest) <- Bytes.readInteger (Bytes.drop (Bytes.length key) found), Bytes.take 1 rest == "\"" -> Just n
    | otherwise -> Nothing
  where
    key = "(\"bytes allocated\", \""
