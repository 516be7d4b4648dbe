-- | Files that are kept open: what is sent is what is there.
module FilesTest (tests) where

import Client
import Control.Exception (IOException, bracket, throwIO, try)
import Control.Monad (forM_, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Network.HTTP.Types
import Network.Wai
import System.Directory (createDirectory, removeFile, renameDirectory, renameFile)
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty
import Test.Tasty.HUnit
import Weft (finally, run)
import Weft.File (readAt)
import Weft.Http.Server (ServerSettings (..))
import Weft.IO qualified as IO
import Weft.Test.Observing (openBelow)
import Weft.Wai hiding (run)
import Weft.Wai.Internal.Files

tests :: TestTree
tests =
  testGroup
    "files that are kept open"
    [ testGroup
        "a change is seen by the next request"
        [ testCase (name <> ", " <> show style) . withDirectory $ \dir -> do
            let path = dir <> "/file"
            B.writeFile path "before"
            servingFile style path $ \ask -> do
              replicateM_ 3 (ask >>= (@?= (200, "before")))
              change path
              replicateM_ 3 (ask >>= (@?= after'))
          | style <- [minBound .. maxBound],
            (name, change, after') <-
              [ ("another one in its place", \path -> B.writeFile (path <> "2") "behind" >> renameFile (path <> "2") path, (200, "behind")),
                ("written anew, of the same size", (`B.writeFile` "behind"), (200, "behind")),
                ("shorter", (`B.writeFile` "b"), (200, "b")),
                ("longer", (`B.appendFile` " and after"), (200, "before and after")),
                ("removed", removeFile, (404, "File not found")),
                ("removed and made again", \path -> removeFile path >> B.writeFile path "again", (200, "again"))
              ]
        ],
      testCase "one that is asked for once is closed, and one that is asked for again is kept, once" . withDirectory $ \dir -> do
        let path = dir <> "/file"
        B.writeFile path "content"
        servingFile Automatic path $ \ask -> do
          ask >>= (@?= (200, "content"))
          openBelow dir >>= (@?= [])
          replicateM_ 5 (ask >>= (@?= (200, "content")))
          openBelow dir >>= (@?= [path])
        openBelow dir >>= (@?= []),
      testCase "no more than there is room for" . withDirectory $ \dir -> do
        let paths = [dir <> "/" <> show n | n <- [1 .. 300 :: Int]]
        forM_ paths (`B.writeFile` "content")
        inFiles $ \files -> do
          forM_ paths $ \path -> replicateM_ 2 (content files 0 path)
          openBelow dir >>= (@?= 256) . length
        openBelow dir >>= (@?= []),
      testCase "where a path leads is looked at once a second" . withDirectory $ \dir -> do
        forM_ ["a", "b"] $ \name -> do
          createDirectory (dir <> "/" <> name)
          B.writeFile (dir <> "/" <> name <> "/file") (C.pack name)
        inFiles $ \files -> do
          let path = dir <> "/a/file"
          replicateM_ 2 (content files 1 path >>= (@?= "a"))
          renameDirectory (dir <> "/a") (dir <> "/c")
          renameDirectory (dir <> "/b") (dir <> "/a")
          content files 1 path >>= (@?= "a")
          content files 2 path >>= (@?= "b")
          content files 2 path >>= (@?= "b"),
      testCase "one that is not there any more stays open for its holders" . withDirectory $ \dir -> do
        let path = dir <> "/a/file"
        createDirectory (dir <> "/a")
        B.writeFile path "content"
        inFiles $ \files -> do
          replicateM_ 2 (content files 1 path)
          bracket (acquire files IO.await 1 (C.pack path)) (release IO.await) $ \found -> do
            renameDirectory (dir <> "/a") (dir <> "/b")
            outcome <- try (content files 2 path)
            either (\(_ :: IOException) -> pure ()) (\_ -> assertFailure path) outcome
            IO.await (readAt (foundFile found) 0 100) >>= (@?= "content")
          openBelow dir >>= (@?= []),
      testGroup
        "is closed, whatever becomes of its response"
        [ testCase (name <> ", " <> show style) . withDirectory $ \dir -> do
            let path = dir <> "/file"
                application _ respond = respond (responseFile status200 [] path Nothing) <* after'
            B.writeFile path (B.replicate 20_000_000 0x61)
            withApplicationSettings (quiet (setApplicationStyle style defaultSettings)) (pure application) $ \port ->
              replicateM_ 3 $ do
                withClient port $ \client -> do
                  say client (get "/")
                  -- Some of the content has come, and most of it does not go into the buffers.
                  _ <- hearUntil client "aaa"
                  meanwhile path client
                B.writeFile path (B.replicate 20_000_000 0x61)
            openBelow dir >>= (@?= [])
          | style <- [minBound .. maxBound],
            (name, after', meanwhile) <-
              [ ("the client is gone", pure (), \_ client -> reset client),
                ("the file becomes shorter", pure (), \path client -> B.writeFile path "b" >> void (hearAll client)),
                ("the file is removed", pure (), \path client -> removeFile path >> void (hearAll client)),
                ("its application fails", throwIO (userError "boom"), \_ client -> void (hearAll client))
              ]
        ],
      testCase "a path with a NUL is not that of another file" . withDirectory $ \dir -> do
        B.writeFile (dir <> "/secret") "content"
        forM_ ["\0", "\0.png"] $ \end ->
          servingFile Automatic (dir <> "/secret" <> end) $ \ask -> replicateM_ 2 (ask >>= (@?= (404, "File not found"))),
      testCase "a directory, and what is not there" . withDirectory $ \dir ->
        inFiles $ \files -> forM_ [dir, dir <> "/none"] $ \path -> replicateM_ 3 $ do
          outcome <- try (content files 0 path)
          either (\(_ :: IOException) -> pure ()) (\_ -> assertFailure path) outcome
          openBelow dir >>= (@?= [])
    ]

-- | Without the server's reports of a file that becomes shorter, which are of no interest here.
quiet :: Settings -> Settings
quiet = setOnException (\_ _ -> pure ()) . setServer (\server -> server {serverReport = \_ -> pure ()})

withDirectory :: (FilePath -> IO a) -> IO a
withDirectory = withSystemTempDirectory "weft-wai"

-- | Ask an application for this file: the status and the content.
servingFile :: ApplicationStyle -> FilePath -> (IO (Int, ByteString) -> IO a) -> IO a
servingFile style path act =
  serving style (\_ respond -> respond (responseFile status200 [] path Nothing)) $ \port ->
    act ((\r -> (replyStatus r, replyBody r)) . replyTo "GET" <$> exchange port (get "/"))

-- | With files of one's own, in a direct thread.
inFiles :: (Files -> IO a) -> IO a
inFiles act = run $ do
  files <- newFiles
  IO.direct (act files) `finally` closeFiles files

-- | The content of a file, as it is found in this second.
content :: Files -> Int64 -> FilePath -> IO ByteString
content files second path =
  bracket (acquire files IO.await second (C.pack path)) (release IO.await) (\found -> IO.await (readAt (foundFile found) 0 100))
