{-# LANGUAGE BlockArguments #-}

-- |
-- A backend whose OS thread changes. The thread before has ended, or computes
-- without end, or sleeps; what it had begun goes on, and nothing is lost.
module Test.Adoption
  ( tests,
  )
where

import Control.Concurrent
import Control.Exception (SomeException, bracket, finally, throwIO, try)
import Control.Monad hiding (forever)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as BC
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int32, Int64)
import Data.List (sort)
import Data.Traversable (for)
import Foreign.C.Error
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (alloca)
import Foreign.Ptr (Ptr, nullPtr, plusPtr)
import Foreign.Storable (peek, poke)
import Network.Socket qualified as N
import System.Directory (doesPathExist)
import System.Posix.Files (ownerModes)
import System.Posix.IO (OpenFileFlags (..), OpenMode (ReadWrite), defaultFileFlags, openFd)
import System.Timeout (timeout)
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys

-- | The tests, on every backend.
tests :: TestTree
tests =
  testGroup
    "another OS thread drives the backend"
    [ testGroup
        name
        [ testCase "the former one has ended" (ended make),
          testCase "the former one computes, and completions come at once" (computing make),
          testCase "connection attempts go on" (connecting make),
          testCase "a wake-up finds the new one" (waking make),
          testCase "many times, while bytes and connections come and go" (relay make),
          testCase "more are cancelled than one poll handles" (cancelledAfterwards make),
          testCase "adopting twice changes nothing" (twice make)
        ]
      | (name, make) <- everyBackend
    ]

-- | From now on this thread drives the rig. io_uring makes a ring with the first turn, and until then keeps what is begun.
takeOver :: Rig -> IO ()
takeOver rig = adopt (rigBackend rig) >> void (turn rig noWait)

-- | Drive the rig from a new OS thread, and wait until that has ended.
onThreadThatEnds :: Rig -> IO a -> IO a
onThreadThatEnds rig act = do
  box <- newEmptyMVar
  _ <- forkOS do
    number <- c_gettid
    r <- try (takeOver rig >> act)
    putMVar box (number, r)
  (number, r) <- takeMVar box
  let gone = do
        there <- doesPathExist ("/proc/self/task/" <> show number)
        when there (yield >> gone)
  gone
  either (throwIO @SomeException) pure r

-- | Drive the rig from a new OS thread that then computes, out of the kernel, as
-- long as the second action takes.
onThreadThatComputes :: Rig -> IO a -> (a -> IO b) -> IO b
onThreadThatComputes rig act next = alloca \going -> do
  poke going (1 :: CInt)
  box <- newEmptyMVar
  over <- newEmptyMVar
  _ <- forkOS do
    r <- try (takeOver rig >> act)
    putMVar box r
    c_spin going
    putMVar over ()
  let begun = do
        state <- peek going
        when (state /= 2) (yield >> begun)
  r <- takeMVar box
  -- Only when it spins it is out of the kernel, and can be stopped.
  begun
  either (throwIO @SomeException) next r `finally` (poke going 0 >> takeMVar over)

put :: (HasCallStack) => Descriptor -> B.ByteString -> IO ()
put d bytes = withBytes bytes (Sys.writeStream (descriptorNumber d)) >>= (@?= B.length bytes)

-- The cancellations must not keep the poll from what the former thread's operations tell.
cancelledAfterwards :: MakeBackend -> Assertion
cancelledAfterwards make = withRig make \rig -> withRoom 8 \p -> do
  links <- replicateM 60 unixPair
  receives <- onThreadThatEnds rig (for links (\l -> start rig (Receive (near l) p 8)) <* turn rig noWait)
  takeOver rig
  mapM_ (abandon rig) receives
  for_ receives (finish rig "a cancelled receive" >=> (@?= Sys.canceled))
  for_ links \l -> mapM_ closeNow [near l, far l]

