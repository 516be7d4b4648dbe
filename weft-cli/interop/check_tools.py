"""wget, ab, wrk, node and Go."""

import os
import re

from harness import HERE, equal, need, recognisable, run, short, true


def checks(table, servers):
    weft, echo, scratch = servers.weft.url, servers.echo.url, servers.scratch
    large = (servers.site / "large.bin").read_bytes()

    def wget_mirror():
        run(need("wget"), "-q", "-r", "-nH", "-P", str(scratch / "mirror"), f"{weft}/")
        found = sorted(str(p.relative_to(scratch / "mirror")) for p in (scratch / "mirror").rglob("*") if p.is_file())
        equal("files", found, ["hello.txt", "index.html", "sub/index.html", "sub/page.txt"])

    def wget_rest():
        (scratch / "large.bin").write_bytes(large[:1_234_567])
        run(need("wget"), "-q", "-c", "-O", str(scratch / "large.bin"), f"{weft}/large.bin")
        equal("file", (scratch / "large.bin").read_bytes(), large)
        run(need("wget"), "-q", "-S", "-N", "-P", str(scratch), f"{weft}/hello.txt")
        said = run(need("wget"), "-nv", "-N", "-P", str(scratch), f"{weft}/hello.txt")
        equal("not fetched again", said, b"")

    def wget_post():
        (scratch / "post.bin").write_bytes(recognisable(500_000))
        equal("echo", run(need("wget"), "-q", "-O", "-", f"--post-file={scratch / 'post.bin'}", f"{echo}/echo"), recognisable(500_000))

    def ab(*args):
        said = run(need("ab"), "-q", *args, timeout=60).decode()
        number = lambda what: int((re.search(rf"{what}: +(\d+)", said) or [0, "0"])[1])
        equal("failed requests", number("Failed requests"), 0)
        equal("not 2xx", number("Non-2xx responses"), 0)
        return number("Complete requests"), number("Keep-Alive requests")

    def ab_plain():
        equal("complete, kept", ab("-n", "5000", "-c", "50", f"{weft}/hello.txt"), (5000, 0))

    def ab_keep():
        equal("complete, kept", ab("-k", "-n", "20000", "-c", "50", f"{weft}/hello.txt"), (20000, 20000))

    def ab_post():
        (scratch / "ab.bin").write_bytes(recognisable(20_000))
        return "%d complete, %d kept" % ab("-k", "-n", "2000", "-c", "20", "-p", str(scratch / "ab.bin"), "-T", "text/plain", f"{echo}/whole")

    def wrk(*args):
        said = run(need("wrk"), "-t2", "-c64", "-d3s", *args, timeout=60).decode()
        true(short(said), "Socket errors" not in said and "Non-2xx" not in said)
        return re.search(r"\d+ requests", said)[0]

    def node():
        return run(need("node"), str(HERE / "clients" / "node_client.mjs"), weft, echo, timeout=60).decode().strip()

    def go():
        environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        # The first time it compiles Go's own library.
        run(need("go"), "build", "-o", str(scratch / "go-client"), ".", cwd=HERE / "clients" / "go", timeout=300, env=environment)
        return run(str(scratch / "go-client"), weft, echo, timeout=60).decode().strip()

    table.check("wget", "-r: the whole site", wget_mirror)
    table.check("wget", "-c: the rest of a download; -N: not modified", wget_rest)
    table.check("wget", "--post-file", wget_post)
    table.check("ab", "5,000 requests, 50 connections at a time (HTTP/1.0)", ab_plain)
    table.check("ab", "-k: 20,000 requests on 50 connections (HTTP/1.0)", ab_keep)
    table.check("ab", "-k -p: 2,000 bodies of 20 KB (HTTP/1.0)", ab_post)
    table.check("wrk", "64 connections", lambda: wrk(f"{weft}/hello.txt"))
    table.check("wrk", "64 connections, 16 pipelined requests of three kinds", lambda: wrk("-s", str(HERE / "clients" / "pipeline.lua"), f"{weft}/"))
    table.check("node", "http with keep-alive, fetch, trailer fields, upgrade", node)
    table.check("go", "net/http: keep-alive, both directions, trailer fields", go)
