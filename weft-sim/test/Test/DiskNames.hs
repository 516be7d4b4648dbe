{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Names of what is no file: symbolic links and sockets
--
-- Where links lead on a simulated disk, what can be done to the name of a Unix-domain socket,
-- and what a crash leaves of both.
module Test.DiskNames (tests) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Foreign.C.Error
import Test.InWorld
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk.Device (crashDisk)
import Weft.Sim.Internal.Disk.Names (createSymlink)
import Weft.Sim.Internal.Kernel (Sim (..))
import Weft.Sim.Internal.Network (crashMachine)
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "Links and sockets on disks"
    [ testCase "links are followed, at the end of a path unless it is about the link" (inWorld calm 1 links),
      testCase "40 links are followed, and 41 are a loop" (inWorld calm 1 chains),
      testCase "the name of a socket is renamed and removed like a file's, and cannot be opened" (inWorld calm 1 sockets),
      testCase "after a crash a name that was synced is there, and nobody is bound to it" (inWorld calm 1 crashes)
    ]

link :: ByteString -> ByteString -> Thread (Either Errno ())
link text path = homeSteer (\sim machine -> createSymlink (simDisks sim) machine text path)

made :: ByteString -> ByteString -> Thread ()
made text path = link text path >>= liftIO . either (\(Errno n) -> assertFailure ("errno " <> show n)) pure

links :: Thread ()
links = do
  makeDirectory "/tmp/d"
  withFile "/tmp/d/f" WriteOnly (\f -> writeAt f 0 "content")
  made "d/f" "/tmp/file"
  made "/tmp/d/" "/tmp/directory"
  made "missing" "/tmp/broken"
  link "x" "/tmp/file" >>= liftIO . assertBool "it is taken" . (== Left eEXIST)
  link "" "/tmp/empty" >>= liftIO . assertBool "there is no such place" . (== Left eNOENT)
  link "x" "/tmp/none/x" >>= liftIO . assertBool "there is no such place" . (== Left eNOENT)
  readWhole 9 "/tmp/file" ===> "content"
  readWhole 9 "/tmp/directory/../d/f" ===> "content"
  failsWith eNOTDIR (pathStatus "/tmp/file/")
  (statusKind <$> pathStatus "/tmp/directory/") ===> DirectoryFile
  -- Operations on a name concern the link itself.
  failsWith eEXIST (makeDirectory "/tmp/broken")
  failsWith eEXIST (openFileAt CurrentDirectory "/tmp/broken" WriteOnly defaultOpenFlags {openExclusive = True})
  renamePath "/tmp/file" "/tmp/d/moved"
  -- It says the same in another place.
  failsWith eNOENT (readWhole 9 "/tmp/d/moved")
  forM_ ["/tmp/d/moved", "/tmp/directory", "/tmp/broken"] removePath
  withFile "/tmp" Directory listDirectory ===> ["d"]
  readWhole 9 "/tmp/d/f" ===> "content"

chains :: Thread ()
chains = do
  withFile (name 0) WriteOnly (\f -> writeAt f 0 "end")
  forM_ [1 .. 41] $ \i -> made (name (i - 1)) (name i)
  readWhole 9 (name 40) ===> "end"
  failsWith eLOOP (readWhole 9 (name 41))
  made "itself" "/tmp/itself"
  failsWith eLOOP (pathStatus "/tmp/itself/x")
  where
    name :: Int -> ByteString
    name i = "/tmp/" <> Char8.pack (show i)

-- | A connection to a path, which another thread has to accept.
connectTo :: FilePath -> Thread ()
connectTo path = withSocket (openSocket AF_UNIX Stream) (\s -> connect s (SockAddrUnix path))

listening :: FilePath -> Thread Socket
listening path = do
  s <- openSocket AF_UNIX Stream
  bind s (SockAddrUnix path)
  s <$ listen s 4

sockets :: Thread ()
sockets = do
  l <- listening "/tmp/s"
  (statusKind <$> pathStatus "/tmp/s") ===> OtherFile
  failsWith eNXIO (openFile "/tmp/s" ReadOnly)
  failsWith eEXIST (makeDirectory "/tmp/s")
  renamePath "/tmp/s" "/tmp/t"
  failsWith eNOENT (connectTo "/tmp/s")
  connectTo "/tmp/t"
  made "t" "/tmp/link"
  connectTo "/tmp/link"
  -- It goes on to say the name that it was bound to.
  localAddress l ===> SockAddrUnix "/tmp/s"
  removePath "/tmp/t"
  failsWith eNOENT (connectTo "/tmp/t")
  -- Another one of that name is another one.
  l' <- listening "/tmp/t"
  closeSocket l
  connectTo "/tmp/t"
  closeSocket l'
  failsWith eCONNREFUSED (connectTo "/tmp/t")
  failsWith eADDRINUSE (listening "/tmp/t")
  withFile "/tmp/f" WriteOnly (\_ -> pure ())
  failsWith eCONNREFUSED (connectTo "/tmp/f")
  failsWith eADDRINUSE (listening "/tmp/f")
  failsWith eNOTDIR (listening "/tmp/f/s")
  failsWith eNOENT (listening "/tmp/none/s")
  -- Names that are in no file system end with their sockets.
  hidden <- listening "\0name"
  failsWith eADDRINUSE (listening "\0name")
  connectTo "\0name"
  closeSocket hidden
  failsWith eCONNREFUSED (connectTo "\0name")

crashes :: Thread ()
crashes = do
  _ <- listening "/tmp/s"
  made "s" "/tmp/link"
  withFile "/tmp" Directory sync
  homeSteer (\sim machine -> crashMachine (simNetwork sim) machine >> crashDisk (simDisks sim) machine)
  (statusKind <$> pathStatus "/tmp/link") ===> OtherFile
  failsWith eCONNREFUSED (connectTo "/tmp/s")
  removePath "/tmp/s"
  l <- listening "/tmp/s"
  connectTo "/tmp/link"
  closeSocket l
