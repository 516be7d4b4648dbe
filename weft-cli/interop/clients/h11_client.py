"""A loop of requests of all kinds with h11, which refuses what no server should send.

h11_client.py PORT_OF_ECHO PORT_OF_WEFT SEED
"""

import random
import socket
import sys

import h11

echo, weft, seed = map(int, sys.argv[1:])
choose = random.Random(seed)
requests = connections = 0


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 15)
        self.connection = h11.Connection(h11.CLIENT)

    def event(self):
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            self.connection.receive_data(self.socket.recv(65536))
        return event

    def send(self, event):
        if data := self.connection.send(event):
            self.socket.sendall(data)

    def ask(self, method, target, body=None, chunked=False, trailers=()):
        headers = [("Host", "test")]
        if body is not None:
            headers.append(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body))))
        self.send(h11.Request(method=method, target=target, headers=headers))
        for i in range(0, len(body or b""), 5000):
            self.send(h11.Data(data=body[i : i + 5000]))
        self.send(h11.EndOfMessage(headers=list(trailers)))
        event = self.event()
        assert isinstance(event, h11.Response), event
        code, got = event.status_code, b""
        while isinstance(event := self.event(), h11.Data):
            got += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return code, got, [(bytes(n), bytes(v)) for n, v in event.headers]


def one(client, port):
    """A request of some kind; what comes back must be right."""
    body = choose.randbytes(choose.choice([0, 1, 100, 20_000]))
    chunked = choose.random() < 0.5
    if port == weft:
        target, method = choose.choice(["/hello.txt", "/missing", "/sub/", "/"]), choose.choice(["GET", "HEAD", "DELETE"])
        code, got, _ = client.ask(method, target)
        wanted = 405 if method == "DELETE" else 404 if target == "/missing" else 200
        assert code == wanted, (method, target, code)
        assert (got == b"") == (method == "HEAD"), (method, target, got)
        return
    kind = choose.choice(["/echo", "/whole", "/length", "/ignore", "/chunked", "/exact", "/fail", "head"])
    if kind == "head":
        assert client.ask("HEAD", choose.choice(["/chunked?9", "/exact?9", "/", "/nothing"]))[1] == b""
    elif kind in ("/chunked", "/exact"):
        n = choose.choice([0, 1, 16_384, 50_000])
        code, got, trailers = client.ask("GET", f"{kind}?{n}")
        assert (code, len(got)) == (200, n), (kind, n, code, len(got))
        assert trailers == ([(b"x-count", b"%d" % n)] if kind == "/chunked" else []), trailers
    else:
        sent = [(b"x-t", b"u")] if chunked else []
        code, got, trailers = client.ask("POST", kind, body, chunked, sent)
        wanted = {"/length": b"%d\n" % len(body), "/ignore": b"ignored\n"}.get(kind, body)
        if kind == "/fail":
            assert code == 500, code
        else:
            assert (code, got) == (200, wanted), (kind, code, len(body), len(got))
            assert trailers == (sent if kind == "/echo" else []), trailers


while connections < 60:
    port = choose.choice([echo, weft])
    client = Client(port)
    connections += 1
    for _ in range(choose.randrange(1, 12)):
        one(client, port)
        requests += 1
        if client.connection.our_state is not h11.DONE or client.connection.their_state is not h11.DONE:
            break
        client.connection.start_next_cycle()
    client.socket.close()
print(f"{requests} requests, {connections} connections, seed {seed}")
