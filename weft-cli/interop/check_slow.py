"""Attacks by slowness (slowhttptest), while another client gets a page twenty times a second:
each of these requests must be answered, and soon."""

import re
import socket
import subprocess
import threading
import time

from harness import equal, need, raise_limit, true

CONNECTIONS = 1500
SECONDS = 15
# In seconds: what the 99th of a hundred of the prober's requests may take.
SOON = 0.5


class Prober(threading.Thread):
    """Gets a page every 50 ms, by turns on a connection of its own and on a kept one."""

    def __init__(self, program):
        super().__init__(daemon=True)
        self.port = program.port
        self.took, self.failures = [], []
        self.ending = threading.Event()

    def get(self, connection, last):
        connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: probe\r\n" + (b"Connection: close\r\n" if last else b"") + b"\r\n")
        said = b""
        while not said.endswith(b"\r\n\r\n0123456789abcdef"):
            piece = connection.recv(65536)
            true(f"the connection ended after {said!r}", piece)
            said += piece
        true(f"200: {said!r}", said.startswith(b"HTTP/1.1 200 "))

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def run(self):
        kept = self.connect()
        turn, due = 0, time.monotonic()
        while not self.ending.is_set():
            begin = time.monotonic()
            try:
                if turn % 2:
                    self.get(kept, False)
                else:
                    with self.connect() as connection:
                        self.get(connection, True)
                self.took.append(time.monotonic() - begin)
            except (OSError, AssertionError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                kept = self.connect()
            turn += 1
            due += 0.05
            self.ending.wait(max(0.0, due - time.monotonic()))

    def verdict(self):
        self.ending.set()
        self.join(30)
        equal("failures", self.failures, [])
        times = sorted(self.took)
        true(f"it got the page {len(times)} times", len(times) > 20)
        middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
        true(f"p99 is {late * 1000:.0f} ms", late < SOON)
        return f"{len(times)} of {len(times)} pages; p50 {middle * 1000:.1f} ms, p99 {late * 1000:.1f} ms, longest {times[-1] * 1000:.0f} ms"


def pressures():
    """How often the kernel has come to the limit of its memory for TCP; None where it does not say."""
    try:
        with open("/proc/net/netstat") as file:
            names, values = [line.split()[1:] for line in file if line.startswith("TcpExt:")]
        return int(dict(zip(names, values))["TCPMemoryPressures"])
    except (OSError, ValueError, KeyError):
        return None


def attack(program, prober_of, *options, at_once=False):
    """The most connections that were open, and what the prober says."""
    before = pressures()
    slow = need("slowhttptest")
    prober = Prober(prober_of)
    prober.start()
    try:
        done = subprocess.run([slow, "-c", str(CONNECTIONS), "-r", "500", "-l", str(SECONDS), "-p", "10", *options],
                              capture_output=True, timeout=SECONDS + 60)  # fmt: skip
    finally:
        prober.ending.set()
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode("utf-8", "replace"))
    most = max([int(n) for n in re.findall(r"connected: +(\d+)", said)], default=0)
    program.alive()
    verdict = prober.verdict()
    # Others may use the network, too; they rarely have it keep gigabytes.
    equal("times that memory for TCP was short", pressures(), before)
    if at_once:
        # Each was answered and closed before the next second, in which it counts them.
        true(f"it ended early: {said[-300:]}", "No open connections left" in said)
        return f"all answered at once; {verdict}"
    true(f"slowhttptest had {most} connections: {said[-300:]}", most >= 1000)
    return f"{most} connections at a time; {verdict}"


def checks(table, servers):
    raise_limit()
    weft, echo = servers.weft, servers.echo
    large = f"{weft.url}/large.bin"

    def check(what, *args, **options):
        table.check("slowhttptest", what, lambda: attack(*args, **options))

    check("-H: heads that come a field every 5 s", weft, weft, "-H", "-i", "5", "-u", f"{weft.url}/hello.txt")
    check("-B: bodies that come some bytes every 5 s", echo, weft, "-B", "-i", "5", "-s", "100000", "-u", f"{echo.url}/length")
    check("-X: responses of 5 MB read 32 bytes a second", weft, weft, "-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-u", large)
    check("-R: 1,000 ranges in each request", weft, weft, "-R", "-a", "1", "-b", "3000", "-t", "GET", "-u", large, at_once=True)
