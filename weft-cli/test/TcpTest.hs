-- | @weft tcp@, and @weft serve@ over a TCP of its own where there can be a device.
module TcpTest (tests) where

import Control.Exception (IOException, try)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.List (isInfixOf)
import Harness
import System.Exit (ExitCode (..))
import System.FilePath ((</>))
import System.Process (readProcessWithExitCode)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Cli.Succession (hello)
import Weft.Cli.Tcp (parseOwnTcp, sharedPart)
import Weft.Test.Skipping (skipped)

tests :: TestTree
tests =
  testGroup
    "a TCP of its own"
    [ testCase "the commands for a device" commands,
      testCase "no connections where the system's TCP is used" othersTcp,
      testCase "processes that follow each other may name their addresses in any order" $
        fmap sharedPart (parseOwnTcp "tun0,fd09::2/64,10.9.0.2/24") @?= Right "tun0,10.9.0.2,fd09::2",
      testCase "an address of each version, on a device and on an interface" twofold,
      testCase "connections and packets of a server" (operated "10.9.0.2/24" "10.9.0.2" "10.9.0.1:"),
      testCase "a process is replaced, and its connections go on" (replaced []),
      testCase "and on an interface" (replaced ["device=veth1; ip link add veth0 type veth peer name veth1; ip addr add 10.9.0.1/24 dev veth0; ip link set veth0 up; ip link set veth1 up"]),
      testCase "packets of a device are captured until a signal" captured,
      testCase "an interface that cannot be used is named in one line" useless,
      testCase "a process whose successor fails goes on" failingSuccessors,
      testCase "and over IPv6" (operated "fd09::2/64" "[fd09::2]" "[fd09::1]:")
    ]

commands :: Assertion
commands = do
  printed ["tun0,10.9.0.2/24", "--user", "someone"] ["ip tuntap add dev tun0 mode tun multi_queue user someone", "ip addr add 10.9.0.1/24 dev tun0", "ip link set dev tun0 up"]
  -- The system's end gets another address than the stack's.
  printed ["tun1,10.9.1.1/24"] ["ip tuntap add dev tun1 mode tun multi_queue", "ip addr add 10.9.1.2/24 dev tun1", "ip link set dev tun1 up"]
  printed ["tun0,fd09::2"] ["ip tuntap add dev tun0 mode tun multi_queue", "ip addr add fd09::1/64 dev tun0", "ip link set dev tun0 up"]
  printed ["tun0,fd09:0:0:1::1/120"] ["ip tuntap add dev tun0 mode tun multi_queue", "ip addr add fd09:0:0:1::2/120 dev tun0", "ip link set dev tun0 up"]
  printed ["tun0,10.9.0.2/24,fd09::2/64"] ["ip tuntap add dev tun0 mode tun multi_queue", "ip addr add 10.9.0.1/24 dev tun0", "ip addr add fd09::1/64 dev tun0", "ip link set dev tun0 up"]
  mapM_ refused ["tun0,fd09::2/127", "tun0,fd09:::2", "tun0,fd09::2%eth0/64", "tun0,10.9.0.2/31", "tun0,10.9.2/24"]
  printed ["tun0,10.9.0.2/24", "--remove"] ["ip link del dev tun0"]
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

twofold :: Assertion
twofold =
  inNamespace
    [ "fetched() { curl -sf -o $d/got http://10.9.0.2:8080/large; cmp $d/got $d/site/large; curl -gsf -o $d/got 'http://[fd09::2]:8080/large'; cmp $d/got $d/site/large; }",
      "both=10.9.0.2/24,fd09::2/64; new one; weft serve --tcp tun0,$both,$d/packets --workers 2 $d/site >> $d/one 2>&1 & one=$!; ready one; fetched; kill $one; wait $one; [ -s $d/packets ]",
      "ip link add veth0 type veth peer name veth1; ip addr add 10.9.0.1/24 dev veth0; ip addr add fd09::1/64 dev veth0 nodad; ip link del tun0 || true; ip link set veth0 up; ip link set veth1 up",
      "new two; weft serve --tcp veth1,$both $d/site >> $d/two 2>&1 & two=$!; ready two; fetched; kill $two; wait $two",
      "if weft serve --check --tcp tun0,10.9.0.2/24,10.9.0.3/24 $d/site 2> $d/said; then false; fi; grep -q 'two addresses of one version' $d/said"
    ]

