"""The commands of docs/tcp.md, as they are written there: each block that is laid out as a shell's, in network namespaces of its
own. After a server's line the next one waits until it serves."""

import os
import pathlib
import re

import harness
from harness import equal, run, true

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tcp.md"
WAITS = 'served() { until grep -q "serving" "$said"; do kill -0 $!; sleep 0.02; done; }'


def blocks():
    """The commands under each heading, a block as a list of lines."""
    found, heading = {}, ""
    for part in re.split(r"\n\n", PAGE.read_text()):
        if part.startswith("## "):
            heading = part[3:].strip()
        elif part.startswith("    "):
            found.setdefault(heading, []).append([line[4:] for line in part.splitlines()])
    return found


def script(lines, asked):
    """One that fails with its first command that fails. Programs are started as they are written; what a server says goes into a
    file of its own."""
    done = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT", WAITS, "rm -f said*; n=0 pids=()"]
    for line in lines:
        # Every block has such namespaces already.
        if line in ("unshare -n bash",) or line.startswith("#"):
            continue
        if line.startswith("weft serve") and line.endswith("&"):
            done += ["n=$((n + 1)) said=$PWD/said$n", f'{line[:-1]} > "$said" 2>&1 &', "pids+=($!); served"]
        else:
            done.append(re.sub(r"^(.*)curl ", r"\1curl -sf --max-time 20 ", line))
    return "\n".join([*done, *asked])


def shown(weft, scratch, lines, *asked):
    """What the commands print, and then these."""
    site = scratch / "docs"
    site.mkdir(exist_ok=True)
    (site / "site").mkdir(exist_ok=True)
    (site / "site" / "index.html").write_text("<title>home</title>\n")
    inner = f"mount -t tmpfs none /run && ip link set lo up && exec bash -c {quoted(script(lines, asked))}"
    path = f"{pathlib.Path(weft).resolve().parent}:{os.environ['PATH']}"
    return run("unshare", "-nm", "sh", "-c", inner, cwd=site, env={**os.environ, "PATH": path}, timeout=60).decode()


SET_UP = [
    "weft tcp setup tun0,10.9.0.2/24 --run",
    "ip addr show dev tun0 | grep -q 'inet 10.9.0.1/24'",
    "ip link show dev tun0 | grep -q ,UP",
    "weft tcp setup tun0,10.9.0.2/24 --run --remove",
    "if ip link show dev tun0 2> said; then false; fi",
]


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def checks(table, weft, scratch):
    told = blocks()
    row = lambda heading, what, function: table.check("docs/tcp.md", f"{heading}: {what}", function)

    def block(heading, start, *asked, but=None):
        wanted = [lines for lines in told.get(heading, []) if any(line.startswith(start) for line in lines)]
        equal(f"blocks of {heading} with {start}", len(wanted), 1)
        return shown(weft, scratch, but(wanted[0]) if but else wanted[0], *asked)

    def page(heading, start, *asked, times=1, **how):
        said = block(heading, start, *asked, **how)
        equal("pages", said.count("<title>home</title>"), times)

    def listed():
        said = block("Looking after it", "weft serve --tcp tun0,10.9.0.2/24 --metrics")
        for word in ("LISTEN", "ESTABLISHED", "10.9.0.1:", "retrans:0"):
            true(f"{word} in {said}", word in said)

    def load():
        said = block("Load from a TCP of our own", "weft load", but=lambda lines: [line.replace("weft load", "weft load --duration 2") for line in lines])
        true(said, re.search(r"requests +[1-9]", said) and "failed" not in said)

    device, interface = "A server on a TUN device", "A server on an interface"
    row(device, "curl", lambda: page(device, "unshare -n bash"))
    row(device, "IPv6", lambda: page(device, "weft serve --tcp tun0,fd09::2/64 site &"))
    row(device, "both", lambda: page(device, "weft serve --tcp tun0,10.9.0.2/24,fd09", "curl -sf http://10.9.0.2:8080/", "curl -gsf 'http://[fd09::2]:8080/'", times=2))
    made = lambda lines: [re.sub(r"sudo sh", "sh", re.sub('"\\$USER"', "root", line)) + (" &" if line.startswith("weft serve") else "") for line in lines]
    row(device, "one that is set up before", lambda: page(device, "weft tcp setup", "curl -sf http://10.9.0.2:8080/", but=made))
    row(device, "setup --run and --remove", lambda: shown(weft, scratch, SET_UP))
    row(interface, "curl", lambda: page(interface, "unshare -n bash"))
    row("Looking after it", "weft tcp list", listed)
    row("Load from a TCP of our own", "weft load", load)
    after = "A new version without a lost connection"
    followed = lambda: page(after, "weft serve --tcp", "wait ${pids[0]}; grep -q 'took over' said2", "curl -sf http://10.9.0.2:8080/", times=2, but=lambda lines: ["mkdir /run/weft", *lines])
    row(after, "two servers", followed)
    row("Two namespaces", "curl", lambda: page("Two namespaces", "ip netns add client"))


if __name__ == "__main__":
    harness.sys.exit("see check_tcp.py")
