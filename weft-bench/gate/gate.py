#!/usr/bin/env python3
"""What a request costs of what repeats: instructions, code cache lines, bytes allocated and copied.

usage: gate.py [--write] [--weft FILE] [--hello FILE] [ROW...]

Serves requests under callgrind, twice for each row with different numbers of them: the
difference, divided by the difference of the numbers, is a request's. Prints a table, and
compares it with figures.tsv, which --write writes anew. Fails where a figure is more than
2 % above the committed one. Below is good: then write the table anew. A row that would fail
or be written is measured three times, and the medians count: one run in ten or so comes out a
few per cent too high, on a machine that does something else.

instructions  user instructions of the whole process, collections included
lines         distinct 64-byte lines of code that at least every second request runs
bytes         allocated by Haskell code
copied        bytes that collections have copied

The last row is no request but 64 bytes that a thread sends back over a TUN device and our own TCP, to a peer that
is made by hand (byhand.py). It is skipped, and named, where a network namespace cannot be made. Its figures move
by one per cent: the hash of the table of connections differs from run to run.
"""
import argparse
import concurrent.futures
import contextlib
import itertools
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import byhand

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "figures.tsv")
COLUMNS = ("instructions", "lines", "bytes", "copied")
TOLERANCE = 0.02
SLACK = (0, 0, 0, 2)  # what is near to nothing moves by as much
CONNECTIONS = 64
# Requests; multiples of the connections are sent. The few are so many that two collections have come
# before: the first ones copy what the program has made at its start, once.
FEW, MANY = 48_000, 112_000
# A thousand connections make more at the start, which the seventh collection copies for the last time.
FEW_THOUSAND, MANY_THOUSAND = 96_000, 152_000
# Exchanges over our own TCP, which take longer.
FEW_OWN, MANY_OWN = 8_000, 24_000
PAGES = 4  # each is compared with the disk once a second, which is not a request's cost

BROWSER = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    "Accept-Language: en-US,en;q=0.5\r\n"
    "Accept-Encoding: gzip, deflate, br\r\n"
    "Connection: keep-alive\r\n"
)


def get(path, fields=""):
    return lambda port: f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{fields}\r\n".encode()


# The program (and its application), the requests, and how many connections there are if not as many as usual.
ROWS = {
    "static page": ("weft", [get("/index.html")]),
    "1,000 clients": ("weft", [get("/index.html")], 1_000),
    "1,000 browsers": ("weft", [get("/index.html", BROWSER)], 1_000),
    "1,000 rotating": ("weft", [get(f"/page{i:02}.html") for i in range(PAGES)], 1_000),
    "access log": ("log", [get("/index.html")]),
    "rotating pages": ("weft", [get(f"/page{i:02}.html") for i in range(PAGES)]),
    "browser head": ("weft", [get("/index.html", BROWSER)]),
    # Of one length, with other bytes in the middle.
    "two cookies": ("weft", [get("/index.html", f"{BROWSER}Cookie: session={i:032}\r\nPriority: u=0\r\n") for i in range(2)]),
    # No two are the same.
    "new heads": ("weft", [get(f"/index.html?{i:06}") for i in range(2 * MANY)]),
    "new browsers": ("weft", [get(f"/index.html?{i:06}", BROWSER) for i in range(2 * MANY)]),
    "wai hello": ("hello", [get("/")]),
    "1,000 wai hello": ("hello", [get("/")], 1_000),
    "wai sized": ("sized", [get("/")], 1_000),
    "sockets": ("sockets", [lambda port: b"x" * 64]),
    "relay": ("relay", [lambda port: b"x" * 64]),
    "loop in plain IO": ("io", [lambda port: b"x" * 64]),
    "own tcp": ("own tcp", [lambda port: b"x" * 64]),
    "handler hello": ("handler", [get("/")]),
}


def row(name):
    return (*ROWS[name], CONNECTIONS)[:3]


def echoes(program):
    return program in ("sockets", "relay", "io")


def own(program):
    return program == "own tcp"


def serves(program):
    return program in ("weft", "log")