useless :: Assertion
useless =
  inNamespace
    [ "ip link add veth0 type veth peer name veth1; ip addr add 10.9.0.1/24 dev veth0; ip link set lo up",
      "says() { if weft serve --check --tcp $1 $d/site > $d/one 2>&1; then false; fi; [ $(wc -l < $d/one) = 1 ]; grep -q \"$2\" $d/one; }",
      "says veth1,10.9.0.2/24 'veth1: is down'; says lo,10.9.0.2/24 'lo: is the loopback interface'",
      "ip link set veth0 up; ip link set veth1 up; says veth1,10.9.0.1/24 'address that the system has'",
      "says tun5,10.9.0.2/24@10.9.0.1 'a router is for an interface'; says veth1,10.9.0.2/24@fd09::1 'not the address of a router'",
      "weft serve --check --tcp veth1,10.9.0.2/24@10.9.0.1 $d/site"
    ]

-- | A capture that waits for packets has all of them in its file when it is interrupted.
captured :: Assertion
captured =
  inNamespace
    [ "serve one; one=$!; ready one; mkfifo $d/told",
      "weft tcp capture tun0 $d/packets 2> $d/told & capture=$!",
      "exec 3< $d/told; read -r line <&3; [ \"$line\" = 'weft: capturing on tun0' ]",
      "curl -sf http://10.9.0.2:8080/ > $d/got; kill -INT $capture; wait $capture; read -r line <&3; [[ $line = *' packets, 0 lost' ]]",
      "python3 -c \"$reads\" $d/packets",
      "kill $one; wait $one"
    ]

-- | A connection that is at rest, one without a request yet, one whose download is under way when the successor asks, and one
-- that takes nothing of its download before the successor serves; a load meanwhile. The first commands say on what device.
replaced :: [String] -> Assertion
replaced device =
  inNamespace $
    device
      <> [ "serve one; one=$!; ready one",
           "weft load --workers 1 --connections 8 --duration 2 http://10.9.0.2:8080/ > $d/load & load=$!",
           "exec 3<>/dev/tcp/10.9.0.2/8080 4<>/dev/tcp/10.9.0.2/8080",
           "ask 3; answered 3",
           ": > $d/got; curl -s --limit-rate 4M -o $d/got http://10.9.0.2:8080/large & download=$!",
           "tail -c +1 --pid=$download -f $d/got | head -c 1 | grep -q x",
           -- More than both buffers hold, and less than a connection may take before it moves.
           "mkfifo $d/go; exec 5<>$d/go; new late; python3 -c \"$takes\" <&5 >> $d/late 2>&1 & late=$!; ready late begun",
           "serve two; two=$!; wait $one; ready two; grep -q 'another process has taken over' $d/one",
           "grep -q 'took over [1-9]' $d/two; echo >&5; wait $late",
           -- The one after that has less to take over, and the same path.
           "wait $download; cmp $d/got $d/site/large",
           "serve three; three=$!; wait $two; ready three",
           "ask 3; answered 3; ask 4; answered 4",
           "wait $load; if grep errors $d/load; then false; fi",
           "kill $three; wait $three; [ ! -e $d/handover ]"
         ]

-- | One that speaks another version, one with another device, one with another address, one that cannot listen for its own successors, one that falls silent before it
-- takes over, and one that cannot start.
failingSuccessors :: Assertion
failingSuccessors =
  inNamespace
    [ "serve one; one=$!; ready one",
      "exec 3<>/dev/tcp/10.9.0.2/8080",
      "ask 3; answered 3",
      "python3 -c \"$talk\" $d/handover 'weft handover 99' > $d/said; grep -q 'another version' $d/said",
      "ask 3; answered 3",
      "python3 -c \"$talk\" $d/handover \"$(printf '" <> C.unpack hello <> "\\x0dtun0,10.9.0.2')\" R > $d/said",
      "ask 3; answered 3",
      "for other in tun1,10.9.0.2/24 tun0,10.9.0.3/24; do if weft serve --tcp $other --handover $d/handover $d/site 2> $d/said; then false; fi",
      "grep -q \"refuses: it serves over tun0,10.9.0.2, not over ${other%/*}\" $d/said; grep -q \"is to serve over ${other%/*}\" $d/one; done",
      "ask 3; answered 3",
      "mkdir $d/handover.new; if weft serve --tcp tun0,10.9.0.2/24 --handover $d/handover $d/site 2> $d/said; then false; fi; rmdir $d/handover.new",
      "ask 3; answered 3",
      "if weft serve --tcp tun0,10.9.0.2/24 --handover $d/handover --host 10.9.7.7 $d/site 2> $d/said; then false; fi",
      "ask 3; answered 3",
      "kill -0 $one; kill $one; wait $one"
    ]

