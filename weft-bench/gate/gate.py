#!/usr/bin/env python3
"""What a request costs of what repeats: instructions, code cache lines, bytes allocated.

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
"""
import argparse
import os
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "figures.tsv")
COLUMNS = ("instructions", "lines", "bytes")
TOLERANCE = 0.02
CONNECTIONS = 64
FEW, MANY = 4_000, 24_000  # requests; multiples of the connections are sent
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


ROWS = {
    "static page": ("weft", [get("/index.html")]),
    "rotating pages": ("weft", [get(f"/page{i:02}.html") for i in range(PAGES)]),
    "browser head": ("weft", [get("/index.html", BROWSER)]),
    # No two are the same.
    "new heads": ("weft", [get(f"/index.html?{i:05}") for i in range(2 * MANY)]),
    "wai hello": ("hello", [get("/")]),
}


class Trouble(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(args, program, port, site, totals):
    flags = ["+RTS", "-V0", f"-t{totals}", "--machine-readable", "-RTS"]
    if program == "weft":
        serve = ["serve", site, "--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--quiet"]
        return [args.weft, *serve, *flags]
    # The other style moves an application that is slow, as all are here, to threads of GHC's.
    return [args.hello, "weft-direct", str(port), *flags]


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


def drive(port, server, requests, count, duration):
    """Rounds in which each connection sends a request and receives its response.

    The server is stopped while requests are sent, so that it finds all of them in one poll.
    The rounds are spread over the duration, in seconds. Answers how long they took.
    """
    clients = [connect(port, server) for _ in range(CONNECTIONS)]
    size, turns, start = 0, count // CONNECTIONS, time.monotonic()
    try:
        for client in clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for turn in range(turns):
            time.sleep(max(0, start + turn * duration / turns - time.monotonic()))
            server.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, server.pid, os.WSTOPPED)
            for i, client in enumerate(clients):
                client.sendall(requests[(turn * (CONNECTIONS + 1) + i) % len(requests)])
            server.send_signal(signal.SIGCONT)
            for client in clients:
                if not select.select([client], [], [], 60)[0]:
                    raise Trouble("no response in a minute")
                response = client.recv(65536)
                if not response.startswith(b"HTTP/1.1 200"):
                    raise Trouble(f"answered with {response[:200]!r}")
                # One kind of response for all; in pieces it would be another.
                if size not in (0, len(response)):
                    raise Trouble(f"a response of {len(response)} bytes beside one of {size}")
                size = len(response)
        return time.monotonic() - start
    finally:
        for client in clients:
            client.close()


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


def run(args, program, requests, count, duration, directory):
    port = free_port()
    out, totals = (os.path.join(directory, name) for name in ("callgrind", "statistics"))
    argv = command(args, program, port, os.path.join(directory, "site"), totals)
    # Children of ours do not outlive us: the server ends with its standard input, or by a signal.
    tool = [args.valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-instr=yes", "--fair-sched=yes"]
    errors = os.path.join(directory, "errors")
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
            took = drive(port, server, [request(port) for request in requests], count, duration)
        except Trouble as e:
            with open(errors, encoding="utf-8", errors="replace") as said:
                unknown = "unhandled amd64-linux syscall: 437" in said.read()
            why = "; this valgrind does not know openat2; 3.24 does (VALGRIND names another)" if unknown else ""
            raise Trouble(f"{e}{why}") from None
        server.stdin.close()
        if program == "weft":
            server.send_signal(signal.SIGTERM)
        server.wait(60)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    with open(totals, encoding="utf-8") as text:
        allocated = int(re.search(r'"bytes allocated", "(\d+)"', text.read())[1])
    total, costs = profile(out, os.path.realpath(argv[0]))
    if not costs:
        raise Trouble("callgrind has counted nothing in the program")
    return total, costs, allocated, took


def measure(args, name, directory):
    program, requests = ROWS[name]
    few, many = (n - n % CONNECTIONS for n in (FEW, MANY))
    # The server's work of each second cancels out when both runs take as long.
    after = run(args, program, requests, many, 0, directory)
    before = run(args, program, requests, few, after[3], directory)
    more = many - few
    lines = {a >> 6 for a, n in after[1].items() if n - before[1].get(a, 0) >= more / 2}
    return (round((after[0] - before[0]) / more), len(lines), round((after[2] - before[2]) / more))


def is_worse(figures, was):
    return any(value > (1 + TOLERANCE) * before for value, before in zip(figures, was))


def settled(args, name, directory, was):
    """The figures of a row, the medians of three where one run is not to be trusted."""
    figures = measure(args, name, directory)
    if not args.write and not (was and is_worse(figures, was)):
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
        table.write(f"# {CONNECTIONS} connections.\n")
        table.write("\t".join(("row", *COLUMNS)) + "\n")
        for name in ROWS:
            if name in figures:
                table.write("\t".join((name, *map(str, figures[name]))) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table anew")
    parser.add_argument("--weft", default="bin/weft")
    parser.add_argument("--hello", default="bin/weft-wai-hello")
    parser.add_argument("--valgrind", default=os.environ.get("VALGRIND", "valgrind"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    for name in args.rows:
        if name not in ROWS:
            parser.error(f"there is no row {name!r}")
    old, new, worse = committed(), {}, []
    print(f"{'':16}" + "".join(f"{c:>14}{'before':>8}{'':>8}" for c in COLUMNS))
    with tempfile.TemporaryDirectory() as directory:
        site = os.path.join(directory, "site")
        os.mkdir(site)
        for page in ["index.html", *(f"page{i:02}.html" for i in range(PAGES))]:
            with open(os.path.join(site, page), "w", encoding="utf-8") as file:
                file.write("x" * 305)
        for name in args.rows or ROWS:
            new[name] = settled(args, name, directory, old.get(name))
            cells = []
            for column, value, was in zip(COLUMNS, new[name], old.get(name, (None,) * 3)):
                if was is None:
                    cells.append(f"{value:>14}{'-':>8}{'':>8}")
                    continue
                cells.append(f"{value:>14}{was:>8}{value / was - 1:>+8.1%}")
                if is_worse([value], [was]):
                    worse.append(f"{name}: {column} {was} -> {value}")
            print(f"{name:16}" + "".join(cells), flush=True)
    if args.write:
        write({**old, **new})
        return 0
    missing = [name for name in new if name not in old]
    for line in worse + [f"{name}: not in {os.path.relpath(TABLE)}" for name in missing]:
        print(f"gate: {line}", file=sys.stderr)
    return 1 if worse or missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as e:
        sys.exit(f"gate: {e}")
