"""Python's http.client, and h11 as a client, which is strict about what servers send."""

import http.client
import random
import socket
import subprocess
import sys

from harness import HERE, Skip, connected, equal, field, recognisable, responses, short, to_end, true

BIG = recognisable(1_000_000)


def client(program):
    return http.client.HTTPConnection("127.0.0.1", program.port, timeout=15)


def checks(table, servers):
    weft, echo = servers.weft, servers.echo

    def check(what, function):
        table.check("http.client", what, function)

    def keep():
        connection = client(weft)
        connection.connect()
        first = connection.sock
        for target, code in [("/", 200), ("/hello.txt", 200), ("/missing", 404), ("/large.bin", 200), ("/hello.txt", 200)]:
            connection.request("GET", target)
            response = connection.getresponse()
            body = response.read()
            equal(target, response.status, code)
            true("there is a body", body)
        true("one connection for all", connection.sock is first)
        connection.request("HEAD", "/large.bin")
        response = connection.getresponse()
        equal("HEAD", (response.status, response.read(), response.headers["Content-Length"]), (200, b"", "5000000"))

    def chunks():
        connection = client(echo)
        for _ in range(3):
            connection.request("POST", "/echo", body=(BIG[i : i + 7777] for i in range(0, len(BIG), 7777)), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
            equal("echo", connection.getresponse().read(), BIG)

    def counted():
        connection = client(echo)
        for path in ("/whole", "/echo", "/whole"):
            connection.request("PUT", path, body=BIG)
            equal(path, connection.getresponse().read(), BIG)

    def trailers():
        with connected(echo) as connection:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\nX-End:\r\n\r\n")
            [(code, _, body, trailers)] = responses(to_end(connection), ["POST"])
        equal("echo", (code, body, trailers), (200, b"abc", [("x-sum", "6"), ("x-end", "")]))

    def hundred():
        with connected(echo) as connection:
            connection.sendall(b"POST /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            equal("interim", connection.recv(65536), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b"hello")
            [(code, _, body, _)] = responses(to_end(connection), ["POST"])
        equal("length", (code, body), (200, b"5\n"))

    def upgrade():
        with connected(echo) as connection:
            connection.sendall(b"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nat once ")
            said = b""
            while not said.endswith(b"at once "):
                said += connection.recv(65536)
            head, _, rest = said.partition(b"\r\n\r\n")
            true(short(head), head.startswith(b"HTTP/1.1 101 ") and ("upgrade", "echo") in [field(x) for x in head.split(b"\r\n")[1:]])
            equal("what came with the head", rest, b"at once ")
            # More than fits into the buffers of the sockets: it must be read and sent in turns.
            sent = 0
            back = b""
            connection.setblocking(False)
            while len(back) < len(BIG):
                if sent < len(BIG):
                    try:
                        sent += connection.send(BIG[sent : sent + 65536])
                    except BlockingIOError:
                        pass
                try:
                    back += connection.recv(65536)
                except BlockingIOError:
                    pass
            equal("what comes back", back, BIG)
            connection.setblocking(True)
            connection.settimeout(10)
            connection.shutdown(socket.SHUT_WR)
            equal("the end", connection.recv(100), b"")

    def pipelined():
        with connected(weft) as connection:
            connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 999 + b"GET /hello.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            said = responses(to_end(connection), ["GET"] * 1000)
        true("all are right", all(code == 200 and body == b"0123456789abcdef" for code, _, body, _ in said))

    def reset():
        # Closed with unread bytes, and with a reset, in the middle of everything.
        for text in (b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /lar", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx"):
            for _ in range(20):
                connection = connected(weft)
                connection.sendall(text)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()
        keep()

    def cut_off():
        # There is no client to answer; and it is no news for the operator.
        for target in (b"/length", b"/whole", b"/ignore"):
            for framing in (b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"):
                with connected(echo) as connection:
                    connection.sendall(b"POST " + target + b" HTTP/1.1\r\nHost: a\r\n" + framing)
                    connection.shutdown(socket.SHUT_WR)
                    said = to_end(connection)
                equal(f"answer of {target}", said.partition(b"\r\n")[0], b"HTTP/1.1 200 OK" if target == b"/ignore" else b"")

    def forgotten():
        def numbers():
            return {name: int(n) for name, n in (line.split() for line in get(client(echo), "/counters").decode().splitlines())}

        def get(connection, target):
            connection.request("GET", target)
            said = connection.getresponse().read()
            connection.close()
            return said

        def come_and_go(count):
            for _ in range(count):
                with connected(echo) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    to_end(connection)

        # Memory that is allocated once, such as buffers, is there after the first of them.
        come_and_go(500)
        before = numbers()
        come_and_go(3000)
        after = numbers()
        true(f"the heap is measured: {before}", before["live"] > 0)
        equal("threads", after["threads"], before["threads"])
        grown = after["live"] - before["live"]
        true(f"the live heap has grown by {grown} bytes", grown < 3000 * 16)
        return f"the live heap has grown by {grown} bytes"

    def strict():
        # In a Python that has it.
        for python in (sys.executable, "/usr/bin/python3"):
            if subprocess.run([python, "-c", "import h11"], capture_output=True).returncode == 0:
                seed = str(random.Random(11).randrange(10**6))
                said = subprocess.run([python, str(HERE / "clients" / "h11_client.py"), str(echo.port), str(weft.port), seed], capture_output=True, timeout=60, text=True)
                true(said.stderr[-800:], said.returncode == 0)
                return said.stdout.strip()
        raise Skip("no python3 has the module h11")

    check("requests on one connection", keep)
    check("chunked uploads of 1 MB", chunks)
    check("counted uploads of 1 MB", counted)
    check("trailer fields in both directions (a raw socket)", trailers)
    check("100 Continue, then the body (a raw socket)", hundred)
    check("101: another protocol, 1 MB (a raw socket)", upgrade)
    check("1,000 pipelined requests (a raw socket)", pipelined)
    check("60 resets (a raw socket)", reset)
    check("the end of the connection within a body (a raw socket)", cut_off)
    table.check("sockets", "3,000 connections come and go: nothing of them is kept", forgotten)
    table.check("h11", "a loop of requests of all kinds", strict)
