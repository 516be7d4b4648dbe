-- |
-- Description : A web server in the blocking style, for every library of threads
--
-- Each connection has a thread, which reads a request, answers it and continues with the next. Parsing, safe paths
-- and rendering are the pure parts of @weft-http@; forking and the calls that wait are fields of a record. So GHC's
-- @forkIO@ and the concurrency libraries on "Weft.Substrate" run the same program.
--
-- The size of a head is limited ('defaultLimits'); time and the number of connections are not, and symbolic links are
-- followed. The server is for comparing libraries, not for a network.
module Weft.Bench.Web (serveWeb, webKinds) where

import Control.Exception (IOException, catch, finally, onException, try)
import Control.Monad (forever, unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Internal (createUptoN)
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.Maybe (isJust)
import Data.Text qualified as Text
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (castPtr, plusPtr)
import Network.Socket qualified as Net
import System.IO.Error (isFullError)
import System.Posix.Files (fileSize, getFdStatus, isRegularFile)
import System.Posix.IO.ByteString
  ( OpenFileFlags (cloexec, nonBlock),
    OpenMode (ReadOnly),
    closeFd,
    defaultFileFlags,
    openFd,
  )
import System.Posix.Types (Fd (..))
import Weft.Bench.Contest.Calls
import Weft.Bench.Contest.Kind (Kind (..), everyKind, kindName)
import Weft.Bench.Http.Page (page, pagePath)
import Weft.Http.Mime (contentTypeFor)
import Weft.Http.Path (hasHiddenComponent, pathComponents, pathFaultStatus, pathIsDirectory, safePath)
import Weft.Http.RequestHead
import Weft.Http.Response (contentLength, renderHead)
import Weft.Http.Status

-- The server ---------------------------------------------------------------------------------

-- | The kinds of threads that can run the server.
webKinds :: [Kind]
webKinds = filter (isJust . callsOf) everyKind

-- | Serve a listening socket with threads of this kind (ConcLib_MP on one HEC): the files under a directory, or the
-- page of 305 bytes from memory. Blocks until accepting a connection fails, because the socket was shut down or no
-- descriptor is free, and throws that 'IOError'. ConcLib_MP drops connections that are open then; the other
-- libraries serve them to their end.
serveWeb :: Kind -> Maybe ByteString -> Net.Socket -> IO ()
serveWeb kind root listener = maybe refuse serve (callsOf kind)
  where
    refuse = errorWithoutStackTrace (Text.unpack (kindName kind) <> " does not run the web server")
    serve calls = do
      -- Accepted connections inherit this. Otherwise the last piece of a file would wait for an acknowledgement.
      Net.setSocketOption listener Net.NoDelay 1
      callsRun calls $ do
        Net.withFdSocket listener (callsAdopt calls . Fd)
        forever $ do
          fd <- callsAccept calls listener
          callsFork calls ((converse calls root fd `catch` gone) `finally` callsClose calls fd)
    gone :: IOException -> IO ()
    gone _ = pure ()

-- | Answer the requests of a connection in turn. A request with a body is the last: the body is not read.
converse :: Calls -> Maybe ByteString -> Fd -> IO ()
converse calls root fd = go 0 ""
  where
    go scanned have = case parseRequest defaultLimits scanned have of
      Incomplete from -> do
        more <- receive calls fd
        unless (Bytes.null more) (go from (have <> more))
      Bad fault -> do
        reply calls fd True [ends] (told (faultStatus fault) [] (faultText fault))
        linger calls fd
      Parsed request used -> do
        let rest = Bytes.drop used have
            plain = headFraming request == NoBody
            goesOn = plain && isPersistent request
            said
              | not goesOn = [ends]
              | headVersion request == Http10 = [Field "Connection" "keep-alive"]
              | otherwise = []
        answerTo root request >>= reply calls fd (headMethod request /= Head) said
        -- A client that has announced its last request sends nothing after it, so there is nothing to read.
        if goesOn then go 0 rest else unless (plain && Bytes.null rest) (linger calls fd)
    ends = Field "Connection" "close"

receive :: Calls -> Fd -> IO ByteString
receive calls fd = createUptoN most (\p -> callsRead calls fd p most)
  where
    most = 4_096

-- | End a connection that may hold unread bytes. Closing it at once would send a reset, which can overtake the
-- answer (RFC 9112, section 9.6).
linger :: Calls -> Fd -> IO ()
linger calls fd = c_shutdown fd 1 >> drain (1_048_576 :: Int)
  where
    drain left = when (left > 0) $ do
      bytes <- receive calls fd
      unless (Bytes.null bytes) (drain (left - Bytes.length bytes))

-- Answers ------------------------------------------------------------------------------------

data Reply = Reply !Status ![Field] !Source

data Source
  = Memory !ByteString
  | -- | an open file and its length in bytes
    File !Fd !Int

-- | An answer whose content is one sentence.
told :: Status -> [Field] -> ByteString -> Reply
told status fields sentence = Reply status (Field "Content-Type" "text/plain" : fields) (Memory (sentence <> "\n"))

-- | An answer whose content is the reason phrase of its status.
bare :: Status -> [Field] -> Reply
bare status fields = told status fields (statusReason status)

-- | An answer with content of this media type.
content :: ByteString -> Source -> Reply
content mediaType = Reply ok200 [Field "Content-Type" mediaType]

answerTo :: Maybe ByteString -> RequestHead -> IO Reply
answerTo root request
  | headMethod request `notElem` [Get, Head] = pure (bare methodNotAllowed405 [Field "Allow" "GET, HEAD"])
  | otherwise = case (root, safePath (headPath request)) of
      (Nothing, _)
        | headPath request == Char8.pack pagePath -> pure (content "text/html" (Memory page))
        | otherwise -> pure (bare notFound404 [])
      (Just _, Left fault) -> pure (bare (pathFaultStatus fault) [])
      (Just under, Right path)
        | hasHiddenComponent path -> pure (bare notFound404 [])
        | otherwise -> openFile under (pathComponents path ++ ["index.html" | pathIsDirectory path])

-- | Answer with a regular file under a directory. It is opened without blocking, because it may be a FIFO.
openFile :: ByteString -> [ByteString] -> IO Reply
openFile under components =
  try (openFd name ReadOnly defaultFileFlags {nonBlock = True, cloexec = True}) >>= \case
    Left e -> pure (bare (if isFullError e then serviceUnavailable503 else notFound404) [])
    Right fd -> (`onException` closeFd fd) $ do
      status <- getFdStatus fd
      if isRegularFile status
        then pure (content (contentTypeFor base) (File fd (fromIntegral (fileSize status))))
        else bare notFound404 [] <$ closeFd fd
  where
    name = Bytes.intercalate "/" (under : components)
    (_, base) = Char8.breakEnd (== '/') name

-- | Send an answer with these further fields, without its content for HEAD. Closes its file.
reply :: Calls -> Fd -> Bool -> [Field] -> Reply -> IO ()
reply calls fd whole more (Reply status fields source) = case source of
  Memory bytes -> put (top (Bytes.length bytes) <> if whole then bytes else "")
  File file size -> (if whole then pieces file size (top size) 0 else put (top size)) `finally` closeFd file
  where
    top n = either (errorWithoutStackTrace . show) id (renderHead status (allFields (fromIntegral n)))
    allFields n = fields ++ contentLength n : more
    -- The head is sent together with the first piece.
    pieces file size before at
      | at >= size = put before
      | otherwise = do
          let most = min 65_536 (size - at)
          piece <- createUptoN most (\p -> callsReadAt calls file p most at)
          when (Bytes.null piece) (ioError (userError "the file has become shorter"))
          put (before <> piece)
          pieces file size "" (at + Bytes.length piece)
    put bytes = unsafeUseAsCStringLen bytes (\(p, n) -> write (castPtr p) n)
    write p n = when (n > 0) (callsWrite calls fd p n >>= \k -> write (p `plusPtr` k) (n - k))

foreign import ccall unsafe "shutdown" c_shutdown :: Fd -> CInt -> IO CInt
