"""curl against both servers."""

import subprocess
import time

from harness import connected, equal, need, recognisable, run, short, true

BIG = recognisable(3_000_000)


def checks(table, servers):
    weft, echo = servers.weft.url, servers.echo.url
    site, scratch = servers.site, servers.scratch
    large = (site / "large.bin").read_bytes()
    (scratch / "upload.bin").write_bytes(BIG)

    def curl(*args, **options):
        return run(need("curl"), "-sS", "--max-time", "20", *args, **options)

    def check(what, function):
        table.check("curl", what, function)

    def get():
        equal("body", curl(f"{weft}/large.bin"), large)

    def http10():
        equal("status and body", curl("-0", "-w", "%{http_code}", f"{weft}/hello.txt"), b"0123456789abcdef200")
        # Without chunks the end of the connection is that of the content.
        equal("body made while it is sent", curl("-0", f"{echo}/chunked?25000"), curl(f"{echo}/chunked?25000"))

    def http10_keep():
        urls = [f"{weft}/hello.txt", f"{weft}/index.html", f"{weft}/hello.txt"]
        said = curl("-0", "-H", "Connection: keep-alive", "-w", "\n%{num_connects}\n", *urls).split(b"\n")
        connects = [int(line) for line in said if line in (b"0", b"1")]
        equal("connections opened for each", connects, [1, 0, 0])

    def keep():
        urls = [f"{weft}/hello.txt", f"{weft}/missing", f"{weft}/sub/", f"{weft}/large.bin", f"{weft}/hello.txt"]
        out = [x for _ in urls for x in ("-o", "/dev/null")]
        equal("connections opened for each", curl(*out, "-w", "%{num_connects} ", *urls).split(), [b"1", b"0", b"0", b"0", b"0"])

    def parallel():
        out = [x for n in range(40) for x in ("-o", str(scratch / f"parallel-{n}"), f"{weft}/large.bin")]
        curl("-Z", "--parallel-max", "20", *out)
        true("all are whole", all((scratch / f"parallel-{n}").read_bytes() == large for n in range(40)))

    def head():
        said = curl("-I", f"{weft}/large.bin")
        true(short(said), said.startswith(b"HTTP/1.1 200") and b"Content-Length: 5000000\r\n" in said)

    def ranges():
        url = f"{weft}/large.bin"
        equal("one", curl("-r", "10-19", url), large[10:20])
        equal("the end", curl("-r", "-7", url), large[-7:])
        many = curl("-r", "0-1,1000000-1000001", url)
        true(short(many), many.count(b"Content-Range: bytes") == 2)
        equal("none", curl("-r", "6000000-", "-o", "/dev/null", "-w", "%{http_code}", url), b"416")
        (scratch / "part").write_bytes(large[:1_234_567])
        curl("-C", "-", "-o", str(scratch / "part"), url)
        equal("the rest of a download", (scratch / "part").read_bytes(), large)

    def compressed():
        equal("body", curl("--compressed", f"{weft}/hello.txt"), b"0123456789abcdef")

    def etags():
        tag = str(scratch / "tag")
        curl("--etag-save", tag, "-o", "/dev/null", f"{weft}/hello.txt")
        equal("status", curl("--etag-compare", tag, "-o", "/dev/null", "-w", "%{http_code}", f"{weft}/hello.txt"), b"304")
        equal("status", curl("-z", str(site / "hello.txt"), "-o", "/dev/null", "-w", "%{http_code}", f"{weft}/hello.txt"), b"304")

    def upload():
        equal("echo", curl("--data-binary", f"@{scratch / 'upload.bin'}", f"{echo}/echo"), BIG)
        equal("whole", curl("-T", str(scratch / "upload.bin"), f"{echo}/whole"), BIG)

    def chunked():
        equal("echo", curl("-T", "-", f"{echo}/echo", stdin=BIG), BIG)
        equal("length", curl("-T", "-", f"{echo}/length", stdin=BIG), b"3000000\n")
        equal("none at all", curl("-T", "-", f"{echo}/length"), b"0\n")

    def expect():
        # It waits ten seconds for the 100, unless it comes.
        begin = time.monotonic()
        args = ("--expect100-timeout", "10", "-H", "Expect: 100-continue", "-T", str(scratch / "upload.bin"))
        equal("length", curl(*args, f"{echo}/length"), b"3000000\n")
        equal("refused", curl(*args, "-o", "/dev/null", "-w", "%{http_code}", f"{weft}/hello.txt"), b"405")
        equal("not looked at", curl(*args, f"{echo}/ignore"), b"ignored\n")
        true("100 came at once", time.monotonic() - begin < 8)

    def unread():
        # More than the server skips: the response must come all the same.
        equal("ignored", curl("-T", str(scratch / "upload.bin"), f"{echo}/ignore"), b"ignored\n")
        equal("405", curl("-T", str(scratch / "upload.bin"), "-o", "/dev/null", "-w", "%{http_code}", f"{weft}/hello.txt"), b"405")

    def too_large():
        # No byte of it is needed to refuse it.
        said = curl("-H", "Content-Length: 99999999999", "-X", "POST", "-o", "/dev/null", "-w", "%{http_code}", f"{echo}/whole")
        equal("status", said, b"413")

    def trailers():
        said = curl("--raw", "-i", f"{echo}/chunked?25000")
        true(short(said), said.endswith(b"\r\n0\r\nX-Count: 25000\r\n\r\n"))
        equal("length", len(curl(f"{echo}/chunked?25000")), 25000)

    def streaming():
        said = curl("-N", "-w", "%{time_starttransfer} %{time_total}", f"{echo}/slow?60").split(b"\n")
        equal("lines", said[:-1], [b"line %d" % n for n in range(1, 61)])
        first, last = map(float, said[-1].split())
        true(f"the first line comes before the last: {first} {last}", last - first > 0.3)

    def exact():
        said = curl("-i", f"{echo}/exact?123456")
        true(short(said), b"Content-Length: 123456\r\n" in said and b"Transfer-Encoding" not in said)

    def proxied():
        equal("absolute target", curl("-x", weft, "http://some.host/hello.txt"), b"0123456789abcdef")

    def methods():
        def code(*args):
            return curl("-o", "/dev/null", "-w", "%{http_code}", *args)

        equal("OPTIONS *", code("-X", "OPTIONS", "--request-target", "*", weft)[:1] in (b"2", b"4"), True)
        equal("DELETE", code("-X", "DELETE", f"{weft}/hello.txt"), b"405")
        equal("an unknown method", code("-X", "BREW", f"{weft}/hello.txt"), b"501")
        equal("outside of the directory", code("--path-as-is", f"{weft}/../../etc/passwd"), b"400")
        equal("a handler that fails", code(f"{echo}/fail"), b"500")

    def given_up():
        curl("-N", "--max-time", "1", "-o", "/dev/null", f"{echo}/slow?1000", codes=(28,))
        # An upload of which nothing comes after the head; curl 8.23 reads "-" without looking at the time.
        with subprocess.Popen([need("curl"), "-sS", "--max-time", "1", "-T", ".", f"{echo}/length"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as stuck:
            equal("exit code", stuck.wait(10), 28)
        equal("then", curl(f"{weft}/hello.txt"), b"0123456789abcdef")

    def long_head():
        equal("10 KB", curl("-H", "X: " + "x" * 10_000, f"{weft}/hello.txt"), b"0123456789abcdef")
        equal("20 KB", curl("-H", "X: " + "x" * 20_000, "-o", "/dev/null", "-w", "%{http_code}", f"{weft}/hello.txt"), b"431")
        equal("a long target", curl("-o", "/dev/null", "-w", "%{http_code}", f"{weft}/{'x' * 9000}"), b"414")

    def half_closed():
        # As nc does: all requests, then the end of its direction.
        with connected(servers.weft) as connection:
            connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
            connection.shutdown(1)
            said = b"".join(iter(lambda: connection.recv(65536), b""))
        equal("answers", said.count(b"\r\n\r\n0123456789abcdef"), 3)

    check("a file of 5 MB", get)
    check("-0", http10)
    check("-0 with keep-alive, three URLs on one connection", http10_keep)
    check("five URLs on one connection", keep)
    check("-Z, 40 times 5 MB on 20 connections", parallel)
    check("-I", head)
    check("-r: ranges, and -C -: the rest of a download", ranges)
    check("--compressed", compressed)
    check("--etag-compare, -z: 304", etags)
    check("--data-binary, -T FILE: 3 MB", upload)
    check("-T -: chunked upload of 3 MB", chunked)
    check("Expect: 100-continue", expect)
    check("an upload of 3 MB that nobody reads", unread)
    check("an upload of 100 GB is refused before it begins", too_large)
    check("chunked download with trailer fields", trailers)
    check("-N: content as it is made", streaming)
    check("content of an announced length, made while it is sent", exact)
    check("-x: a target in absolute form", proxied)
    check("methods, and a path out of the directory", methods)
    check("up- and downloads that are given up", given_up)
    check("heads of 10 and 20 KB", long_head)
    check("three requests and a half-close (a raw socket)", half_closed)
