{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- What every backend does, whatever it is made of. The suite takes the function
-- that makes the backend; each that is added to Weft runs it.
module Test.BackendConformance
  ( tests,
    MakeBackend,
  )
where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (bracket, bracket_)
import Control.Monad hiding (forever)
import Data.Bits (shiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as BC
import Data.Foldable (for_)
import Data.IORef
import Data.List (sort)
import Data.Traversable (for)
import Data.Word (Word64)
import Foreign.C.Error
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Marshal.Array (withArray)
import Foreign.Ptr (Ptr, castPtr, nullPtr, plusPtr)
import Foreign.Storable
import Network.Socket qualified as N
import Network.Socket.Address qualified as NA
import System.Posix.Resource
import Test.Rig
import Test.StreamModel qualified as StreamModel
import Test.Tasty
import Test.Tasty.HUnit
import Test.Visit qualified as Visit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor (Descriptor, descriptorNumber, newDescriptor)
import Weft.Internal.Os.Pool (submitPool)
import Weft.Internal.Os.Sys qualified as Sys

-- | The suite for a backend, under its name.
tests :: String -> MakeBackend -> TestTree
tests name make =
  testGroup
    ("backend " <> name)
    [ testGroup "streams" (streams make),
      testGroup "ends of streams" (ends make),
      testGroup "connections" (connections make),
      testGroup "files" (files make),
      testGroup "cancellation" (cancellation make),
      testGroup "waiting" (waiting make),
      StreamModel.tests make,
      Visit.tests make
    ]

-- | A test on a rig.
rigged :: String -> MakeBackend -> (Rig -> IO ()) -> TestTree
rigged name make body = testCase name (withRig make body)

-- | Send bytes, all of them.
sendAll :: (HasCallStack) => Rig -> Descriptor -> ByteString -> IO ()
sendAll rig d bytes = unless (B.null bytes) do
  n <- withBytes bytes \p n -> perform rig (Send d p n)
  assertBool ("send answered " <> show n) (n > 0)
  sendAll rig d (B.drop n bytes)

-- | Write to a link's far end without the backend.
poke' :: (HasCallStack) => Descriptor -> ByteString -> IO ()
poke' d bytes = do
  n <- withBytes bytes (Sys.writeStream (descriptorNumber d))
  n @?= B.length bytes

receiveBytes :: (HasCallStack) => Rig -> Descriptor -> Int -> IO (Either Int ByteString)
receiveBytes rig d size = withRoom size \p -> do
  r <- perform rig (Receive d p size)
  if r < 0 then pure (Left r) else Right <$> contents p r

streams :: MakeBackend -> [TestTree]
streams make =
  [ rigged "what is there is received" make \rig -> withLink rig unixPair \l -> do
      poke' (far l) "hello"
      receiveBytes rig (near l) 100 >>= (@?= Right "hello"),
    rigged "a receive waits for its bytes" make \rig -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l ->
      withRoom 100 \p -> do
        r <- start rig (Receive (near l) p 100)
        replicateM_ 3 (turn rig noWait)
        readIORef (pendingResults r) >>= (@?= [])
        poke' (far l) "hello"
        finish rig "receive" r >>= (@?= 5)
        contents p 5 >>= (@?= "hello"),
    rigged "a send waits for room" make \rig -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l -> do
      let total = 8_000_000
          bytes = BC.replicate total 'x'
      received <- newIORef (0 :: Int)
      withBytes bytes \p _ -> withRoom 100_000 \q -> do
        let sender done
              | done == total = pure ()
              | otherwise = do
                  s <- start rig (Send (near l) p (total - done))
                  -- Make room until the send is done.
                  let pump = do
                        rs <- readIORef (pendingResults s)
                        when (null rs) do
                          r <- start rig (Receive (far l) q 100_000)
                          turnUntil rig "progress" do
                            sent <- readIORef (pendingResults s)
                            came <- readIORef (pendingResults r)
                            pure (not (null sent && null came))
                          -- The send may have been the last: nothing more comes.
                          abandon rig r
                          n <- finish rig "receive" r
                          when (n > 0) $ modifyIORef' received (+ n)
                          pump
                  pump
                  n <- finish rig "send" s
                  assertBool ("send answered " <> show n) (n > 0)
                  sender (done + n)
        sender 0
        let rest = do
              n <- readIORef received
              when (n < total) do
                m <- perform rig (Receive (far l) q 100_000)
                modifyIORef' received (+ m)
                rest
        rest,
    rigged "pipes are read and written" make \rig -> withLink rig pipePair \l -> withRoom 10 \p -> do
      r <- start rig (ReadStream (near l) p 10)
      _ <- turn rig noWait
      n <- withBytes "abc" \q k -> perform rig (WriteStream (far l) q k)
      n @?= 3
      finish rig "read" r >>= (@?= 3)
      contents p 3 >>= (@?= "abc"),
    rigged "a full pipe is written when it has room" make \rig -> withLink rig pipePair \l -> do
      let block = B.replicate 4096 1
          fill = do
            n <- withBytes block (Sys.writeStream (descriptorNumber (far l)))
            when (n > 0) fill
      fill
      withBytes block \q k -> withRoom 65536 \p -> do
        w <- start rig (WriteStream (far l) q k)
        _ <- turn rig noWait
        readIORef (pendingResults w) >>= (@?= [])
        _ <- perform rig (ReadStream (near l) p 65536)
        finish rig "write" w >>= (@?= 4096),
    rigged "datagrams stay apart, and short ones hide none" make \rig -> withLink rig datagramPair \l -> do
      -- Register first: only then is there something that could be lost.
      withRoom 100 \p -> do
        r <- start rig (Receive (near l) p 100)
        _ <- turn rig noWait
        poke' (far l) "one"
        finish rig "datagram" r >>= (@?= 3)
      mapM_ (poke' (far l)) ["two", "three", "four"]
      _ <- turn rig noWait
      for_ ["two", "three", "four"] \expected -> receiveBytes rig (near l) 100 >>= (@?= Right expected),
    rigged "urgent data hides nothing after it" make \rig -> withLink rig tcpPair \l -> do
      withRoom 100 \p -> do
        r <- start rig (Receive (near l) p 100)
        _ <- turn rig noWait
        poke' (far l) "0"
        _ <- finish rig "first byte" r
        pure ()
      poke' (far l) "ab"
      _ <- withBytes "!" \p n -> c_send (descriptorNumber (far l)) (castPtr p) n msgOob
      poke' (far l) "de"
      _ <- turn rig noWait
      let gather got
            | B.length got >= 4 = pure got
            | otherwise =
                receiveBytes rig (near l) 100 >>= \case
                  Right bytes -> gather (got <> bytes)
                  Left r -> assertFailure (show r)
      gather "" >>= (@?= "abde"),
    rigged "messages with several parts" make \rig -> withLink rig unixPair \l ->
      withBytes "hello " \a n -> withBytes "world" \b m -> do
        sent <- withMessage [(castPtr a, n), (castPtr b, m)] (perform rig . SendMessage (near l))
        sent @?= 11
        withRoom 5 \p -> withRoom 20 \q -> do
          got <- withMessage [(castPtr p, 5), (castPtr q, 20)] (perform rig . ReceiveMessage (far l))
          got @?= 11
          (<>) <$> contents p 5 <*> contents q 6 >>= (@?= "hello world"),
    rigged "readiness can be awaited" make \rig -> withLink rig unixPair \l -> do
      perform rig (AwaitWritable (near l)) >>= assertBool "writable" . (>= 0)
      r <- start rig (AwaitReadable (near l))
      _ <- turn rig noWait
      readIORef (pendingResults r) >>= (@?= [])
      poke' (far l) "x"
      finish rig "readable" r >>= assertBool "readable" . (>= 0)
      perform rig (AwaitReadable (near l)) >>= assertBool "still readable" . (>= 0)
      receiveBytes rig (near l) 10 >>= (@?= Right "x"),
    rigged "two that wait are both served" make \rig -> withLink rig unixPair \l ->
      withRoom 1 \p -> withRoom 1 \q -> do
        a <- start rig (Receive (near l) p 1)
        b <- start rig (Receive (near l) q 1)
        _ <- turn rig noWait
        poke' (far l) "xy"
        finish rig "the first" a >>= (@?= 1)
        finish rig "the second" b >>= (@?= 1)
        both <- (<>) <$> contents p 1 <*> contents q 1
        B.sort both @?= "xy",
    rigged "both directions of one socket wait at a time" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      let block = B.replicate 65536 1
          fill = do
            n <- withBytes block (Sys.send (descriptorNumber (near l)))
            when (n > 0) fill
      fill
      withBytes "x" \q n -> do
        r <- start rig (Receive (near l) p 10)
        w <- start rig (Send (near l) q n)
        _ <- turn rig noWait
        poke' (far l) "y"
        finish rig "receive" r >>= (@?= 1)
        readIORef (pendingResults w) >>= (@?= [])
        -- All of it: a Unix socket is writable again when it is mostly empty.
        withRoom 1_000_000 \drain -> do
          let empty = do
                k <- Sys.recv (descriptorNumber (far l)) drain 1_000_000
                when (k > 0) empty
          empty
        finish rig "send" w >>= (@?= 1),
    rigged "two thousand descriptors" make \rig -> do
      links <- replicateM 2_000 unixPair
      withRoom (8 * 2_000) \room -> do
        rs <- for (zip [0 ..] links) \(i, l) -> start rig (Receive (near l) (room `plusPtr` (8 * i)) 8)
        _ <- turn rig noWait
        for_ (zip [0 :: Int ..] links) \(i, l) -> poke' (far l) (BC.pack (show i))
        for_ (zip3 [0 :: Int ..] links rs) \(i, _, r) -> do
          n <- finish rig "receive" r
          contents (room `plusPtr` (8 * i)) n >>= (@?= BC.pack (show i))
      for_ links \l -> mapM_ (release rig) [near l, far l]
  ]

ends :: MakeBackend -> [TestTree]
ends make =
  [ rigged (label <> ", buffer of " <> show size) make \rig ->
      for_ (merges [Write "abc", Write "de", Shut] [Collect, Take, Collect, Take]) \script -> do
        for_ [False, True] \registered -> withLink rig pair \l -> withRoom size \p -> do
          current <- newIORef Nothing
          got <- newIORef ""
          ended <- newIORef False
          let operation = (if label == "pipe" then ReadStream else Receive) (near l) p size
              begin = do
                over <- readIORef ended
                waits <- readIORef current
                when (not over && null waits) do
                  start rig operation >>= writeIORef current . Just
                  settleCurrent
              -- Account for the current read, if it has its result.
              settleCurrent =
                readIORef current >>= mapM_ \r ->
                  readIORef (pendingResults r) >>= \case
                    [] -> pure ()
                    [0] -> writeIORef current Nothing >> writeIORef ended True
                    [n] | n > 0 -> do
                      bytes <- contents p n
                      modifyIORef' got (<> bytes)
                      writeIORef current Nothing
                    rs -> assertFailure (show script <> ": " <> show rs)
          when registered do
            begin
            void (turn rig noWait)
          for_ script \case
            Write bytes -> poke' (far l) bytes
            Shut -> closeNow (far l)
            Collect -> turn rig noWait >> settleCurrent
            Take -> begin
          turnUntil rig (show script <> if registered then ", registered" else "") do
            let advance = do
                  begin
                  settleCurrent
                  over <- readIORef ended
                  waits <- readIORef current
                  if over || not (null waits) then pure over else advance
            advance
          readIORef got >>= assertEqual (show script) "abcde"
    | (label, pair) <- [("unix", unixPair), ("tcp", tcpPair), ("pipe", pipePair)],
      size <- [2, 3, 5, 64]
  ]
    <> [ rigged "half-close leaves the other direction" make \rig -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l -> withRoom 10 \p -> do
           r <- start rig (Receive (near l) p 10)
           _ <- turn rig noWait
           _ <- c_shutdown (descriptorNumber (far l)) 1
           finish rig "end of stream" r >>= (@?= 0)
           sendAll rig (near l) "still here"
           receiveBytes rig (far l) 100 >>= (@?= Right "still here")
           receiveBytes rig (near l) 100 >>= (@?= Right ""),
         rigged "a reset reaches those who wait" make \rig -> withLink rig tcpPair \l -> withRoom 10 \p -> do
           r <- start rig (Receive (near l) p 10)
           _ <- turn rig noWait
           withArray [1, 0 :: CInt] \linger ->
             void $ c_setsockopt (descriptorNumber (far l)) 1 13 (castPtr linger) 8
           closeNow (far l)
           finish rig "reset" r >>= (@?= code eCONNRESET)
           n <- withBytes "x" \q k -> perform rig (Send (near l) q k)
           n @?= code ePIPE,
         rigged "a send to nobody fails and raises no signal" make \rig -> withLink rig unixPair \l -> do
           closeNow (far l)
           n <- withBytes "x" \q k -> perform rig (Send (near l) q k)
           n @?= code ePIPE,
         rigged "a write to a pipe without readers fails" make \rig -> withLink rig pipePair \l -> do
           closeNow (near l)
           n <- withBytes "x" \q k -> perform rig (WriteStream (far l) q k)
           n @?= code ePIPE
       ]

-- | A step of the script of an end of stream.
data Step
  = -- | The other side writes.
    Write ByteString
  | -- | The other side closes.
    Shut
  | -- | Events are collected.
    Collect
  | -- | A read begins, unless one waits.
    Take
  deriving stock (Show)

-- | All interleavings of two scripts.
merges :: [a] -> [a] -> [[a]]
merges [] ys = [ys]
merges xs [] = [xs]
merges (x : xs) (y : ys) = map (x :) (merges xs (y : ys)) <> map (y :) (merges (x : xs) ys)

connections :: MakeBackend -> [TestTree]
connections make =
  [ rigged "connect and accept" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      a <- start rig (Accept door nullPtr nullPtr)
      _ <- turn rig noWait
      c <- N.socket N.AF_INET N.Stream 0 >>= toDescriptor
      connected <- withAddress address \p n -> perform rig (Connect c p n)
      connected @?= 0
      number <- finish rig "accept" a
      assertBool ("accept answered " <> show number) (number >= 0)
      s <- newDescriptor (fromIntegral number)
      sendAll rig c "hello"
      receiveBytes rig s 10 >>= (@?= Right "hello")
      mapM_ (release rig) [c, s]
      forgotten rig door,
    rigged "a refused connection says so" make \rig -> do
      address <- withListener \_ address -> pure address
      c <- N.socket N.AF_INET N.Stream 0 >>= toDescriptor
      connected <- withAddress address \p n -> perform rig (Connect c p n)
      connected @?= code eCONNREFUSED
      release rig c,
    rigged "many connections at once" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      accepts <- replicateM 3 (start rig (Accept door nullPtr nullPtr))
      clients <- replicateM 20 (N.socket N.AF_INET N.Stream 0 >>= toDescriptor)
      withAddress address \p n -> do
        cs <- for clients \c -> start rig (Connect c p n)
        for_ cs (finish rig "connect" >=> (@?= 0))
      first <- for accepts (finish rig "accept")
      rest <- replicateM 17 (perform rig (Accept door nullPtr nullPtr))
      let numbers = sort (first <> rest)
      assertBool (show numbers) (all (>= 0) numbers && and (zipWith (/=) numbers (drop 1 numbers)))
      for_ numbers (Sys.close . fromIntegral)
      mapM_ (release rig) clients
      forgotten rig door,
    rigged "without a free descriptor accept fails, and works again" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      clients <- replicateM 2 (N.socket N.AF_INET N.Stream 0)
      N.connect (head' clients) address
      withFewDescriptors do
        r <- perform rig (Accept door nullPtr nullPtr)
        r @?= code eMFILE
      number <- perform rig (Accept door nullPtr nullPtr)
      assertBool ("accept answered " <> show number) (number >= 0)
      -- And it waits as before.
      a <- start rig (Accept door nullPtr nullPtr)
      _ <- turn rig noWait
      N.connect (last clients) address
      another <- finish rig "accept" a
      assertBool ("accept answered " <> show another) (another >= 0)
      mapM_ (Sys.close . fromIntegral) [number, another]
      mapM_ N.close clients
      forgotten rig door,
    rigged "without a free descriptor a waiting accept fails, and works again" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      client <- N.socket N.AF_INET N.Stream 0
      r <- withFewDescriptors do
        -- io_uring looks at the limit when the accept is submitted.
        a <- start rig (Accept door nullPtr nullPtr)
        _ <- turn rig noWait
        N.connect client address
        finish rig "accept" a
      r @?= code eMFILE
      number <- perform rig (Accept door nullPtr nullPtr)
      assertBool ("accept answered " <> show number) (number >= 0)
      _ <- Sys.close (fromIntegral number)
      N.close client
      forgotten rig door,
    rigged "operations on what is not a stream fail" make \rig -> withListener \listener _ -> do
      door <- listenerOf listener
      receiveBytes rig door 10 >>= (@?= Left (code eNOTCONN))
      forgotten rig door
  ]
  where
    head' = foldr const (error "empty")

-- The listener's number stays its own: it is only forgotten here.
listenerOf :: N.Socket -> IO Descriptor
listenerOf s = N.withFdSocket s newDescriptor

forgotten :: (HasCallStack) => Rig -> Descriptor -> IO ()
forgotten rig d = do
  gone <- newIORef False
  forget (rigBackend rig) d (writeIORef gone True)
  turnUntil rig "the end of forget" (readIORef gone)

withAddress :: N.SockAddr -> (Ptr () -> Int -> IO a) -> IO a
withAddress address use = allocaBytes size \p -> do
  NA.pokeSocketAddress p address
  use (castPtr p) size
  where
    size = NA.sizeOfSocketAddress address

-- | Lower the limit on descriptors to what is open.
withFewDescriptors :: IO a -> IO a
withFewDescriptors action = do
  limits <- getResourceLimit ResourceOpenFiles
  next <- openNull
  let full = limits {softLimit = ResourceLimit (fromIntegral next)}
  _ <- Sys.close (fromIntegral next)
  bracket_ (setResourceLimit ResourceOpenFiles full) (setResourceLimit ResourceOpenFiles limits) action

-- | The number that is opened next.
openNull :: IO Int
openNull = withPath "/dev/null" \p -> Sys.openAt atCwd p 0 0 0

files :: MakeBackend -> [TestTree]
files make =
  [ rigged "open, write, read, sync" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
      n <- withBytes "hello world" \p n -> perform rig (WriteAt d p n 0)
      n @?= 11
      perform rig (Sync d True) >>= (@?= 0)
      perform rig (Sync d False) >>= (@?= 0)
      got <- withRoom 100 \p -> perform rig (ReadAt d p 100 6) >>= contents p
      got @?= "world"
      past <- withRoom 100 \p -> perform rig (ReadAt d p 100 11)
      past @?= 0
      release rig d
      B.readFile (dir <> "/a") >>= (@?= "hello world"),
    rigged "append at the file's own position" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagWrite + flagCreate + flagAppend) 0o600
      for_ ["one", "two", "three"] \bytes -> withBytes bytes \p n -> perform rig (WriteAt d p n (-1)) >>= (@?= n)
      release rig d
      B.readFile (dir <> "/a") >>= (@?= "onetwothree"),
    rigged "failures have their errno" make \rig -> withScratch \dir -> do
      missing <- withPath (dir <> "/none") \p -> perform rig (OpenAt atCwd p 0 0 0)
      missing @?= code eNOENT
      d <- openAt rig dir 0 0
      r <- withRoom 10 \p -> perform rig (ReadAt d p 10 0)
      r @?= code eISDIR
      release rig d
      nothing <- withRoom 256 \buffer -> withPath (dir <> "/none") \p -> perform rig (StatAt atCwd p 0 0x7ff (castPtr buffer))
      nothing @?= code eNOENT,
    rigged "stat tells the size" make \rig -> withScratch \dir -> do
      B.writeFile (dir <> "/a") (B.replicate 1234 0)
      size <- withRoom 256 \buffer -> do
        r <- withPath (dir <> "/a") \p -> perform rig (StatAt atCwd p 0 0x7ff (castPtr buffer))
        r @?= 0
        peekByteOff buffer 40
      size @?= (1234 :: Int),
    rigged "a scoped open does not leave its directory" make \rig -> withScratch \dir -> do
      d <- openAt rig dir 0 0
      B.writeFile (dir <> "/a") "x"
      inside <- withPath "a" \p -> perform rig (OpenAt (descriptorNumber d) p 0 0 resolveBeneath)
      outside <- withPath "../../etc/passwd" \p -> perform rig (OpenAt (descriptorNumber d) p 0 0 resolveBeneath)
      outside @?= code eXDEV
      assertBool ("open answered " <> show inside) (inside >= 0)
      _ <- Sys.close (fromIntegral inside)
      release rig d,
    rigged "a file is sent whole" make \rig -> withScratch \dir -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l -> do
      let total = 3_000_000
          bytes = B.pack (take total (cycle [0 .. 250]))
      B.writeFile (dir <> "/a") bytes
      d <- openAt rig (dir <> "/a") 0 0
      evict d
      got <- newIORef []
      withRoom 200_000 \p -> do
        let receive = do
              n <- perform rig (Receive (far l) p 200_000)
              piece <- contents p n
              modifyIORef' got (piece :)
              pure n
            loop offset
              | offset >= total = pure ()
              | otherwise = do
                  s <- start rig (SendFile (near l) d (fromIntegral offset) (total - offset))
                  let pump = do
                        rs <- readIORef (pendingResults s)
                        when (null rs) do
                          r <- start rig (Receive (far l) p 200_000)
                          turnUntil rig "progress" do
                            sent <- readIORef (pendingResults s)
                            came <- readIORef (pendingResults r)
                            pure (not (null sent && null came))
                          -- What was not received is received by the next.
                          abandon rig r
                          n <- finish rig "receive" r
                          when (n > 0) $ contents p n >>= \piece -> modifyIORef' got (piece :)
                          pump
                  pump
                  n <- finish rig "send file" s
                  assertBool ("send file answered " <> show n) (n > 0)
                  loop (offset + n)
        loop 0
        let rest = do
              have <- sum . map B.length <$> readIORef got
              when (have < total) $ receive >> rest
        rest
      whole <- B.concat . reverse <$> readIORef got
      assertBool "what is sent is what was written" (whole == bytes)
      end <- perform rig (SendFile (near l) d (fromIntegral total) 100)
      end @?= 0
      release rig d
  ]

openAt :: (HasCallStack) => Rig -> FilePath -> Int -> Int -> IO Descriptor
openAt rig path flags mode = do
  r <- withPath path \p -> perform rig (OpenAt atCwd p flags mode 0)
  assertBool ("open answered " <> show r) (r >= 0)
  newDescriptor (fromIntegral r)

withPath :: FilePath -> (Ptr () -> IO a) -> IO a
withPath path use = B.useAsCString (BC.pack path) (use . castPtr)

-- | Drop a file's pages from memory, if the kernel is so kind.
evict :: Descriptor -> IO ()
evict d = do
  _ <- Sys.sync (descriptorNumber d) 0
  void $ c_fadvise (descriptorNumber d) 0 0 4

cancellation :: MakeBackend -> [TestTree]
cancellation make =
  [ rigged "a cancelled operation completes once, not inside cancel" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      r <- start rig (Receive (near l) p 10)
      abandon rig r
      abandon rig r
      readIORef (pendingResults r) >>= (@?= [])
      finish rig "receive" r >>= (@?= Sys.canceled)
      abandon rig r
      _ <- turn rig noWait
      poke' (far l) "x"
      receiveBytes rig (near l) 10 >>= (@?= Right "x")
      readIORef (pendingResults r) >>= (@?= [Sys.canceled]),
    rigged "no byte is lost to a race" make \rig -> withLink rig unixPair \l -> withRoom 64 \p -> do
      written <- newIORef 0
      read' <- newIORef 0
      let step gen i = when (i < (3_000 :: Int)) do
            let (order, g1) = randomR (0, 5 :: Int) gen
                (size, g2) = randomR (1, 20 :: Int) g1
            r <- start rig (Receive (near l) p 64)
            let write = poke' (far l) (B.replicate size 7) >> modifyIORef' written (+ size)
            case order of
              0 -> write
              1 -> write >> abandon rig r
              2 -> abandon rig r >> write
              3 -> write >> turn rig noWait >> abandon rig r
              4 -> abandon rig r >> turn rig noWait >> write
              _ -> abandon rig r
            n <- finish rig "receive" r
            if n > 0
              then modifyIORef' read' (+ n)
              else n @?= Sys.canceled
            step g2 (i + 1)
      step 42 0
      closeNow (far l)
      let drain = do
            n <- perform rig (Receive (near l) p 64)
            when (n > 0) $ modifyIORef' read' (+ n) >> drain
      drain
      a <- readIORef written
      b <- readIORef read'
      (a :: Int) @?= (b :: Int),
    rigged "no connection is lost to a race" make \rig -> withListener \listener address -> do
      door <- listenerOf listener
      made <- newIORef (0 :: Int)
      taken <- newIORef (0 :: Int)
      let connectOne = do
            s <- N.socket N.AF_INET N.Stream 0
            N.connect s address
            N.close s
            modifyIORef' made (+ 1)
          count n
            | n >= 0 = modifyIORef' taken (+ 1) >> void (Sys.close (fromIntegral n))
            | otherwise = n @?= Sys.canceled
          step gen i = when (i < (400 :: Int)) do
            let (order, g1) = randomR (0, 3 :: Int) gen
            r <- start rig (Accept door nullPtr nullPtr)
            case order of
              0 -> connectOne
              1 -> connectOne >> abandon rig r
              2 -> abandon rig r >> connectOne
              _ -> abandon rig r
            finish rig "accept" r >>= count
            step g1 (i + 1)
      step 7 0
      let rest = do
            enough <- (<=) <$> readIORef made <*> readIORef taken
            unless enough $ perform rig (Accept door nullPtr nullPtr) >>= count >> rest
      rest
      (,) <$> readIORef made <*> readIORef taken >>= uncurry (@?=)
      forgotten rig door,
    rigged "a cancelled file operation completes once" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
      withBytes "x" \q n -> for_ [1 .. 200 :: Int] \i -> do
        w <- start rig (WriteAt d q n 0)
        when (even i) $ void (turn rig noWait)
        abandon rig w
        r <- finish rig "write" w
        assertBool (show r) (r == 1 || r == Sys.canceled)
      release rig d,
    rigged "forget ends what waits, then runs its action" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      order <- newIORef []
      let note x = modifyIORef' order (x :)
      _ <- submit (rigBackend rig) (Receive (near l) p 10) (quietly (note . Just))
      _ <- turn rig noWait
      forget (rigBackend rig) (near l) (note Nothing)
      turnUntil rig "both" ((== 2) . length <$> readIORef order)
      readIORef order >>= (@?= [Nothing, Just Sys.canceled]),
    rigged "a file is not closed under the operation on it" make \rig -> withScratch \dir -> do
      d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
      results <- newIORef []
      isClosed <- newIORef False
      withBytes (B.replicate 100_000 1) \p n -> do
        for_ [0 .. 49 :: Int] \i ->
          submit (rigBackend rig) (WriteAt d p n (fromIntegral (i * n))) . quietly $ \r -> do
            early <- readIORef isClosed
            assertBool "completed after the close" (not early)
            modifyIORef' results (r :)
        forget (rigBackend rig) d (closeNow d >> writeIORef isClosed True)
        turnUntil rig "the close" (readIORef isClosed)
        rs <- readIORef results
        length rs @?= 50
        assertBool (show rs) (all (\r -> r == n || r == Sys.canceled) rs),
    rigged "a reused number starts afresh" make \rig -> withRoom 10 \p -> do
      -- Over and over: the kernel gives the same numbers again.
      seen <- newIORef []
      for_ [1 .. 50 :: Int] \i -> do
        l <- unixPair
        modifyIORef' seen (descriptorNumber (near l) :)
        r <- start rig (Receive (near l) p 10)
        _ <- turn rig noWait
        -- Some go with an event on the way.
        when (even i) $ poke' (far l) "old"
        release rig (near l)
        n <- finish rig "receive" r
        assertBool (show n) (n == Sys.canceled || n == 3)
        next <- unixPair
        s <- start rig (Receive (near next) p 10)
        abandon rig r
        _ <- turn rig noWait
        readIORef (pendingResults s) >>= (@?= [])
        poke' (far next) "new"
        finish rig "receive" s >>= (@?= 3)
        contents p 3 >>= (@?= "new")
        mapM_ (release rig) [far l, near next, far next]
      numbers <- readIORef seen
      assertBool "numbers were reused" (length (filter (== foldr const 0 numbers) numbers) > 1),
    testCase "shutdown completes what is pending, once" do
      results <- newIORef []
      withRoom 10 \p -> do
        l <- unixPair
        withScratch \dir -> do
          withRig make \rig -> do
            d <- openAt rig (dir <> "/a") (flagReadWrite + flagCreate) 0o600
            let note r = modifyIORef' results (r :)
            _ <- submit (rigBackend rig) (Receive (near l) p 10) (quietly note)
            _ <- submit (rigBackend rig) (AwaitReadable (near l)) (quietly note)
            for_ [1 .. 20 :: Int] \_ -> submit (rigBackend rig) (WriteAt d p 10 0) (quietly note)
          rs <- readIORef results
          length rs @?= 22
          assertBool (show rs) (all (`elem` [10, Sys.canceled]) rs)
        mapM_ closeNow [near l, far l]
  ]

waiting :: MakeBackend -> [TestTree]
waiting make =
  [ rigged "a time limit is kept, never early" make \rig -> do
      -- The first poll may have something of its own to see to.
      _ <- turn rig noWait
      for_ [100_000, 1_000_000, 5_500_000] \limit -> do
        before <- Sys.monotonicNow
        n <- turn rig limit
        later <- Sys.monotonicNow
        n @?= 0
        assertBool ("early: " <> show (later - before)) (later - before >= limit),
    rigged "another thread wakes a blocked poll" make \rig -> for_ [1 .. 100 :: Int] \_ -> do
      done <- newEmptyMVar
      _ <- forkIO (wake (rigBackend rig) >> putMVar done ())
      _ <- turn rig forever
      takeMVar done,
    rigged "a wake before the poll counts" make \rig -> do
      wake (rigBackend rig)
      _ <- turn rig noWait
      n <- turn rig forever
      n @?= 0,
    rigged "many wakes are one" make \rig -> do
      _ <- turn rig noWait
      replicateM_ 1_000 (wake (rigBackend rig))
      _ <- turn rig forever
      before <- Sys.monotonicNow
      _ <- turn rig 10_000_000
      later <- Sys.monotonicNow
      assertBool ("woken again after " <> show (later - before)) (later - before >= 10_000_000),
    rigged "no wake is lost to a race" make \rig -> do
      -- The inbox counts up to its end only if each post is seen.
      counter <- newIORef (0 :: Int)
      let post action = do
            atomicModifyIORef' (rigInbox rig) \xs -> (action : xs, ())
            wake (rigBackend rig)
      bracket (replicateM 4 newEmptyMVar) (mapM_ takeMVar) \dones -> do
        for_ dones \done -> forkIO do
          replicateM_ 2_000 (post (modifyIORef' counter (+ 1)))
          putMVar done ()
        turnUntil rig "every post" ((== 8_000) <$> readIORef counter),
    rigged "the pool's answers wake the worker" make \rig -> do
      answered <- newIORef False
      _ <- submitPool (rigPool rig) do
        atomicModifyIORef' (rigInbox rig) \xs -> (writeIORef answered True : xs, ())
        wake (rigBackend rig)
      turnUntil rig "the answer" (readIORef answered)
  ]

-- | The next number of a fixed sequence, within bounds, and the state after it.
randomR :: (Int, Int) -> Word64 -> (Int, Word64)
randomR (low, high) state = (low + fromIntegral (next `shiftR` 33) `mod` (high - low + 1), next)
  where
    next = state * 6364136223846793005 + 1442695040888963407

-- | A @struct msghdr@ for these pieces of memory.
withMessage :: [(Ptr (), Int)] -> (Ptr () -> IO a) -> IO a
withMessage pieces use = allocaBytes (16 * length pieces) \vector -> allocaBytes 56 \header -> do
  for_ (zip [0 ..] pieces) \(i, (p, n)) -> do
    pokeByteOff vector (16 * i) p
    pokeByteOff vector (16 * i + 8) n
  for_ [0, 8 .. 48] \offset -> pokeByteOff header offset (0 :: Int)
  pokeByteOff header 16 vector
  pokeByteOff header 24 (length pieces)
  use header

atCwd :: CInt
atCwd = -100

flagWrite, flagReadWrite, flagCreate, flagAppend, resolveBeneath :: Int
flagWrite = 1
flagReadWrite = 2
flagCreate = 0o100
flagAppend = 0o2000
resolveBeneath = 8

msgOob :: CInt
msgOob = 1

foreign import ccall unsafe "send" c_send :: CInt -> Ptr () -> Int -> CInt -> IO Int

foreign import ccall unsafe "shutdown" c_shutdown :: CInt -> CInt -> IO CInt

foreign import ccall unsafe "setsockopt" c_setsockopt :: CInt -> CInt -> CInt -> Ptr () -> CInt -> IO CInt

foreign import ccall safe "posix_fadvise" c_fadvise :: CInt -> Int -> Int -> CInt -> IO CInt
