-- |
-- Description : The served content: a page, a greeting, or many files
--
-- The content of an experiment: what lies in the served directory, which URLs the
-- clients ask for, and how a right answer looks. The servers that answer from
-- memory ("Weft.Bench.Application") know the page and the greeting themselves.
module Weft.Bench.Http.Content
  ( Content (..),
    contentTarget,
    contentSample,

    -- * The directory
    writeContent,
    evictContent,

    -- ** Files
    fileContents,
  )
where

import Control.Exception (bracket)
import Control.Monad (forM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Char8 qualified as Char8
import System.Directory (createDirectoryIfMissing)
import System.FilePath ((</>))
import System.Posix.Fcntl (Advice (AdviceDontNeed), fileAdvise)
import System.Posix.IO (OpenMode (ReadOnly), closeFd, defaultFileFlags, openFd)
import System.Process (readProcess)
import Weft.Bench.Http.Page

-- | The content that an experiment asks for.
data Content
  = -- | one page of 305 bytes
    PageContent
  | -- | @Hello, world!@, from a handler
    HelloContent
  | -- | a file chosen at random for each request: the number of files, and their size in bytes
    FileContent !Int !Int
  deriving stock (Eq, Show)

-- | The target of the requests; @{A..B}@ is a number chosen at random.
contentTarget :: Content -> String
contentTarget = \case
  PageContent -> pagePath
  HelloContent -> greetingPath
  FileContent number _ -> "/f{0.." ++ show (number - 1) ++ "}"

-- | A path, and the body of the right answer to it.
contentSample :: Content -> (String, ByteString)
contentSample = \case
  PageContent -> (pagePath, page)
  HelloContent -> (greetingPath, greeting)
  FileContent number size -> ('/' : fileName (number - 1), fileContents size (number - 1))

-- | The files are @f0@, @f1@ and so on, in one directory.
fileName :: Int -> FilePath
fileName n = 'f' : show n

-- | Its number on the first line, then filling, so that no two files are alike.
-- A size too small for the number cuts it.
fileContents :: Int -> Int -> ByteString
fileContents size n = Bytes.take size (Char8.pack (show n ++ "\n") <> Bytes.replicate size 0x77)

-- | Fill the directory. Files are on the disk, and not only on their way to it, when
-- this returns: what is not cannot be evicted.
writeContent :: FilePath -> Content -> IO ()
writeContent directory content = do
  createDirectoryIfMissing True directory
  Bytes.writeFile (directory </> pageName) page
  case content of
    FileContent number size -> do
      forM_ [0 .. number - 1] $ \n -> Bytes.writeFile (directory </> fileName n) (fileContents size n)
      -- (Not callProcess, which keeps ^C from us until it has ended.)
      void (readProcess "sync" ["--file-system", directory] "")
    _ -> pure ()

-- | Take the files out of the operating system's cache: so a round begins with a cold
-- one. This asks for our own files only, needs no privileges and disturbs no other program,
-- which a limit of memory or an emptied cache would. Names and metadata stay cached.
evictContent :: FilePath -> Content -> IO ()
evictContent directory = \case
  FileContent number _ -> forM_ [0 .. number - 1] $ \n ->
    bracket (openFd (directory </> fileName n) ReadOnly defaultFileFlags) closeFd $ \fd ->
      fileAdvise fd 0 0 AdviceDontNeed
  _ -> pure ()
