{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Conformance of files, pipes, signals, time and the rest
--
-- The public interface on the real system, for each backend with one worker and
-- with two.
module Test.Files (tests) where

import Control.Concurrent (isCurrentThreadBound)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, replicateM_, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf, sort)
import Foreign.C.Error
import Foreign.Marshal.Utils (fillBytes)
import System.Directory (createFileLink, doesPathExist)
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Files (createNamedPipe)
import System.Posix.Signals (raiseSignal, sigUSR1, sigUSR2)
import System.Posix.Signals qualified as Signals
import Test.Support
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.File
import Weft.Pipe
import Weft.Signal
import Weft.Socket (resolve)
import Weft.Time

tests :: TestTree
tests = testGroup "Files, pipes, signals, time" [testGroup (describeConfig c) (map ($ c) conformance) | c <- configurations]

conformance :: [Config -> TestTree]
conformance =
  [ inDirectory "write, read, status, truncate, append" basics,
    inDirectory "exclusive, truncating and missing files" opening,
    inDirectory "directories and names" directories,
    inDirectory "nothing leads out of a directory that is to be stayed beneath" beneath,
    inDirectory "direct I/O with aligned buffers" direct,
    with "a full disk is an error" fullDisk,
    inDirectory "errors name the path; a NUL is refused" errors,
    with "a closed file is refused" closedFile,
    with "pipes" pipes,
    inDirectory "FIFOs" fifos,
    with "signals" signals,
    with "sleep is never early; ten thousand sleepers wake in order" sleepers,
    with "periodic sleeping does not drift" periodic,
    with "blocking actions run elsewhere, and raise here" blockingActions,
    with "names are resolved" (\_ -> resolve Nothing (Just "localhost") (Just "80") >>= liftIO . assertBool "an address" . not . null),
    with "randomness" randomness
  ]
  where
    with name body c = testCase name (running c (body c))
    inDirectory name body c = testCase name . withSystemTempDirectory "weft" $ \dir -> running c (body (Char8.pack dir))

(===>) :: (Eq a, Show a) => Thread a -> a -> Thread ()
action ===> wanted = action >>= \got -> liftIO (got @?= wanted)

infix 1 ===>

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
    liftIO ((statusKind s, statusSize s) @?= (RegularFile, 11))
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
  liftIO (assertBool "large" (got == large))

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
  liftIO (assertBool "permissions" (statusPermissions s <= 0o666 && statusPermissions s >= 0o600))
  failsWith [eNOTDIR] (openFile path Directory)

directories :: ByteString -> Thread ()
directories dir = do
  makeDirectory (dir <> "/d")
  failsWith [eEXIST] (makeDirectory (dir <> "/d"))
  forM_ ["a", "b", "c"] $ \n -> withFile (dir <> "/d/" <> n) WriteOnly (\f -> writeAt f 0 n)
  withFile (dir <> "/d") Directory $ \d -> do
    -- Twice: listing begins at the beginning.
    (sort <$> listDirectory d) ===> ["a", "b", "c"]
    (sort <$> listDirectory d) ===> ["a", "b", "c"]
    bracket (openFileAt (At d) "b" ReadOnly defaultOpenFlags) closeFile (\f -> readAt f 0 9 ===> "b")
    (statusSize <$> pathStatusAt (At d) "a") ===> 1
  (statusKind <$> pathStatus (dir <> "/d")) ===> DirectoryFile
  renamePath (dir <> "/d/a") (dir <> "/d/b")
  readWhole 9 (dir <> "/d/b") ===> "a"
  failsWith [eNOTEMPTY, eEXIST] (removePath (dir <> "/d"))
  mapM_ (removePath . (dir <>)) ["/d/b", "/d/c", "/d"]
  failsWith [eNOENT] (removePath (dir <> "/d"))

beneath :: ByteString -> Thread ()
beneath dir = do
  let inside = Char8.unpack dir <> "/inside"
  makeDirectory (dir <> "/inside")
  makeDirectory (dir <> "/inside/sub")
  withFile (dir <> "/secret") WriteOnly (\f -> writeAt f 0 "secret")
  withFile (dir <> "/inside/open") WriteOnly (\f -> writeAt f 0 "open")
  liftIO $ do
    createFileLink "../secret" (inside <> "/out")
    createFileLink (Char8.unpack dir <> "/secret") (inside <> "/absolute")
    createFileLink "open" (inside <> "/in")
    createFileLink ".." (inside <> "/sub/up")
  withFile (dir <> "/inside") Directory $ \d -> do
    let look path = bracket (openFileAt (At d) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}) closeFile (\f -> readAt f 0 100)
    look "open" ===> "open"
    look "in" ===> "open"
    look "sub/../open" ===> "open"
    look "sub/up/open" ===> "open"
    forM_ ["../secret", "out", "absolute", dir <> "/secret", "sub/../../secret", "sub/up/../secret", "/etc/passwd"] $ \path ->
      failsWith [eXDEV] (look path)

