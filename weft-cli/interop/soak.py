#!/usr/bin/env python3
"""Hours of clients of every kind, and what is left of them.

    soak.py MINUTES [--weft PROGRAM] [--echo PROGRAM] [--storm PROGRAM] [--backends epoll,io_uring]

For each event source a `weft serve` and a `weft-http-echo`, all at the same time. Clients
come and go: they keep connections or do not, pipeline, send bodies and leave in the middle
of them, read slowly, close half, reset. At the end, when the servers have closed what was
idle, each must have as many descriptors and Weft threads as when it began, and as many OS
threads but for GHC's spare ones; its live heap must not have grown, nor its resident memory
since a fifth of the time; and no response was wrong.

Beside them, one after the other, go storms of cancellations (`weft-storm`): each kind of call on
each event source with one and with two workers, 100,000 cancellations each. None may stand still
or lose anything. They go on to their end when the clients have ended.
"""

import argparse
import asyncio
import http.client
import itertools
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import harness

CLIENTS = 24  # for each server, at a time
PATTERN = b"".join((b"%d" % n + b".........." )[:10] for n in range(1000, 2000))
# After how long an idle connection is closed by either server (the echo's is in its source).
IDLE = 20

# OS threads that GHC keeps when it has had a use for them (the pool for blocking calls has up
# to sixteen at work): six for each capability. They come late, one by one, and stay.
SPARE = 6 * (os.cpu_count() or 1)

# The growth of memory that passes: noise of the collector and of malloc.
RESIDENT_SLACK = 24 << 20
LIVE_SLACK = 1 << 20


class Wrong(Exception):
    """A response that is not right."""


class Counts:
    def __init__(self):
        self.requests = self.connections = self.left = 0
        self.wrong = []


class Talk:
    """One connection."""

    def __init__(self, reader, writer, counts):
        self.reader, self.writer, self.counts = reader, writer, counts
        counts.connections += 1

    def send(self, data):
        self.writer.write(data)

    async def response(self, wanted, head=False, code=200):
        line = await self.reader.readuntil(b"\r\n")
        if not line.startswith(b"HTTP/1.1 %d " % code):
            raise Wrong(f"{line!r} instead of {code}")
        fields = {}
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        if fields.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            while await self.reader.readuntil(b"\r\n") != b"\r\n":
                pass
        else:
            body = b"" if head else await self.reader.readexactly(int(fields[b"content-length"]))
        if wanted is not None and body != wanted:
            raise Wrong(f"{len(body)} octets instead of {len(wanted)}")
        self.counts.requests += 1
        return body

    def reset(self):
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def asking(method, target, body=b"", fields=b""):
    return b"%s %s HTTP/1.1\r\nHost: soak\r\n%s\r\n%s" % (method, target, fields, body)


def get(target, fields=b""):
    return asking(b"GET", target, fields=fields)


