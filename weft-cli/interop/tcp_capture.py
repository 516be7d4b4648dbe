"""Reads what `weft tcp capture` writes, strictly: pcapng, with one interface of IP packets."""

import struct

from harness import equal, true

INBOUND, OUTBOUND = 1, 2  # to the stack, and from it


def blocks(data):
    while data:
        kind, length = struct.unpack_from("<II", data)
        true(f"a block of {length} bytes", 12 <= length <= len(data) and length % 4 == 0)
        equal("its length at the end", struct.unpack_from("<I", data, length - 4)[0], length)
        yield kind, data[8 : length - 4]
        data = data[length:]


def packets(data):
    """The packets as (direction, microseconds, bytes), and how many were lost."""
    found, lost = [], 0
    for n, (kind, body) in enumerate(blocks(data)):
        if n == 0:
            equal("the section", (kind, body[:8]), (0x0A0D0D0A, struct.pack("<IHH", 0x1A2B3C4D, 1, 0)))
        elif n == 1:
            equal("the interface", (kind, struct.unpack_from("<H", body)[0]), (1, 101))
        elif kind == 6:
            interface, high, low, size, whole = struct.unpack_from("<IIIII", body)
            equal("interface and size", (interface, whole), (0, size))
            code, length, direction = struct.unpack_from("<HHI", body, 20 + (size + 3) // 4 * 4)
            equal("option", (code, length), (2, 4))
            found.append((direction, high << 32 | low, body[20 : 20 + size]))
        else:
            equal("kind of block, and its option", (kind, struct.unpack_from("<HH", body, 12)), (5, (5, 8)))
            lost += struct.unpack_from("<Q", body, 16)[0]
    times = [at for _, at, _ in found]
    equal("order of times", times, sorted(times))
    return found, lost


def streams(found):
    """The bytes of each direction of each TCP connection over IPv4, by direction, addresses and ports; pieces that came twice or in
    another order are in their places."""
    pieces = {}
    for direction, _, packet in found:
        if packet[0] >> 4 != 4 or packet[9] != 6:
            continue
        segment = packet[(packet[0] & 15) * 4 : struct.unpack_from(">H", packet, 2)[0]]
        source, target, number = struct.unpack_from(">HHI", segment)
        payload = segment[(segment[12] >> 4) * 4 :]
        begins = segment[13] & 2
        flow = pieces.setdefault((direction, packet[12:16], source, packet[16:20], target), {})
        flow.setdefault("first", (number + 1) if begins else number)
        if payload:
            flow[(number - flow["first"]) % 2**32] = payload
    whole = {}
    for key, flow in pieces.items():
        flow.pop("first")
        stream = bytearray()
        for place in sorted(flow):
            stream[place : place + len(flow[place])] = flow[place]
        whole[key] = bytes(stream)
    return whole
