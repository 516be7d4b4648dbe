"""Linux's TCP beside our own, which `weft-tcp-peer` has: on port 7 it answers with what it gets, and each connection to
port 8 it joins to one that it makes itself, to port 8 here. So what goes to port 8 and comes back has passed connections
that Linux has made and others that our TCP has made, both ways over each.

All of it happens in two network namespaces of its own. In the first are Linux's ends, and a TUN device of the peer's; in the
second another peer's, which is reached by a link that loses, marks or changes packets (tcp_link.py)."""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import harness
import tcp_capture
import tcp_docs
import tcp_link
from check_tls import certificate
from harness import Skip, equal, need, run, true

NEAR, FAR = "10.9.0.2", "10.9.2.2"  # the peer's addresses in the first namespace and in the second
ECHO, JOINED = 7, 8


def alone(table, asked):
    """In a process of its own, which enters the namespaces. It prints its rows, and how many there were into a pipe."""
    refused = why_not()
    if refused:
        table.check("Linux's TCP", "beside our own", lambda: skip(refused))
        return
    reading, writing = os.pipe()
    inside = subprocess.Popen(
        ["unshare", "-rnm", sys.executable, __file__, str(writing), asked.weft, str(pathlib.Path(asked.echo).with_name("weft-tcp-peer"))],
        pass_fds=[writing],
    )
    os.close(writing)
    with open(reading) as counts:
        said = counts.read()
    inside.wait()
    rows, failed, skipped = json.loads(said or "[1, 1, 0]")
    table.rows, table.failed, table.skipped = table.rows + rows, table.failed + failed, table.skipped + skipped


def skip(why):
    raise Skip(why)


