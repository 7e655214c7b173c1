#!/usr/bin/env python3
# Rate and latency of OFA's programs on dat beside OFA's provider: runs dapltest and dtest in turn and prints a table.
# SPDX-License-Identifier: BSL-1.0
"""beside.py --build DIR [--rounds N] [--real] [--tests PATTERN] [--check]

All turns run in one boot of the lab. A round runs each test with OFA's provider and with dat's, one after the other; the
order changes from round to round. A round gives a ratio, dat / OFA, in which more than 1 means that dat is faster. The
table has the medians, the median ratio, and its noise: the median distance of the rounds' ratios from it. With --check it
fails when dat is slower by more than three times the noise.

The lab's machine has one processor, whose clock counts instructions, so that load on the host does not change what a
program measures. That clock runs ahead while the machine waits for a file of the host, so a turn's time limit is that of
the host. With --real the machine has two processors and uses the time of the host."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/provider"))
from programs import adapters  # noqa: E402

LAB = ROOT / "tests/lab/dat-lab"
ADDRESS = "10.78.2.1"
LIMIT = 300  # seconds of the host after which a turn has failed


@dataclasses.dataclass(frozen=True)
class job:
    """A test, and the number in what its client prints."""

    name: str
    server: str
    ready: str
    client: str
    number: str
    unit: str
    rising: bool  # whether more is better


def dapltest(name: str, options: str) -> job:
    """A performance test of dapltest: operations per second."""
    return job(
        name,
        "dapltest -T S -D {server} -n {port}",
        "Service Point Ready",
        f"dapltest -T P -s {ADDRESS} -D {{client}} -n {{port}} {options}",
        r"Operation Throughput\s*:\s*([\d.]+)",
        "operations/s",
        True,
    )


def dtest(name: str, options: str, number: str, unit: str) -> job:
    """A time that dtest prints."""
    return job(
        name,
        f"dtest -P {{server}} {options}",
        "waiting for client",
        f"dtest -P {{client}} -h {ADDRESS} {options}",
        number,
        unit,
        False,
    )


JOBS = [
    dapltest("dapltest: RDMA write of 64 bytes, polling, one at a time", "-m p -i 2000 -p 1 RW 64"),
    dapltest("dapltest: RDMA write of 64 bytes, polling, 16 at a time", "-m p -i 2000 -p 16 RW 64"),
    dapltest("dapltest: RDMA write of 64 bytes, waiting, one at a time", "-m b -i 2000 -p 1 RW 64"),
    dapltest("dapltest: RDMA write of 64 bytes, waiting, 16 at a time", "-m b -i 2000 -p 16 RW 64"),
    dapltest("dapltest: RDMA read of 64 bytes, polling", "-m p -i 2000 -p 1 RR 64"),
    dapltest("dapltest: RDMA read of 64 bytes, waiting", "-m b -i 2000 -p 1 RR 64"),
    dapltest("dapltest: RDMA write of 64 KiB, polling, 4 at a time", "-m p -i 200 -p 4 RW 65536"),
    dtest("dtest: write and message, bursts of 100 of 4,096 bytes", "-b 4096 -B 100 -t", r"RDMA write \([^)]*\): Total=\s*([\d.]+)", "us"),
    dtest("dtest: messages of 4,096 bytes there and back, waiting", "-b 4096 -B 100 -t", r"Message PingPong: .* latency\s*([\d.]+) us", "us"),
    dtest("dtest: messages of 4,096 bytes there and back, polling", "-b 4096 -B 100 -p -t", r"Message PingPong: .* latency\s*([\d.]+) us", "us"),
    dtest("dtest: RDMA writes of 64 bytes there and back", "-b 64 -B 1000 -W -t", r"RDMA write PingPong: .* latency\s*([\d.]+) us", "us"),
    dtest("dtest: four RDMA reads of 4,096 bytes, waiting", "-b 4096 -B 100 -t", r"RDMA read:\s*Total=\s*([\d.]+)", "us"),
    dtest("dtest: connect", "-b 4096 -B 100 -t", r"connect:\s*([\d.]+) usec", "us"),
]


def turn(what: job, provider: str, port: int) -> float:
    """Run the test once. The number."""
    words = {"server": f"{provider}-2", "client": f"{provider}-1", "port": port}
    with tempfile.TemporaryFile("w+b") as out:
        server = subprocess.Popen(["stdbuf", "-oL", *what.server.format(**words).split()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert server.stdout
        seen = ""
        for line in server.stdout:
            seen += line
            if re.search(what.ready, line):
                break
        else:
            sys.exit(f"beside.py: {what.server}:\n{seen}")
        # What else the server prints must not stop it.
        drain = subprocess.Popen(["cat"], stdin=server.stdout, stdout=subprocess.DEVNULL)
        try:
            done = subprocess.run(what.client.format(**words).split(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
            out.seek(0)
            text = out.read().decode(errors="replace")
        finally:
            if "dapltest" in what.server:
                server.kill()  # serves until it is stopped
            server.wait()
            drain.wait()
    found = re.search(what.number, text)
    if done.returncode or not found:
        sys.exit(f"beside.py: {what.client.format(**words)} ended with {done.returncode}:\n{text}")
    return float(next(group for group in found.groups() if group))


def inside(options: argparse.Namespace) -> int:
    """The part that runs in the lab: prints test|provider| when a turn begins, and the number behind it when it ends."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(adapters(options.provider))
        conf.flush()
        os.environ["DAT_OVERRIDE"] = conf.name
        port = 21000
        for each in range(options.rounds):
            for what in chosen(options):
                for provider in ("ofa", "dat") if each % 2 == 0 else ("dat", "ofa"):
                    port += 64
                    print(f"{what.name}|{provider}|", end="", flush=True)
                    print(turn(what, provider, port), flush=True)
    return 0