def post(target, body, chunked):
    if chunked:
        text = b"".join(b"%x\r\n%s\r\n" % (len(body[i : i + 3000]), body[i : i + 3000]) for i in range(0, len(body), 3000))
        return asking(b"POST", target, text + b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\n")
    return asking(b"POST", target, body, b"Content-Length: %d\r\n" % len(body))


# Kinds of clients, for either server. Each has a fresh connection.


async def keeps(talk, draw, site):
    for _ in range(draw.randrange(1, 30)):
        kind = draw.randrange(5)
        if kind == 0:
            talk.send(get(b"/hello.txt"))
            await talk.response(site["hello"])
        elif kind == 1:
            talk.send(get(b"/hello.txt", b"Range: bytes=2-5\r\n"))
            await talk.response(site["hello"][2:6], code=206)
        elif kind == 2:
            talk.send(asking(b"HEAD", b"/large.bin"))
            await talk.response(None, head=True)
        elif kind == 3:
            talk.send(get(b"/missing"))
            await talk.response(None, code=404)
        else:
            talk.send(post(b"/hello.txt", b"x" * draw.randrange(30_000), draw.random() < 0.5))
            await talk.response(None, code=405)


async def pipelines(talk, draw, site):
    n = draw.randrange(2, 100)
    talk.send(get(b"/hello.txt") * n)
    for _ in range(n):
        await talk.response(site["hello"])


async def downloads(talk, draw, site):
    talk.send(get(b"/large.bin"))
    await talk.response(site["large"])


async def reads_slowly(talk, draw, site):
    talk.send(get(b"/large.bin"))
    for _ in range(draw.randrange(1, 20)):
        await talk.reader.read(4096)
        await asyncio.sleep(0.05)
    talk.counts.left += 1


async def echoes(talk, draw, site):
    for _ in range(draw.randrange(1, 15)):
        body, chunked = b"e" * draw.choice([0, 1, 500, 40_000]), draw.random() < 0.5
        target = draw.choice([b"/echo", b"/whole", b"/length", b"/ignore", b"/fail"])
        talk.send(post(target, body, chunked))
        wanted = {b"/length": b"%d\n" % len(body), b"/ignore": b"ignored\n", b"/fail": None}.get(target, body)
        await talk.response(wanted, code=500 if target == b"/fail" else 200)
    talk.send(get(b"/chunked?25000"))
    await talk.response((PATTERN * 3)[:25000])


async def upgrades(talk, draw, site):
    talk.send(get(b"/upgrade", b"Connection: Upgrade\r\nUpgrade: echo\r\n"))
    await talk.reader.readuntil(b"\r\n\r\n")
    for _ in range(draw.randrange(20)):
        talk.send(b"there and back")
        if await talk.reader.readexactly(14) != b"there and back":
            raise Wrong("another protocol")
    talk.counts.requests += 1


async def leaves_a_stream(talk, draw, site):
    talk.send(get(b"/slow?100000"))
    await talk.reader.readuntil(b"line 2\n")
    talk.counts.left += 1
    if draw.random() < 0.5:
        talk.reset()


async def leaves_an_upload(talk, draw, site):
    target = draw.choice([b"/echo", b"/length", b"/hello.txt"])
    size = draw.choice([100, 100_000, 10_000_000])
    talk.send(asking(b"POST", target, b"x" * 50, b"Content-Length: %d\r\n" % size))
    await asyncio.sleep(draw.random() / 4)
    talk.counts.left += 1
    if draw.random() < 0.7:
        talk.reset()


async def leaves_a_head(talk, draw, site):
    text = get(b"/hello.txt", b"X: y\r\n")
    talk.send(text[: draw.randrange(len(text))])
    await asyncio.sleep(draw.random() / 4)
    talk.counts.left += 1
    if draw.random() < 0.5:
        talk.reset()


async def trickles(talk, draw, site):
    for byte in get(b"/"):
        talk.send(bytes([byte]))
        await asyncio.sleep(0.01)
    await talk.response(None)


async def closes_half(talk, draw, site):
    talk.send(get(b"/") * 3)
    talk.writer.write_eof()
    for _ in range(3):
        await talk.response(None)
    if await talk.reader.read():
        raise Wrong("something follows the last response")


async def is_idle(talk, draw, site):
    talk.send(get(b"/"))
    await talk.response(None)
    await asyncio.sleep(draw.random() * 8)


async def is_wrong(talk, draw, site):
    talk.send(draw.choice([b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", b"GET  /\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"]))
    await talk.response(None, code=400)


async def resets(talk, draw, site):
    talk.send(draw.choice([get(b"/"), get(b"/large.bin") * 2, get(b"/chunked?10000000")]))
    await asyncio.sleep(draw.random() / 10)
    talk.counts.left += 1
    talk.reset()


BOTH = [leaves_a_head, leaves_an_upload, trickles, closes_half, is_idle, is_wrong, resets]
KINDS = {"weft serve": [keeps, keeps, keeps, pipelines, downloads, reads_slowly] + BOTH,
         "weft-http-echo": [echoes, echoes, echoes, upgrades, leaves_a_stream] + BOTH}  # fmt: skip


async def client(program, counts, site, draw, end):
    while time.monotonic() < end:
        kind = draw.choice(KINDS[program.name])
        writer = None
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", program.port), 30)
            await asyncio.wait_for(kind(Talk(reader, writer, counts), draw, site), 60)
        except (Wrong, asyncio.IncompleteReadError, asyncio.TimeoutError, OSError, ValueError, KeyError) as error:
            counts.wrong.append(f"{program.name}, a client that {kind.__name__.replace('_', ' ')}: {type(error).__name__}: {error}")
        finally:
            if writer is not None:
                writer.close()


class Sample:
    """What a server has, at a moment."""

    def __init__(self, program):
        self.descriptors = program.descriptors()
        self.os_threads = program.os_threads()
        self.resident = program.resident()
        self.threads = self.live = None
        if program.name == "weft-http-echo":
            # A connection of its own is part of what it counts, each time.
            with urllib.request.urlopen(f"{program.url}/counters", timeout=30) as said:
                numbers = dict(line.split() for line in said.read().decode().splitlines())
            self.threads, self.live = int(numbers["threads"]), int(numbers["live"])

    def row(self):
        live = "" if self.live is None else f"{self.live / 1e6:.2f}"
        threads = "" if self.threads is None else self.threads
        return f"{self.descriptors:>12} {self.os_threads:>10} {threads!s:>8} {self.resident / 1e6:>9.1f} {live:>9}"


class Storms(threading.Thread):
    """Storms of cancellations, one after the other."""

    KINDS = ("connect", "accept", "receive", "send", "file")
    # A storm without progress for this number of seconds has failed.
    PATIENCE = 20

    def __init__(self, program, cancellations):
        super().__init__()
        self.program, self.cancellations = program, cancellations
        self.done, self.wrong = [], []

    def run(self):
        for backend, workers, kind in itertools.product(("epoll", "io_uring", "poll"), (1, 2), self.KINDS):
            asked = [self.program, kind, backend, str(workers), str(self.cancellations), str(self.PATIENCE)]
            storm = subprocess.run(asked, capture_output=True, text=True, errors="replace")
            self.done.append(storm.stdout.strip())
            if storm.returncode != 0 or not storm.stdout:
                self.wrong.append(f"{' '.join(asked[1:])}: exit status {storm.returncode}: {storm.stderr[-20000:]}")


HEADING = f"{'min':>6} {'server':<15} {'source':<9} {'descriptors':>12} {'OS threads':>10} {'threads':>8} {'RSS MB':>9} {'live MB':>9}"


def settled(program, began):
    """Wait until a server has no more of anything than it began with, or for so long as it may
    keep an idle connection and take a body; then what it has."""
    end = time.monotonic() + IDLE + 15
    while True:
        now, threads = Sample(program), program.threads()
        if (now.descriptors, threads) == (began.descriptors, began.dumped) or time.monotonic() > end:
            now.dumped = threads
            return now
        time.sleep(0.5)


def soak(minutes, weft, echo, backends, seed=1, rts="-T"):
    """Run it, print the table, and answer what is wrong."""
    rigs, wrong = [], []
    try:
        # The counters of the heap are those of `+RTS -T`.
        for backend in backends:
            rigs.append((backend, harness.Rig(weft, echo, backend, ["--idle-timeout", str(IDLE)], {"GHCRTS": rts})))
        servers = [(backend, program) for backend, servers in rigs for program in servers.programs]
        site = {"hello": b"0123456789abcdef", "large": harness.recognisable(5_000_000)}
        counts = {program: Counts() for _, program in servers}

        def load(seconds):
            async def everybody():
                end = time.monotonic() + seconds
                draws = (random.Random(seed * 1000 + n) for n in range(10**6))
                await asyncio.gather(*(client(p, counts[p], site, next(draws), end) for _, p in servers for _ in range(CLIENTS)))

            asyncio.run(everybody())

        # The large file stays open from its first request on.
        for _, program in servers:
            once = http.client.HTTPConnection("127.0.0.1", program.port)
            once.request("GET", "/large.bin", headers={"Connection": "close"})
            once.getresponse().read()
            once.close()

        print(HEADING, flush=True)
        begin = time.monotonic()

        def show(samples):
            for backend, program in servers:
                print(f"{(time.monotonic() - begin) / 60:6.1f} {program.name:<15} {backend:<9} {samples[program].row()}", flush=True)

        first = {program: Sample(program) for _, program in servers}
        for _, program in servers:
            first[program].dumped = program.threads()
        show(first)
        warm = {}
        parts = max(2, min(10, round(minutes * 2)))
        for part in range(parts):
            load(minutes * 60 / parts)
            now = {program: Sample(program) for _, program in servers}
            show(now)
            if part == max(0, parts // 5 - 1):
                warm = now
        print("at rest:", flush=True)
        last = {program: settled(program, first[program]) for _, program in servers}
        show(last)
        for backend, program in servers:
            name, began, ended = f"{program.name} ({backend})", first[program], last[program]
            done = counts[program]
            print(f"{name}: {done.requests} responses on {done.connections} connections, {done.left} left in the middle, {len(done.wrong)} wrong; {began.dumped} Weft threads before, {ended.dumped} after", flush=True)
            wrong += [f"{name}: {w}" for w in done.wrong[:5]]
            for what, called in (("descriptors", "descriptors"), ("dumped", "Weft threads")):
                if getattr(began, what) != getattr(ended, what):
                    wrong.append(f"{name}: {called}: {getattr(began, what)} before, {getattr(ended, what)} after")
            if ended.os_threads > began.os_threads + SPARE:
                wrong.append(f"{name}: OS threads: {began.os_threads} before, {ended.os_threads} after, which is more than GHC keeps")
            if b"exception" in program.errors.read_bytes():
                wrong.append(f"{name}: complains: {program.errors.read_text()[-300:]}")
            if ended.resident > warm[program].resident + RESIDENT_SLACK:
                wrong.append(f"{name}: resident memory has grown from {warm[program].resident} to {ended.resident} bytes")
            if began.live is not None and ended.live > began.live + LIVE_SLACK:
                wrong.append(f"{name}: the live heap has grown from {began.live} to {ended.live} bytes")
            if done.requests == 0:
                wrong.append(f"{name}: no response at all")
        for _, servers in rigs:
            servers.close()
    finally:
        for _, servers in rigs:
            servers.kill()
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Clients of every kind, and what is left of them")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--weft", default="bin/weft")
    parser.add_argument("--echo", default="bin/weft-http-echo")
    parser.add_argument("--storm", default="bin/weft-storm")
    parser.add_argument("--backends", default="epoll,io_uring")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    storms = Storms(asked.storm, 100_000)
    storms.start()
    wrong = soak(asked.minutes, asked.weft, asked.echo, asked.backends.split(","), asked.seed)
    print("the storms go on to their end", flush=True)
    storms.join()
    print("\n".join(storms.done))
    wrong += storms.wrong
    print("\n".join(wrong) or "verdict: nothing is left, and nothing was wrong")
    if wrong:
        print("verdict: FAILED")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
