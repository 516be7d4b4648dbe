{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Simulated disks that have power
--
-- A simulated disk has the results and errors of the system. Virtual time, errors and capacity are
-- tested in "Test.DiskFaults", crashes in "Test.DiskCrash", random programs against a
-- model in "Test.DiskModel".
module Test.Disk (tests) where

import Control.Monad (forM_, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.List (isInfixOf, sort)
import Foreign.C.Error
import Test.DiskFaults (faults, put)
import Test.InWorld
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.File
import Weft.Scope
import Weft.Sim.Internal.Disk.Transfer (contentsFrom)
import Weft.Sim.Internal.Kernel (Sim (..))
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Disks"
    $ [ everywhere "write, read, status, sizes, append" basics,
        everywhere "holes read as zeroes, and what was cut off" holes,
        everywhere "opening: modes and flags" opening,
        everywhere "directories and names" directories,
        everywhere "renaming" renaming,
        everywhere "nothing leads out of a directory that is to be stayed beneath" beneath,
        everywhere "direct I/O wants multiples of the block size" direct,
        everywhere "errors name the operation and the path" errors,
        everywhere "what a descriptor may do" modes,
        everywhere "a removed file lives on while it is open" removed,
        everywhere "appends of several threads do not mix" appends,
        everywhere "offset -1 is the file's own position" positions,
        everywhere "the content for a socket" forSockets
      ]
      <> faults

with :: ByteString -> OpenMode -> OpenFlags -> (File -> Thread a) -> Thread a
with path mode flags = bracket (openFileAt CurrentDirectory path mode flags) closeFile

basics :: Thread ()
basics = do
  withFile "/tmp/f" ReadWrite $ \f -> do
    writeAt f 0 "hello world"
    writeAt f 6 "there"
    readAt f 0 100 ===> "hello there"
    readAt f 6 3 ===> "the"
    readAt f 100 10 ===> ""
    s <- fileStatus f
    liftIO ((statusKind s, statusSize s) @?= (RegularFile, 11))
    pathStatus "/tmp/f" ===> s
    pathStatus "tmp/../tmp/./f" ===> s
    sync f
    syncData f
    setFileSize f 5
    readAt f 0 100 ===> "hello"
    before <- wallClock
    writeAt f 0 "H"
    after' <- wallClock
    t <- statusModified <$> fileStatus f
    liftIO (assertBool "the machine's time" (before <= t && t <= after'))
  withFile "/tmp/f" Append $ \f -> append f "!" >> append f "?" >> append f ""
  readWhole 100 "/tmp/f" ===> "Hello!?"
  let large = ByteString.pack (take 3_000_000 (cycle [0 .. 250]))
  put "/tmp/large" large
  got <- readWhole 4_000_000 "/tmp/large"
  liftIO (assertBool "large" (got == large))

holes :: Thread ()
holes = withFile "/tmp/f" ReadWrite $ \f -> do
  writeAt f 10_000 "x"
  readAt f 9_998 10 ===> "\0\0x"
  got <- readAt f 0 20_000
  liftIO (assertBool "zeroes" (got == ByteString.replicate 10_000 0 <> "x"))
  writeAt f 0 (ByteString.replicate 9000 7)
  setFileSize f 5000
  setFileSize f 9000
  again <- readAt f 0 20_000
  liftIO (assertBool "cut off" (again == ByteString.replicate 5000 7 <> ByteString.replicate 4000 0))
  setFileSize f 1_000_000_000_000
  readAt f 999_999_999_990 100 ===> ByteString.replicate 10 0
  failsWith eINVAL (setFileSize f (-1))
  failsWith eFBIG (setFileSize f (2 ^ (60 :: Int)))
  failsWith eFBIG (writeAt f (2 ^ (60 :: Int)) "x")
  failsWith eINVAL (writeAt f (-2) "x")
  failsWith eINVAL (readAt f (-2) 1)

opening :: Thread ()
opening = do
  failsWith eNOENT (openFile "/tmp/f" ReadOnly)
  failsWith eNOENT (openFile "" ReadOnly)
  failsWith eNOENT (openFile "/tmp/no/f" WriteOnly)
  with "/tmp/f" WriteOnly defaultOpenFlags {openExclusive = True, openPermissions = 0o660} (\f -> writeAt f 0 "old")
  (statusPermissions <$> pathStatus "/tmp/f") ===> 0o640
  failsWith eEXIST (with "/tmp/f" WriteOnly defaultOpenFlags {openExclusive = True} pure)
  with "/tmp/f" Append defaultOpenFlags (\_ -> pure ())
  readWhole 10 "/tmp/f" ===> "old"
  with "/tmp/f" WriteOnly defaultOpenFlags {openTruncate = True} (\_ -> pure ())
  readWhole 10 "/tmp/f" ===> ""
  failsWith eNOTDIR (openFile "/tmp/f" Directory)
  failsWith eNOTDIR (openFile "/tmp/f/" ReadOnly)
  failsWith eNOTDIR (openFile "/tmp/f/g" WriteOnly)
  failsWith eISDIR (openFile "/tmp" WriteOnly)
  failsWith eISDIR (openFile "/" ReadWrite)
  failsWith eISDIR (openFile "/tmp/new/" WriteOnly)
  failsWith eNOENT (openFile "/nothing" Directory)
  failsWith eNAMETOOLONG (openFile ("/tmp/" <> Char8.replicate 256 'a') WriteOnly)
  failsWith eNAMETOOLONG (openFile (Char8.replicate 5000 '/') ReadOnly)
  put ("/tmp/" <> Char8.replicate 255 'a') "x"

directories :: Thread ()
directories = do
  makeDirectory "/tmp/d"
  failsWith eEXIST (makeDirectory "/tmp/d")
  failsWith eEXIST (makeDirectory "/")
  failsWith eEXIST (makeDirectory "/tmp/d/.")
  failsWith eNOENT (makeDirectory "/tmp/x/y")
  forM_ ["b", "a", "c"] $ \n -> put ("/tmp/d/" <> n) n
  failsWith eNOTDIR (makeDirectory "/tmp/d/a/b")
  withFile "/tmp/d" Directory $ \d -> do
    replicateM_ 2 (listDirectory d ===> ["a", "b", "c"])
    bracket (openFileAt (At d) "b" ReadOnly defaultOpenFlags) closeFile (\f -> readAt f 0 9 ===> "b")
    (statusSize <$> pathStatusAt (At d) "a") ===> 1
    bracket (openFileAt (At d) "b" ReadOnly defaultOpenFlags) closeFile $ \f -> failsWith eNOTDIR (pathStatusAt (At f) "a")
    failsWith eISDIR (readAt d 0 10)
    s <- fileStatus d
    liftIO ((statusKind s, statusPermissions s) @?= (DirectoryFile, 0o755))
    failsWith eNOTEMPTY (removePath "/tmp/d")
    mapM_ (removePath . ("/tmp/d/" <>)) ["a", "b", "c"]
    removePath "/tmp/d/"
    listDirectory d ===> []
    failsWith eNOENT (openFileAt (At d) "b" WriteOnly defaultOpenFlags)
  failsWith eNOENT (removePath "/tmp/d")
  failsWith eBUSY (removePath "/")
  failsWith eINVAL (removePath "/tmp/.")
  failsWith eNOTEMPTY (removePath "/tmp/..")
  put "/tmp/f" ""
  failsWith eNOTDIR (removePath "/tmp/f/")
  withFile "/tmp/f" ReadOnly (failsWith eNOTDIR . listDirectory)
  withFile "/" Directory (\d -> listDirectory d ===> ["tmp"])

renaming :: Thread ()
renaming = do
  put "/tmp/a" "a"
  put "/tmp/b" "b"
  withFile "/tmp/b" ReadOnly $ \b -> do
    renamePath "/tmp/a" "/tmp/b"
    readWhole 9 "/tmp/b" ===> "a"
    readAt b 0 9 ===> "b"
  failsWith eNOENT (renamePath "/tmp/a" "/tmp/c")
  renamePath "/tmp/b" "/tmp/b"
  makeDirectory "/tmp/d"
  makeDirectory "/tmp/d/e"
  makeDirectory "/tmp/x"
  failsWith eISDIR (renamePath "/tmp/b" "/tmp/d")
  failsWith eNOTDIR (renamePath "/tmp/d" "/tmp/b")
  failsWith eNOTDIR (renamePath "/tmp/b" "/tmp/c/")
  failsWith eINVAL (renamePath "/tmp/d" "/tmp/d/e/f")
  failsWith eINVAL (renamePath "/tmp/d" "/tmp/d/e")
  failsWith eNOTEMPTY (renamePath "/tmp/x" "/tmp/d")
  failsWith eNOTEMPTY (renamePath "/tmp/d/e" "/tmp/d")
  put "/tmp/d/f" ""
  failsWith eNOTEMPTY (renamePath "/tmp/d/f" "/tmp/d")
  removePath "/tmp/d/f"
  failsWith eBUSY (renamePath "/tmp/." "/tmp/q")
  failsWith eBUSY (renamePath "/" "/tmp/q")
  put "/tmp/d/e/f" "inside"
  renamePath "/tmp/d" "/tmp/x"
  readWhole 9 "/tmp/x/e/f" ===> "inside"
  renamePath "/tmp/x/e" "/tmp/moved"
  -- Its dot-dot has moved, too.
  readWhole 9 "/tmp/moved/../b" ===> "a"
  withFile "/tmp" Directory (\d -> listDirectory d ===> ["b", "moved", "x"])

beneath :: Thread ()
beneath = do
  mapM_ makeDirectory ["/tmp/inside", "/tmp/inside/sub"]
  put "/tmp/secret" "secret"
  put "/tmp/inside/open" "open"
  withFile "/tmp/inside" Directory $ \d -> do
    let look path = bracket (openFileAt (At d) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}) closeFile (\f -> readAt f 0 100)
    mapM_ (\path -> look path ===> "open") ["open", "./open", "sub/../open", "sub//../sub/../open"]
    forM_ ["../secret", "/tmp/secret", "/tmp/inside/open", "sub/../../secret", "..", "../inside/open"] (failsWith eXDEV . look)
    failsWith eNOENT (look "nothing/../open")
    failsWith eNOTDIR (look "open/../open")
    bracket (openFileAt (At d) "../secret" ReadOnly defaultOpenFlags) closeFile (\f -> readAt f 0 100 ===> "secret")

direct :: Thread ()
direct = with "/tmp/f" ReadWrite defaultOpenFlags {openDirect = True} $ \f -> do
  buffer <- liftIO (newAlignedBuffer 4096 16384)
  let zeroes = ByteString.replicate 4096 0
  n <- writeBufferAt f 4096 buffer 0 8192
  liftIO (assertBool "whole blocks" (n `elem` [4096, 8192]))
  into <- liftIO (newAlignedBuffer 4096 4096)
  readAtInto f 0 into 0 4096 ===> 4096
  liftIO (copyBuffer into 0 4096) ===> zeroes
  failsWith eINVAL (readAtInto f 0 into 0 100)
  failsWith eINVAL (readAtInto f 512 into 0 4096)
  failsWith eINVAL (writeBufferAt f 0 buffer 8 4096)
  failsWith eINVAL (writeBufferAt f 0 buffer 0 4095)

errors :: Thread ()
errors = do
  let missing = "/tmp/no/such"
      says wanted action =
        try action >>= \case
          Left e -> liftIO (assertBool (show (e :: IOError)) (all (`isInfixOf` show e) wanted))
          Right () -> liftIO (assertFailure "it should have failed")
  says ["/tmp/no/such", "open"] (void (openFile missing ReadOnly))
  says ["/tmp/no/such", "stat"] (void (pathStatus missing))
  says ["/tmp/no/such", "getSymbolicLinkStatus"] (removePath missing)
  says ["/tmp/no/such", "createDirectory"] (makeDirectory missing)
  says ["rename '/tmp/no/such' to '/tmp/x'"] (renamePath missing "/tmp/x")
  says ["removeDirectory"] (removePath "/")
  forM_ [void (openFile "a\0b" ReadOnly), void (pathStatus "a\0b"), removePath "a\0b", makeDirectory "a\0b", renamePath "a" "a\0b"] (failsWith eINVAL)
  f <- openFile "/tmp" Directory
  replicateM_ 2 (closeFile f)
  -- Its number is in use again.
  withFile "/tmp" Directory $ \_ -> do
    says ["read"] (void (readAt f 0 10))
    failsWith eBADF (readAt f 0 10)
    failsWith eBADF (writeAt f 0 "x")
    failsWith eBADF (sync f)
    failsWith eBADF (fileStatus f)
    failsWith eBADF (listDirectory f)
    failsWith eBADF (setFileSize f 10)
    failsWith eBADF (openFileAt (At f) "etc" Directory defaultOpenFlags)
    failsWith eBADF (pathStatusAt (At f) "etc")

modes :: Thread ()
modes = do
  put "/tmp/f" "abc"
  withFile "/tmp/f" ReadOnly $ \f -> do
    failsWith eBADF (writeAt f 0 "x")
    failsWith eINVAL (setFileSize f 0)
    sync f
  withFile "/tmp/f" WriteOnly (\f -> failsWith eBADF (readAt f 0 1))
  -- As on Linux, whatever the offset is.
  withFile "/tmp/f" Append (\f -> writeAt f 0 "d")
  readWhole 10 "/tmp/f" ===> "abcd"
  withFile "/tmp" ReadOnly (\d -> failsWith eISDIR (readAt d 0 1) >> failsWith eBADF (writeAt d 0 "x"))

removed :: Thread ()
removed = do
  withFile "/tmp/f" ReadWrite $ \f -> do
    writeAt f 0 "before"
    removePath "/tmp/f"
    put "/tmp/f" "other"
    writeAt f 6 " and after"
    readAt f 0 100 ===> "before and after"
    (statusSize <$> fileStatus f) ===> 16
  readWhole 100 "/tmp/f" ===> "other"

appends :: Thread ()
appends = do
  withFile "/tmp/log" Append $ \f -> withScope $ \scope ->
    forM_ ["a", "b", "c"] $ \name -> forkIn scope (replicateM_ 10 (append f name))
  lines' <- readWhole 1000 "/tmp/log"
  liftIO (Char8.pack (sort (Char8.unpack lines')) @?= "aaaaaaaaaabbbbbbbbbbcccccccccc")

positions :: Thread ()
positions = withFile "/tmp/f" ReadWrite $ \f -> do
  append f "abc"
  append f "def"
  writeAt f 1 "B"
  append f "g"
  readAt f 0 100 ===> "aBcdefg"

forSockets :: Thread ()
forSockets = do
  put "/tmp/f" (ByteString.replicate 5000 65 <> "end")
  f <- openFile "/tmp/f" ReadOnly
  d <- openFile "/tmp" Directory
  let look file at count = homeSteer (\sim _ -> either (Left . number) Right <$> contentsFrom (simDisks sim) file at count)
      number (Errno e) = e
  look f 4999 3 ===> Right "Aen"
  look f 5000 100 ===> Right "end"
  look f 6000 100 ===> Right ""
  look d 0 1 ===> Left (number eINVAL)
  look f (-1) 1 ===> Left (number eINVAL)
  mapM_ closeFile [f, d]
  look f 0 1 ===> Left (number eBADF)
