"""TLS with the clients that people use: new connections each time, since what differs from
one to the next are the lengths of their greetings (1.4 to 1.8 KB with ML-KEM, which OpenSSL
from 3.5, Go from 1.24 and Chromium offer).

OPENSSL names another openssl than the first in the path."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import harness
from harness import HERE, Skip, equal, need, run, short, true


def openssl():
    """The program to be used, and its version."""
    program = os.environ.get("OPENSSL") or need("openssl")
    said = run(program, "version").decode()
    return program, tuple(int(n) for n in re.search(r"OpenSSL (\d+)\.(\d+)\.(\d+)", said).groups())


def certificate(directory, name, *, host="localhost", days=30, key="ec -pkeyopt ec_paramgen_curve:P-256", before=()):
    """A certificate that has signed itself: its file, and that of its key."""
    chain, private = str(directory / f"{name}.pem"), str(directory / f"{name}.key")
    run(*before, need("openssl"), "req", "-x509", "-newkey", *key.split(), "-nodes", "-keyout", private, "-out", chain,
        "-subj", f"/CN={host}", "-days", str(days), "-addext", f"subjectAltName=DNS:{host}")  # fmt: skip
    return chain, private


@contextlib.contextmanager
def secured(asked):
    """`weft serve` with TLS, and the file of its certificate."""
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-interop-"))
    site = harness.make_site(scratch)
    chain, key = certificate(scratch, "here")
    server = harness.Program(
        "weft serve",
        [asked.weft, "serve", str(site), "--host", "127.0.0.1", "--port", "0", "--backend", asked.backend, "--tls-cert", chain, "--tls-key", key],
        scratch / "errors",
    )
    try:
        yield server, chain, scratch
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(scratch, ignore_errors=True)


def alone(table, asked):
    with secured(asked) as (server, chain, scratch):
        clients(table, server, chain, scratch)
        table.check("weft serve", "is well after these clients", server.alive)


def clients(table, server, chain, scratch):
    url = f"https://localhost:{server.port}"

    def s_client():
        program, version = openssl()
        if version < (3, 5):
            raise Skip("there is no openssl from 3.5 (OPENSSL names one); this one is %d.%d.%d" % version)
        good, sizes = 0, set()
        for n in range(40):
            # The second protocol makes each greeting longer than the one before.
            said = subprocess.run(
                [program, "s_client", "-connect", f"127.0.0.1:{server.port}", "-servername", "localhost", "-CAfile", chain,
                 "-verify_return_error", "-ign_eof", "-msg", "-alpn", "http/1.1," + "x" * (6 * n + 1)],
                input=b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", capture_output=True, timeout=30,
            ).stdout.decode("latin-1")  # fmt: skip
            good += "HTTP/1.1 200 OK" in said and "0123456789abcdef" in said
            sizes.update(int(n, 16) for n in re.findall(r"Handshake \[length ([0-9a-f]+)\], ClientHello", said))
        equal(f"answers, of 40 (greetings of {sorted(sizes)})", good, 40)
        return "%d.%d.%d: " % version + f"40 of 40, greetings of {min(sizes)} to {max(sizes)} bytes"

    def go():
        environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        program = need("go")
        version = run(program, "env", "GOVERSION", env=environment).decode().strip()
        # The first time it compiles Go's own library.
        run(program, "build", "-o", str(scratch / "go-client"), ".", cwd=HERE / "clients" / "go-tls", timeout=300, env=environment)
        # The module's go line would leave this out.
        with_mlkem = {**environment, "GODEBUG": "tlsmlkem=1"}
        return f"{version}: " + run(str(scratch / "go-client"), f"{url}/hello.txt", chain, "40", timeout=120, env=with_mlkem).decode().strip()

    def chromium():
        program = need("chromium")
        version = re.search(r"\d+", run(program, "--version").decode())[0]
        good, said = 0, ""
        for n in range(18):
            # Root may not have a sandbox; nothing but this server is looked at.
            said = subprocess.run(
                [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--ignore-certificate-errors", f"--user-data-dir={scratch / f'profile-{n}'}",
                 "--dump-dom", f"{url}/hello.txt"],
                capture_output=True, timeout=90,
            ).stdout.decode("utf-8", "replace")  # fmt: skip
            good += "0123456789abcdef" in said
        true(f"{good} of 18 loads: {short(said)}", good == 18)
        return f"{version}: 18 of 18 loads"

    table.check("openssl", "40 new connections, from 3.5", s_client)
    table.check("go", "crypto/tls: 40 new connections", go)
    table.check("chromium", "18 loads, each with a profile of its own", chromium)
