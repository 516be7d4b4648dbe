{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Files that are answered from memory
--
-- An operation tried on the worker must answer as the backend does, and hand on every operation
-- that it must not answer.
module Test.AtOnce (tests) where

import Control.Monad (forM_, replicateM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Foreign.C.Error
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (allocaBytes)
import System.Directory (createDirectory, createFileLink, removeFile)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Internal.Core.SystemCall (File (..))
import Weft.Internal.Os.Descriptor (descriptorNumber, knows)
import Weft.Internal.Os.Descriptor qualified as Descriptor
import Weft.Internal.Os.Sys qualified as Sys

tests :: TestTree
tests =
  testGroup
    "Files answered from memory"
    [ testGroup
        (describeConfig c)
        [ testCase "the answers are those of the backend" (near c same),
          testCase "what is elsewhere is handed on" (near c elsewhere),
          testCase "what changes is seen" (near c changes),
          testCase "a closed file is refused" (near c closed),
          testCase "direct I/O is not tried" (near c direct)
        ]
      | c <- configurations
    ]

-- | With a directory that holds a file, a link and a directory, after it was found out
-- whether it is on a local file system.
near :: Config -> (FilePath -> File -> Thread ()) -> Assertion
near config body = withSystemTempDirectory "weft-at-once" $ \path -> do
  B.writeFile (path </> "f") content
  createDirectory (path </> "sub")
  B.writeFile (path </> "sub" </> "g") "g"
  createFileLink "/proc/self/status" (path </> "away")
  running config . withFile (C.pack path) Directory $ \dir -> do
    local <- liftIO (Sys.isLocal (number dir))
    _ <- pathStatusAt (At dir) "f"
    eventually "the answer" ((== (local == 1)) <$> fileDescriptor dir `knows` Descriptor.Local)
    body path dir
  where
    content = B.replicate 5000 0x61

number :: File -> CInt
number = descriptorNumber . fileDescriptor

beneath :: File -> ByteString -> (File -> Thread a) -> Thread a
beneath dir path = bracket (openFileAt (At dir) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}) closeFile

same :: FilePath -> File -> Thread ()
same path dir = do
  forM_ ["f", "sub", "sub/g", "sub/../f", "sub/../sub/./g"] $ \name -> do
    far <- pathStatus (C.pack path <> "/" <> name)
    near' <- pathStatusAt (At dir) name
    opened <- beneath dir name fileStatus
    liftIO ((near', opened) @?= (far, far))
  -- Twice: the second time it is known that there is nothing.
  replicateM_ 2 $ do
    failsWith [eNOENT] (pathStatusAt (At dir) "missing")
    failsWith [eNOENT] (beneath dir "missing" pure)
    failsWith [eNOTDIR] (beneath dir "f/g" pure)
    failsWith [eNOENT] (pathStatusAt (At dir) "")
  beneath dir "f" $ \f -> do
    whole <- readAt f 0 10_000
    part <- readAt f 4990 100
    beyond <- readAt f 6000 10
    none <- readAt f 0 0
    liftIO (map B.length [whole, part, beyond, none] @?= [5000, 10, 0, 0])

elsewhere :: FilePath -> File -> Thread ()
elsewhere path dir = replicateM_ 2 $ do
  failsWith [eXDEV] (beneath dir "../f" pure)
  failsWith [eXDEV] (beneath dir "away" pure)
  failsWith [eXDEV] (beneath dir (C.pack path <> "/f") pure)
  linked <- bracket (openFileAt (At dir) "away" ReadOnly defaultOpenFlags) closeFile (\f -> readAt f 0 5)
  there <- pathStatusAt (At dir) "away"
  absolute <- pathStatusAt (At dir) (C.pack path <> "/f")
  liftIO ((linked, statusKind there, statusSize absolute) @?= ("Name:", RegularFile, 5000))

changes :: FilePath -> File -> Thread ()
changes path dir = beneath dir "f" $ \f -> do
  before <- fileStatus f
  liftIO (B.appendFile (path </> "f") "more")
  after' <- fileStatus f
  named <- pathStatusAt (At dir) "f"
  end <- readAt f 5000 100
  liftIO ((statusSize before, statusSize after', named == after', end) @?= (5000, 5004, True, "more"))
  liftIO (removeFile (path </> "f"))
  failsWith [eNOENT] (pathStatusAt (At dir) "f")
  liftIO (B.writeFile (path </> "f") "new")
  again <- beneath dir "f" (\g -> readAt g 0 100)
  liftIO (again @?= "new")

closed :: FilePath -> File -> Thread ()
closed _ dir = do
  f <- openFileAt (At dir) "f" ReadOnly defaultOpenFlags
  closeFile f
  failsWith [eBADF] (fileStatus f)
  failsWith [eBADF] (readAt f 0 10)
  closeFile dir
  failsWith [eBADF] (pathStatusAt (At dir) "f")
  failsWith [eBADF] (openFileAt (At dir) "f" ReadOnly defaultOpenFlags)

-- | Bit 59: it may be read on the worker.
direct :: FilePath -> File -> Thread ()
direct _ dir = do
  buffered <- bracket (openFileAt (At dir) "f" ReadOnly defaultOpenFlags) closeFile readHere
  liftIO (buffered @?= True)
  -- tmpfs and others refuse it.
  try (openFileAt (At dir) "f" ReadOnly defaultOpenFlags {openDirect = True}) >>= \case
    Left e -> failsWith [eINVAL] (throwM (e :: IOError))
    Right f -> flip finally (closeFile f) $ readHere f >>= \here -> liftIO (here @?= False)
  -- And what is in memory is read there indeed, to the end and not beyond.
  bracket (openFileAt (At dir) "f" ReadOnly defaultOpenFlags) closeFile $ \f -> do
    _ <- readAt f 0 5000
    counts <- liftIO (allocaBytes 8000 (\p -> mapM (Sys.readNow (number f) p 8000) [0, 4000, 5000]))
    liftIO (forM_ (zip counts [5000, 1000, 0]) (\(n, expected) -> assertBool (show counts) (n == expected || n == Sys.wouldBlock)))
  where
    readHere f = liftIO (fileDescriptor f `knows` Descriptor.Buffered)
