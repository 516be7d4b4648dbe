-- |
-- Description : Masses of cancellations, watched
--
-- > weft-storm KIND BACKEND WORKERS CANCELLATIONS SECONDS
--
-- Threads make one kind of call (connect, accept, receive, send, file) and are cancelled at
-- random while it is under way, CANCELLATIONS times. What could be lost is counted: bytes,
-- descriptors. When nothing has gone on for SECONDS the program prints all threads
-- and fails. @make soak@ runs it in all combinations beside everything else.
module Main (main) where

import Control.Concurrent (forkIO, threadDelay)
import Control.Monad
import Data.Bits (shiftR)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Word (Word64)
import Foreign.C.Error (Errno (..), eCONNRESET)
import GHC.IO.Exception (ioe_errno)
import System.Directory (getTemporaryDirectory, listDirectory)
import System.Environment (getArgs)
import System.Exit (ExitCode (..), exitFailure)
import System.IO
import System.Posix.Process (exitImmediately, getProcessID)
import System.Posix.Signals (raiseSignal, sigUSR1)
import Weft
import Weft.File qualified as File
import Weft.MVar qualified as MVar
import Weft.Mask (allowInterrupt, mask_, uninterruptibleMask_)
import Weft.Socket
import Weft.Time (microseconds)

main :: IO ()
main =
  getArgs >>= \case
    [kind, backend, workers, total, limit]
      | Just body <- lookup kind kinds, Just choice <- lookup backend backends -> storm kind body choice backend (read workers) (read total) (read limit)
    _ -> hPutStrLn stderr "usage: weft-storm connect|accept|receive|send|file epoll|io_uring|poll WORKERS CANCELLATIONS SECONDS" >> exitFailure
  where
    backends = [("epoll", Epoll), ("io_uring", Uring), ("poll", Poll)]
    kinds = [("connect", connects), ("accept", accepts), ("receive", streams True), ("send", streams False), ("file", files)]

-- | The settings and counts of a storm of any kind.
data Storm = Storm
  { stormTotal :: Int,
    stormWorkers :: Int,
    -- | Cancellations that interrupted a call; anything else that has ended.
    stormHits, stormDone :: IORef Int,
    stormOver :: IORef Bool
  }

