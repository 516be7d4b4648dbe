"""Twenty seconds of `soak.py`."""

from soak import soak


def alone(table, asked):
    def short():
        # With a small allocation area memory comes to rest within seconds.
        wrong = soak(20 / 60, asked.weft, asked.echo, ["epoll", "io_uring"], rts="-T -A4m -n1m")
        if wrong:
            raise AssertionError("; ".join(wrong))

    table.check("soak", "clients of every kind for 20 s, then everything is at rest", short)
