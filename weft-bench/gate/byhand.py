"""A peer of a TCP stack on a TUN device whose segments are made here.

What a stack does for an exchange depends on when the peer acknowledges, which Linux decides by its clock. This peer
acknowledges with its next request, always. It stands where Linux would: its packets leave the system's end of the
device, with the checksums left to the stack's, and those that answer them are for an address that nobody has.
"""
import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import time

DEVICE, STACK, PEER = "weftgate", "10.254.9.2", "192.0.2.77"
PORT = 7
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
ETH_P_IP, SOL_PACKET, PACKET_VNET_HDR, PACKET_OUTGOING, NEEDS_CSUM = 0x800, 263, 15, 4, 1
CLONE_NEWNET, SO_RCVBUFFORCE = 0x40000000, 33
WAIT = 60  # seconds


class Unable(Exception):
    pass


@contextlib.contextmanager
def network():
    """A network namespace of its own for what is started in this context."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            raise Unable(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            # Or Linux would answer what is for an address of nobody.
            with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as forward:
                forward.write("0")
            yield
        finally:
            if libc.setns(before, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot return to the network namespace")
    finally:
        os.close(before)


def missing():
    """Why the device cannot be made; nothing if it can."""
    try:
        with network(), open("/dev/net/tun", "rb"):
            return ""
    except (OSError, Unable) as e:
        return str(e)


def added(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Link:
    """The system's end of the device, once it is there."""

    def __init__(self, alive):
        self.clients = {}
        end = time.monotonic() + WAIT
        while True:
            try:
                self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                self.socket.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
                self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4_000_000)
                self.socket.bind((DEVICE, ETH_P_IP))
                return
            except OSError as e:
                self.socket.close()
                if not alive() or time.monotonic() > end:
                    raise Unable(f"no device {DEVICE}: {e}") from None
                time.sleep(0.05)

    def take(self, seconds):
        """Give one packet to the client that it is for, if one comes in this time."""
        if not select.select([self.socket], [], [], seconds)[0]:
            return False
        try:
            packet, where = self.socket.recvfrom(65536)
        except OSError as e:
            # The device was still down when the socket was bound to it, which is said once.
            if e.errno != errno.ENETDOWN:
                raise
            return False
        packet = packet[10:]
        if where[2] != PACKET_OUTGOING and packet[9] == socket.IPPROTO_TCP:
            segment = packet[(packet[0] & 15) * 4 : struct.unpack_from("!H", packet, 2)[0]]
            client = self.clients.get(struct.unpack_from("!H", segment, 2)[0])
            if client:
                client.take(segment)
        return True

    def close(self):
        self.socket.close()


class Client:
    """A connection to the stack."""

    def __init__(self, link, port, alive):
        self.link, self.port, self.alive = link, port, alive
        self.next, self.expected, self.echo, self.got, self.open = 1000, 0, 0, b"", False
        link.clients[port] = self
        # The listener is there some time after the device.
        end = time.monotonic() + WAIT
        while not self.open:
            if not alive() or time.monotonic() > end:
                raise Unable("the stack does not answer")
            # The device may still be down.
            with contextlib.suppress(OSError):
                self.put(SYN, b"", struct.pack("!BBHBBBBBBBB", 2, 4, 1460, 1, 3, 3, 7, 1, 1, 4, 2))
            stop = time.monotonic() + 0.5
            while not self.open and time.monotonic() < stop:
                link.take(0.05)
        self.next += 1
        self.put(ACK, b"")

    def put(self, flags, payload, more=b""):
        clock = int(time.monotonic() * 1000) & 0xFFFFFFFF
        options = struct.pack("!BBBBII", 1, 1, 8, 10, clock, self.echo) + more
        size = 20 + len(options) + len(payload)
        addresses = socket.inet_aton(PEER) + socket.inet_aton(STACK)
        # The device adds the rest.
        around = added(addresses + struct.pack("!HH", socket.IPPROTO_TCP, size))
        segment = struct.pack("!HHIIBBHHH", self.port, PORT, self.next, self.expected, (20 + len(options)) // 4 << 4, flags, 502, around, 0)
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + size, 0, 0x4000, 64, socket.IPPROTO_TCP, 0) + addresses
        head = head[:10] + struct.pack("!H", added(head) ^ 0xFFFF) + head[12:]
        offload = struct.pack("=BBHHHH", NEEDS_CSUM, 0, 0, 0, 20, 16)
        self.link.socket.sendto(offload + head + segment + options + payload, (DEVICE, ETH_P_IP))

    def take(self, segment):
        number, _, offset, flags = struct.unpack_from("!IIBB", segment, 4)
        payload = segment[(offset >> 4) * 4 :]
        if flags & SYN and not self.open:
            self.open, self.expected = True, (number + 1) & 0xFFFFFFFF
        elif flags & (SYN | RST) or number != self.expected:
            return
        if (offset >> 4) >= 8 and segment[20:24] == b"\x01\x01\x08\x0a":
            self.echo = struct.unpack_from("!I", segment, 24)[0]
        self.expected = (self.expected + len(payload)) & 0xFFFFFFFF
        self.got += payload

    def send(self, payload):
        self.put(PSH | ACK, payload)
        self.next = (self.next + len(payload)) & 0xFFFFFFFF
        self.wanted = len(payload)

    def receive(self):
        """As many bytes as were sent, the next acknowledgement of which goes with the next of ours."""
        end = time.monotonic() + WAIT
        while len(self.got) < self.wanted:
            if not self.link.take(1) and (not self.alive() or time.monotonic() > end):
                raise Unable("no answer in a minute")
        got, self.got = self.got, b""
        return got

    def close(self):
        self.put(RST | ACK, b"")