storm :: String -> (Storm -> Thread [String]) -> BackendChoice -> String -> Int -> Int -> Int -> IO ()
storm kind body choice backend workers total limit = do
  this <- Storm total workers <$> newIORef 0 <*> newIORef 0 <*> newIORef False
  let name = unwords [kind, backend, show workers]
      settings = defaultSettings {settingWorkers = Just workers, settingKernel = systemKernel defaultSystemSettings {systemBackend = choice}}
      progress = (,) <$> readIORef (stormHits this) <*> readIORef (stormDone this)
      -- Counts its own seconds: one that was stopped does not blame the others.
      watch before quiet = do
        threadDelay 1_000_000
        now <- progress
        if now /= before
          then watch now 0
          else
            if quiet + 1 < limit
              then watch now (quiet + 1)
              else do
                hPutStrLn stderr (name <> ": nothing has gone on for " <> show limit <> " seconds, after " <> show now)
                raiseSignal sigUSR1
                threadDelay 2_000_000
                exitImmediately (ExitFailure 1)
  -- Let the run-time system open the descriptors that it keeps.
  runWith settings (pure ())
  before <- descriptors
  _ <- forkIO (watch (0, 0) 0)
  wrong <- runWith settings (body this)
  after <- descriptors
  (hits, done) <- progress
  let all' = wrong <> ["descriptors: " <> show before <> " before, " <> show after <> " after" | before /= after]
  putStrLn (unwords [name <> ":", show total, "cancelled,", show hits, "interrupted,", show done, "completed"])
  unless (null all') $ mapM_ (hPutStrLn stderr . ((name <> ": ") <>)) all' >> exitFailure

descriptors :: IO Int
descriptors = length <$> listDirectory "/proc/self/fd"

count :: IORef Int -> Int -> Thread ()
count ref n = liftIO (atomicModifyIORef' ref (\m -> (m + n, ())))

-- | Threads that do this again and again, each cancelled at random until there were enough
-- cancellations. A cancellation ends one round; what has succeeded is counted before the
-- next may come.
cancelled :: Storm -> [Thread ()] -> Thread ()
cancelled this acts = do
  rooms <- forM (zip [0 ..] acts) $ \(i, act) -> do
    room <- liftIO (newIORef False)
    (t, wait) <- start i (rounds room act)
    pure (t, room, wait)
  strikers <- forM [0 .. stormWorkers this - 1] $ \w ->
    snd <$> start w (strike rooms (fromIntegral w + 7) (stormTotal this `div` stormWorkers this))
  sequence_ strikers
  liftIO (writeIORef (stormOver this) True)
  forM_ rooms $ \(t, room, wait) -> liftIO (writeIORef room True) >> cancel t >> wait
  where
    start :: Int -> Thread () -> Thread (ThreadId, Thread ())
    start worker body = do
      ended <- MVar.newEmptyMVar
      t <- forkWith defaultForkOptions {forkWorker = Just worker} (mask_ (body >> uninterruptibleMask_ (MVar.putMVar ended ())))
      pure (t, MVar.takeMVar ended)
    rounds :: IORef Bool -> Thread () -> Thread ()
    rounds room act = do
      over <- liftIO (readIORef (stormOver this))
      unless over $ do
        liftIO (writeIORef room False)
        ((act >> count (stormDone this) 1) >> allowInterrupt) `catch` \Cancelled -> count (stormHits this) 1
        rounds room act
    strike :: [(ThreadId, IORef Bool, Thread ())] -> Word64 -> Int -> Thread ()
    strike _ _ 0 = pure ()
    strike rooms dice left = do
      let dice' = dice * 6364136223846793005 + 1442695040888963407
          (t, room, _) = rooms !! (fromIntegral (dice' `shiftR` 33) `mod` length rooms)
      struck <- liftIO (atomicModifyIORef' room (True,))
      if struck
        then yield >> strike rooms dice' left
        else do
          cancel t
          when (dice' `shiftR` 60 < 4) yield
          when (dice' `shiftR` 60 == 15) (sleep (microseconds 50))
          -- Now and then its worker is taken over.
          when (dice' `shiftR` 56 == 64) (liftIO (threadDelay 8_000))
          strike rooms dice' (left - 1)

-- Kinds ------------------------------------------------------------------------

-- | Connects are cancelled. Half of them are to a listener that others accept from. The rest are
-- to one whose queue is full: they are under way for minutes, unless they are cancelled.
connects :: Storm -> Thread [String]
connects this = withSocket (listenTcp (Just "127.0.0.1") "0" 4) $ \l -> withSocket (listenTcp (Just "127.0.0.1") "0" 0) $ \full -> do
  mapM_ resetting [l, full]
  address <- localAddress l
  nowhere <- localAddress full
  fillers <- replicateM 4 (forkEnding (False <$ connecting' nowhere block))
  acceptors <- replicateM 4 . forkEnding . mask_ $ True <$ (accept l >>= closing . fst)
  cancelled this (concat (replicate 16 [connecting address, connecting nowhere]))
  [] <$ stop (fillers <> acceptors)

-- | Accepts are cancelled, and others connect. A connection that was accepted for a cancelled thread would
-- remain open.
accepts :: Storm -> Thread [String]
accepts this = withSocket (listenTcp (Just "127.0.0.1") "0" 64) $ \l -> do
  resetting l
  address <- localAddress l
  connectors <- replicateM 4 (forkEnding (True <$ connecting address))
  cancelled this (replicate 32 (accept l >>= closing . fst))
  [] <$ stop connectors

connecting :: SockAddr -> Thread ()
connecting address = connecting' address (pure ())

-- | And then this, before it is closed.
connecting' :: SockAddr -> Thread () -> Thread ()
connecting' address use =
  bracket (openSocket AF_INET Stream) closing $ \s -> do
    resetting s
    -- The other side may have reset it.
    connect s address `catch` \(e :: IOError) -> unless (ioe_errno e `elem` [Just n | Errno n <- [eCONNRESET]]) (throwM e)
    use

block :: Thread ()
block = MVar.newEmptyMVar >>= MVar.takeMVar

-- | Pairs over TCP with small buffers: those that receive are cancelled, or those that send.
streams :: Bool -> Storm -> Thread [String]
streams receiving this = withSocket (listenTcp (Just "127.0.0.1") "0" 64) $ \l -> do
  address <- localAddress l
  pairs <- forM [1 .. 16 :: Int] $ \i -> do
    a <- openSocket AF_INET Stream
    connect a address
    (b, _) <- accept l
    setOption a SendBuffer 4096
    sent <- liftIO (newIORef 0)
    got <- liftIO (newIORef 0)
    let piece = B.replicate (500 * i) 7
    pure (a, b, sent, got, send a piece >>= count sent, receive b 3000 >>= \bytes -> B.length bytes <$ count got (B.length bytes))
  others <-
    if receiving
      then forM pairs (\(_, _, _, _, sends, _) -> forkEnding (sends >> (not <$> liftIO (readIORef (stormOver this)))))
      else forM pairs (\(_, _, _, _, _, receives) -> forkEnding ((> 0) <$> receives))
  cancelled this [if receiving then void receives else sends | (_, _, _, _, sends, receives) <- pairs]
  wrong <- forM (zip pairs others) $ \((a, b, sent, got, _, receives), other) -> do
    if receiving
      then do
        -- The sender may wait for room.
        rest <- forkEnding ((> 0) <$> receives)
        snd other
        closing a
        snd rest
        closing b
      else closing a >> snd other >> closing b
    (n, m) <- liftIO ((,) <$> readIORef sent <*> readIORef got)
    pure ["bytes: " <> show n <> " sent, " <> show m <> " received" | n /= m]
  pure (concat wrong)

-- | Opening, reading and closing a file.
files :: Storm -> Thread [String]
files this = do
  dir <- liftIO getTemporaryDirectory
  me <- liftIO getProcessID
  let path = Char8.pack (dir <> "/weft-storm-" <> show me)
      contents = B.replicate 65_536 7
      close = uninterruptibleMask_ . File.closeFile
  wrong <- liftIO (newIORef 0)
  bracket (File.openFile path File.ReadWrite) close (\f -> File.writeAt f 0 contents)
  cancelled this . replicate 32 $
    bracket (File.openFile path File.ReadOnly) close (\f -> File.readAt f 1_000 30_000 >>= \bytes -> when (bytes /= B.replicate 30_000 7) (count wrong 1))
  uninterruptibleMask_ (File.removePath path)
  n <- liftIO (readIORef wrong)
  pure ["files: " <> show n <> " reads were wrong" | n > 0]

-- Parts ------------------------------------------------------------------------

-- | Do this as long as it says so; and wait for that end.
forkEnding :: Thread Bool -> Thread (ThreadId, Thread ())
forkEnding body = do
  ended <- MVar.newEmptyMVar
  let loop = body >>= \more -> when more loop
  t <- fork (loop `finally` MVar.putMVar ended ())
  pure (t, MVar.takeMVar ended)

stop :: [(ThreadId, Thread ())] -> Thread ()
stop threads = forM_ threads $ \(t, wait) -> cancel t >> wait

closing :: Socket -> Thread ()
closing = uninterruptibleMask_ . closeSocket

-- | Closing it leaves no port in use; nor does closing what it accepts.
resetting :: Socket -> Thread ()
resetting s = setOption s Linger 0