-- Every kind of operation is begun by a thread that ends.
ended :: MakeBackend -> Assertion
ended make = withRig make \rig -> withRoom 70_000 \p -> withScratch \dir -> withListener \listener address -> do
  -- A listener's number stays its own: it is only forgotten here.
  door <- N.withFdSocket listener newDescriptor
  file <- openFd (dir <> "/file") ReadWrite defaultFileFlags {creat = Just ownerModes} >>= newDescriptor . fromIntegral
  links <- replicateM 20 unixPair
  waits <- replicateM 3 unixPair
  pipes <- replicateM 3 pipePair
  full <- unixPair
  let block = B.replicate 65_536 3
      fill n = do
        k <- withBytes block (Sys.send (descriptorNumber (near full)))
        if k > 0 then fill (n + k) else pure n
  before <- fill 0
  withBytes block \from size -> do
    (receives, readables, reads', accepts, sending, writes) <- onThreadThatEnds rig do
      rs <- for (zip [0 ..] links) \(i, l) -> start rig (Receive (near l) (p `plusPtr` (8 * i)) 8)
      ws <- for waits (start rig . Await Reading . near)
      ps <- for (zip [40 ..] pipes) \(i, l) -> start rig (ReadStream (near l) (p `plusPtr` (8 * i)) 8)
      as <- replicateM 3 (start rig (Accept door nullPtr nullPtr))
      s <- start rig (Send (near full) from size)
      fs <- for [0 .. 19] \i -> start rig (WriteAt file from size (i * fromIntegral size))
      y <- start rig (Sync file False)
      -- Submitted, and some completed, whatever the backend waits for.
      _ <- turn rig noWait
      pure (rs, ws, ps, as, s, y : fs)
    adopt (rigBackend rig)
    for_ [0, 1] (turn rig)
    for_ (receives <> readables <> reads' <> accepts <> [sending]) \r -> readIORef (pendingResults r) >>= (@?= [])
    for_ (zip [0 :: Int ..] links) \(i, l) -> put (far l) (BC.pack (show i))
    for_ (zip [0 :: Int ..] receives) \(i, r) -> do
      n <- finish rig "receive" r
      contents (p `plusPtr` (8 * i)) n >>= (@?= BC.pack (show i))
    for_ waits \l -> put (far l) (BC.pack "x")
    for_ readables (finish rig "await readable" >=> (@?= 0))
    for_ pipes \l -> put (far l) (BC.pack "pipe")
    for_ (zip [40 ..] reads') \(i, r) -> do
      finish rig "read" r >>= (@?= 4)
      contents (p `plusPtr` (8 * i)) 4 >>= (@?= BC.pack "pipe")
    callers <- replicateM 3 do
      c <- N.socket N.AF_INET N.Stream 0
      c <$ N.connect c address
    numbers <- sort <$> for accepts (finish rig "accept")
    assertBool (show numbers) (all (>= 0) numbers && and (zipWith (/=) numbers (drop 1 numbers)))
    for_ numbers (Sys.close . fromIntegral)
    mapM_ N.close callers
    -- The bytes of this send arrive beside those that were there.
    withRoom 65_536 \q -> do
      let drain n = do
            k <- Sys.recv (descriptorNumber (far full)) q 65_536
            if k > 0 then drain (n + k) else pure n
      first <- drain 0
      taken <- finish rig "send" sending
      assertBool ("send answered " <> show taken) (taken > 0)
      rest <- drain 0
      first + rest @?= before + taken
    for_ (drop 1 writes) (finish rig "write" >=> (@?= size))
    finish rig "sync" (foldr const sending writes) >>= (@?= 0)
    B.readFile (dir <> "/file") >>= assertBool "the file's bytes" . (== B.replicate (20 * size) 3)
  visit (rigBackend rig) (\_ _ n -> pure (n + 1)) (0 :: Int) >>= (@?= 0)
  forget (rigBackend rig) door (pure ())
  for_ (full : links <> waits <> pipes) \l -> mapM_ (release rig) [near l, far l]
  release rig file

-- On io_uring the rest of a request is done on the thread that submitted it, at
-- its next clock tick at the latest (there are at least 100 a second). A busy machine
-- takes the processor away for longer, so it is enough that one round of three was in time.
computing :: MakeBackend -> Assertion
computing make = withRig make \rig -> do
  worsts <- replicateM 3 do
    links <- replicateM 20 unixPair
    worst <- withRoom 200 \p ->
      onThreadThatComputes
        rig
        (for (zip [0 ..] links) (\(i, l) -> start rig (Receive (near l) (p `plusPtr` (8 * i)) 8)) <* turn rig noWait)
        \receives -> do
          adopt (rigBackend rig)
          latencies <- for (zip links receives) \(l, r) -> do
            before <- Sys.monotonicNow
            put (far l) (BC.pack "now")
            finish rig "receive" r >>= (@?= 3)
            later <- Sys.monotonicNow
            pure (later - before)
          pure (maximum latencies)
    for_ links \l -> mapM_ (release rig) [near l, far l]
    -- The thread that computed is not the one that goes on.
    adopt (rigBackend rig)
    pure (worst :: Int64)
  assertBool ("completions came after " <> show worsts <> " ns") (minimum worsts < 250_000_000)

-- One attempt succeeds while no thread drives the backend, one afterwards, and one is
-- refused afterwards.
connecting :: MakeBackend -> Assertion
connecting make = withRig make \rig ->
  withFullListener' \opened openedAddress -> withFullListener' \later laterAddress -> withFullListener' \shut shutAddress -> do
    callers@[a, b, c] <- replicateM 3 (N.socket N.AF_INET N.Stream 0 >>= toDescriptor)
    attempts <- onThreadThatEnds rig do
      ps <- for (zip callers [openedAddress, laterAddress, shutAddress]) \(d, address) ->
        withSocketAddress address \to size -> start rig (Connect d to size) <* turn rig noWait
      for_ ps \r -> readIORef (pendingResults r) >>= (@?= [])
      pure ps
    accepted <- newIORef []
    let takeOne s = N.accept s >>= \(t, _) -> modifyIORef' accepted (t :)
    -- The connection that filled the queue, and then the one of the attempt, which
    -- the kernel makes by itself.
    takeOne opened
    takeOne opened
    adopt (rigBackend rig)
    case attempts of
      [inTheGap, afterwards, refused] -> do
        finish rig "connect" inTheGap >>= (@?= 0)
        _ <- turn rig noWait
        readIORef (pendingResults afterwards) >>= (@?= [])
        takeOne later
        N.close shut
        finish rig "connect" afterwards >>= (@?= 0)
        takeOne later
        finish rig "connect" refused >>= (@?= code eCONNREFUSED)
      _ -> assertFailure "three attempts"
    for_ [a, b] \d -> put d (BC.pack "hello")
    readIORef accepted >>= mapM_ N.close
    mapM_ (release rig) [a, b, c]

waking :: MakeBackend -> Assertion
waking make = withRig make \rig -> do
  for_ [1 .. 20 :: Int] \_ -> do
    onThreadThatEnds rig (void (turn rig 1))
    adopt (rigBackend rig)
    woken rig
  onThreadThatComputes rig (void (turn rig 1)) \_ -> do
    adopt (rigBackend rig)
    replicateM_ 20 (woken rig)
  adopt (rigBackend rig)

-- | A blocking poll ends because another thread wakes it.
woken :: Rig -> IO ()
woken rig = do
  done <- newEmptyMVar
  _ <- forkIO (wake (rigBackend rig) >> putMVar done ())
  _ <- turn rig forever
  takeMVar done

twice :: MakeBackend -> Assertion
twice make = withRig make \rig -> withLink rig unixPair \l -> withRoom 8 \p -> do
  r <- start rig (Receive (near l) p 8)
  for_ [noWait, 1] \limit -> adopt (rigBackend rig) >> turn rig limit
  replicateM_ 1_000 (adopt (rigBackend rig))
  readIORef (pendingResults r) >>= (@?= [])
  put (far l) (BC.pack "abc")
  finish rig "receive" r >>= (@?= 3)
  woken rig

-- The backend goes through the hands of many threads, half of which live on until
-- the end; meanwhile another thread writes and connects.
relay :: MakeBackend -> Assertion
relay make = withRig make \rig -> withListener \listener address -> withRoom 800 \p -> do
  door <- N.withFdSocket listener newDescriptor
  links <- replicateM 10 unixPair
  written <- newIORef (0 :: Int)
  made <- newIORef (0 :: Int)
  received <- newIORef (0 :: Int)
  taken <- newIORef (0 :: Int)
  running <- newIORef []
  stopped <- newEmptyMVar
  stop <- newEmptyMVar
  let feeder = do
        for_ links \l -> put (far l) (BC.pack "abc") >> modifyIORef' written (+ 3)
        bracket (N.socket N.AF_INET N.Stream 0) N.close (`N.connect` address)
        modifyIORef' made (+ 1)
        tryReadMVar stop >>= maybe (threadDelay 200 >> feeder) pure
      -- An operation can be answered at once, and then no completion ends the next
      -- turn: what is answered is counted before anything blocks, so that what
      -- remains in the list is pending.
      begin n op = start rig op >>= look n op
      look n op r =
        readIORef (pendingResults r) >>= \case
          [] -> modifyIORef' running ((n, op, r) :)
          [k] | k > 0 -> do
            if n == 0
              then modifyIORef' taken (+ 1) >> void (Sys.close (fromIntegral k))
              else modifyIORef' received (+ k)
            begin n op
          rs -> assertFailure (show op <> " answered " <> show rs)
      -- Count what is over, and begin it again.
      serve = do
        those <- readIORef running
        writeIORef running []
        for_ those \(n, op, r) -> look n op r
      spell = replicateM_ 20 (turn rig 300_000 >> serve)
  begin (0 :: Int) (Accept door nullPtr nullPtr)
  for_ (zip [1 ..] links) \(i, l) -> begin i (Receive (near l) (p `plusPtr` (8 * i)) 4)
  _ <- forkIO (feeder `finally` putMVar stopped ())
  release' <- newEmptyMVar
  stay <- for [1 .. 60 :: Int] \i ->
    if even i
      then Nothing <$ onThreadThatEnds rig spell
      else do
        box <- newEmptyMVar
        gone <- newEmptyMVar
        _ <- forkOS do
          r <- try (adopt (rigBackend rig) >> spell)
          putMVar box r
          readMVar release'
          putMVar gone ()
        takeMVar box >>= either (throwIO @SomeException) pure
        pure (Just gone)
  adopt (rigBackend rig)
  putMVar stop ()
  -- It is stuck in connecting when accepts were lost and the queue is full.
  timeout 60_000_000 (takeMVar stopped) >>= maybe (assertFailure "connections are not taken") pure
  turnUntil rig "every byte and every connection" do
    serve
    same <- (==) <$> readIORef written <*> readIORef received
    all' <- (==) <$> readIORef made <*> readIORef taken
    pure (same && all')
  putMVar release' ()
  for_ stay (mapM_ takeMVar)
  pendingNow <- visit (rigBackend rig) (\_ _ n -> pure (n + 1)) (0 :: Int)
  pendingNow @?= 11
  forget (rigBackend rig) door (pure ())
  for_ links \l -> mapM_ (release rig) [near l, far l]

foreign import ccall safe "weft_test_spin" c_spin :: Ptr CInt -> IO ()

foreign import ccall unsafe "gettid" c_gettid :: IO Int32
