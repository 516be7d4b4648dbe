"""Give random calls and packets to Linux and to weft-tcp, and compare what they answer.

    differential.py WEFT.SO [--seed N] [--scripts N] [--steps N] [--verbose]

A script is a list of steps, made from a seed: calls of one socket, and segments of a peer that are
right, wrong or hostile. Linux gets it first, over a TUN device in a network namespace of its own, many
scripts at a time, a step each slot of some milliseconds; then the shared object gets it, in virtual time
(README.md). What is compared in each slot: results of calls, the events of poll, and the packets, as numbers
relative to the connection's beginning. What differs is tried again with slots of other lengths, because timers of
the two may stand on either side of a slot's end.
"""

import argparse
import collections
import ctypes
import errno
import fcntl
import multiprocessing
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

# The object's address (Machine.hs), and one of its network.
LOCAL, REMOTE = "192.168.0.1", "192.168.0.2"
FIN, SYN, RST, PSH, ACK = (1 << i for i in range(5))
LETTERS = "FSRP.UEW"


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip(protocol, payload):
    source, target = socket.inet_aton(REMOTE), socket.inet_aton(LOCAL)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0x4000, 64, protocol, 0) + source + target
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def tcp(ports, seq, ack, flags, window, options, payload):
    options += b"\1" * (-len(options) % 4)
    body = struct.pack("!HHIIBBHHH", ports[1], ports[0], seq, ack, (5 + len(options) // 4) << 4, flags, window, 0, 0) + options + payload
    pseudo = socket.inet_aton(REMOTE) + socket.inet_aton(LOCAL) + struct.pack("!BBH", 0, 6, len(body))
    return ip(6, body[:16] + struct.pack("!H", checksum(pseudo + body)) + body[18:])


Packet = collections.namedtuple("Packet", "sport dport seq ack flags window options size")


def parse(raw):
    if len(raw) < 40 or raw[0] >> 4 != 4 or raw[9] != 6:
        return None
    head = (raw[0] & 15) * 4
    raw = raw[: struct.unpack("!H", raw[2:4])[0]]
    sport, dport, seq, ack, offset, flags, window = struct.unpack("!HHIIBBH", raw[head : head + 16])
    data = head + (offset >> 4) * 4
    options, rest = {}, raw[head + 20 : data]
    while rest and rest[0] != 0:
        if rest[0] == 1:
            rest = rest[1:]
        else:
            options[rest[0]] = rest[2 : rest[1]]
            rest = rest[rest[1] :]
    return Packet(sport, dport, seq, ack, flags, window, options, len(raw) - data)


# What a step can be. Numbers of segments are relative: "seq" to what the peer is to send next, "ack" to what it has
# seen from the other side.


def steps_of(seed, count):
    dice = random.Random(seed)
    pick = dice.choice
    stamps = dice.random() < 0.5
    opened = pick(["server", "server", "client"])
    steps = []
    offer = {"mss": pick([1460, 1460, 1000, 536]), "sack": dice.random() < 0.6, "scale": pick([None, 0, 7]), "stamps": stamps}

    full = 1448 if stamps else 1460

    def segment(flags=ACK, seq=0, ack=0, size=0, window=pick([65535, 65535, 20000, 3000]), **more):
        return ("segment", dict(flags=flags, seq=seq, ack=ack, size=size, window=window, **more))

    def odd():
        flags = pick([ACK, ACK, ACK | PSH, FIN | ACK, RST, RST | ACK, SYN, SYN | ACK, SYN | FIN, SYN | RST, FIN | RST | ACK])
        seq = pick([0, 0, 0, -1, 1, -1000, 1000, -1460, 5000, 100000, -100000, 2**30])
        ack = pick([0, 0, 0, 1, -1, 100, -100, -1000, 100000, -100000, -(2**30)])
        return segment(flags, seq, ack, pick([0, 0, 0, 1, 10, 1000, full]), pick([65535, 65535, 0, 1, 100, 3000]), tsval=pick([0, 0, 0, -1, -100000, 2**30, None]))

    def peer():
        kind = dice.random()
        if kind < 0.35:
            return segment()
        if kind < 0.6:
            return segment(ACK | PSH, size=pick([1, 10, 100, 1000, full]))
        if kind < 0.7:
            return segment(seq=pick([1000, full, 10]), size=pick([10, 1000]), keep=True)
        if kind < 0.78:
            return segment(window=pick([0, 0, 1, 100, 1000]))
        if kind < 0.86:
            return segment(ack="una", sack=pick([None, (-1000, 0), (-100, 0)]))
        if kind < 0.94:
            return segment(FIN | ACK)
        return pick([segment(RST), segment(RST | ACK), segment(SYN, window=1000), segment(FIN | ACK, seq=-1)])

    def call():
        return pick(
            [("write", pick([1, 10, 100, 1000, full, 3000]))] * 5
            + [("read", pick([1, 100, 1000, 100000]))] * 4
            + [("shutdown", pick([0, 1, 1, 2])), ("close",), ("error",), ("inq",), ("outq",), ("accept",), ("nodelay", pick([0, 1])), ("cork", pick([0, 1])), ("linger", pick([0, 1])), ("peek", 100)]
        )

    if opened == "server":
        steps += [("listen",)]
        steps += [odd() for _ in range(dice.random() < 0.15)]
        steps += [("segment", dict(flags=SYN, seq=0, ack=None, size=0, window=pick([65535, 3000]), offer=offer))]
        for _ in range(dice.random() < 0.25):
            steps.append(odd())
            steps[-1][1]["ack"] = 0
        steps += [segment(), ("accept",)]
    else:
        steps += [("connect",)]
        steps += [s for s in [odd()] if dice.random() < 0.25 and not s[1]["flags"] & SYN]
        if dice.random() < 0.1:
            offer = {"mss": offer["mss"], "sack": True, "scale": 7, "stamps": True}
            steps += [("segment", dict(flags=SYN, seq=0, ack=None, size=0, window=65535, offer=offer))]
        steps += [("segment", dict(flags=SYN | ACK, seq=0, ack=0, size=0, window=pick([65535, 3000]), offer=offer))]
    while len(steps) < count:
        kind = dice.random()
        steps.append(call() if kind < 0.4 else peer() if kind < 0.82 else odd() if kind < 0.93 else ("pause", pick([1, 5, 20])))
    return opened, steps


class Peer:
    """The other end: knows numbers, and makes the segments of a step."""

    def __init__(self, ports):
        self.ports, self.first, self.next, self.seen, self.una, self.stamp, self.echo = ports, None, 100, 0, 0, False, 0
        self.clock = 5000

    def look(self, p):
        if p.flags & SYN and self.first is None:
            self.first = p.seq
        if self.first is not None and not p.flags & RST:
            end = (p.seq - self.first + p.size + bool(p.flags & SYN) + bool(p.flags & FIN)) & 0xFFFFFFFF
            if end < 2**31:
                self.seen = max(self.seen, end)
        if 8 in p.options and len(p.options[8]) == 8:
            self.echo = struct.unpack("!II", p.options[8])[0]

    def relative(self, n, to):
        return (n - to + 2**31) % 2**32 - 2**31

    def show(self, p):
        first = self.first if self.first is not None else 0
        options = []
        if 2 in p.options:
            options.append(f"mss {struct.unpack('!H', p.options[2])[0]}")
        if 4 in p.options:
            options.append("sackOK")
        if 8 in p.options:
            options.append("TS")
        if 3 in p.options:
            options.append(f"wscale {p.options[3][0]}")
        if 5 in p.options:
            edges = struct.unpack(f"!{len(p.options[5]) // 4}I", p.options[5])
            options.append("sack " + " ".join(f"{self.relative(a, 100)}:{self.relative(b, 100)}" for a, b in zip(edges[::2], edges[1::2])))
        flags = "".join(l for i, l in enumerate(LETTERS) if (p.flags & ~PSH) >> i & 1)
        seq = self.relative(p.seq, first)
        # Of another connection of this port, or of none.
        if p.seq == 0 or abs(seq) > 1 << 20:
            seq = 0
        return f"{flags} {seq}:{seq + p.size}({p.size})" + (f" ack {self.relative(p.ack, 100)}" if p.flags & ACK else "") + (" win 0" if p.window == 0 and not p.flags & RST else "") + (f" <{','.join(options)}>" if options else "")

    def make(self, s):
        flags, options = s["flags"], b""
        self.clock += 10
        if "offer" in s:
            o = s["offer"]
            options += struct.pack("!BBH", 2, 4, o["mss"])
            if o["sack"]:
                options += b"\1\1\4\2"
            if o["scale"] is not None:
                options += bytes([1, 3, 3, o["scale"]])
            self.stamp = o["stamps"]
        if self.stamp and s.get("tsval", 0) is not None and not flags & RST:
            options += struct.pack("!BBBBII", 1, 1, 8, 10, (self.clock + s.get("tsval", 0)) % 2**32, self.echo)
        first = self.first or 0
        if s["ack"] is None:
            ack = 0
        elif s["ack"] == "una":
            ack = first + self.una
            if s.get("sack") and self.seen > self.una:
                low, high = (first + max(self.una + 1, self.seen + e) for e in s["sack"])
                if high > low:
                    options += struct.pack("!BBBBII", 1, 1, 5, 10, low % 2**32, high % 2**32)
        else:
            ack = first + self.seen + s["ack"]
            if s["ack"] == 0 and flags & ACK:
                self.una = self.seen
        seq = self.next + s["seq"]
        if s["seq"] == 0 and not flags & RST and not s.get("keep"):
            self.next += s["size"] + bool(flags & SYN) + bool(flags & FIN)
        if not flags & ACK:
            ack = 0
        return tcp(self.ports, seq % 2**32, ack % 2**32, flags, s["window"], options, bytes(i % 251 for i in range(s["size"])))


def tried(f, *a):
    try:
        return f(*a)
    except OSError as e:
        return errno.errorcode[e.errno]


INT, PTR, SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
NAMES = "free socket bind listen accept connect read readv recv recvfrom recvmsg write writev send sendto sendmsg fcntl ioctl close shutdown getsockopt setsockopt poll netdev_send netdev_receive usleep".split()


def address(host, port):
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + b"\0" * 8


class Calls:
    """C's functions: a number, or the name of an error."""

    def f(self, name, *a, types=None, result=INT):
        r = self.called(name, result, types or [INT] * len(a), a)
        return r if r >= 0 else errno.errorcode[ctypes.get_errno()]


class Linux(Calls):
    library = ctypes.CDLL(None, use_errno=True)

    def called(self, name, result, types, a):
        return ctypes.CFUNCTYPE(result, *types, use_errno=True)((name, self.library))(*a)


class Socket:
    """One script's socket, by C's functions: of the system or of the shared object."""

    def __init__(self, calls, port):
        self.w, self.port, self.s, self.listener = calls, port, None, None

    def fresh(self):
        s = self.w.f("socket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 6)
        self.option(s, socket.SOL_SOCKET, socket.SO_REUSEADDR, struct.pack("i", 1))
        if r := self.w.f("bind", s, address(LOCAL, self.port), 16, types=[INT, PTR, INT]):
            raise OSError(getattr(errno, r), "bind")
        return s

    def option(self, s, level, name, value):
        r = self.w.f("setsockopt", s, level, name, value, len(value), types=[INT, INT, INT, PTR, INT])
        return r or None

    def call(self, *step):
        return tried(self.attempt, *step)

    def attempt(self, name, *a):
        w = self.w
        if name == "listen":
            self.listener = self.fresh()
            return w.f("listen", self.listener, 1) or None
        if name == "connect":
            if self.s is None:
                self.s = self.fresh()
            return w.f("connect", self.s, address(REMOTE, 7000), 16, types=[INT, PTR, INT]) or None
        if name == "accept":
            if self.listener is None:
                return "no listener"
            room, n = ctypes.create_string_buffer(128), INT(128)
            r = w.f("accept", self.listener, room, ctypes.byref(n), types=[INT, PTR, PTR])
            if isinstance(r, str):
                return r
            w.f("fcntl", r, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK)
            if self.s is not None:
                return "second"
            self.s = r
            return None
        if self.s is None:
            return "none"
        s = self.s
        if name == "write":
            return w.f("send", s, b"x" * a[0], a[0], socket.MSG_NOSIGNAL, types=[INT, PTR, SIZE, INT], result=ctypes.c_ssize_t)
        if name in ("read", "peek"):
            room = ctypes.create_string_buffer(a[0])
            return w.f("recv", s, room, a[0], socket.MSG_PEEK if name == "peek" else 0, types=[INT, PTR, SIZE, INT], result=ctypes.c_ssize_t)
        if name == "shutdown":
            return w.f("shutdown", s, a[0]) or None
        if name == "close":
            self.s = None
            return w.f("close", s) or None
        if name == "error":
            value, n = INT(0), INT(4)
            r = w.f("getsockopt", s, socket.SOL_SOCKET, socket.SO_ERROR, ctypes.byref(value), ctypes.byref(n), types=[INT, INT, INT, PTR, PTR])
            return r or value.value
        if name in ("inq", "outq"):
            value = INT(0)
            r = w.f("ioctl", s, 0x541B if name == "inq" else 0x5411, ctypes.addressof(value), types=[INT, ctypes.c_ulong, PTR])
            return r or value.value
        if name == "nodelay":
            return self.option(s, socket.IPPROTO_TCP, socket.TCP_NODELAY, struct.pack("i", a[0]))
        if name == "cork":
            return self.option(s, socket.IPPROTO_TCP, socket.TCP_CORK, struct.pack("i", a[0]))
        if name == "linger":
            return self.option(s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", a[0], 0))
        return "?"

    def events(self):
        s = self.s or self.listener
        if s is None:
            return 0
        room = ctypes.create_string_buffer(struct.pack("ihh", s, select.POLLIN | select.POLLOUT | select.POLLRDHUP, 0))
        self.w.f("poll", room, 1, 0, types=[PTR, ctypes.c_ulong, INT])
        return struct.unpack("ihh", room.raw[:8])[2]


    def end(self):
        for s in (self.s, self.listener):
            if s is not None:
                self.option(s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.w.f("close", s)


def tun():
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"differ", 0x1001))
    for c in (
        f"ip address add {LOCAL}/24 dev differ",
        "ip link set differ up",
        "ip link set lo up",
        "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv4.tcp_no_metrics_save=1",
    ):
        subprocess.run(c.split(), check=True)
    for name, value in (("tcp_rmem", "4096 131072 6291456"), ("tcp_wmem", "4096 16384 4194304")):
        with open("/proc/sys/net/ipv4/" + name, "w") as f:
            f.write(value)
    return fd


def linux(fd, scripts, slot, base):
    """Run all scripts at a time. Returns, by script, a list of slots: (result, events, packets)."""
    sockets, peers, out, left = [], {}, [[] for _ in scripts], [list(s) for s in scripts]
    for i, _ in enumerate(scripts):
        sockets.append(Socket(Linux(), base + i))
        peers[base + i] = Peer((base + i, 7000))
    pauses = [0] * len(scripts)
    begin = time.monotonic()
    turn = 0
    late = 0
    while any(left):
        turn += 1
        results = [None] * len(scripts)
        packets = collections.defaultdict(list)
        acted = []
        for i, todo in enumerate(left):
            if not todo:
                continue
            if pauses[i] > 0:
                pauses[i] -= 1
                continue
            step = todo[0]
            acted.append(i)
            if step[0] == "pause":
                pauses[i] = step[1]
            elif step[0] == "segment":
                os.write(fd, peers[base + i].make(step[1]))
            else:
                results[i] = sockets[i].call(*step)
        until = begin + turn * slot
        late = max(late, time.monotonic() - until)
        while (wait := until - time.monotonic()) > 0:
            if select.select([fd], [], [], wait)[0]:
                while True:
                    try:
                        p = parse(os.read(fd, 65536))
                    except BlockingIOError:
                        break
                    if p and p.sport in peers:
                        peers[p.sport].look(p)
                        packets[p.sport - base].append(peers[p.sport].show(p))
        for i, todo in enumerate(left):
            if i in acted:
                out[i].append((results[i], None, packets[i]))
            elif todo:
                r, e, ps = out[i][-1]
                out[i][-1] = (r, e, ps + packets[i])
            if todo and pauses[i] == 0:
                r, _, ps = out[i][-1]
                out[i][-1] = (r, sockets[i].events(), ps)
                todo.pop(0)
    for s in sockets:
        s.end()
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.01)[0]:
            os.read(fd, 65536)
    return out, late


# The shared object.


class Table(ctypes.Structure):
    _fields_ = [("userdata", PTR)] + [(n, PTR) for n in NAMES] + [("rest", PTR * 8)]


class Weft(Calls):
    def __init__(self, path):
        library = ctypes.CDLL(path)
        self.table = Table()
        library.packetdrill_interface_init(b"", ctypes.byref(self.table))

    def called(self, name, result, types, a):
        return ctypes.CFUNCTYPE(result, PTR, *types, use_errno=True)(getattr(self.table, name))(None, *a)

    def sleep(self, seconds):
        self.f("usleep", round(seconds * 1e6) - 20)

    def send(self, raw):
        self.f("netdev_send", raw, len(raw), types=[PTR, SIZE])

    def receive(self):
        buffer, n, at = ctypes.create_string_buffer(65536), SIZE(65536), ctypes.c_longlong(0)
        self.f("netdev_receive", buffer, ctypes.byref(n), ctypes.byref(at), types=[PTR, PTR, PTR])
        return buffer.raw[: n.value], at.value


def ours(job):
    """The same script, slot by slot. Packets are asked for as many as Linux sent: more are seen by their times, later."""
    path, steps, expected, slot, port = job
    w = Weft(path)
    s, peer = Socket(w, port), Peer((port, 7000))
    begin, wanted = 10**15, 0
    seen, ends, out = [], [], []

    def more(wanting):
        while wanting() and (not seen or seen[-1][1] < ends[-1]):
            raw, at = w.receive()
            if not raw:
                break
            if p := parse(raw):
                peer.look(p)
                seen.append((peer.show(p), at))

    for step, (_, _, packets) in zip(steps, expected):
        result = None
        if step[0] == "segment":
            w.send(peer.make(step[1]))
        elif step[0] != "pause":
            result = s.call(*step)
        length = slot * (1 + (step[1] if step[0] == "pause" else 0))
        ends.append((ends[-1] if ends else begin) + round(length * 1e6))
        w.sleep(length)
        out.append((result, s.events(), []))
        wanted += len(packets)
        more(lambda: len(seen) < wanted)
        # What has come later, or too early, or not at all, ends the comparison here.
        if len(seen) < wanted or seen and seen[-1][1] >= ends[-1] or out[-1][:2] != (expected[len(out) - 1][0], expected[len(out) - 1][1]):
            break
    more(lambda: True)
    for text, at in seen:
        if (k := next((k for k, end in enumerate(ends) if at < end), None)) is not None:
            out[k][2].append(text)
    return out


def describe(step):
    if step[0] != "segment":
        return " ".join(map(str, step))
    s = step[1]
    flags = "".join(l for i, l in enumerate(LETTERS) if s["flags"] >> i & 1) or "-"
    more = "".join(f" {k} {v}" for k, v in s.items() if k in ("offer", "sack", "tsval") and v)
    return f"segment {flags} seq {s['seq']:+} size {s['size']} ack {s['ack']} win {s['window']}{more}"


def differs(a, b):
    return next((k for k in range(len(a)) if k >= len(b) or tuple(a[k]) != tuple(b[k])), None)


def without_sack(text):
    return text.split(",sack")[0].split(" <sack")[0].rstrip("<>")


# Differences that are meant, and why. A script ends with the first one.
KNOWN = [
    ("SYN-RECEIVED: Linux looks at the acknowledgement first, RFC 9293 at the number", lambda s, past, a, b: past["half"] and s[0] == "segment" and any(p.startswith("R") for p in a[2]) and any(p.startswith(". ") for p in b[2])),
    ("SYN-RECEIVED: Linux refuses the echo of a timestamp that is newer than the SYN's", lambda s, past, a, b: past["half"] and past["stamps"] and b[1] == 1 and a[1] == 0),
    ("ranges of a FIN alone are not reported", lambda s, past, a, b: s[0] == "segment" and s[1]["flags"] & FIN and [without_sack(p) for p in a[2]] == [without_sack(p) for p in b[2]]),
    ("payload of a segment with SYN is reported as repeated", lambda s, past, a, b: s[0] == "segment" and s[1]["flags"] & SYN and [without_sack(p) for p in a[2]] == [without_sack(p) for p in b[2]]),
    ("the FIN is a byte of SIOCOUTQ for Linux", lambda s, past, a, b: s[0] == "outq" and a[0] == b[0] + 1),
    ("a reset at the end of what was reported by SACK ends a connection of Linux", lambda s, past, a, b: s[0] == "segment" and s[1]["flags"] & RST and a[1] & 16 and not b[1] & 16),
    ("the FIN goes again with the data before it, or waits for the congestion window", lambda s, past, a, b: sorted(p.replace("F", "") for p in a[2]) == sorted(p.replace("F", "") for p in b[2]) or [p for p in b[2] if not p.startswith("F")] == a[2]),
    ("Linux answers a FIN late, though something is missing before or came after it", lambda s, past, a, b: s[0] == "segment" and s[1]["flags"] & FIN and not a[2] and len(b[2]) == 1),
    ("segments are at most half the largest window of the peer for Linux", lambda s, past, a, b: past["narrow"] and len(a[2]) > len(b[2])),
    ("ranges that came out of order are named in a reset by Linux", lambda s, past, a, b: any(p.startswith("R") for p in a[2]) and [without_sack(p) for p in a[2]] == [without_sack(p) for p in b[2]]),
    ("a second connection: numbers are relative to the first", lambda s, past, a, b: past["second"]),
    ("CLOSE in SYN-RECEIVED waits for the handshake", lambda s, past, a, b: s[0] in ("close", "shutdown") and past["simultaneous"] and not b[2]),
    ("what lies beyond a FIN is not taken", lambda s, past, a, b: past["fin"] and s[0] == "segment" and s[1]["size"]),
    ("half a segment at the end of the peer's window waits (RFC 9293, section 3.8.6.2.1)", lambda s, past, a, b: b[2] and a[2][: len(b[2])] == b[2] and len(a[2]) == len(b[2]) + 1 and "(0)" not in a[2][-1] or s[0] == "write" and not b[2] and "(0)" not in "".join(a[2]) and past["tight"]),
    ("what is answered before its acknowledgement is looked at is reported, too", lambda s, past, a, b: s[0] == "segment" and (past["half"] or s[1]["seq"] < 0) and [without_sack(p) for p in a[2]] == [without_sack(p) for p in b[2]]),
    ("a segment that ends where the next begins is beside the window for RFC 9293, and within it for Linux", lambda s, past, a, b: s[0] == "segment" and s[1]["flags"] & (RST | SYN | FIN) and s[1]["seq"] < 0 and a[2] != b[2]),
    ("the rate of answers has no memory of the handshake, or of the time before TIME-WAIT, in Linux", lambda s, past, a, b: s[0] == "segment" and len(a[2]) == 1 and a[2][0].startswith(". ") and not b[2]),
    ("after a range of SACK Linux repeats two segments at once", lambda s, past, a, b: s[0] == "segment" and s[1].get("sack") and b[2] == a[2][:1]),
    ("a reset with a wrong acknowledgement makes Linux send its SYN again", lambda s, past, a, b: s[0] == "segment" and s[1]["flags"] & RST and a[2] and a[2][0].startswith("S 0") and not b[2]),
]


def known(k, steps, a, b):
    past = {
        "half": not any(s[0] == "accept" for s in steps[:k]) and any(s[0] == "listen" for s in steps[:k]) or not any(s[0] == "segment" and s[1]["flags"] & (SYN | ACK) == SYN | ACK for s in steps[:k]),
        "narrow": max([s[1]["window"] for s in steps[:k] if s[0] == "segment"], default=0) < 3000,
        "second": len({p for _, _, packets in a[: k + 1] for p in packets if p.startswith("S")}) > 1 and not any(s[0] == "connect" for s in steps),
        "simultaneous": any(s[0] == "connect" for s in steps) and any(s[0] == "segment" and s[1]["flags"] & (SYN | ACK) == SYN for s in steps[:k]),
        "fin": any(s[0] == "segment" and s[1]["flags"] & FIN for s in steps[:k]),
        "tight": any(s[0] == "segment" and s[1]["window"] <= 3000 for s in steps[:k]),
        "stamps": any(s[0] == "segment" and s[1].get("offer", {}).get("stamps") for s in steps[:k]),
    }
    return next((why for why, test in KNOWN if k < len(b) and test(steps[k], past, a[k], b[k])), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scripts", type=int, default=600)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    if os.environ.get("WEFT_NAMESPACE") != "1":
        os.environ["WEFT_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    path = os.path.abspath(given.library)
    fd = tun()
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10))
    wrong, kinds = 0, collections.Counter()
    base = 10000
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for first in range(given.seed, given.seed + given.scripts, 60):
            seeds = list(range(first, min(first + 60, given.seed + given.scripts)))
            trial = {}
            for slot in (0.015, 0.013, 0.019):
                if not seeds:
                    break
                scripts = [steps_of(s, given.steps)[1] for s in seeds]
                while True:
                    seen, late = linux(fd, scripts, slot, base)
                    if late < slot / 3:
                        break
                    base = base + 60 if base < 50000 else 10000
                    sys.stderr.write(f"late by {late * 1000:.0f} ms, again\n")
                base = base + 60 if base < 50000 else 10000
                mine = pool.map(ours, [(path, sc, se, slot, base - 60 + i) for i, (sc, se) in enumerate(zip(scripts, seen))], chunksize=1)
                again = []
                for i, seed in enumerate(seeds):
                    if (k := differs(seen[i], mine[i])) is not None and (why := known(k, scripts[i], seen[i], mine[i])):
                        kinds[why] += 1
                        trial.pop(seed, None)
                    elif k is not None:
                        again.append(seed)
                        trial[seed] = (k, scripts[i], seen[i], mine[i])
                    else:
                        trial.pop(seed, None)
                seeds = again
            for seed in seeds:
                k, steps, a, b = trial[seed]
                wrong += 1
                print(f"--- seed {seed}: slot {k}")
                for j in range(k + 1):
                    print("  ", describe(steps[j]))
                    if j < k:
                        for p in a[j][2]:
                            print("        >", p, "" if a[j][0] is None else a[j][0])
                    if j == k or given.verbose:
                        for who, t in (("Linux", a), ("weft", b)):
                            print(f"      {who:5}", *(t[j] if j < len(t) else ("nothing",)))
                sys.stdout.flush()
    for why, n in kinds.most_common():
        print(f"{n:5} meant: {why}")
    print(f"{given.scripts - wrong} of {given.scripts} alike")
    # Timers of the two fall on either side of a step now and then.
    return wrong * 20 > given.scripts


if __name__ == "__main__":
    sys.exit(main())
