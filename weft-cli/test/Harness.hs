-- |
-- The program under test and its clients: starts @weft serve@ on a directory of its
-- own and a free port, waits for the line that says where it listens, and sees to it
-- that no process outlives a test. Clients are plain blocking sockets, so that a test
-- decides what bytes are sent and when.
module Harness
  ( -- * The program
    Server (..),
    withServer,
    withServerIn,
    withSite,
    backends,
    portIn,
    withFreePort,
    runWeft,
    serverErrors,
    stopWith,
    waitForExit,
    cpuMilliseconds,

    -- * Connections
    Client,
    connectTo,
    connectSmall,
    closeClient,
    resetClient,
    withClient,
    say,
    sayQuietly,
    endOfRequests,
    hear,
    hearHead,
    hearToEnd,
    expectEnd,
    hearSome,
    soonerThan,

    -- * Responses
    Reply (..),
    header,
    fetch,
    get,
    request,
  )
where

import Control.Exception
import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (isDigit)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe, isNothing, listToMaybe)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (alloca)
import Foreign.Marshal.Array (allocaArray)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek, peekElemOff)
import GHC.Clock (getMonotonicTime)
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import System.Environment (getEnvironment)
import System.Exit (ExitCode)
import System.FilePath ((</>))
import System.IO
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Signals (Signal, sigKILL, signalProcess)
import System.Posix.Types (CPid (..))
import System.Process
import Test.Tasty.HUnit
import Weft.Test.Loopback (untilEmpty)
import Weft.Test.Message (Reply (..), header, readHead, request)
import Weft.Test.Waiting (within)

-- | A running @weft serve@.
data Server = Server
  { serverPort :: Int,
    serverSite :: FilePath,
    serverScratch :: FilePath,
    serverOutput :: Handle,
    serverProcess :: ProcessHandle
  }

-- | The names of the event sources.
backends :: [String]
backends = ["epoll", "io_uring", "poll"]

-- | A small site in a directory that goes away, and a directory beside it that
-- must not be served.
withSite :: (FilePath -> IO a) -> IO a
withSite use = withSystemTempDirectory "weft-cli" $ \scratch -> do
  let site = scratch </> "site"
  callProcess "mkdir" ["-p", site </> "sub", site </> "plain", site </> "none", scratch </> "outside"]
  writeFile (site </> "index.html") "<p>home</p>\n"
  writeFile (site </> "sub" </> "index.html") "<p>sub</p>\n"
  writeFile (site </> "plain" </> "one.txt") "one\n"
  writeFile (site </> "plain" </> "a b.txt") "blank\n"
  writeFile (site </> "hello.txt") "0123456789abcdef"
  writeFile (site </> ".hidden") "hidden\n"
  writeFile (scratch </> "outside" </> "secret") "secret\n"
  B.writeFile (site </> "large.bin") large
  B.writeFile (site </> "page.txt") (B.take 1_200 large)
  B.writeFile (site </> "medium.txt") (B.take 10_000 large)
  -- A file that has just changed has a weak tag.
  callProcess "find" [site, "-type", "f", "-exec", "touch", "-d", "2020-02-02 12:00:00.5", "{}", "+"]
  use site

-- | Five million bytes in which every place is recognisable.
large :: ByteString
large = B.concat [C.pack (take 10 (show n <> "..........")) | n <- [0 .. 499999 :: Int]]

