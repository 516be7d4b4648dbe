-- |
-- Description : Child processes that never outlive this one's work
--
-- Servers, load generators and peers run as children. Each leads a process group
-- of its own, so that its workers can be signalled and measured with it, and is
-- registered in a nursery before anything else can happen to us; when the nursery
-- closes, by return, failure or ^C, every child still in it is ended: asked to
-- (SIGTERM), and killed with its whole group when it has not gone after two seconds.
module Weft.Bench.Child
  ( -- * Nurseries
    Nursery,
    withNursery,
    endingOnSignals,

    -- * Children
    Command (..),
    pinned,
    confined,
    Child,
    childGroup,
    childOutput,
    startChild,
    stopChild,
    childExit,
    childComplaint,

    -- * Running to the end
    runChild,
    Outcome (..),
  )
where

import Control.Concurrent (myThreadId, threadDelay)
import Control.Exception
import Control.Monad (unless, void, when)
import Data.ByteString qualified as Bytes
import Data.IORef
import Data.List (delete)
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Text.Encoding.Error qualified as Text
import System.Exit (ExitCode (..))
import System.IO (Handle, IOMode (..), hClose, openBinaryFile, openTempFile)
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Signals
import System.Posix.Types (ProcessGroupID)
import System.Process
import System.Timeout (timeout)
import Weft.Bench.Proc (groupIsAlive)

-- | The children that are alive, and where they leave their messages.
data Nursery = Nursery
  { nurseryChildren :: !(IORef [Child]),
    nurseryDirectory :: !FilePath
  }

-- | A process that was started and has not been waited for.
data Child = Child
  { childProcess :: !ProcessHandle,
    -- | Its process group; the number is that of the process itself.
    childGroup :: !ProcessGroupID,
    -- | Where its standard output can be read.
    childOutput :: !Handle,
    childErrors :: !FilePath
  }

instance Eq Child where
  a == b = childGroup a == childGroup b

-- | A program and its arguments.
data Command = Command
  { commandProgram :: !FilePath,
    commandArguments :: ![String]
  }
  deriving stock (Eq, Show)

-- | The same command, kept on one processor.
pinned :: Int -> Command -> Command
pinned cpu (Command program arguments) =
  Command "taskset" (["-c", show cpu, program] ++ arguments)

-- | The same command, kept on this number of processors, the first ones.
confined :: Int -> Command -> Command
confined processors (Command program arguments) =
  Command "taskset" (["-c", "0-" <> show (processors - 1), program] ++ arguments)

-- | A nursery, for as long as the action takes.
withNursery :: (Nursery -> IO a) -> IO a
withNursery action =
  withSystemTempDirectory "weft-bench" $ \directory ->
    bracket (newIORef []) (closeNursery directory) (\r -> action (Nursery r directory))
  where
    -- Bounded, so it may be uninterruptible: a second ^C must not leave a server
    -- running.
    closeNursery directory r =
      uninterruptibleMask_ $
        readIORef r >>= mapM_ (stopChild (Nursery r directory))

-- | Turn SIGTERM and SIGHUP into an exception in the calling thread, so that
-- nurseries close. (The run-time system does so for SIGINT.)
endingOnSignals :: IO a -> IO a
endingOnSignals action = do
  me <- myThreadId
  let handler = Catch (throwTo me UserInterrupt)
      install s = installHandler s handler Nothing
  bracket
    (traverse (\s -> (,) s <$> install s) [sigTERM, sigHUP])
    (mapM_ (\(s, old) -> installHandler s old Nothing))
    (const action)

-- | Start a child. Its standard input is empty, its standard output a pipe, its
-- standard error a file ('childComplaint'). Throws 'IOException' when the
-- program is not there.
startChild :: Nursery -> Command -> IO Child
startChild nursery (Command program arguments) = mask_ $ do
  (errorFile, errors) <- openTempFile (nurseryDirectory nursery) "stderr"
  nothing <- openBinaryFile "/dev/null" ReadMode
  (_, output, _, process) <-
    createProcess
      (proc program arguments)
        { std_in = UseHandle nothing,
          std_out = CreatePipe,
          std_err = UseHandle errors,
          create_group = True,
          close_fds = True
        }
      `onException` (hClose errors >> hClose nothing)
  pid <- getPid process
  case (output, pid) of
    (Just out, Just group) -> do
      let child = Child process group out errorFile
      modifyIORef' (nurseryChildren nursery) (child :)
      pure child
    -- Neither can be: a pipe was asked for, and no thread has waited yet.
    _ -> throwIO (userError (program ++ ": started without a pipe or a number"))

-- | End a child and its group, and wait for it. Nothing happens to one that was
-- stopped before.
stopChild :: Nursery -> Child -> IO ()
stopChild nursery child = do
  alive <- elem child <$> readIORef (nurseryChildren nursery)
  when alive . mask_ $ do
    signalGroup sigTERM
    gone <- waitUpTo 200 (isJust <$> childExit child)
    -- Also when the leader has gone: a worker may be left in its group.
    signalGroup sigKILL
    unless gone (void (waitForProcess (childProcess child)))
    -- The workers have been told, and have gone when this returns: their port
    -- is free, and nothing of theirs disturbs what comes next.
    void (waitUpTo 200 (not <$> groupIsAlive (childGroup child)))
    hClose (childOutput child)
    modifyIORef' (nurseryChildren nursery) (delete child)
  where
    signalGroup s = void (try @IOException (signalProcessGroup s (childGroup child)))
    waitUpTo :: Int -> IO Bool -> IO Bool
    waitUpTo 0 _ = pure False
    waitUpTo n done = done >>= \d -> if d then pure True else threadDelay 10_000 >> waitUpTo (n - 1) done

-- | How it ended, if it has.
childExit :: Child -> IO (Maybe ExitCode)
childExit = getProcessExitCode . childProcess

-- | The end of what it has written to standard error.
childComplaint :: Child -> IO Text
childComplaint child = do
  text <- decode <$> Bytes.readFile (childErrors child)
  pure (Text.intercalate "\n" (lastOf 12 (Text.lines text)))
  where
    lastOf n list = drop (length list - n) list

decode :: Bytes.ByteString -> Text
decode = Text.decodeUtf8With Text.lenientDecode

-- | How a program that ran to its end did.
data Outcome
  = -- | exit code 0, with its standard output
    Finished !Text
  | -- | anything else, with a sentence that says what and the end of its
    -- standard error
    Failed !Text
  deriving stock (Eq, Show)

-- | Run a program to its end, or to the end of our patience (in seconds).
runChild :: Nursery -> Int -> Command -> IO Outcome
runChild nursery patience command =
  try (startChild nursery command) >>= \case
    Left e -> pure (Failed (Text.pack (show (e :: IOException))))
    Right child -> (`finally` stopChild nursery child) $ do
      output <- timeout (patience * 1_000_000) $ do
        text <- decode <$> Bytes.hGetContents (childOutput child)
        (,) text <$> waitForProcess (childProcess child)
      case output of
        Just (text, ExitSuccess) -> pure (Finished text)
        Just (_, code) -> complain child (" ended with " <> showExit code)
        Nothing -> complain child (" was not done after " <> Text.pack (show patience) <> " seconds")
  where
    complain child what = do
      message <- childComplaint child
      pure (Failed (Text.strip (name <> what <> "\n" <> message)))
    name = Text.pack (commandProgram command)
    showExit = \case
      ExitFailure n -> "code " <> Text.pack (show n)
      ExitSuccess -> "code 0"