direct :: ByteString -> Thread ()
direct dir = do
  opened <- try (openFileAt CurrentDirectory (dir <> "/f") ReadWrite defaultOpenFlags {openDirect = True})
  case opened of
    -- Some file systems have none (tmpfs before Linux 6.6).
    Left e -> liftIO (assertBool (show (e :: IOError)) ("nvalid" `isInfixOf` show e))
    Right f -> flip finally (closeFile f) $ do
      buffer <- liftIO (newAlignedBuffer 4096 8192)
      liftIO (withBuffer buffer (\p -> fillBytes p 88 8192))
      writeBufferAt f 4096 buffer 0 8192 ===> 8192
      into <- liftIO (newAlignedBuffer 4096 4096)
      readAtInto f 8192 into 0 4096 ===> 4096
      liftIO (copyBuffer into 0 4096) ===> ByteString.replicate 4096 88
      (statusSize <$> fileStatus f) ===> 12288

fullDisk :: Config -> Thread ()
fullDisk _ = do
  there <- liftIO (doesPathExist "/dev/full")
  when there $ withFile "/dev/full" WriteOnly (\f -> failsWith [eNOSPC] (writeAt f 0 "x"))

errors :: ByteString -> Thread ()
errors dir = do
  let missing = dir <> "/no/such"
      names action =
        try action >>= \case
          Left e -> liftIO (assertBool (show (e :: IOError)) (Char8.unpack missing `isInfixOf` show e))
          Right () -> liftIO (assertFailure "it should have failed")
  names (void (openFile missing ReadOnly))
  names (void (pathStatus missing))
  names (removePath missing)
  names (makeDirectory missing)
  names (renamePath missing (dir <> "/x"))
  forM_ [void (openFile "a\0b" ReadOnly), void (pathStatus "a\0b"), removePath "a\0b", makeDirectory "a\0b", renamePath "a" "a\0b"] (failsWith [eINVAL])

closedFile :: Config -> Thread ()
closedFile _ = do
  f <- openFile "/" Directory
  closeFile f
  closeFile f
  -- Its number is in use again.
  withFile "/proc/self/status" ReadOnly $ \_ -> do
    failsWith [eBADF] (readAt f 0 10)
    failsWith [eBADF] (fileStatus f)
    failsWith [eBADF] (listDirectory f)
    failsWith [eBADF] (setFileSize f 10)
    failsWith [eBADF] (openFileAt (At f) "etc" Directory defaultOpenFlags)
    failsWith [eBADF] (pathStatusAt (At f) "etc")

