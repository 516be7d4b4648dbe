#!/usr/bin/env python3
"""Weft's servers and the clients that people use.

    interop.py [--weft PROGRAM] [--echo PROGRAM] [--backend NAME] GROUP ...

prints a row for each check, and fails if one does. Programs that are absent are named as
skipped. Groups: split curl python (quick: part of `make test`); tools browser tls tcp slow soak.
"""

import argparse
import importlib
import sys

import harness

GROUPS = ["split", "curl", "python", "tools", "browser", "tls", "tcp", "slow", "soak"]


def main():
    parser = argparse.ArgumentParser(description="Weft's servers and the clients that people use")
    parser.add_argument("--weft", default="bin/weft", help="the program weft")
    parser.add_argument("--echo", default="bin/weft-http-echo", help="the program weft-http-echo")
    parser.add_argument("--backend", default="auto", help="event source of the servers")
    parser.add_argument("groups", nargs="+", choices=GROUPS, metavar="GROUP", help=" ".join(GROUPS))
    asked = parser.parse_args()
    table = harness.Table()
    for group in asked.groups:
        module = importlib.import_module(f"check_{group}")
        if hasattr(module, "alone"):
            # It starts servers of its own.
            module.alone(table, asked)
            continue
        with harness.rig(asked.weft, asked.echo, asked.backend, env={"GHCRTS": "-T"}) as servers:
            module.checks(table, servers)
            for program in servers.programs:
                table.check(program.name, f"is well after {group}, and has complained of nothing", program.well)
    return 0 if table.end() else 1


if __name__ == "__main__":
    sys.exit(main())
