"""A conversation cut into two at every byte, and into single bytes: the answers must be
those to the whole. The second part is sent when the kernel says that the server has taken
the first, so that the server really sees the cut."""

import harness
from harness import Unread, connected, equal, responses, to_end

# Every kind of framing, one after the other, as a client sends them that does not wait.
WEFT = [
    ("GET", b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("GET", b"GET /hello.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=2-5\r\n\r\n"),
    ("POST", b"POST /hello.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nGET / HTTP/"),
    ("HEAD", b"\r\nHEAD /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("PUT", b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n0\r\n\r\n\r\n0a\r\n0123456789\r\n0\r\nT: u\r\n\r\n"),
    ("GET", b"GET /missing HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"),
    ("GET", b"GET http://b/sub/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("GET", b"GET /hello.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
]
ECHO = [
    ("POST", b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nGET / HTTP/"),
    ("POST", b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n0\r\n\r\n\r\n0a\r\n0123456789\r\n0\r\nT: u\r\nV:w\r\n\r\n"),
    ("GET", b"GET /head?q HTTP/1.1\r\nHost: a\r\nX: y \r\n\r\n"),
    ("POST", b"POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n01234567890123456789"),
    ("GET", b"GET /chunked?25 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("POST", b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
    ("POST", b"POST /fail HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"),
    ("HEAD", b"HEAD /exact?9 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("GET", b"GET /exact?9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
]


def told(data, methods):
    """Without the date, which may change meanwhile, and the lengths of chunks."""
    return [
        (code, sorted(f for f in fields if f[0] != "date"), body, trailers)
        for code, fields, body, trailers in responses(data, methods)
    ]


def split(program, conversation):
    whole = b"".join(text for _, text in conversation)
    methods = [method for method, _ in conversation]
    unread = Unread()

    def answers(parts):
        with connected(program) as connection:
            for part in parts[:-1]:
                connection.sendall(part)
                unread.wait(connection)
            connection.sendall(parts[-1])
            return told(to_end(connection), methods)

    try:
        wanted = answers([whole])
        codes = [code for code, _, _, _ in wanted]
        for cut in range(1, len(whole)):
            equal(f"cut at byte {cut}", answers([whole[:cut], whole[cut:]]), wanted)
        equal("byte by byte", answers([whole[i : i + 1] for i in range(len(whole))]), wanted)
    finally:
        unread.close()
    return f"{len(whole)} cuts; {' '.join(map(str, codes))}"


def checks(table, servers):
    for program, conversation in ((servers.weft, WEFT), (servers.echo, ECHO)):
        table.check("sockets", f"{program.name}: cut at every byte", lambda p=program, c=conversation: split(p, c))


if __name__ == "__main__":
    harness.sys.exit("see interop.py")