pipes :: Config -> Thread ()
pipes c = do
  (r, w) <- openPipe
  let size = 1_000_000
      readAll n = if n >= size then pure n else readPipe r 65536 >>= \b -> if ByteString.null b then pure n else readAll (n + ByteString.length b)
  reader <- spawnOn (Just (configWorkers c - 1)) (readAll 0)
  writePipe w (ByteString.replicate size 7)
  reader ===> size
  closePipe w
  readPipe r 10 ===> ""
  closePipe r
  (r', w') <- openPipe
  closePipe r'
  failsWith [ePIPE] (writePipe w' "x")
  closePipe w'
  (r'', w'') <- openPipe
  waiting <- spawn (failsWith [eCANCELED, eBADF] (readPipe r'' 1))
  sleep (milliseconds 1)
  closePipe r''
  waiting
  closePipe w''

fifos :: ByteString -> Thread ()
fifos dir = do
  let path = Char8.unpack dir <> "/fifo"
  failsWith [eNOENT] (openFifo path ReadOnly)
  liftIO (createNamedPipe path 0o600)
  failsWith [eNXIO] (openFifo path WriteOnly)
  r <- openFifo path ReadOnly
  w <- openFifo path WriteOnly
  reader <- spawn (readPipe r 10)
  yield
  writePipe w "through"
  reader ===> "through"
  closePipe w
  readPipe r 10 ===> ""
  closePipe r

signals :: Config -> Thread ()
signals _ = do
  calls <- liftIO (newIORef (0 :: Int))
  before <- liftIO (Signals.installHandler sigUSR1 (Signals.Catch (modifyIORef' calls (+ 1))) Nothing)
  flip finally (liftIO (Signals.installHandler sigUSR1 before Nothing)) $ do
    withSignals [sigUSR1, sigUSR2] $ \both -> withSignals [sigUSR1] $ \first -> do
      waiter <- spawn (nextSignal first)
      yield
      liftIO (raiseSignal sigUSR1)
      waiter ===> sigUSR1
      nextSignal both ===> sigUSR1
      liftIO (raiseSignal sigUSR2)
      nextSignal both ===> sigUSR2
    -- The handler from before is back.
    liftIO (raiseSignal sigUSR1)
    eventually ((== 1) <$> readIORef calls)
    s <- openSignals [sigUSR2]
    waiting <- spawn (try (nextSignal s))
    yield
    closeSignals s
    waiting >>= either (\(_ :: IOError) -> pure ()) (\_ -> liftIO (assertFailure "a signal came"))
    -- Named twice, delivered once.
    withSignals [sigUSR2, sigUSR2] $ \s' -> withSignals [sigUSR1] $ \other -> do
      liftIO (raiseSignal sigUSR2)
      nextSignal s' ===> sigUSR2
      liftIO (raiseSignal sigUSR1)
      nextSignal other ===> sigUSR1
      again <- spawn (try (nextSignal s') :: Thread (Either IOError SignalNumber))
      sleep (milliseconds 1)
      closeSignals s'
      again >>= either (\_ -> pure ()) (\n -> liftIO (assertFailure ("twice: " <> show n)))

sleepers :: Config -> Thread ()
sleepers c = do
  base <- after (milliseconds 25) <$> now
  order <- liftIO (newIORef [])
  -- On one worker: the order over several is anybody's.
  waits <- forM [1 .. 10_000 :: Int] $ \i -> spawn $ do
    let wake = after (microseconds ((i * 7919) `mod` 10_000)) base
    asleep <- now
    sleepUntil wake
    t <- now
    liftIO (atomicModifyIORef' order (\os -> ((wake, t, asleep < base) : os, ())))
  sequence_ waits
  woken <- reverse <$> liftIO (readIORef order)
  liftIO $ do
    assertBool "never early" (and [t >= wake | (wake, t, _) <- woken])
    -- Those that slept before the first was due.
    let inTime = [wake | (wake, _, True) <- woken]
    when (configWorkers c == 1) $ assertBool "in order" (inTime == sort inTime)
  t <- now
  sleep (milliseconds (-5))
  sleepUntil t
  sleep (microseconds 300)
  t' <- now
  liftIO (assertBool "three tenths of a millisecond at least" (since t t' >= microseconds 300))

periodic :: Config -> Thread ()
periodic _ = do
  start <- now
  let period = microseconds 500
      go :: Int -> Instant -> Thread Instant
      go 0 t = pure t
      go n t = sleepUntil t >> go (n - 1) (after period t)
  end <- go 40 start
  t <- now
  liftIO (assertBool "the last one began when its time had come" (since start end == microseconds 20_000 && since start t >= microseconds 19_500))

blockingActions :: Config -> Thread ()
blockingActions c = do
  -- More than the pool has threads; each result and exception to its own thread.
  waits <- forM [1 .. 40 :: Int] $ \i ->
    spawnOn (Just (i `mod` configWorkers c)) . try . blocking $
      if even i then pure i else Exception.throwIO (userError (show i))
  results <- sequence waits
  liftIO $ map (either (\e -> show (e :: IOError)) show) results @?= [if even i then show i else "user error (" <> show i <> ")" | i <- [1 .. 40 :: Int]]
  here <- liftIO isCurrentThreadBound
  there <- blocking isCurrentThreadBound
  liftIO ((here, there) @?= (True, False))
  replicateM_ 10 (blocking (pure ()))

randomness :: Config -> Thread ()
randomness _ = do
  a <- randomBytes 1000
  b <- randomBytes 1000
  liftIO (assertBool "differs" (a /= b && ByteString.length a == 1000))
  (ByteString.length <$> randomBytes 0) ===> 0
  (ByteString.length <$> randomBytes (-1)) ===> 0