class Trouble(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(args, program, port, site, totals):
    flags = ["+RTS", "-V0", f"-t{totals}", "--machine-readable", "-RTS"]
    if serves(program):
        serve = ["serve", site, "--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--quiet"]
        if program == "log":
            serve += ["--access-log", site + ".log"]
        return [args.weft, *serve, *flags]
    if own(program):
        return [args.bench, "tcp-server", "--device", byhand.DEVICE, "--address", byhand.STACK + "/24", *flags]
    # The other style moves an application that is slow, as all are here, to threads of GHC's.
    what = [program, str(port)] if program == "handler" or echoes(program) else ["weft-direct", str(port), program]
    return [args.hello, *what, *flags]


def connect(port, server):
    """The listener is there when the program has started, which takes long under callgrind."""
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise Trouble("the server has not started") from None
            time.sleep(0.05)


class Client:
    """A connection over the system's TCP, to a web server or to one that sends back what comes."""

    def __init__(self, port, server, web):
        self.expected = b"HTTP/1.1 200" if web else b"x"
        self.socket = connect(port, server)
        self.socket.settimeout(60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send, self.close = self.socket.sendall, self.socket.close

    def receive(self):
        try:
            response = self.socket.recv(65536)
        except TimeoutError:
            raise Trouble("no response in a minute") from None
        if not response.startswith(self.expected):
            raise Trouble(f"answered with {response[:200]!r}")
        return response


def drive(clients, server, requests, count, duration):
    """Rounds in which each connection sends a request and receives its response.

    The server is stopped while requests are sent, so that it finds all of them in one poll.
    The rounds are spread over the duration, in seconds. Answers how long they took.
    """
    size, turns, start = 0, count // len(clients), time.monotonic()
    for turn in range(turns):
        time.sleep(max(0, start + turn * duration / turns - time.monotonic()))
        server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED)
        for i, client in enumerate(clients):
            client.send(requests[(turn * (len(clients) + 1) + i) % len(requests)])
        server.send_signal(signal.SIGCONT)
        for client in clients:
            response = client.receive()
            # One kind of response for all; in pieces it would be another.
            if size not in (0, len(response)):
                raise Trouble(f"a response of {len(response)} bytes beside one of {size}")
            size = len(response)
    return time.monotonic() - start


@contextlib.contextmanager
def connected(program, port, server, connections):
    """This number of clients of the server."""
    with contextlib.ExitStack() as stack:
        if own(program):

            def alive():
                return server.poll() is None

            link = byhand.Link(alive)
            stack.callback(link.close)
            clients = [byhand.Client(link, 30_000 + i, alive) for i in range(connections)]
        else:
            clients = [Client(port, server, not echoes(program)) for _ in range(connections)]
        for client in clients:
            stack.callback(client.close)
        yield clients


def profile(path, program):
    """From callgrind's file: all instructions, and those of the program by address."""
    names, total, costs = {}, 0, {}
    mine, address, called = False, 0, False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            first = line[:1]
            if first.isdigit() or first in "+-*":
                where, _, cost = line.split()[:3]
                if where[0] == "+":
                    address += int(where[1:], 0)
                elif where[0] == "-":
                    address -= int(where[1:], 0)
                elif where[0] != "*":
                    address = int(where, 16)
                # After "calls=" comes what the called function cost, which has its own lines.
                if not called:
                    total += int(cost)
                    if mine:
                        costs[address] = costs.get(address, 0) + int(cost)
                called = False
            elif line.startswith("calls="):
                called = True
            elif line.startswith(("ob=", "cob=")):
                kind, rest = line.split("=", 1)
                number, name = re.match(r"\((\d+)\)(?: (.*))?", rest).groups()
                if name is not None:
                    names[number] = name
                if kind == "ob":
                    mine = names[number] == program
    return total, costs


def run(args, name, count, duration, directory):
    program = row(name)[0]
    with byhand.network() if own(program) else contextlib.nullcontext():
        return counted(args, name, count, duration, directory)


def counted(args, name, count, duration, directory):
    program, requests, connections = row(name)
    port = free_port()
    out, totals, errors = (os.path.join(directory, f"{name}.{kind}") for kind in ("callgrind", "statistics", "errors"))
    argv = command(args, program, port, os.path.join(directory, "site"), totals)
    # Children of ours do not outlive us: the server ends with its standard input, or by a signal.
    tool = [args.valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-instr=yes", "--fair-sched=yes"]
    with open(errors, "wb") as stderr:
        server = subprocess.Popen(
            [*tool, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "WEFT_BACKEND": "epoll"},
        )
    try:
        try:
            with connected(program, port, server, connections) as clients:
                took = drive(clients, server, [request(port) for request in requests], count, duration)
        except (Trouble, byhand.Unable) as e:
            with open(errors, encoding="utf-8", errors="replace") as said:
                unknown = "unhandled amd64-linux syscall: 437" in said.read()
            why = "; this valgrind does not know openat2; 3.24 does (VALGRIND names another)" if unknown else ""
            raise Trouble(f"{e}{why}") from None
        server.stdin.close()
        if serves(program) or own(program):
            server.send_signal(signal.SIGTERM)
        server.wait(60)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    with open(totals, encoding="utf-8") as text:
        said = text.read()
    allocated, copied = (int(re.search(rf'"{field}", "(\d+)"', said)[1]) for field in ("allocated_bytes", "copied_bytes"))
    total, costs = profile(out, os.path.realpath(argv[0]))
    if not costs:
        raise Trouble("callgrind has counted nothing in the program")
    return total, costs, allocated, copied, took


def measure(args, name, directory):
    program, _, connections = row(name)
    least, most = (FEW_OWN, MANY_OWN) if own(program) else (FEW_THOUSAND, MANY_THOUSAND) if connections == 1_000 else (FEW, MANY)
    few, many = (n - n % connections for n in (least, most))
    # The server's work of each second cancels out when both runs take as long.
    total, costs, allocated, copied, took = run(args, name, many, 0, directory)
    total_few, costs_few, allocated_few, copied_few, _ = run(args, name, few, took, directory)
    more = many - few
    lines = {a >> 6 for a, n in costs.items() if n - costs_few.get(a, 0) >= more / 2}
    return (
        round((total - total_few) / more),
        len(lines),
        round((allocated - allocated_few) / more),
        # The runs end in different moments of a collection's cycle.
        max(0, round((copied - copied_few) / more)),
    )


def worse(figures, was):
    """The columns in which figures are above those that were."""
    limits = ((1 + TOLERANCE) * before + slack for before, slack in zip(was, SLACK))
    return [i for i, (value, limit) in enumerate(zip(figures, limits)) if value > limit]


def settled(args, name, directory, was):
    """The figures of a row, the medians of three where one run is not to be trusted."""
    figures = measure(args, name, directory)
    if not args.write and not (was and worse(figures, was)):
        return figures
    runs = [figures, *(measure(args, name, directory) for _ in range(2))]
    return tuple(statistics.median(column) for column in zip(*runs))


def committed():
    try:
        with open(TABLE, encoding="utf-8") as table:
            rows = [line.rstrip("\n").split("\t") for line in table if not line.startswith("#")]
    except FileNotFoundError:
        return {}
    return {row[0]: tuple(map(int, row[1:])) for row in rows[1:]}


def write(figures):
    with open(TABLE, "w", encoding="utf-8") as table:
        table.write("# A request's figures, written by gate.py --write. GHC 9.6.6, x86-64, epoll, one worker,\n")
        table.write(f"# {CONNECTIONS} connections where the row says nothing else.\n")
        table.write("\t".join(("row", *COLUMNS)) + "\n")
        for name in ROWS:
            if name in figures:
                table.write("\t".join((name, *map(str, figures[name]))) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table anew")
    parser.add_argument("--weft", default="bin/weft")
    parser.add_argument("--hello", default="bin/weft-wai-hello")
    parser.add_argument("--bench", default="bin/weft-bench")
    parser.add_argument("--valgrind", default=os.environ.get("VALGRIND", "valgrind"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    for name in args.rows:
        if name not in ROWS:
            parser.error(f"there is no row {name!r}")
    old, new, faults = committed(), {}, []
    print(f"{'':16}" + "".join(f"{c:>14}{'before':>8}{'':>8}" for c in COLUMNS))
    # A thousand clients need as many descriptors, in the server, too.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as directory:
        site = os.path.join(directory, "site")
        os.mkdir(site)
        for page in ["index.html", *(f"page{i:02}.html" for i in range(PAGES))]:
            with open(os.path.join(site, page), "w", encoding="utf-8") as file:
                file.write("x" * 305)
        # Two rows at a time, because a client and its server mostly wait for each other. Those of our own stack come last and
        # run alone.
        names = sorted(args.rows or ROWS, key=lambda name: own(row(name)[0]))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ahead = {name: pool.submit(settled, args, name, directory, old.get(name)) for name in names if not own(row(name)[0])}
            try:
                for name in names:
                    if own(row(name)[0]) and (why := byhand.missing()):
                        print(f"{name:16}  skipped: {why}", flush=True)
                        continue
                    new[name], was = ahead[name].result() if name in ahead else settled(args, name, directory, old.get(name)), old.get(name, ())
                    cells = []
                    for value, before in itertools.zip_longest(new[name], was):
                        change = f"{value / before - 1:+.1%}" if before else ""
                        cells.append(f"{value:>14}{'-' if before is None else before:>8}{change:>8}")
                    faults += [f"{name}: {COLUMNS[i]} {was[i]} -> {new[name][i]}" for i in worse(new[name], was)]
                    print(f"{name:16}" + "".join(cells), flush=True)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    if args.write:
        write({**old, **new})
        return 0
    missing = [name for name in new if name not in old]
    for line in faults + [f"{name}: not in {os.path.relpath(TABLE)}" for name in missing]:
        print(f"gate: {line}", file=sys.stderr)
    return 1 if faults or missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as e:
        sys.exit(f"gate: {e}")
