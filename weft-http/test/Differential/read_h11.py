"""What h11, as a server, sees in a conversation: one line of answer for each line asked.

A line asked is the bytes of one connection, in hexadecimal; "read" is what the
differential test expects (weft-http/test/Differential/Peers.hs):

    ENDING METHOD/TARGET/FIELDS/BODY/TRAILERS ...

ENDING is clean, partial, closed or refused:WHY. Strings are in hexadecimal; FIELDS are
NAME=VALUE, joined with commas.
"""

import sys

import h11


def fields(pairs):
    return ",".join(f"{bytes(name).hex()}={bytes(value).hex()}" for name, value in pairs)


def read(data):
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    if data:
        connection.receive_data(data)
    messages = []
    request, body, ended, begun = None, [], False, False
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if ended:
                    return "partial", messages
                if request is None and not connection.trailing_data[0].strip(b"\r\n"):
                    return "clean", messages
                ended = True
                connection.receive_data(b"")
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return "closed", messages
            elif isinstance(event, h11.Request):
                request, body = event, []
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                messages.append(
                    "/".join(
                        [
                            bytes(request.method).hex(),
                            bytes(request.target).hex(),
                            fields(request.headers),
                            b"".join(body).hex(),
                            fields(event.headers),
                        ]
                    )
                )
                request = None
                connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return "closed", messages
                connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        if ended:
            return "partial", messages
        return "refused:" + str(error).replace(" ", "_"), messages


for line in sys.stdin:
    ending, found = read(bytes.fromhex(line))
    print(" ".join([ending] + found), flush=True)