-- | A port on which nothing listens but what the body starts: a socket that is bound and does not listen
-- keeps it from others that ask for any port, and not from one that reuses addresses.
withFreePort :: (Int -> IO a) -> IO a
withFreePort use = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  setSocketOption s ReuseAddr 1
  bind s (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  socketPort s >>= use . fromIntegral

-- | A server with these options, on a site of its own.
withServer :: [String] -> (Server -> IO a) -> IO a
withServer args use = withSite $ \site -> withServerIn [] [] site args use

-- | A server with these options, run by such a command, with these additions to the
-- environment.
withServerIn :: [String] -> [(String, String)] -> FilePath -> [String] -> (Server -> IO a) -> IO a
withServerIn prefix variables site args use = do
  old <- getEnvironment
  let scratch = site </> ".."
      command = prefix <> ["weft", "serve", site] <> ["--port" | "--port" `notElem` args] <> ["0" | "--port" `notElem` args] <> args
  withFile (scratch </> "stderr") WriteMode $ \errors -> do
    let start =
          createProcess
            (proc (fromMaybe "weft" (listToMaybe command)) (drop 1 command))
              { close_fds = True,
                std_out = CreatePipe,
                std_err = UseHandle errors,
                env = Just (variables <> filter ((`notElem` ("WEFT_BACKEND" : map fst variables)) . fst) old)
              }
        kill (_, _, _, child) = do
          gone <- getProcessExitCode child
          when (isNothing gone) (getPid child >>= mapM_ (signalProcess sigKILL) >> void (waitForProcess child))
    bracket start kill $ \case
      (_, Just out, _, child) -> do
        line <-
          within "the program to say where it listens" (hGetLine out) `catch` \e -> do
            said <- readFile (scratch </> "stderr")
            assertFailure ("the program did not start: " <> show (e :: IOException) <> " " <> said)
        port <- portIn line
        use (Server port site scratch out child)
      _ -> assertFailure "no pipe to the program"

-- | The port of the address at the end of a line.
portIn :: String -> IO Int
portIn line = case reverse (takeWhile isDigit (drop 1 (reverse line))) of
  [] -> assertFailure ("no port in: " <> line)
  digits -> pure (read digits)

-- | Run the program to its end: exit code, standard output, standard error.
runWeft :: [(String, String)] -> [String] -> IO (ExitCode, String, String)
runWeft variables args = do
  old <- getEnvironment
  let program = (proc "weft" args) {env = Just (variables <> filter ((`notElem` ("WEFT_BACKEND" : map fst variables)) . fst) old)}
  within "the program to end" (readCreateProcessWithExitCode program "")

-- | The standard error of the program so far.
serverErrors :: Server -> IO String
serverErrors server = do
  said <- B.readFile (serverScratch server </> "stderr")
  pure (C.unpack said)

-- | Send the program a signal.
stopWith :: Signal -> Server -> IO ()
stopWith signal server = getPid (serverProcess server) >>= mapM_ (signalProcess signal)

-- | Its exit code, when it ends.
waitForExit :: Server -> IO ExitCode
waitForExit server = within "the program to end" (waitForProcess (serverProcess server))

-- | Processor time that the program has used, user and system, also by threads that have ended.
cpuMilliseconds :: Server -> IO Int
cpuMilliseconds server =
  getPid (serverProcess server) >>= \case
    Nothing -> assertFailure "the program has ended"
    Just pid -> alloca $ \clock -> allocaArray 2 $ \time -> do
      failed <- (+) <$> c_clock_getcpuclockid pid clock <*> (peek clock >>= \number -> c_clock_gettime number time)
      failed @?= 0
      (\seconds nanoseconds -> fromIntegral (1_000 * seconds + nanoseconds `div` 1_000_000)) <$> peek time <*> peekElemOff time 1

foreign import ccall unsafe "clock_getcpuclockid" c_clock_getcpuclockid :: CPid -> Ptr CInt -> IO CInt

foreign import ccall unsafe "clock_gettime" c_clock_gettime :: CInt -> Ptr Int64 -> IO CInt

-- | A connection, and what has come on it and was not taken.
data Client = Client Socket (IORef ByteString)

connectTo :: Server -> IO Client
connectTo server = connectWith server (const (pure ()))

-- | Connect with a small receive buffer, so that a client that does not read holds
-- the server up early.
connectSmall :: Server -> IO Client
connectSmall server = connectWith server (\s -> setSocketOption s RecvBuffer 4096)

connectWith :: Server -> (Socket -> IO ()) -> IO Client
connectWith server prepare = do
  s <- socket AF_INET Stream defaultProtocol
  flip onException (close s) $ do
    prepare s
    within "a connection" (connect s (SockAddrInet (fromIntegral (serverPort server)) (tupleToHostAddress (127, 0, 0, 1))))
    Client s <$> newIORef B.empty

-- | Close a connection in the usual way.
closeClient :: Client -> IO ()
closeClient (Client s _) = close s

-- | Close it with a reset.
resetClient :: Client -> IO ()
resetClient (Client s _) = setSockOpt s Linger (StructLinger 1 0) >> close s

-- | A connection while the body runs.
withClient :: Server -> (Client -> IO a) -> IO a
withClient server = bracket (connectTo server) closeClient

-- | Send bytes.
say :: Client -> ByteString -> IO ()
say (Client s _) bytes = within "the server to take what is sent" (sendAll s bytes)

-- | Send bytes; that the server has closed the connection meanwhile is no failure.
sayQuietly :: Client -> ByteString -> IO ()
sayQuietly client bytes = say client bytes `catch` \(_ :: IOException) -> pure ()

-- | Half-close: no more requests.
endOfRequests :: Client -> IO ()
endOfRequests (Client s _) = shutdown s ShutdownSend

-- | The next response, with its body.
hear :: Client -> IO Reply
hear client = do
  reply <- hearHead client
  let size = maybe 0 fst (C.readInt (fromMaybe "0" (header "content-length" reply)))
  if replyStatus reply `elem` [204, 304] then pure reply else (\b -> reply {replyBody = b}) <$> takeBytes client size

-- | The next response to a HEAD request, or the head of a response whose body is
-- read otherwise.
hearHead :: Client -> IO Reply
hearHead client@(Client _ ref) = do
  have <- readIORef ref
  let (before, after) = B.breakSubstring "\r\n\r\n" have
  if B.null after
    then
      more client >>= \case
        True -> hearHead client
        False -> assertFailure ("the connection ended in a head: " <> show have)
    else do
      writeIORef ref (B.drop 4 after)
      maybe (assertFailure ("no response: " <> show before)) pure (readHead before)

takeBytes :: Client -> Int -> IO ByteString
takeBytes client@(Client _ ref) n = do
  have <- readIORef ref
  if B.length have >= n
    then B.take n have <$ writeIORef ref (B.drop n have)
    else do
      -- In pieces: joining them once keeps this linear.
      let go got pieces
            | got >= n = pure (reverse pieces)
            | otherwise = do
                writeIORef ref B.empty
                ok <- more client
                if ok
                  then readIORef ref >>= \piece -> go (got + B.length piece) (piece : pieces)
                  else assertFailure ("the connection ended after " <> show got <> " of " <> show n <> " bytes")
      whole <- B.concat <$> go (B.length have) [have]
      B.take n whole <$ writeIORef ref (B.drop n whole)

more :: Client -> IO Bool
more (Client s ref) = do
  piece <- within "more from the server" (recv s 65536)
  modifyIORef' ref (<> piece)
  pure (not (B.null piece))

-- | All that comes until the server ends the connection.
hearToEnd :: Client -> IO ByteString
hearToEnd client@(Client _ ref) = (<>) <$> taken <*> untilEmpty (next `catch` \(_ :: IOException) -> pure B.empty)
  where
    taken = readIORef ref <* writeIORef ref B.empty
    next = more client >> taken

-- | Some bytes, as they come.
hearSome :: Client -> IO ByteString
hearSome client@(Client _ ref) = do
  have <- readIORef ref
  if B.null have then more client >> hearSome' else hearSome'
  where
    hearSome' = readIORef ref <* writeIORef ref B.empty

-- | The server ends the connection, and sends nothing before.
expectEnd :: Client -> IO ()
expectEnd client = hearToEnd client >>= assertEqual "nothing more comes" ""

-- | Fail if an action takes as long as this number of seconds: the default of what an option shortens.
soonerThan :: (HasCallStack) => Double -> IO a -> IO a
soonerThan limit act = do
  start <- getMonotonicTime
  a <- act
  end <- getMonotonicTime
  a <$ assertBool ("it took " <> show (end - start) <> " s, and takes " <> show limit <> " by default") (end - start < limit)

-- | One request on a connection of its own.
fetch :: Server -> ByteString -> ByteString -> [ByteString] -> IO Reply
fetch server method target fields = withClient server $ \client -> do
  say client (request method target fields)
  if method == "HEAD" then hearHead client else hear client

get :: Server -> ByteString -> IO Reply
get server target = fetch server "GET" target []
