"""The servers under test, what clients need around them, and the table of results.

Only Python's own library is used. A check is a function that takes the servers (`Rig`)
and raises when something is not as it should be; `Skip` says that a program is absent.
"""

import contextlib
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Skip(Exception):
    """What the check needs is not there."""


def need(program):
    """The path of a program, or the check is skipped."""
    found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/go/bin")
    if found is None:
        raise Skip(f"there is no {program}")
    return found


def equal(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: wanted {short(wanted)}, got {short(got)}")


def true(what, condition):
    if not condition:
        raise AssertionError(what)


def short(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:150]} ... {text[-100:]} ({len(text)} characters)"


def run(*command, timeout=30, stdin=b"", codes=(0,), cwd=None, env=None):
    """Run a client to its end: its standard output. Its exit code must be one of these."""
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout, cwd=cwd, env=env)
    if done.returncode not in codes:
        raise AssertionError(
            f"{pathlib.Path(command[0]).name} ended with {done.returncode}: "
            f"{short(done.stderr.decode('utf-8', 'replace'))} {short(done.stdout[-500:])}"
        )
    return done.stdout


class Program:
    """A server: started by a command that says in its first line which port it has."""

    def __init__(self, name, command, errors, env=None):
        self.name = name
        self.errors = pathlib.Path(errors)
        with open(errors, "wb") as stderr:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, **(env or {})}
            )
        self.pid = self.process.pid
        ready, _, _ = select.select([self.process.stdout], [], [], 10)
        line = self.process.stdout.readline().decode() if ready else ""
        found = re.search(r":(\d+)/?$", line.strip())
        if not found:
            self.kill()
            raise SystemExit(f"{name} did not start: {line!r} {self.errors.read_text()!r}")
        self.port = int(found.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        """As an operator would: it must end by itself, and well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} did not end within 15 s of SIGTERM") from None
        equal(f"exit code of {self.name}", self.process.returncode, 0)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def alive(self):
        true(f"{self.name} has ended: {self.errors.read_text()[-500:]}", self.process.poll() is None)

    def well(self):
        """What clients do is no news for an operator."""
        self.alive()
        equal(f"standard error of {self.name}", self.errors.read_bytes()[-500:], b"")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def os_threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def resident(self):
        """Resident memory in bytes."""
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def threads(self):
        """Weft threads, from the dump that SIGUSR1 asks for."""
        before = self.errors.stat().st_size
        self.process.send_signal(signal.SIGUSR1)
        for _ in range(200):
            time.sleep(0.01)
            said = self.errors.read_bytes()[before:].decode("utf-8", "replace")
            found = re.search(r"^(\d+) threads?: ", said, re.M)
            if found:
                return int(found.group(1))
        raise AssertionError(f"{self.name} does not answer SIGUSR1")


def recognisable(size):
    """The given number of bytes in which every place is recognisable."""
    return b"".join(b"%09d\n" % n for n in range(size // 10 + 1))[:size]


def make_site(root):
    site = pathlib.Path(root) / "site"
    (site / "sub").mkdir(parents=True)
    (site / "index.html").write_text('<!DOCTYPE html><title>home</title><a href="hello.txt">hello</a> <a href="sub/">sub</a>\n')
    (site / "sub" / "index.html").write_text('<title>sub</title><a href="page.txt">page</a>\n')
    (site / "sub" / "page.txt").write_text("a page\n")
    (site / "hello.txt").write_text("0123456789abcdef")
    (site / "large.bin").write_bytes(recognisable(5_000_000))
    return site


class Rig:
    """Both servers on a site of their own."""

    def __init__(self, weft, echo, backend="auto", weft_options=(), env=None):
        raise_limit()
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-interop-"))
        self.site = make_site(self.scratch)
        self.programs = []
        try:
            self.weft = self.start(
                "weft serve",
                [weft, "serve", str(self.site), "--host", "127.0.0.1", "--port", "0", "--backend", backend, *weft_options],
                env,
            )
            self.echo = self.start("weft-http-echo", [echo, backend], env)
        except BaseException:
            self.kill()
            raise

    def start(self, name, command, env):
        program = Program(name, command, self.scratch / f"errors-{len(self.programs)}", env)
        self.programs.append(program)
        return program

    def kill(self):
        for program in self.programs:
            program.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def close(self):
        try:
            for program in self.programs:
                program.stop()
        finally:
            self.kill()


@contextlib.contextmanager
def rig(*args, **options):
    servers = Rig(*args, **options)
    try:
        yield servers
    except BaseException:
        servers.kill()
        raise
    servers.close()


def raise_limit():
    """Many connections need many descriptors, here and in what is started."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Table:
    """Results as they come, a row each."""

    def __init__(self, heading=True):
        self.rows = self.failed = self.skipped = 0
        if heading:
            print(f"{'client':<14} {'what':<62} {'result':<8} {'s':>6}  note", flush=True)

    def check(self, client, what, function):
        start = time.monotonic()
        note = ""
        try:
            note = function() or ""
            result = "ok"
        except Skip as why:
            result, note = "SKIPPED", str(why)
            self.skipped += 1
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
            result, note = "FAILED", f"{type(error).__name__}: {error}"
            self.failed += 1
        self.rows += 1
        took = time.monotonic() - start
        print(f"{client:<14} {what:<62} {result:<8} {took:6.2f}  {note}".rstrip(), flush=True)

    def end(self):
        print(f"{self.rows} checks, {self.failed} failed, {self.skipped} skipped", flush=True)
        return self.failed == 0


# Raw connections -------------------------------------------------------------------


def connected(program, timeout=10):
    connection = socket.create_connection(("127.0.0.1", program.port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def to_end(connection):
    """All that comes until the server ends the connection."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


class Unread:
    """Asks the kernel how much a server has not yet taken of what was sent to it."""

    def __init__(self):
        self.netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)  # NETLINK_SOCK_DIAG

    def close(self):
        self.netlink.close()

    def bytes(self, connection):
        server, client = connection.getpeername(), connection.getsockname()
        identity = struct.pack(">HH16s16s", server[1], client[1], socket.inet_aton(server[0]), socket.inet_aton(client[0]))
        identity += struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
        request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + identity
        self.netlink.send(struct.pack("=IHHII", 16 + len(request), 20, 1, 1, 0) + request)
        answer = self.netlink.recv(4096)
        if struct.unpack_from("=H", answer, 4)[0] != 20:
            return 0  # the server has closed it
        return struct.unpack_from("=I", answer, 16 + 56)[0]

    def wait(self, connection):
        """Until the server has taken everything."""
        end = time.monotonic() + 10
        while self.bytes(connection):
            if time.monotonic() > end:
                raise AssertionError("the server does not read what was sent")


def responses(data, methods):
    """The responses in a stream to requests with these methods, as (status, fields, body,
    trailer fields). Strict: whatever is not as RFC 9112 wants it is an AssertionError."""
    found = []
    for method in methods:
        while True:
            head, sep, data = data.partition(b"\r\n\r\n")
            true(f"no response to {method}: {short(head)}", sep)
            lines = head.split(b"\r\n")
            status = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [^\r\n]*", lines[0])
            true(f"no status line: {lines[0]!r}", status)
            code = int(status.group(1))
            fields = [field(line) for line in lines[1:]]
            if code != 100:
                break
        names = [name for name, _ in fields]
        true(f"Content-Length and Transfer-Encoding: {fields}", not {"content-length", "transfer-encoding"} <= set(names))
        body, trailers = b"", []
        if method == "HEAD" or code in (204, 304):
            pass
        elif ("transfer-encoding", "chunked") in fields:
            while True:
                size, sep, data = data.partition(b"\r\n")
                true(f"no chunk size: {size!r}", sep and re.fullmatch(rb"[0-9a-f]+", size))
                if int(size, 16) == 0:
                    break
                body += data[: int(size, 16)]
                equal("the end of a chunk", data[int(size, 16) :][:2], b"\r\n")
                data = data[int(size, 16) + 2 :]
            while True:
                line, sep, data = data.partition(b"\r\n")
                true("no end of a trailer section", sep)
                if not line:
                    break
                trailers.append(field(line))
        elif "content-length" in names:
            length = int(dict(fields)["content-length"])
            body, data = data[:length], data[length:]
            equal("length of the body", len(body), length)
        else:
            body, data = data, b""
        found.append((code, fields, body, trailers))
    equal("what follows the last response", data, b"")
    return found


def field(line):
    found = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*", line)
    true(f"no field: {line!r}", found)
    return found.group(1).decode().lower(), found.group(2).decode("latin-1")


if __name__ == "__main__":
    sys.exit("this is a library; see interop.py")
