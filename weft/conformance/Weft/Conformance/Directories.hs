{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Names of files
--
-- Creating, listing, renaming and removing them, symbolic links, and paths that must
-- not lead out of their directory.
module Weft.Conformance.Directories (directories) where

import Control.Monad (forM_, void)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.List (sort)
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.World
import Weft.File

-- | Names and directories.
directories :: World -> TestTree
directories world =
  testGroup
    "directories"
    [ inDirectory world "exclusive, truncating and missing files" opening,
      inDirectory world "directories and names" listing,
      inDirectory world "renaming puts one in the place of the other" renaming,
      inDirectory world "an open file outlives its name" unlinked,
      inDirectory world "symbolic links are followed, and removed themselves" (links world),
      inDirectory world "nothing leads out of a directory that is to be stayed beneath" (beneath world),
      inDirectory world "errors name the path; a NUL is refused" errors
    ]

write :: ByteString -> ByteString -> Thread ()
write path text = withFile path WriteOnly (\f -> writeAt f 0 text)

opening :: ByteString -> Thread ()
opening dir = do
  let path = dir <> "/f"
      with flags = bracket (openFileAt CurrentDirectory path WriteOnly flags) closeFile
  failsWith [eNOENT] (openFile path ReadOnly)
  with defaultOpenFlags {openExclusive = True} (\f -> writeAt f 0 "old")
  failsWith [eEXIST] (with defaultOpenFlags {openExclusive = True} pure)
  with defaultOpenFlags pure >> (readWhole 10 path ===> "old")
  with defaultOpenFlags {openTruncate = True} (const (pure ()))
  readWhole 10 path ===> ""
  s <- pathStatus path
  holds "permissions" (statusPermissions s <= 0o666 && statusPermissions s >= 0o600)
  failsWith [eNOTDIR] (openFile path Directory)
  failsWith [eNOTDIR] (openFile (path <> "/below") ReadOnly)
  bracket (openFileAt CurrentDirectory (dir <> "/own") WriteOnly defaultOpenFlags {openPermissions = 0o600}) closeFile $ \f ->
    (statusPermissions <$> fileStatus f) ===> 0o600

listing :: ByteString -> Thread ()
listing dir = do
  makeDirectory (dir <> "/d")
  failsWith [eEXIST] (makeDirectory (dir <> "/d"))
  forM_ ["a", "b", "c"] $ \n -> write (dir <> "/d/" <> n) n
  withFile (dir <> "/d") Directory $ \d -> do
    -- Twice: listing begins at the beginning.
    (sort <$> listDirectory d) ===> ["a", "b", "c"]
    (sort <$> listDirectory d) ===> ["a", "b", "c"]
    bracket (openFileAt (At d) "b" ReadOnly defaultOpenFlags) closeFile (\f -> readAt f 0 9 ===> "b")
    (statusSize <$> pathStatusAt (At d) "a") ===> 1
    -- An absolute path begins at the root.
    (statusKind <$> pathStatusAt (At d) dir) ===> DirectoryFile
  (statusKind <$> pathStatus (dir <> "/d")) ===> DirectoryFile
  renamePath (dir <> "/d/a") (dir <> "/d/b")
  readWhole 9 (dir <> "/d/b") ===> "a"
  failsWith [eNOTEMPTY, eEXIST] (removePath (dir <> "/d"))
  mapM_ (removePath . (dir <>)) ["/d/b", "/d/c", "/d"]
  failsWith [eNOENT] (removePath (dir <> "/d"))

renaming :: ByteString -> Thread ()
renaming dir = do
  write (at "one") "1"
  write (at "two") "2"
  forM_ ["full", "empty", "moved"] (makeDirectory . at)
  write (at "full/x") "x"
  renamePath (at "one") (at "two")
  readWhole 9 (at "two") ===> "1"
  failsWith [eNOENT] (renamePath (at "one") (at "two"))
  -- To itself.
  renamePath (at "two") (at "two")
  readWhole 9 (at "two") ===> "1"
  failsWith [eISDIR] (renamePath (at "two") (at "empty"))
  failsWith [eNOTDIR] (renamePath (at "empty") (at "two"))
  failsWith [eNOTEMPTY, eEXIST] (renamePath (at "moved") (at "full"))
  failsWith [eINVAL] (renamePath (at "full") (at "full/below"))
  renamePath (at "full") (at "empty")
  readWhole 9 (at "empty/x") ===> "x"
  failsWith [eNOENT] (pathStatus (at "full"))
  failsWith [eNOTDIR] (removePath (at "two/x"))
  where
    at name = dir <> "/" <> name

unlinked :: ByteString -> Thread ()
unlinked dir = do
  write path "first"
  withFile path ReadWrite $ \f -> do
    removePath path
    failsWith [eNOENT] (pathStatus path)
    write path "second"
    readAt f 0 100 ===> "first"
    writeAt f 5 "!"
    readAt f 0 100 ===> "first!"
  readWhole 100 path ===> "second"
  withFile path ReadOnly $ \f -> renamePath path (dir <> "/g") >> (readAt f 0 100 ===> "second")
  where
    path = dir <> "/f"

links :: World -> ByteString -> Thread ()
links world dir = do
  makeDirectory (at "sub")
  write (at "sub/f") "content"
  worldSymlink world "sub/f" (at "file")
  worldSymlink world (at "sub") (at "directory")
  worldSymlink world "nowhere" (at "broken")
  worldSymlink world "loop" (at "loop")
  readWhole 100 (at "file") ===> "content"
  readWhole 100 (at "directory/f") ===> "content"
  (statusKind <$> pathStatus (at "directory")) ===> DirectoryFile
  failsWith [eNOENT] (openFile (at "broken") ReadOnly)
  failsWith [eLOOP] (openFile (at "loop") ReadOnly)
  -- Created where the link says.
  write (at "broken") "new"
  readWhole 100 (at "nowhere") ===> "new"
  forM_ ["file", "directory", "broken", "loop"] (removePath . at)
  readWhole 100 (at "sub/f") ===> "content"
  where
    at name = dir <> "/" <> name

beneath :: World -> ByteString -> Thread ()
beneath world dir = do
  let inside = dir <> "/inside"
  makeDirectory inside
  makeDirectory (inside <> "/sub")
  write (dir <> "/secret") "secret"
  write (inside <> "/open") "open"
  worldSymlink world "../secret" (inside <> "/out")
  worldSymlink world (dir <> "/secret") (inside <> "/absolute")
  worldSymlink world "open" (inside <> "/in")
  worldSymlink world ".." (inside <> "/sub/up")
  withFile inside Directory $ \d -> do
    let look path = bracket (openFileAt (At d) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}) closeFile (\f -> readAt f 0 100)
    look "open" ===> "open"
    look "in" ===> "open"
    look "sub/../open" ===> "open"
    look "sub/up/open" ===> "open"
    forM_ ["../secret", "out", "absolute", dir <> "/secret", "sub/../../secret", "sub/up/../secret", "/etc/passwd"] $ \path ->
      failsWith [eXDEV] (look path)
    failsWith [eNOENT] (look "missing")

errors :: ByteString -> Thread ()
errors dir = do
  let missing = dir <> "/no/such"
      names = failsNaming (Char8.unpack missing)
  names (void (openFile missing ReadOnly))
  names (void (pathStatus missing))
  names (removePath missing)
  names (makeDirectory missing)
  names (renamePath missing (dir <> "/x"))
  forM_ [void (openFile "a\0b" ReadOnly), void (pathStatus "a\0b"), removePath "a\0b", makeDirectory "a\0b", renamePath "a" "a\0b"] (failsWith [eINVAL])
  failsWith [eNAMETOOLONG] (openFile (dir <> "/" <> Char8.replicate 256 'x') ReadOnly)
  failsWith [eNOENT] (openFile "" ReadOnly)
