-- |
-- Description : Linux's TCP beside ours
--
-- A stack on a TUN device, and Linux at its other end: bytes both ways, whichever end connects, also over
-- a device that loses, duplicates, reorders and corrupts packets in both directions.
--
-- The part that needs a device runs in a process and a network namespace of its own, so that it
-- changes nothing for others. Where that is not possible it is named and skipped.
module InteropTest (tests, part) where

import Control.Concurrent.MVar (newEmptyMVar, putMVar, takeMVar)
import Control.Monad (forM, forM_, replicateM, void, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Foreign.C.Error (Errno (..), eBUSY, eCONNREFUSED, eNODEV)
import GHC.IO.Exception (IOException (..))
import Network.Socket (tupleToHostAddress)
import Support
import System.Directory (doesPathExist)
import System.Environment (getExecutablePath)
import System.Exit (ExitCode (..))
import System.Process
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Internal.Core.SystemCall (Socket (socketDescriptor))
import Weft.Internal.Os.Descriptor (livesOn)
import Weft.Scope
import Weft.Socket
import Weft.Tcp.Device
import Weft.Tcp.Device.Interface
import Weft.Tcp.Device.Tun
import Weft.Tcp.Neighbours (Attachment (..))
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Test.Loopback (toEnd)
import Weft.Test.Skipping (skipped)
import Weft.Timeout (timeout)

-- | Datagrams of many sizes there and back, one by one; then some to a port where nobody listens, of which the client
-- learns. The server's run, the client's, and the server's address.
conversation :: Weft.Settings -> Weft.Settings -> SockAddr -> IO ()
conversation serverRun clientRun address = do
  (answers, nobody) <- twoRuns serverRun clientRun server client
  answers @?= map (B.reverse . question) sizes
  either ioe_errno (\_ -> Nothing) nobody @?= Just unheard
  where
    Errno unheard = eCONNREFUSED
    sizes = [0, 1, 2, 3, 1000, 1400]
    question n = content n (n + 1)
    server :: IO () -> Thread ()
    server ready = withSocket (openSocket (familyOf address) Datagram) $ \s -> do
      bind s address
      liftIO ready
      forM_ sizes $ \_ -> receiveFrom s 2000 >>= \(bytes, from) -> sendTo s (B.reverse bytes) from
    client :: Thread () -> Thread ([ByteString], Either IOError ByteString)
    client ready = do
      ready
      nobody <- withSocket (openSocket (familyOf address) Datagram) $ \s -> do
        connect s (nextPort address)
        void (send s (B.singleton 7))
        try (receive s 10)
      answers <- withSocket (openSocket (familyOf address) Datagram) $ \s -> do
        connect s address
        forM sizes (\n -> send s (question n) >> receive s 2000)
      pure (answers, nobody)
    familyOf = \case
      SockAddrInet6 {} -> AF_INET6
      _ -> AF_INET
    nextPort = \case
      SockAddrInet port host -> SockAddrInet (port + 1) host
      SockAddrInet6 port flow host scope -> SockAddrInet6 (port + 1) flow host scope
      other -> other

-- | The given number of connections at once, to a server that sends back what it gets, once it is
-- complete. Threads are on all workers of their run, which need not be those of their connections; of these each of two
-- workers of a stack has some. The server's run, the client's, and the server's address.
crowd :: Weft.Settings -> Weft.Settings -> HostName -> Int -> IO ()
crowd serverRun clientRun host count = do
  places <- newIORef []
  let lives s = liftIO (atomicModifyIORef' places (\ps -> (livesOn 2 (socketDescriptor s) : ps, ())))
      onAll scope act = do
        workers <- workerCount
        forM [1 .. count] $ \i -> act i >>= forkInWith scope defaultForkOptions {forkWorker = Just (i `mod` workers)}
      server :: IO () -> Thread ()
      server ready = withSocket (listenTcp (Just host) "80" 256) $ \l -> do
        liftIO ready
        void . withScope $ \scope -> onAll scope $ \_ -> do
          (s, _) <- accept l
          pure (withSocket (pure s) (\_ -> lives s >> toEnd s >>= sendAll s))
      client :: Thread () -> Thread [ByteString]
      client ready = do
        ready
        withScope $ \scope -> do
          asking <- onAll scope $ \i -> pure . withSocket (connectTcp (seconds 30) host "80") $ \s -> do
            lives s
            sendAll s (question i) >> shutdown s ShutdownSend
            toEnd s
          mapM awaitChild asking
      question i = content (100 * i) i
  answers <- twoRuns serverRun clientRun server client
  [(i, B.length a) | (i, a) <- zip [1 ..] answers, a /= question i] @?= []
  there <- readIORef places
  assertBool (show there) (all (`elem` there) [Just 0, Just 1])

-- | The tests, each a process in a namespace; or one that says why there are none.
tests :: IO TestTree
tests = do
  device <- doesPathExist "/dev/net/tun"
  namespace <- try (readProcessWithExitCode "unshare" ["-rn", "true"] "")
  pure $ case namespace of
    _ | not device -> without "there is no /dev/net/tun"
    Left (e :: IOException) -> without ("unshare: " <> show e)
    Right (ExitFailure _, _, e) -> without (takeWhile (/= '\n') e)
    Right (ExitSuccess, _, _) -> testGroup "Linux over TUN, and over an interface" [testCase name (alone name) | (name, _) <- parts]
  where
    without why = testCase "Linux over TUN" (skipped why)
    alone name = do
      self <- getExecutablePath
      (status, out, err) <- readProcessWithExitCode "unshare" ["-rn", self, partArgument, name] ""
      assertEqual (out <> err) ExitSuccess status

-- | The part of a process that was started with these arguments.
part :: [String] -> Maybe (IO ())
part = \case
  [first, name] | first == partArgument -> lookup name parts
  _ -> Nothing

partArgument :: String
partArgument = "--interop-part"

parts :: [(String, IO ())]
parts =
  [ ("Linux connects, megabytes both ways", exchange (own tun) linux ownName 4000000),
    ("we connect, megabytes both ways", withLinux (\name -> exchange linux (own tun) name 4000000)),
    ("megabytes both ways, without offload", exchange (own plain) linux ownName 1000000),
    ("Linux connects over a bad link", exchange (own bad) linux ownName 300000),
    ("we connect over a bad link", withLinux (\name -> exchange linux (own bad) name 300000)),
    ("short connections from Linux", shortConnections (own tun) linux ownName 200),
    ("many connections from Linux, two workers", crowd (twice (own tun)) linux ownName 200),
    ("many connections to Linux, two workers", withLinux (\name -> crowd linux (twice (own tun)) name 200)),
    ("many connections from Linux, two workers and one queue", callCommand "ip tuntap add weft0 mode tun" >> crowd (twice (own tun)) linux ownName 200),
    ("many connections over a bad link, two workers", crowd (twice (own bad)) linux ownName 20),
    ("two workers lose the device", deleted 2),
    ("a device of another program", another tun),
    ("the device is deleted", deleted 1),
    ("datagrams from Linux", conversation (own tun) linux (SockAddrInet 53 (tupleToHostAddress (10, 9, 0, 2)))),
    ("datagrams to Linux", withLinux (\_ -> conversation linux (own tun) (SockAddrInet 53 (tupleToHostAddress (10, 9, 0, 1))))),
    ("datagrams over IPv6", withLinux (\_ -> do callCommand "ip -6 addr add fd09::1/64 dev weft0 nodad"; overSix)),
    ("megabytes both ways over IPv6", exchange (ownSettings tunSix (six 2)) linux "fd09::2" 1000000),
    ("an interface: an address of each version", paired (twofold (openInterface "weft0" [four, Attachment (six 2) 64 Nothing]))),
    ("short connections to Linux", withLinux (\name -> shortConnections linux (own tun) name 200)),
    ("an interface: Linux connects, megabytes both ways", paired (exchange (own interface) linux ownName 4000000)),
    ("an interface: we connect, megabytes both ways", paired (exchange linux (own interface) "10.9.0.1" 4000000)),
    ("an interface: without offload at Linux's end", paired (callCommand "ip link set weft1 gso_max_segs 1" >> exchange (own interface) linux ownName 1000000)),
    ("an interface: short connections from Linux", paired (shortConnections (own interface) linux ownName 200)),
    ("an interface: many connections from Linux, two workers", paired (crowd (twice (own interface)) linux ownName 200)),
    ("an interface: over IPv6, both ways", paired (exchange (ownSettings interfaceSix (six 2)) linux "fd09::2" 1000000 >> exchange linux (ownSettings interfaceSix (six 2)) "fd09::1" 1000000)),
    ("an interface: through a router, after which there is another network", paired throughRouter),
    ("an interface: it goes down and comes up, and is deleted", paired goesAndComes),
    ("an interface: its hardware address changes", paired renames),
    ("an interface: its hardware address changes, and then the other host speaks", paired renamesInSilence),
    ("an interface: the other host's hardware address changes", paired otherRenames),
    ("an interface: the address is another program's", paired (another interface)),
    ("an interface that is of no use", refused)
  ]
  where
    linux = defaultSettings {settingWorkers = Just 1}
    own device = ownSettings device (Address4 0x0a090002)
    ownName = "10.9.0.2"
    six = Address6 0xfd09000000000000
    overSix = do
      let ours = ownSettingsWith (\s -> s {tcpAddresses = [six 2]}) tun (Address4 0x0a090002)
      conversation ours linux (toSockAddr AF_INET6 (six 2) 53)
      conversation linux ours (toSockAddr AF_INET6 (six 1) 53)
    -- It would get a part of the packets, or reset the other's connections.
    another open = do
      device <- open
      second <- try open
      deviceClose device
      either ioe_errno (const Nothing) second @?= Just busy
      open >>= deviceClose
    busy = let Errno e = eBUSY in e
    twice settings = settings {settingWorkers = Just 2}
    -- A thread that waits is told, and so are later calls.
    deleted = deletedOn tun
    deletedOn device workers = do
      outcomes <- runWith (own device) {settingReport = \_ -> pure (), settingWorkers = Just workers} . withSocket (listenTcp (Just ownName) "80" 16) $ \l -> do
        accepting <- beside (try (void (accept l)))
        blocking (callCommand "ip link del weft0")
        first <- accepting
        (first :) <$> sequence [try (void (accept l)), try (connectTcp (seconds 30) "10.9.0.1" "80" >>= closeSocket)]
      map (either ioe_errno (\() -> Nothing)) outcomes @?= replicate 3 (Just gone)
    gone = let Errno e = eNODEV in e
    tun = openTun "weft0" (Address4 0x0a090002) 24
    -- Linux's end gets its address, fd09::1, by this alone.
    tunSix = openTun "weft0" (six 2) 64
    interface = openInterface "weft0" [four]
    interfaceSix = openInterface "weft0" [Attachment (six 2) 64 Nothing]
    four = Attachment (Address4 0x0a090002) 24 Nothing
    -- One address of each version, on one device.
    twofold device = do
      let both = ownSettingsWith (\s -> s {tcpAddresses = [Address4 0x0a090002, six 2]}) device (Address4 0x0a090002)
      forM_ [ownName, "fd09::2"] $ \name -> exchange both linux name 100000
      forM_ ["10.9.0.1", "fd09::1"] $ \name -> exchange linux both name 100000
    -- One end is the stack's, and Linux has an address at the other.
    paired act = do
      callCommand "ip link add weft0 type veth peer name weft1 && ip addr add 10.9.0.1/24 dev weft1 && ip -6 addr add fd09::1/64 dev weft1 nodad && ip link set weft0 up && ip link set weft1 up"
      act
    throughRouter = do
      callCommand "ip link set lo up && ip addr add 10.77.0.1/32 dev lo"
      exchange linux (own (openInterface "weft0" [four {attachmentRouter = Just (Address4 0x0a090001)}])) "10.77.0.1" 100000
    goesAndComes = do
      exchange (own interface) linux ownName 1000
      device <- interface
      callCommand "ip link set weft0 down"
      deviceRead device >>= (@?= [])
      callCommand "ip link set weft0 up"
      deviceClose device
      exchange (own interface) linux ownName 1000
      deletedOn interface 1
    -- Linux learns the new one, or its acknowledgements are lost.
    renames = do
      got <- twoRuns (own interface) linux server client
      got @?= [word "hello", word "again"]
    word = B.pack . map (fromIntegral . fromEnum)
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just ownName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        sendAll s (word "hello")
        void (receive s 10)
        blocking (callCommand "ip link set weft0 address 02:00:00:00:77:77")
        sendAll s (word "again")
        void (receive s 10)
    client :: Thread () -> Thread [ByteString]
    client ready = do
      ready
      withSocket (connectTcp (seconds 30) ownName "80") $ \s -> replicateM 2 (receive s 10 <* sendAll s (word "x"))
    -- Linux announces it, and is found again long before what is known of it is old.
    otherRenames = do
      writeFile "/proc/sys/net/ipv4/conf/weft1/arp_notify" "1"
      got <- twoRuns (own interface) linux speaking $ \ready -> do
        ready
        withSocket (connectTcp (seconds 30) ownName "80") (timeout (seconds 15) . toEnd)
      got @?= Just (word "helloagain")
    speaking :: IO () -> Thread ()
    speaking ready = withSocket (listenTcp (Just ownName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        sendAll s (word "hello")
        blocking (callCommand "ip link set weft1 address 02:00:00:00:77:78")
        sendAll s (word "again")
    -- What comes for the old one makes the stack look, or a server that only waits would be deaf.
    renamesInSilence = do
      renamed <- newEmptyMVar
      got <- twoRuns (own interface) linux (deaf (putMVar renamed ())) $ \ready -> do
        ready
        withSocket (connectTcp (seconds 30) ownName "80") $ \s -> do
          blocking (takeMVar renamed)
          sendAll s (word "hello")
          timeout (seconds 5) (receive s 10)
      got @?= Just (word "hello")
    deaf :: IO () -> IO () -> Thread ()
    deaf renamed ready = withSocket (listenTcp (Just ownName) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        blocking (callCommand "ip link set weft0 address 02:00:00:00:77:77")
        liftIO renamed
        receive s 10 >>= sendAll s
    refused = do
      callCommand "ip link add weft0 type veth peer name weft1 && ip addr add 10.9.0.2/24 dev weft1 && ip link set lo up"
      let says why device = try device >>= either (\e -> assertBool (show e) (why == takeWhile (/= '(') (ioe_description e))) (\d -> deviceClose d >> assertFailure why)
          at name = openInterface name [four]
      says "is down " (at "weft0")
      callCommand "ip link set weft0 up && ip link set weft1 up"
      says "cannot be used with an address that the system has, too: its TCP would answer" (at "weft0")
      says "is the loopback interface, which the system's TCP has" (at "lo")
      says "cannot be used: No such device" (at "weft9")
      callCommand "ip addr del 10.9.0.2/24 dev weft1"
      at "weft0" >>= deviceClose
      mapM isInterface ["weft0", "lo", "weft9"] >>= (@?= [True, True, False])
    -- Linux has its address once the device is there, which it is before a run opens it again.
    withLinux act = do
      callCommand "ip tuntap add weft0 mode tun"
      tun >>= deviceClose
      act "10.9.0.1"
    -- Changes on the way are noticed by checksums.
    plain = openTunWith NoOffload "weft0" [(Address4 0x0a090002, 24)]
    bad = do
      device <- plain
      there <- roughLink 5
      back <- roughLink 6
      pure
        device
          { deviceRead = deviceRead device >>= fmap concat . mapM (linkDelivers back),
            deviceSend = linkDelivers there >=> mapM_ (deviceSend device)
          }
