"""Run packetdrill scripts against the shared object, and say which passed.

    run.py [--quiet] [--flags WORDS] PACKETDRILL WEFT.SO SCRIPT_OR_DIRECTORY...

A script is changed before it runs, where it speaks to a kernel and not to a socket: commands in
backquotes (they set the system's parameters) and blocks of Python (they ask the system's own
TCP_INFO) are taken out. What a parameter would have set is given to the shared object instead; our
own scripts name it in a first line "// flags: reno,nosack".
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# The parameters that mean something to the shared object, and its words for them.
PARAMETERS = [
    (r"tcp_sack=0", "nosack"),
    (r"tcp_timestamps=0", "notimestamps"),
    (r"tcp_window_scaling=0", "noscale"),
    (r"tcp_congestion_control=\"?reno", "reno"),
    (r"tcp_ecn=1", "ecn"),
    (r"common/defaults.sh", "google"),
    (r"tcp_early_retrans=0", "notlp"),
]

# The addresses are those that the stack has (Machine.hs); packetdrill draws one by chance.
VERSION4 = ("--ip_version=ipv4", "--local_ip=192.168.0.1")
VERSION6 = ("--ip_version=ipv6", "--local_ip=fd3d:fa7b:d17d::1")


def prepare(text):
    commands = re.findall(r"`[^`]*`", text)
    words = [word for pattern, word in PARAMETERS if any(re.search(pattern, c.replace(" = ", "=")) for c in commands)]
    own = re.match(r"// flags: (\S+)", text)
    if own:
        words += own.group(1).split(",")
    for block in ("`[^`]*`", r"%\{.*?\}%"):
        text = re.sub(r"(?m)^[ \t]*\+?[0-9.~+*]*[ \t]*" + block, "", text, flags=re.S)
    return text, ",".join(words)


def run(packetdrill, library, script, flags):
    try:
        text, words = prepare(script.read_text())
        with tempfile.NamedTemporaryFile("w", suffix=".pkt") as prepared:
            prepared.write(text)
            prepared.flush()
            command = [packetdrill, f"--so_filename={library}", f"--so_flags={','.join(w for w in (flags, words) if w)}", *(VERSION6 if "-v6" in script.name else VERSION4), prepared.name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            return done.returncode, (done.stdout + done.stderr).replace(prepared.name, script.name)
    except subprocess.TimeoutExpired:
        return -1, "no end after a minute"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", action="store_true", help="only the failures and a sum")
    parser.add_argument("--flags", default="", help="words for every script")
    parser.add_argument("packetdrill")
    parser.add_argument("library")
    parser.add_argument("scripts", nargs="+", type=pathlib.Path)
    given = parser.parse_args()
    scripts = [f for s in given.scripts for f in (sorted(s.rglob("*.pkt")) if s.is_dir() else [s] if s.exists() else [])]
    if not scripts:
        sys.exit(f"run.py: no script in {', '.join(map(str, given.scripts))}")
    library = os.path.abspath(given.library)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda s: run(given.packetdrill, library, s, given.flags), scripts)
        for script, (code, output) in zip(scripts, results):
            if code != 0:
                failed += 1
                print(f"FAILED {script}\n  " + "\n  ".join(output.strip().splitlines()[-8:]))
            elif not given.quiet:
                print(f"passed {script}")
            sys.stdout.flush()
    print(f"{len(scripts) - failed} of {len(scripts)} passed")
    return failed > 0


sys.exit(main())
