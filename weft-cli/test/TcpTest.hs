-- | @weft tcp@, and @weft serve@ over a TCP of its own where there can be a device.
module TcpTest (tests) where

import Data.ByteString qualified as B
import Data.List (isInfixOf)
import Harness
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.Process (readProcessWithExitCode)
import Test.Tasty
import Test.Tasty.HUnit

tests :: TestTree
tests =
  testGroup
    "a TCP of its own"
    [ testCase "the commands for a device" commands,
      testCase "no connections where the system's TCP is used" othersTcp,
      testCase "connections and packets of a server (skipped without a device)" (operated "10.9.0.2/24" "10.9.0.2" "10.9.0.1:"),
      testCase "and over IPv6 (skipped without a device)" (operated "fd09::2/64" "[fd09::2]" "[fd09::1]:")
    ]

commands :: Assertion
commands = do
  printed ["tun0,10.9.0.2/24", "--user", "someone"] ["ip tuntap add dev tun0 mode tun user someone", "ip addr add 10.9.0.1/24 dev tun0", "ip link set dev tun0 up"]
  -- The system's end gets another address than the stack's.
  printed ["tun1,10.9.1.1/24"] ["ip tuntap add dev tun1 mode tun", "ip addr add 10.9.1.2/24 dev tun1", "ip link set dev tun1 up"]
  printed ["tun0,fd09::2"] ["ip tuntap add dev tun0 mode tun", "ip addr add fd09::1/64 dev tun0", "ip link set dev tun0 up"]
  printed ["tun0,fd09:0:0:1::1/120"] ["ip tuntap add dev tun0 mode tun", "ip addr add fd09:0:0:1::2/120 dev tun0", "ip link set dev tun0 up"]
  mapM_ refused ["tun0,fd09::2/127", "tun0,fd09:::2", "tun0,fd09::2%eth0/64", "tun0,10.9.0.2/31", "tun0,10.9.2/24"]
  printed ["tun0,10.9.0.2/24", "--remove"] ["ip tuntap del dev tun0 mode tun"]
  where
    printed args expected = do
      (code, out, err) <- runWeft [] (["tcp", "setup"] <> args)
      (code, lines out, err) @?= (ExitSuccess, expected, "")
    refused place = do
      (code, _, err) <- runWeft [] ["tcp", "setup", place]
      assertBool (place <> ": " <> err) (code == ExitFailure 2 && "is not an address" `isInfixOf` err)

othersTcp :: Assertion
othersTcp = withServer ["--metrics", "127.0.0.1:0"] $ \server -> do
  (code, _, err) <- runWeft [] ["tcp", "list", "http://127.0.0.1:" <> show (serverPort server)]
  code @?= ExitFailure 1
  assertBool err ("no TCP of its own" `isInfixOf` err && length (lines err) == 1)

-- The address with the length of its network, as it is written in URLs, and the beginning of a peer's.
operated :: String -> String -> String -> Assertion
operated address host peer = withSite $ \site -> do
  (can, _, _) <- readProcessWithExitCode "unshare" ["-rn", "sh", "-c", "ip tuntap add t0 mode tun"] ""
  if can /= ExitSuccess
    then pure ()
    else do
      (code, out, err) <- readProcessWithExitCode "unshare" ["-rn", "sh", "-c", script, site] ""
      assertEqual (out <> err) ExitSuccess code
      assertBool out (all (`isInfixOf` out) ["LISTEN", "[::]:8080", "ESTABLISHED", peer, "retrans:"])
      said <- readFile (site </> ".." </> "said")
      assertBool said (("on http://" <> host <> ":8080/") `isInfixOf` said)
      capture <- B.readFile (site </> ".." </> "packets.pcapng")
      B.take 4 capture @?= B.pack [0x0a, 0x0d, 0x0d, 0x0a]
      assertBool "the packets of the list" (B.isInfixOf (B.pack (map (fromIntegral . fromEnum) "GET /tcp HTTP/1.1")) capture)
  where
    -- The list is itself a connection over the stack.
    script =
      ("weft serve --tcp tun0," <> address <> ",\"$0\"/../packets.pcapng --port 8080 --metrics '" <> host <> ":9090' \"$0\" > \"$0\"/../said & pid=$!;")
        <> " until grep -q 'metrics and probes on' \"$0\"/../said; do kill -0 $pid || exit 1; sleep 0.02; done;"
        <> (" weft tcp list 'http://" <> host <> ":9090'; status=$?; kill $pid; wait $pid; exit $status")
