{-# OPTIONS_GHC -O2 #-}

-- | The lines of the access log, of which none is lost, doubled or made up while the
-- log is written, rotated, full, or broken.
module AccessLogTest (tests) where

import Control.Exception (evaluate)
import Control.Monad (forM, forM_)
import Data.Aeson (Value (..), eitherDecodeStrict')
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Int (Int64)
import Data.List (isInfixOf, sort)
import Data.Text.Encoding (decodeLatin1, decodeUtf8')
import Network.Socket (tupleToHostAddress, tupleToHostAddress6)
import System.Directory (createFileLink, doesFileExist, removeFile, renameFile)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Mem (getAllocationCounter)
import System.Posix.Resource
import System.Posix.Signals (Handler (Ignore), installHandler, sigXFSZ)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft
import Weft.Http.AccessLog
import Weft.Http.AccessLog.Line (Stamp, render, stampOf)
import Weft.Http.AccessLog.Writer
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket (SockAddr (..))

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "access log"
      [ testGroup
          "lines"
          [ testCase "common" $
              renderLine Common line @?= "192.0.2.7 - - [21/Nov/2026:08:53:34 +0000] \"GET /a?b=c HTTP/1.1\" 200 305 1500\n",
            testCase "combined" $
              renderLine Combined line @?= "192.0.2.7 - - [21/Nov/2026:08:53:34 +0000] \"GET /a?b=c HTTP/1.1\" 200 305 \"http://from/\" \"curl/8\" 1500\n",
            testCase "JSON" $
              renderLine Json line
                @?= "{\"time\":\"2026-11-21T08:53:34Z\",\"client\":\"192.0.2.7\",\"method\":\"GET\",\"target\":\"/a?b=c\",\"version\":\"HTTP/1.1\",\"host\":\"h:1\",\
                    \\"referer\":\"http://from/\",\"user_agent\":\"curl/8\",\"status\":200,\"bytes\":305,\"duration_us\":1500,\"tls\":\"TLSv1.3\"}\n",
            testCase "what is not known is a dash, or is left out" $ do
              let bare = line {entryRequest = Nothing, entryDuration = 0, entryStatus = badRequest400}
              renderLine Common bare @?= "192.0.2.7 - - [21/Nov/2026:08:53:34 +0000] \"-\" 400 305 0\n"
              renderLine Combined bare @?= "192.0.2.7 - - [21/Nov/2026:08:53:34 +0000] \"-\" 400 305 \"-\" \"-\" 0\n"
              renderLine Json bare @?= "{\"time\":\"2026-11-21T08:53:34Z\",\"client\":\"192.0.2.7\",\"status\":400,\"bytes\":305,\"duration_us\":0}\n",
            testCase "clients of every family" $
              forM_
                [ (SockAddrInet6 9 0 (tupleToHostAddress6 (0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0207)) 0, "192.0.2.7"),
                  (SockAddrInet6 9 0 (tupleToHostAddress6 (0x2001, 0xdb8, 0, 0, 1, 0, 0, 1)) 0, "2001:db8::1:0:0:1"),
                  (SockAddrInet6 9 0 (tupleToHostAddress6 (0, 0, 0, 0, 0, 0, 0, 0)) 0, "::"),
                  (SockAddrInet6 9 0 (tupleToHostAddress6 (1, 0, 2, 0, 3, 0, 4, 0)) 0, "1:0:2:0:3:0:4:0"),
                  (SockAddrUnix "/run/s", "unix:")
                ]
                (\(address, text) -> C.takeWhile (/= ' ') (renderLine Common line {entryPeer = address}) @?= text),
            testProperty "whatever a client sends: one line of visible ASCII, and the quotes pair" prop_quoted,
            testProperty "whatever a client sends: JSON on one line, with what it has sent" prop_json
          ],
        testGroup
          "bytes allocated for a line, itself included"
          [ testCase "common: at most 1800" $ allocates Common 1800,
            testCase "combined: at most 2200" $ allocates Combined 2200,
            testCase "JSON: at most 3400" $ allocates Json 3400
          ],
        testCase "lines are written in order, and all before it is closed" inOrder,
        testCase "while it is rotated, each line is in one file once" rotated,
        testCase "what was left before it is opened again is in the old file, what comes later in the new one" oldAndNew,
        testCase "when it cannot be opened again, the old file is kept and the operator told" keptOld,
        testCase "a closed log cannot be opened again" closedLog,
        testCase "beyond its room lines are dropped and counted, and the operator told once" noRoom,
        testCase "a full disk: told once, counted, and over when there is room again" fullDisk,
        testCase "a line that was written in part does not swallow the next one" torn
      ]

line :: Entry
line =
  Entry
    { entryPeer = clientAddress client,
      entryTime = 1795251214,
      entryRequest = Just (asked "/a?b=c" (Just "h:1") "http://from/" "curl/8"),
      entryStatus = ok200,
      entryBytes = 305,
      entryReceived = 0,
      entryDuration = 1_500_000
    }

client :: ClientInfo
client = ClientInfo (SockAddrInet 4711 (tupleToHostAddress (192, 0, 2, 7))) (SockAddrUnix "") (Just (Security "TLSv1.3" "" Nothing Nothing Nothing))

-- | A GET, with these two fields.
asked :: ByteString -> Maybe ByteString -> ByteString -> ByteString -> Request
asked target host referer agent =
  Request (RequestHead Get Http11 target target "" host [Field "Referer" referer, Field "User-Agent" agent] NoBody False False NoExpectation noConditions) EmptyBody client

-- | Mostly what no client should send.
genBytes :: Gen ByteString
genBytes = B.pack <$> listOf (frequency [(4, elements (B.unpack "ab /\"\\\n\r\t\0{}:,")), (2, choose (0x80, 0xff)), (1, elements [0xc2, 0x85, 0xc3, 0xa9]), (2, arbitrary)])

from :: ByteString -> ByteString -> ByteString -> Entry
from target referer agent = line {entryRequest = Just (asked target Nothing referer agent)}

prop_quoted :: Property
prop_quoted = forAll ((,,) <$> genBytes <*> genBytes <*> genBytes) $ \(a, b, c) ->
  let text = renderLine Combined (from a b c)
   in counterexample (show text) $
        B.all (\w -> w >= 0x20 && w < 0x7f) (B.init text)
          && C.last text == '\n'
          && unquoted (B.drop 1 (C.dropWhile (/= '"') text)) == Just ["GET " <> a <> " HTTP/1.1", b, c]

-- | The quoted parts of the rest of a line, unescaped, as a reader of logs would.
unquoted :: ByteString -> Maybe [ByteString]
unquoted = part []
  where
    part done rest = case C.uncons rest of
      Nothing -> Nothing
      Just ('"', behind) -> (C.pack (reverse done) :) <$> next behind
      Just ('\\', behind) -> case C.uncons behind of
        Just ('x', hex) -> part (toEnum (read ("0x" <> C.unpack (B.take 2 hex))) : done) (B.drop 2 hex)
        Just (c, behind') -> part (c : done) behind'
        Nothing -> Nothing
      Just (c, behind) -> part (c : done) behind
    next rest = case C.break (== '"') rest of
      (_, "") -> Just []
      (_, more) -> part [] (B.drop 1 more)

prop_json :: Property
prop_json = forAll ((,,) <$> genBytes <*> genBytes <*> genBytes) $ \(a, b, c) ->
  let text = renderLine Json (from a b c)
   in counterexample (show text) $ case eitherDecodeStrict' (B.init text) of
        Right (Object o) ->
          C.count '\n' text == 1
            && and [said o name given | (name, given) <- [("target", a), ("referer", b), ("user_agent", c)]]
        _ -> False
  where
    said o name given = case KeyMap.lookup (Key.fromString name) o of
      Just (String s) -> s == decodeLatin1 given || Right s == either (const (Left ())) Right (decodeUtf8' given)
      _ -> False

-- | The average over many lines, after one that evaluates what is shared.
allocates :: LogFormat -> Int64 -> Assertion
allocates format bound = do
  _ <- act 0
  start <- getAllocationCounter
  mapM_ act [1 .. runs]
  end <- getAllocationCounter
  let each = (start - end) `div` fromIntegral runs
  assertBool (show each <> " bytes, more than " <> show bound) (each <= bound)
  where
    runs = 1000 :: Int
    act :: Int -> IO ByteString
    act n = evaluate (rendered format typical {entryBytes = fromIntegral (300 + n `rem` 2)})

-- | Not inlined, so that no part of it is shared between calls.
rendered :: LogFormat -> Entry -> ByteString
rendered format = render format stamp
{-# NOINLINE rendered #-}

-- | Lines of one second share it.
stamp :: Stamp
stamp = stampOf (entryTime line)

typical :: Entry
typical = line {entryRequest = Just (asked "/assets/css/site.css?v=17" (Just "www.example.org") "https://www.example.org/" "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)")}

-- | A run with a log in a new directory, and what the operator was told.
logging :: (AccessLogSettings -> AccessLogSettings) -> (FilePath -> AccessLog -> Thread ()) -> (FilePath -> [String] -> IO ()) -> IO ()
logging change body afterwards = withSystemTempDirectory "weft-log" $ \dir -> do
  told <- newIORef []
  runWith defaultSettings {settingWorkers = Just 1} $ do
    accessLog <-
      openAccessLogWith
        ( change
            defaultAccessLogSettings
              { accessLogTarget = LogFile (C.pack (dir </> "log")),
                accessLogReport = \text -> atomicModifyIORef' told (\ts -> (text : ts, ()))
              }
        )
    body dir accessLog
    closeAccessLog accessLog
  readIORef told >>= afterwards dir . reverse

-- | A line that says this number.
numbered :: Int -> Entry
numbered n = from (C.pack ("/" <> show n)) "-" "-"

numbersIn :: FilePath -> IO [Int]
numbersIn path = do
  text <- B.readFile path
  forM (C.lines text) $ \l -> case C.words l of
    _ : _ : _ : _ : _ : _ : target : _ | Just (n, "") <- C.readInt (B.drop 1 target) -> pure n
    _ -> assertFailure (show l)

inOrder :: IO ()
inOrder = logging id (\_ l -> forM_ [1 .. 5000] $ \n -> liftIO (logEntry l (numbered n)) >> yield) $ \dir told -> do
  numbersIn (dir </> "log") >>= (@?= [1 .. 5000])
  told @?= []

rotated :: IO ()
rotated = logging roomy body $ \dir told -> do
  told @?= []
  files <- forM [0 .. 20 :: Int] (\n -> numbersIn (dir </> ("log" <> (if n == 20 then "" else show n))))
  sort (concat files) @?= [1 .. 4 * each]
  length (filter (not . null) files) > 1 @? "all lines are in one file"
  where
    -- Nothing is dropped, however seldom the writer has its turn.
    roomy settings = settings {accessLogQueue = 64_000_000}
    each = portion * (rotations + 1)
    (portion, rotations) = (150, 20)
    -- Every thread has logged a portion before the next one begins, and a rotation goes on
    -- while they log: the first portion is in an old file, and the last in the new one.
    body dir l = do
      begun <- liftIO (newIORef (0 :: Int))
      done <- liftIO (newIORef (0 :: Int))
      let reaches ref n = liftIO (readIORef ref) >>= \m -> if m >= n then pure () else yield >> reaches ref n
          begin n = reaches done (4 * n) >> liftIO (writeIORef begun (n + 1))
      forM_ [0 .. 3] $ \t -> fork_ $
        forM_ [0 .. rotations] $ \n -> do
          reaches begun (n + 1)
          forM_ [1 .. portion] $ \i -> liftIO (logEntry l (numbered (t * each + n * portion + i))) >> yield
          liftIO (modifyIORef' done (+ 1))
      forM_ [0 .. rotations - 1] $ \n -> do
        begin n
        liftIO (renameFile (dir </> "log") (dir </> ("log" <> show n)))
        ok <- reopenAccessLog l
        liftIO (ok @? "not opened again")
      begin rotations
      reaches done (4 * (rotations + 1))

oldAndNew :: IO ()
oldAndNew = logging id body $ \dir told -> do
  numbersIn (dir </> "old") >>= (@?= [1 .. 100])
  numbersIn (dir </> "log") >>= (@?= [101 .. 200])
  told @?= []
  where
    body dir l = do
      liftIO (forM_ [1 .. 100] (logEntry l . numbered))
      liftIO (renameFile (dir </> "log") (dir </> "old"))
      _ <- reopenAccessLog l
      liftIO (forM_ [101 .. 200] (logEntry l . numbered))

keptOld :: IO ()
keptOld = withSystemTempDirectory "weft-log" $ \other -> do
  let path = other </> "link"
  createFileLink (other </> "first") path
  logging (\s -> s {accessLogTarget = LogFile (C.pack path)}) (\_ -> body other path) $ \_ told -> do
    numbersIn (other </> "first") >>= (@?= [1, 2, 3])
    length told @?= 1
    assertBool (show told) (all ("old file is kept" `isInfixOf`) told)
  where
    body other path l = do
      liftIO (logEntry l (numbered 1))
      liftIO (removeFile path >> createFileLink (other </> "no" </> "such") path)
      liftIO (logEntry l (numbered 2))
      ok <- reopenAccessLog l
      liftIO (ok @?= False)
      liftIO (logEntry l (numbered 3))

closedLog :: IO ()
closedLog = logging id body (\dir told -> (told @?= []) >> (numbersIn (dir </> "log") >>= (@?= [1])))
  where
    body _ l = do
      liftIO (logEntry l (numbered 1))
      closeAccessLog l
      ok <- reopenAccessLog l
      liftIO $ do
        ok @?= False
        logEntry l (numbered 2)
        entriesDropped l >>= (@?= 1)

noRoom :: IO ()
noRoom = withSystemTempDirectory "weft-log" $ \dir -> do
  told <- newIORef []
  n <- runWith defaultSettings {settingWorkers = Just 1} $ do
    queue <- liftIO newQueue
    output <- openOutput 0o640 (LogFile (C.pack (dir </> "log")))
    let leave k = liftIO (enqueue queue 2000 (renderLine Combined (numbered k)))
    -- Before there is a writer.
    mapM_ leave [1 .. 300]
    n <- liftIO (droppedSoFar queue)
    fork_ (writer (\text -> modifyIORef' told (text :)) queue output)
    _ <- askReopen queue
    mapM_ leave [301 .. 305]
    _ <- askReopen queue
    askClose queue
    n <$ liftIO (droppedSoFar queue >>= (@?= n))
  -- The first ones find room, and there is room again afterwards.
  numbersIn (dir </> "log") >>= (@?= [1 .. 300 - n] <> [301 .. 305])
  assertBool (show n) (n > 250 && n < 300)
  said <- reverse <$> readIORef told
  length said @?= 2
  assertBool (show said) ("dropped" `isInfixOf` concat (take 1 said) && drop 1 said == [show n <> " access log entries were dropped"])

fullDisk :: IO ()
fullDisk = withSystemTempDirectory "weft-log" $ \other -> do
  let path = other </> "log"
  createFileLink "/dev/full" path
  logging (\s -> s {accessLogTarget = LogFile (C.pack path)}) (\_ -> body path) $ \_ told -> do
    numbersIn path >>= (@?= [31 .. 40])
    length told @?= 2
    assertBool (show told) ("cannot be written" `isInfixOf` concat (take 1 told) && drop 1 told == ["30 access log entries were dropped"])
  where
    body path l = do
      forM_ [0, 10, 20] $ \n -> do
        liftIO (forM_ [n + 1 .. n + 10] (logEntry l . numbered))
        reopenAccessLog l
      liftIO (removeFile path)
      _ <- reopenAccessLog l
      liftIO (forM_ [31 .. 40] (logEntry l . numbered))
      liftIO (entriesDropped l >>= (@?= 30))

torn :: IO ()
torn = do
  _ <- installHandler sigXFSZ Ignore Nothing
  limits <- getResourceLimit ResourceFileSize
  let restore = setResourceLimit ResourceFileSize limits
  flip finally restore . logging id (body limits restore) $ \dir told -> do
    ls <- C.lines <$> B.readFile (dir </> "log")
    map (last . take 1 . reverse . C.words) (take 2 ls) @?= ["1500", "1500"]
    -- Two whole ones, half of the third, and then the last one on a line of its own.
    map whole ls @?= [True, True, False, True]
    length told @?= 2
    assertBool (show told) (drop 1 told == ["3 access log entries were dropped"])
  where
    size = B.length (renderLine Combined (numbered 1))
    whole l = "192.0.2.7 - - [" `B.isPrefixOf` l && " 1500" `B.isSuffixOf` l
    body :: ResourceLimits -> IO () -> FilePath -> AccessLog -> Thread ()
    body limits restore dir l = do
      liftIO (doesFileExist (dir </> "log") >>= assertBool "it is there")
      liftIO (setResourceLimit ResourceFileSize limits {softLimit = ResourceLimit (fromIntegral (2 * size + size `div` 2))})
      liftIO (forM_ [1 .. 5] (logEntry l . numbered))
      _ <- reopenAccessLog l
      liftIO restore
      liftIO (logEntry l (numbered 6))
      _ <- reopenAccessLog l
      liftIO (entriesDropped l >>= (@?= 3))
