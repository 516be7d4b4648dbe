{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The content of files
--
-- Reading, writing and growing them, what is known of them, and which of it is
-- refused. Names and directories are in "Weft.Conformance.Directories".
module Weft.Conformance.Files (files) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.List (isInfixOf)
import Foreign.C.Error
import Foreign.Marshal.Utils (fillBytes)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File

-- | Contents of files.
files :: World -> TestTree
files world =
  testGroup
    "files"
    [ inDirectory world "write, read, status, truncate, append" basics,
      inDirectory world "holes are zeros, and a size is set in both directions" holes,
      inDirectory world "appending goes to the end, wherever that is meanwhile" appending,
      inDirectory world "a file is opened for reading or for writing" modes,
      inDirectory world "several threads at once in one file" (together world),
      inDirectory world "into and out of the middle of a buffer" (buffers world),
      inDirectory world "times and identities" times,
      inDirectory world "direct I/O with aligned buffers" (direct world),
      inDirectory world "a closed file is refused" closedFile,
      testCase "a full disk is an error" $
        worldFullDisk world >>= mapM_ (\full -> running world (withFile full WriteOnly (\f -> failsWith [eNOSPC] (writeAt f 0 "x"))))
    ]

basics :: ByteString -> Thread ()
basics dir = do
  let path = dir <> "/f"
  withFile path ReadWrite $ \f -> do
    writeAt f 0 "hello world"
    writeAt f 6 "there"
    readAt f 0 100 ===> "hello there"
    readAt f 6 3 ===> "the"
    readAt f 100 10 ===> ""
    s <- fileStatus f
    (statusKind s, statusSize s) `is` (RegularFile, 11)
    pathStatus path ===> s
    sync f
    syncData f
    setFileSize f 5
    readAt f 0 100 ===> "hello"
  withFile path Append $ \f -> append f "!" >> append f "?" >> append f ""
  readWhole 100 path ===> "hello!?"
  try (readWhole 3 path) >>= either (\(_ :: IOError) -> pure ()) (\_ -> liftIO (assertFailure "over the limit"))
  let large = ByteString.replicate 3_000_000 65
  withFile (dir <> "/large") WriteOnly (\f -> writeAt f 0 large)
  got <- readWhole 4_000_000 (dir <> "/large")
  holds "large" (got == large)

holes :: ByteString -> Thread ()
holes dir = withFile (dir <> "/f") ReadWrite $ \f -> do
  writeAt f 5 "x"
  readAt f 0 10 ===> "\0\0\0\0\0x"
  setFileSize f 8
  readAt f 0 10 ===> "\0\0\0\0\0x\0\0"
  -- Bytes that were cut off do not come back.
  setFileSize f 5
  setFileSize f 6
  readAt f 0 10 ===> "\0\0\0\0\0\0"
  failsWith [eINVAL] (setFileSize f (-1))

appending :: ByteString -> Thread ()
appending dir = withFile path WriteOnly $ \other -> withFile path Append $ \f -> do
  append f "one"
  writeAt other 3 "two"
  append f "three"
  -- Such a file has no other place to write to.
  writeAt f 0 "four"
  readWhole 100 path ===> "onetwothreefour"
  setFileSize other 3
  append f "!"
  readWhole 100 path ===> "one!"
  where
    path = dir <> "/f"

modes :: ByteString -> Thread ()
modes dir = do
  withFile path WriteOnly (\f -> writeAt f 0 "text" >> failsWith [eBADF] (readAt f 0 10))
  withFile path ReadOnly $ \f -> do
    failsWith [eBADF] (writeAt f 0 "x")
    failsWith [eINVAL] (setFileSize f 0)
    readAt f 0 10 ===> "text"
    failsWith [eNOTDIR] (listDirectory f)
    readAt f 0 10 ===> "text"
  -- A directory is no file.
  failsWith [eISDIR] (openFile dir WriteOnly)
  withFile dir Directory $ \d -> failsWith [eISDIR] (readAt d 0 10)
  where
    path = dir <> "/f"

together :: World -> ByteString -> Thread ()
together world dir = withFile (dir <> "/f") ReadWrite $ \f -> do
  let page = ByteString.replicate 4096 . fromIntegral :: Int -> ByteString
  writers <- mapM (\i -> spawnOn (Just (i `mod` worldWorkers world)) (writeAt f (4096 * fromIntegral i) (page i))) [0 .. 31 :: Int]
  sequence_ writers
  readers <- mapM (\i -> spawnOn (Just (i `mod` worldWorkers world)) (readAt f (4096 * fromIntegral i) 4096)) [0 .. 31 :: Int]
  got <- sequence readers
  holds "every page" (got == map page [0 .. 31])

buffers :: World -> ByteString -> Thread ()
buffers world dir = withFile (dir <> "/f") ReadWrite $ \f -> do
  writeAt f 0 "0123456789"
  buffer <- liftIO (newBuffer 8)
  liftIO (withBuffer buffer (\p -> fillBytes p 45 8))
  moving world 3 (\n -> readAtInto f (4 + fromIntegral n) buffer (2 + n) (3 - n))
  liftIO (copyBuffer buffer 0 8) ===> "--456---"
  moving world 2 (\n -> readAtInto f (8 + fromIntegral n) buffer n (8 - n))
  readAtInto f 10 buffer 0 8 ===> 0
  moving world 4 (\n -> writeBufferAt f (1 + fromIntegral n) buffer (2 + n) (4 - n))
  readAt f 0 100 ===> "0456-56789"

times :: ByteString -> Thread ()
times dir = do
  (old, other) <- withFile (dir <> "/f") WriteOnly $ \f -> withFile (dir <> "/g") WriteOnly $ \g -> do
    writeAt f 0 "x"
    (,) <$> fileStatus f <*> fileStatus g
  holds "two files are two" (statusInode old /= statusInode other)
  statusDevice old `is` statusDevice other
  -- Longer than any clock of a file system takes to go on.
  sleep (milliseconds 20)
  withFile (dir <> "/f") WriteOnly (\f -> writeAt f 0 "y")
  new <- pathStatus (dir <> "/f")
  holds (show (old, new)) (statusModified new > statusModified old && statusChanged new >= statusModified new && statusInode new == statusInode old)

direct :: World -> ByteString -> Thread ()
direct world dir = do
  opened <- try (openFileAt CurrentDirectory (dir <> "/f") ReadWrite defaultOpenFlags {openDirect = True})
  case opened of
    -- Some file systems have none (tmpfs before Linux 6.6).
    Left e -> holds (show (e :: IOError)) ("nvalid" `isInfixOf` show e)
    Right f -> flip finally (closeFile f) $ do
      buffer <- liftIO (newAlignedBuffer 4096 8192)
      liftIO (withBuffer buffer (\p -> fillBytes p 88 8192))
      moving world 8192 (\n -> writeBufferAt f (4096 + fromIntegral n) buffer n (8192 - n))
      into <- liftIO (newAlignedBuffer 4096 4096)
      readAtInto f 8192 into 0 4096 ===> 4096
      liftIO (copyBuffer into 0 4096) ===> ByteString.replicate 4096 88
      (statusSize <$> fileStatus f) ===> 12288

closedFile :: ByteString -> Thread ()
closedFile dir = do
  withFile (dir <> "/f") WriteOnly (\f -> writeAt f 0 "content")
  makeDirectory (dir <> "/sub")
  d <- openFile dir Directory
  closeFile d
  closeFile d
  -- Its number is in use again.
  withFile (dir <> "/f") ReadWrite $ \f -> do
    failsWith [eBADF] (readAt d 0 10)
    failsWith [eBADF] (writeAt d 0 "x")
    failsWith [eBADF] (append d "x")
    failsWith [eBADF] (fileStatus d)
    failsWith [eBADF] (listDirectory d)
    failsWith [eBADF] (setFileSize d 10)
    forM_ [sync, syncData] $ \s -> failsWith [eBADF] (s d)
    failsWith [eBADF] (openFileAt (At d) "sub" Directory defaultOpenFlags)
    failsWith [eBADF] (pathStatusAt (At d) "sub")
    readAt f 0 100 ===> "content"