def why_not():
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    tried = subprocess.run(["unshare", "-rnm", "sh", "-c", "ip tuntap add t0 mode tun && mount -t tmpfs none /run"], capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else None


def main(writing, weft, peer):
    for command in (
        "mount -t tmpfs none /run", "ip netns add far", "ip link set lo up",
        "ip netns exec far ip link set lo up", "ip netns exec far sysctl -qw net.ipv4.ip_forward=1",
    ):  # fmt: skip
        run(*command.split())
    table = harness.Table(heading=False)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-interop-"))
    try:
        harness.raise_limit()
        with peering(peer, NEAR, "tun0", scratch / "near") as near:
            checks_near(table, near, weft)
        checks_mtu(table, weft, peer, scratch)
        checks_link(table, weft, peer, scratch)
        checks_http(table, weft, scratch)
        tcp_docs.checks(table, weft, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with open(int(writing), "w") as counts:
            json.dump([table.rows, table.failed, table.skipped], counts)


# The peer ---------------------------------------------------------------------------


class Peer(harness.Program):
    """The peer, and what it says of its connections."""

    def __init__(self, program, weft, address, device, errors, before=()):
        self.address, self.weft = address, weft
        system = re.sub(r"\d+$", "1", address)
        super().__init__("weft-tcp-peer", [*before, program, f"{device},{address}/24", system if not before else "10.9.1.1"], errors)

    def list(self):
        """Connections but the one that asks and those in TIME-WAIT, as (state, local port, peer, what else is known)."""
        lines = run(self.weft, "tcp", "list", f"http://{self.address}:9090").decode().splitlines()[1:]
        found = []
        for line in lines:
            if line.startswith("    "):
                found[-1][3] = line.split()
            else:
                cells = line.split()
                found.append([cells[0], int(cells[3].rpartition(":")[2]), cells[4] if len(cells) > 4 else "", []])
        return [entry for entry in found if entry[1] != 9090 and entry[0] not in ("LISTEN", "TIME-WAIT")]

    def await_list(self, what, good, seconds=30):
        """Until what is told of connections is as it should be."""
        end = time.monotonic() + seconds
        while not good(found := self.list()):
            true(f"{what}: {harness.short(found)}", time.monotonic() < end)
        return found

    def nothing_left(self):
        self.await_list("connections are left", lambda found: not found)


@contextlib.contextmanager
def peering(program, address, device, errors, weft=None, before=()):
    peer = Peer(program, weft or str(pathlib.Path(program).with_name("weft")), address, device, errors, before)
    try:
        yield peer
        peer.stop()
    finally:
        peer.kill()


# Linux's ends -----------------------------------------------------------------------

LINUX_INFO = {"options": (5, "B"), "mss": (16, "I"), "retransmitted": (100, "I"), "marked": (196, "I")}


def info(connection):
    """What Linux tells of a connection (struct tcp_info)."""
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return {name: struct.unpack_from("=" + kind, raw, place)[0] for name, (place, kind) in LINUX_INFO.items()}


class Server:
    """Linux's end on port 8: `serve` gets each connection, in a thread of its own."""

    def __init__(self, serve, control=None, address="0.0.0.0"):
        self.listener = socket.create_server((address, JOINED), backlog=4096)
        if control:
            self.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        self.serve, self.wrong = serve, []
        threading.Thread(target=self.accepting, daemon=True).start()

    def accepting(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.settimeout(60)
                threading.Thread(target=self.session, args=(connection,), daemon=True).start()

    def session(self, connection):
        with connection:
            try:
                self.serve(connection)
            except (OSError, AssertionError) as error:
                self.wrong.append(error)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if kind is None and self.wrong:
            raise AssertionError(f"Linux's server: {self.wrong[0]!r}")


def echo(connection):
    while piece := connection.recv(1 << 18):
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)


def connected(address, port, control=None):
    connection = socket.socket()
    connection.settimeout(60)
    if control:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        equal("congestion control", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode(), control)
    connection.connect((address, port))
    return connection


def content(size, seed):
    return random.Random(seed).randbytes(size)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def there_and_back(connection, data):
    """Send all of it while it comes back: it must be the same."""
    sending = threading.Thread(target=lambda: connection.sendall(data), daemon=True)
    sending.start()
    got, size = hashlib.sha256(), 0
    while size < len(data) and (piece := connection.recv(1 << 18)):
        got.update(piece)
        size += len(piece)
    equal("bytes", size, len(data))
    equal("hash of the bytes", got.hexdigest(), digest(data))
    sending.join(10)


def to_end(connection):
    return harness.to_end(connection)


def exchange(peer, size, control=None, also=lambda connection: None):
    """There and back over the joined port: what the peer tells of both connections, and how fast it was. It is looked at while
    they are open."""
    data = content(size, size)
    with Server(echo, control), connected(peer.address, JOINED, control) as connection:
        start = time.monotonic()
        there_and_back(connection, data)
        took = time.monotonic() - start
        found = peer.list()
        entries = {"theirs": told(found, JOINED), "ours": told([e for e in found if e[2].endswith(f":{JOINED}")], None)}
        note = also(connection)
        connection.shutdown(socket.SHUT_WR)
        equal("after the end", to_end(connection), b"")
    peer.nothing_left()
    return entries, " ".join(filter(None, [f"{size / took / 1e6:.1f} MB/s", note]))


def told(found, port):
    """Of the one connection with this local port: its options and figures."""
    ours = [e for e in found if port is None or e[1] == port]
    equal("connections", len(ours), 1)
    pairs = dict(word.split(":", 1) for word in ours[0][3] if ":" in word)
    return {**pairs, "state": ours[0][0], "options": {word for word in ours[0][3] if ":" not in word}}


def sysctl(name, value):
    pathlib.Path("/proc/sys/net/ipv4", name).write_text(str(value))


@contextlib.contextmanager
def set_to(**values):
    old = {name: pathlib.Path("/proc/sys/net/ipv4", name).read_text() for name in values}
    try:
        for name, value in values.items():
            sysctl(name, value)
        yield
    finally:
        for name, value in old.items():
            sysctl(name, value)


def controls():
    return pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


# In the first namespace -------------------------------------------------------------


def checks_near(table, peer, weft):
    row = lambda what, function: table.check("Linux", what, function)
    for control in controls():
        row(f"{control}: 16 MB, both connect, both ways", lambda c=control: exchange(peer, 16_000_000, c)[1])
    for name, values, absent in (
        ("all on", {}, set()),
        ("no window scaling", {"tcp_window_scaling": 0}, {"wscale"}),
        ("no SACK", {"tcp_sack": 0}, {"sack"}),
        ("no timestamps", {"tcp_timestamps": 0}, {"ts"}),
        ("ECN", {"tcp_ecn": 1}, set()),
        ("none of them", {"tcp_window_scaling": 0, "tcp_sack": 0, "tcp_timestamps": 0, "tcp_ecn": 0}, {"wscale", "sack", "ts"}),
    ):
        row(f"{name}: 4 MB, both connect", lambda n=name, v=values, a=absent: options(peer, v, a))
    row("half-close: the client ends first, then 1 MB comes", lambda: half_closed(peer, True))
    row("half-close: the server ends first, then 1 MB comes", lambda: half_closed(peer, False))
    row("resets by either end at every step of a conversation", lambda: resets_by_users(peer))
    row("10,000 at once, which both make", lambda: at_once(peer, 10_000))
    row("100,000 short connections, which both make", lambda: short_connections(peer, 100_000))
    row("the peer is well, and has complained of nothing", peer.well)


def options(peer, values, absent):
    linux = {}
    with set_to(**values):
        entries, note = exchange(peer, 4_000_000, also=lambda connection: linux.update(info(connection)))
    wanted = {"ts": 1, "sack": 2, "wscale": 4}
    for name, bit in wanted.items():
        equal(f"{name} at Linux's end", bool(linux["options"] & bit), name not in absent)
        for end, entry in entries.items():
            there = entry["wscale"] != "0,0" if name == "wscale" else name in entry["options"]
            equal(f"{name} of {end}", there, name not in absent)
    # We use it where Linux offers it.
    ecn = values.get("tcp_ecn") == 1
    equal("ECN at Linux's end", bool(linux["options"] & 8), ecn)
    equal("ECN of theirs", "ecn" in entries["theirs"]["options"], ecn)
    return note


def half_closed(peer, client_first):
    """One end sends 1 MB and ends its stream; the other answers what it got with its hash and 1 MB, over streams that are half
    closed by then."""
    data, answer = content(1_000_000, 1), content(1_000_000, 2)

    def first(connection):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        equal("hash of the answer", digest(to_end(connection)), digest(digest(data).encode() + answer))

    def second(connection, look=lambda: None):
        got = to_end(connection)
        look()
        connection.sendall(digest(got).encode() + answer)

    def look():
        peer.await_list("states", lambda found: sorted(entry[0] for entry in found) == ["CLOSE-WAIT", "FIN-WAIT-2"])

    with Server((lambda c: second(c, look)) if client_first else first), connected(peer.address, JOINED) as connection:
        (first if client_first else lambda c: second(c, look))(connection)
    peer.nothing_left()


def resetting(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def resets_by_users(peer):
    """A conversation of five exchanges and two ends of streams, which the client or the server breaks off after each of its
    steps; the other end is told, by way of both connections of the peer."""
    seen = []
    last = 12  # The step with this number is the last one.

    def steps(connection, is_client):
        """One half of the conversation; a step after each `yield`."""
        yield
        for n in range(5):
            for sender in (True, False):
                if sender == is_client:
                    connection.sendall(bytes([n]) * 3000)
                else:
                    piece = b""
                    while len(piece) < 3000:
                        got = connection.recv(3000 - len(piece))
                        true("the stream has ended", got)
                        piece += got
                yield  # after each half of an exchange
        connection.shutdown(socket.SHUT_WR)
        yield
        equal("the rest", to_end(connection), b"")
        yield

    def breaking(connection, is_client, at):
        for n, _ in enumerate(steps(connection, is_client)):
            if n == at:
                resetting(connection)
                return "broke"
        return "ended"

    def bearing(connection, is_client):
        try:
            for _ in steps(connection, is_client):
                pass
            return "ended"
        except (OSError, AssertionError) as error:
            true(f"no end: {error}", not isinstance(error, TimeoutError))
            return "told"

    for at, breaks in itertools.product(range(last + 1), (True, False)):
        said = concurrent.futures.Future()

        def serve(connection, a=at, b=breaks, s=said):
            s.set_result(bearing(connection, False) if b else breaking(connection, False, a))

        with Server(serve), connected(peer.address, JOINED) as connection:
            mine = breaking(connection, True, at) if breaks else bearing(connection, True)
            if (at, breaks) == (0, True):
                # The peer may not have made its connection by then.
                peer.nothing_left()
                continue
            other = said.result(30)
        theirs = other if breaks else mine
        # After the other's FIN was seen there may be nothing left to be told.
        true(f"broken off at {at} by the {'client' if breaks else 'server'}: the other has {theirs}", theirs == "told" or at >= last - 1)
        seen.append(theirs)
    peer.nothing_left()
    return f"{len(seen)} resets, {seen.count('told')} told"


# Many ---------------------------------------------------------------------------------


def at_once(peer, count):
    """All are open before the first byte is sent, and each has its own bytes. Linux's server is another process, because of
    its descriptors."""
    # All of them send at once, and Linux keeps 500 packets for a device at first.
    run("ip", "link", "set", "tun0", "txqueuelen", "10000")
    with contextlib.ExitStack() as open_, child(crowd_server) as server:
        equal("Linux's server", said(server), "ready")
        connections, poll, established = {}, select.epoll(), set()

        def until_established(least):
            end = time.monotonic() + 60
            while len(established) < least:
                true(f"{least - len(established)} are not established", time.monotonic() < end)
                for fd, _ in poll.poll(1):
                    equal("connecting", connections[fd].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
                    established.add(fd)

        for n in range(count):
            connection = open_.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex((peer.address, JOINED))
            connections[connection.fileno()] = connection
            poll.register(connection, select.EPOLLOUT | select.EPOLLONESHOT)
            until_established(n - 500)
        until_established(count)
        found = peer.await_list("connections", lambda found: [e[0] for e in found].count("ESTABLISHED") == 2 * count, 60)
        questions, answers = {fd: content(500, fd) for fd in connections}, dict.fromkeys(connections, b"")
        for fd, connection in connections.items():
            connection.sendall(questions[fd])
            poll.modify(fd, select.EPOLLIN)
        left, end = count, time.monotonic() + 60
        while left:
            true(f"{left} have no answer", time.monotonic() < end)
            for fd, _ in poll.poll(1):
                piece = connections[fd].recv(1000)
                true("a connection has ended early", piece)
                answers[fd] += piece
                if len(answers[fd]) >= 500:
                    equal("hash", digest(answers[fd]), digest(questions[fd]))
                    left -= 1
        open_.close()
        peer.nothing_left()
    return f"{len(found)} connections of the peer's"


def crowd_server(ready):
    """Answers each connection with what it gets, without a thread for each."""
    listener = socket.create_server(("0.0.0.0", JOINED), backlog=4096)
    listener.setblocking(False)
    poll, open_ = select.epoll(), {}
    poll.register(listener, select.EPOLLIN)
    ready.send("ready")
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        connection, _ = listener.accept()
                        open_[connection.fileno()] = connection
                        poll.register(connection, select.EPOLLIN)
                continue
            piece = open_[fd].recv(65536)
            if piece:
                open_[fd].sendall(piece)
            else:
                open_.pop(fd).close()


@contextlib.contextmanager
def child(function, *arguments):
    """The function in a process, which can say something, and is ended at last."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=function, args=(*arguments, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.kill()
        process.join()


def said(child):
    try:
        return child.recv()
    except EOFError:
        return "nothing"


def short_connections(peer, count):
    """One after the other from each of four processes: bytes that are like no others there, and back."""
    with contextlib.ExitStack() as open_:
        equal("Linux's server", said(open_.enter_context(child(crowd_server))), "ready")
        # Ports are used again at once, also those that are in TIME-WAIT (RFC 6191).
        open_.enter_context(set_to(tcp_tw_reuse=1, ip_local_port_range="10000 65000"))
        start = time.monotonic()
        clients = [open_.enter_context(child(short_client, peer.address, count // 4, n)) for n in range(4)]
        outcomes = [said(client) for client in clients]
    for outcome in outcomes:
        equal("connections with their bytes", outcome, count // 4)
    peer.nothing_left()
    return f"{count / (time.monotonic() - start):.0f} a second"


def short_client(address, count, who, out):
    done = 0
    try:
        for n in range(count):
            with connected(address, JOINED) as connection:
                question = struct.pack(">II", who, n) * 4
                connection.sendall(question)
                answer = b""
                while len(answer) < len(question) and (piece := connection.recv(100)):
                    answer += piece
                done += digest(answer) == digest(question)
        out.send(done)
    except OSError as error:
        out.send(f"{done}, and then {error!r}")


# Other sizes of packets ----------------------------------------------------------------


def checks_mtu(table, weft, program, scratch):
    row = lambda what, function: table.check("Linux", what, function)
    for mtu in (576, 1280, 9000):
        row(f"a device with an MTU of {mtu:,}: 4 MB", lambda m=mtu: sized(program, scratch, m))
    row("the MTU of a device changes while bytes come and go", lambda: resized(program, scratch, "tun1"))
    row("the MTU of an interface changes while bytes come and go", lambda: resized(program, scratch, "veth1"))


def device(name, mtu):
    """A TUN device of that MTU, or one end of a pair of interfaces, whose other end is veth0."""
    if name.startswith("veth"):
        run(*f"ip link add veth0 mtu {mtu} type veth peer name {name} mtu {mtu}".split())
        run(*"ip addr add 10.9.0.1/24 dev veth0".split())
        run(*"ip link set veth0 up".split())
    else:
        run(*f"ip tuntap add {name} mode tun".split())
        run(*f"ip link set {name} mtu {mtu}".split())
    run(*f"ip link set {name} up".split())


@contextlib.contextmanager
def on_device(program, scratch, name, mtu):
    device(name, mtu)
    try:
        with peering(program, NEAR, name, scratch / f"{name}-{mtu}") as peer:
            yield peer
    finally:
        run("ip", "link", "del", name)


def sized(program, scratch, mtu):
    linux = {}
    with on_device(program, scratch, "tun1", mtu) as peer:
        entries, note = exchange(peer, 4_000_000, also=lambda connection: linux.update(info(connection)))
        most = mtu - 52
        for name, size in (("theirs", int(entries["theirs"]["mss"])), ("ours", int(entries["ours"]["mss"])), ("Linux's", linux["mss"])):
            equal(f"segments of {name}", size, most)
        peer.well()
    return note


def resized(program, scratch, name):
    """Smaller, and larger than at first: connections that are open go on, and new ones have the size within a second."""
    notes = []
    with on_device(program, scratch, name, 1400) as peer:
        data = content(200_000, 3)
        with Server(echo), connected(peer.address, JOINED) as old:
            there_and_back(old, data)
            for mtu in (1000, 1500, 700):
                for end in {name, "veth0" if name.startswith("veth") else name}:
                    run(*f"ip link set {end} mtu {mtu}".split())
                start = time.monotonic()
                there_and_back(old, data)
                notes.append(f"{mtu}: {time.monotonic() - start:.2f} s")
                while True:
                    with connected(peer.address, ECHO) as new:
                        there_and_back(new, data)
                        size = int(told(peer.list(), ECHO)["mss"])
                    peer.await_list("connections are left", lambda found: len(found) == 2)
                    if size == mtu - 52:
                        break
                    true(f"segments of {size} with an MTU of {mtu}", time.monotonic() < start + 10)
        peer.well()
    return ", ".join(notes)


# Over a link ---------------------------------------------------------------------------


@contextlib.contextmanager
def linked(program, weft, scratch, fate):
    """A peer in the other namespace, and Linux at the end of a link here."""
    link = tcp_link.Link("far", fate)
    try:
        far = "ip netns exec far"
        for command in (
            "ip addr add 10.9.1.1/24 dev link0", "ip link set link0 up", "ip route add 10.9.2.0/24 dev link0",
            f"{far} ip link set link1 up", f"{far} ip route add 10.9.1.0/24 dev link1",
        ):  # fmt: skip
            run(*command.split())
        with peering(program, FAR, "tun0", scratch / "far", weft, far.split()) as peer:
            yield peer
            peer.well()
    finally:
        link.close()


def checks_link(table, weft, program, scratch):
    row = lambda what, function: table.check("Linux", what, function)
    over = lambda fate: linked(program, weft, scratch, fate)
    for control in controls():
        row(f"{control}: 1 MB over a bad link, both connect", lambda c=control: rough(over, c))
    for name, values in (
        ("no SACK", {"tcp_sack": 0}),
        ("no timestamps", {"tcp_timestamps": 0}),
        ("no window scaling", {"tcp_window_scaling": 0}),
        ("none of them", {"tcp_window_scaling": 0, "tcp_sack": 0, "tcp_timestamps": 0}),
        ("ECN", {"tcp_ecn": 1}),
    ):
        row(f"{name}: 300 KB over a bad link, both connect", lambda v=values: rough(over, None, 300_000, v))
    row("ECN: packets are marked, and both ends slow down", lambda: marked(over))
    row("the path is narrow in the middle, and says so", lambda: narrow(over, True))
    row("the path is narrow in the middle, and swallows what is large", lambda: narrow(over, False))
    for way, name in ((tcp_link.ONWARD, "from Linux"), (tcp_link.BACK, "to Linux")):
        row(f"a reset in place of each segment {name}", lambda w=way: resets_on_the_way(over, w))


def rough(over, control, size=1_000_000, values={}):
    linux = {}
    with set_to(**values), over(tcp_link.Rough(1)) as peer:
        entries, note = exchange(peer, size, control, lambda connection: linux.update(info(connection)))
    again = [linux["retransmitted"], int(entries["theirs"]["retrans"]), int(entries["ours"]["retrans"])]
    true(f"nothing was sent again: {again}", all(again))
    return f"{note}, sent again {again}"


def marked(over):
    linux = {}
    with set_to(tcp_ecn=1), over(tcp_link.Marking()) as peer:
        entries, note = exchange(peer, 2_000_000, "cubic", lambda connection: linux.update(info(connection)))
    true("Linux was not told of marks", linux["marked"])
    true("our window is as if nothing were marked", "ssthresh" in entries["theirs"])
    # A tail may have been probed.
    again = (linux["retransmitted"], int(entries["theirs"]["retrans"]))
    true(f"sent again, though nothing was lost: {again}", max(again) < 5)
    return f"{note}, {linux['marked']} marks told to Linux"


def narrow(over, tells):
    linux = {}
    with set_to(tcp_mtu_probing=1), over(tcp_link.Narrow(1300, tells)) as peer:
        entries, note = exchange(peer, 1_000_000, also=lambda connection: linux.update(info(connection)))
    sizes = [linux["mss"], int(entries["theirs"]["mss"]), int(entries["ours"]["mss"])]
    true(f"segments of {sizes}", all(200 < size <= 1300 - 52 for size in sizes))
    return f"{note}, segments {sizes}"


def resets_on_the_way(over, way):
    """For each number of a segment on the way of a conversation, another conversation in which that one arrives as a reset. The
    client gets everything, or is told."""
    outcomes = []
    most = 16
    with over(tcp_link.ResetAt(way, ECHO, most)) as peer:
        for n in range(most):
            got = b""
            try:
                with connected(peer.address, ECHO) as connection:
                    for piece in range(4):
                        connection.sendall(bytes([piece]) * 100)
                        while len(got) < 100 * (piece + 1) and (part := connection.recv(1000)):
                            got += part
                    connection.shutdown(socket.SHUT_WR)
                    got += to_end(connection)
                    outcomes.append("ended")
            except OSError as error:
                true(f"segment {n}: {error!r}", not isinstance(error, TimeoutError))
                outcomes.append("told")
            equal(f"segment {n}: bytes", got, b"".join(bytes([piece]) * 100 for piece in range(4))[: len(got)])
            if outcomes[-1] == "ended":
                equal(f"segment {n}: size", len(got), 400)
        peer.nothing_left()
    true(f"outcomes {outcomes}", "told" in outcomes and outcomes[-1] == "ended")
    return f"{outcomes.count('told')} of {most} told"


# HTTP and TLS -----------------------------------------------------------------------


def checks_http(table, weft, scratch):
    row = lambda client, what, function: table.check(client, what, function)
    site = harness.make_site(scratch)
    chain, key = certificate(scratch, "here", host="server")
    served = {path: (site / path).read_bytes() for path in ("hello.txt", "large.bin")}
    serving = lambda name, *options: harness.Program(name, [weft, "serve", str(site), *options], scratch / name.replace(" ", "-"))
    load = lambda *options: json.loads(run(weft, "load", "--json", "--insecure", *options, timeout=120))

    def fetched(*options, url):
        for path, content in served.items():
            equal(path, digest(run(need("curl"), "-sSf", "--max-time", "20", *options, f"{url}/{path}")), digest(content))

    def loaded(requests, *options, url="http://10.9.0.2:8080"):
        said = load("-n", str(requests), *options, f"{url}/hello.txt")
        equal("responses", (said["responses"], said["succeeded"], sum(said["errors"].values())), (requests, requests, 0))
        return f"{said['responses_per_second']:.0f} a second"

    def captured():
        file = scratch / "packets"
        capture = subprocess.Popen([weft, "tcp", "capture", "tun0", str(file)], stderr=subprocess.PIPE, text=True)
        true("it has begun", "capturing on tun0" in capture.stderr.readline())
        fetched(url="http://10.9.0.2:8080")
        capture.send_signal(signal.SIGINT)
        said = capture.stderr.read()
        equal("status", capture.wait(10), 0)
        packets, lost = tcp_capture.packets(file.read_bytes())
        equal("what it said", said.split(), f"weft: {len(packets)} packets, {lost} lost".split())
        streams = tcp_capture.streams(packets)
        for path, content in served.items():
            true(f"{path} is not there", any(stream.endswith(content) for (direction, *_), stream in streams.items() if direction == tcp_capture.OUTBOUND))
            true(f"the request for {path} is not there", any(f"GET /{path} ".encode() in stream for (direction, *_), stream in streams.items() if direction == tcp_capture.INBOUND))
        return f"{len(packets)} packets, {lost} lost"

    def captured_some():
        capture = subprocess.Popen([weft, "tcp", "capture", "--packets", "5", "tun0", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        capture.stderr.readline()
        fetched(url="http://10.9.0.2:8080")
        packets, _ = tcp_capture.packets(capture.communicate(timeout=10)[0])
        equal("packets", len(packets), 5)
        none = subprocess.run([weft, "tcp", "capture", "tun7", "-"], capture_output=True, text=True)
        equal("without a device", (none.returncode, none.stderr), (1, "weft: network device tun7: cannot be captured: No such device\n"))

    sysctl("ip_forward", 1)
    own = ["--tcp", "tun0,10.9.0.2/24"]
    with started(serving("weft serve", *own)) as server:
        row("curl", "weft serve --tcp", lambda: fetched(url="http://10.9.0.2:8080"))
        row("weft load", "--tcp to weft serve --tcp, which Linux forwards", lambda: loaded(5000, "--tcp", "tun1,10.9.3.2/24"))
        row("weft tcp", "capture: a file that has all bytes of two downloads", captured)
        row("weft tcp", "capture: the first packets, on standard output", captured_some)
        row("weft serve", "is well", server.well)
    secure = ["--tls-cert", chain, "--tls-key", key]
    with started(serving("weft serve with TLS", *own, *secure)) as server:
        row("curl", "weft serve --tcp with TLS", lambda: fetched("--cacert", chain, "--resolve", "server:8080:10.9.0.2", url="https://server:8080"))
        row("weft load", "--tcp with TLS to the same", lambda: loaded(2000, "--tcp", "tun1,10.9.3.2/24", url="https://10.9.0.2:8080"))
        row("weft serve", "is well", server.well)
    peer = str(pathlib.Path(weft).with_name("weft-tcp-peer"))
    body = scratch / "body"
    body.write_bytes(content(3_000_000, 5))
    with started(harness.Program("WAI", [peer, "wai", "tun0,10.9.0.2/24"], scratch / "wai")) as server:
        post = lambda: equal("body", digest(run("curl", "-sSf", "--data-binary", f"@{body}", "http://10.9.0.2:3000/")), digest(body.read_bytes()))
        row("curl", "a WAI application: 3 MB there and back", post)
        row("WAI", "is well", server.well)
    for command in ("ip tuntap add tun1 mode tun", "ip addr add 10.9.3.1/24 dev tun1", "ip link set tun1 up txqueuelen 10000"):
        run(*command.split())
    with started(serving("weft serve of Linux", "--host", "10.9.3.1")) as server:
        many = ("--tcp", "tun1,10.9.3.2/24", "-c", "10000", "--timeout", "30")
        row("weft load", "--tcp to Linux: 10,000 connections", lambda: loaded(50_000, *many, url="http://10.9.3.1:8080"))
        row("weft serve", "is well", server.well)


@contextlib.contextmanager
def started(program):
    try:
        yield program
        program.stop()
    finally:
        program.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
