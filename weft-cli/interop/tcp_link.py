"""A link between two network namespaces: two TUN devices, and in between a process that decides what becomes of each
packet. Linux's own `netem` is not everywhere."""

import ctypes
import fcntl
import heapq
import multiprocessing
import os
import random
import select
import struct
import time

CLONE_NEWNET = 0x40000000
ONWARD, BACK = 0, 1  # from the first end to the second, and from the second to the first


class Link:
    """The device `link0` here and `link1` in the namespace with this name. `fate(way, packet, at)` answers what arrives,
    as a list of (seconds from now, way, packet), given the time in seconds."""

    def __init__(self, namespace, fate):
        self.control, control = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=carry, args=(namespace, fate, control), daemon=True)
        self.process.start()
        control.close()
        self.control.recv()

    def close(self):
        self.control.send("end")
        self.process.join(10)
        self.process.kill()
        self.process.join()


def enter(path):
    with open(path) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) < 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")


def tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
    return fd


def carry(namespace, fate, control):
    own = tun("link0")
    enter(f"/run/netns/{namespace}")
    ends = [own, tun("link1")]
    control.send("ready")
    late, turn = [], 0
    while True:
        wait = None if not late else max(0, late[0][0] - time.monotonic())
        ready, _, _ = select.select([*ends, control], [], [], wait)
        if control in ready:
            return
        for way, end in enumerate(ends):
            if end not in ready:
                continue
            for _ in range(64):
                try:
                    packet = os.read(end, 65536)
                except BlockingIOError:
                    break
                now = time.monotonic()
                for delay, towards, arriving in fate(way, packet, now):
                    turn += 1
                    heapq.heappush(late, (now + delay, turn, towards, arriving))
        now = time.monotonic()
        while late and late[0][0] <= now:
            _, _, towards, arriving = heapq.heappop(late)
            try:
                os.write(ends[1 - towards], arriving)
            except OSError:
                pass  # The device is full or down, and loses it.


def total(data):
    """The checksum of RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    n = sum(struct.unpack(f">{len(data) // 2}H", data))
    while n >> 16:
        n = (n & 0xFFFF) + (n >> 16)
    return ~n & 0xFFFF


def with_header_sum(packet):
    """An IPv4 packet whose header has changed."""
    length = (packet[0] & 15) * 4
    head = packet[:10] + b"\0\0" + packet[12:length]
    return head[:10] + struct.pack(">H", total(head)) + packet[12:length] + packet[length:]


def segment(source, target, body):
    """An IPv4 packet with this segment of TCP, whose checksum is computed."""
    body = body[:16] + b"\0\0" + body[18:]
    pseudo = source + target + struct.pack(">HH", 6, len(body))
    body = body[:16] + struct.pack(">H", total(pseudo + body)) + body[18:]
    return with_header_sum(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, 64, 6, 0) + source + target + body)


class Rough:
    """Of a hundred packets 2 are lost, 1 comes twice, 1 has a changed bit, and 2 are overtaken by others; each takes some
    milliseconds."""

    def __init__(self, seed, delay=0.003):
        self.dice, self.delay = random.Random(seed), delay

    def __call__(self, way, packet, at):
        roll = self.dice.randrange(100)
        if roll < 2:
            return []
        if roll < 3:
            return [(self.delay, way, packet), (self.delay, way, packet)]
        if roll < 4:
            place = self.dice.randrange(len(packet))
            packet = packet[:place] + bytes([packet[place] ^ 1]) + packet[place + 1 :]
        return [(self.delay * (2 if roll in (4, 5) else 1), way, packet)]


class Marking:
    """Nothing is lost; of the packets with data that allow it, one in fifty is marked (RFC 3168)."""

    def __init__(self):
        self.seen = 0

    def __call__(self, way, packet, at):
        if packet[0] >> 4 == 4 and packet[1] & 3 in (1, 2) and len(packet) > 500:
            self.seen += 1
            if self.seen % 50 == 0:
                packet = with_header_sum(packet[:1] + bytes([packet[1] | 3]) + packet[2:])
        return [(0.001, way, packet)]


class Narrow:
    """Takes packets of up to this length only, and may say so by a message of ICMP (RFC 1191)."""

    def __init__(self, mtu, tells):
        self.mtu, self.tells = mtu, tells

    def __call__(self, way, packet, at):
        if len(packet) <= self.mtu:
            return [(0.001, way, packet)]
        if not self.tells:
            return []
        quote = packet[:28]
        message = struct.pack(">BBHHH", 3, 4, 0, 0, self.mtu) + quote
        message = message[:2] + struct.pack(">H", total(message)) + message[4:]
        router = packet[16:20]  # The other end is as good as any.
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, 1, 0) + router + packet[12:16]
        return [(0.001, 1 - way, with_header_sum(head + message))]


class ResetAt:
    """The segment with this number, of those one way between a connection's ends, arrives as a reset at the number that is
    expected; a connection is told from the next by its ports, and has the number one greater. At most as many as `most`."""

    def __init__(self, way, port, most):
        self.way, self.port, self.most, self.seen, self.connections = way, port, most, {}, 0

    def __call__(self, way, packet, at):
        if packet[0] >> 4 == 4 and packet[9] == 6 and way == self.way:
            ports = struct.unpack(">HH", packet[20:24])
            if self.port in ports:
                key = sum(ports)
                if key not in self.seen:
                    self.seen[key] = [self.connections % self.most, 0]
                    self.connections += 1
                place = self.seen[key]
                place[1] += 1
                if place[1] == place[0] + 1:
                    body = packet[20:]
                    flags = 0x14  # RST, ACK
                    packet = segment(packet[12:16], packet[16:20], body[:12] + bytes([0x50, flags]) + body[14:20])
        return [(0.0, way, packet)]