def chosen(options: argparse.Namespace) -> list[job]:
    """The tests that the options name."""
    return [what for what in JOBS if re.search(options.tests, what.name)]


def lines(command: list[str]) -> Iterator[str]:
    """The lines that the lab prints. Ends the program when no turn ends in time."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as lab:
        assert lab.stdout
        text = b""
        while True:
            if not select.select([lab.stdout], [], [], LIMIT)[0]:
                lab.terminate()
                sys.exit(f"beside.py: nothing ended within {LIMIT} s: {text.decode(errors='replace')}")
            more = os.read(lab.stdout.fileno(), 65536)
            *whole, text = (text + more).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
            if not more:
                break
    if lab.returncode:
        sys.exit(f"beside.py: the lab ended with {lab.returncode}: {text.decode(errors='replace')}")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Rate and latency of OFA's programs on dat beside OFA's provider.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build directory, with optimisation")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="%(default)s")
    parser.add_argument("--real", action="store_true", help="two processors, and the time of the host")
    parser.add_argument("--tests", default="", metavar="PATTERN", help="only tests whose name has this pattern")
    parser.add_argument("--check", action="store_true", help="fail when dat is slower by more than three times the noise")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--provider", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    provider = (options.build / "examples/provider/libdatprovider.so").resolve()
    command = [LAB, "--memory", "2048", "--mtu", "4200", "--timeout", "7200", *([] if options.real else ["--counted"]), "--", sys.executable, __file__, "--inside"]
    command += ["--build", options.build, "--provider", provider, "--rounds", options.rounds, "--tests", options.tests]
    numbers: dict[tuple[str, str], list[float]] = {}
    for line in lines([str(word) for word in command]):
        if len(parts := line.split("|")) == 3:
            numbers.setdefault((parts[0], parts[1]), []).append(float(parts[2]))
        else:
            print(line)
    slower = False
    print(f"{'test':<60} {'unit':<13} {'OFA':>10} {'dat':>10} {'ratio':>6} {'noise':>6}")
    for what in chosen(options):
        ofa, dat = numbers.get((what.name, "ofa"), []), numbers.get((what.name, "dat"), [])
        ratios = [d / o if what.rising else o / d for o, d in zip(ofa, dat)]
        if not ratios:
            continue
        ratio = statistics.median(ratios)
        noise = statistics.median(abs(r - ratio) for r in ratios)
        print(f"{what.name:<60} {what.unit:<13} {statistics.median(ofa):>10.1f} {statistics.median(dat):>10.1f} {ratio:>6.2f} {noise:>6.3f}")
        slower |= options.check and ratio < 1 - 3 * noise
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