-- | Run these commands in a network namespace of their own, each of which must succeed.
inNamespace :: [String] -> Assertion
inNamespace commands' = withSite $ \site -> do
  B.writeFile (site </> "large") (B.replicate 3_000_000 120)
  try (unshared "ip tuntap add t0 mode tun && python3 --version" site) >>= \case
    Left (e :: IOException) -> skipped ("no device: " <> show e)
    Right (ExitFailure _, _, err) -> skipped ("no device: " <> unwords (lines err))
    Right (ExitSuccess, _, _) -> do
      (code, out, err) <- unshared (unlines (preamble <> commands')) site
      assertEqual (out <> err) ExitSuccess code
  where
    unshared script site = readProcessWithExitCode "unshare" ["-rn", "bash", "-c", script, site] ""
    preamble =
      [ "set -eEx; trap 'kill $(jobs -p) 2>/dev/null; cat $d/one $d/two $d/three $d/said' ERR; d=$(dirname $0); [ -d $d/site ] || ln -s $0 $d/site",
        "device=tun0; new() { : > $d/$1; }",
        "serve() { new $1; weft serve --tcp $device,10.9.0.2/24 --handover $d/handover --head-timeout 600 --workers 1 $d/site >> $d/$1 2>&1 & }",
        -- Until it says this, or has ended.
        "ready() { tail -n +1 --pid=${!1} -f $d/$1 | grep -q \"${2:-serving}\"; }",
        "ask() { printf 'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&$1; }",
        -- The head, to its empty line; and then as many bytes as it says.
        "answered() { local line n=0; IFS= read -r -t 20 line <&$1; [ \"${line%?}\" = 'HTTP/1.1 200 OK' ]; while IFS= read -r -t 20 line <&$1 && [ ${#line} -gt 1 ]; do case $line in Content-Length:*) n=${line//[!0-9]/};; esac; done; head -c $n <&$1 > /dev/null; }",
        -- Say this in pieces, print what comes for each.
        "talk='import socket,sys",
        "s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(20)",
        "for word in sys.argv[2:]:",
        "    s.sendall(word.encode()); print(s.recv(4096))'",
        -- Take the first bytes of a response's body, and the rest when there is a line to read.
        "takes='import socket,sys",
        "s=socket.socket(); s.settimeout(20); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384); s.connect((\"10.9.0.2\", 8080))",
        "s.sendall(b\"GET /large HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n\"); f=s.makefile(\"rb\")",
        "while f.readline().strip(): pass",
        "f.read(1); print(\"begun\", flush=True); sys.stdin.readline()",
        "assert f.read(2999999) == b\"x\" * 2999999'",
        -- A file of packets, with a request and its response.
        "reads='import sys",
        "sys.path.insert(0, \"interop\")",
        "from tcp_capture import *",
        "found, lost = packets(open(sys.argv[1], \"rb\").read())",
        "assert any(d == INBOUND and b\"GET / \" in p for d, _, p in found), found",
        "assert any(d == OUTBOUND and b\"200 OK\" in p for d, _, p in found), found'"
      ]

-- | The address with the length of its network, as it is written in URLs, and the beginning of a peer's. The list is
-- itself a connection over the stack.
operated :: String -> String -> String -> Assertion
operated address host peer =
  inNamespace
    [ "new one; weft serve --tcp tun0," <> address <> ",$d/packets --metrics '" <> host <> ":9090' $d/site >> $d/one 2>&1 & one=$!",
      "ready one 'metrics and probes on'; grep -qF 'on http://" <> host <> ":8080/' $d/one",
      "weft tcp list 'http://" <> host <> ":9090' > $d/said",
      "for word in LISTEN '[::]:8080' ESTABLISHED '" <> peer <> "' retrans:; do grep -qF \"$word\" $d/said; done",
      "kill $one; wait $one; [ $(head -c 4 $d/packets | od -An -tx1 | tr -d ' ') = 0a0d0d0a ]; grep -qaF 'GET /tcp HTTP/1.1' $d/packets"
    ]
