#!/usr/bin/env python3
# Instructions of the provider for one operation, beside those of OFA's.
# SPDX-License-Identifier: BSL-1.0
"""cost.py --build DIR [--no-worse]: counts with callgrind, for n and 2n operations, the instructions inside libdatprovider.so and
inside libdat2.so.2, of the thread that calls. Their difference divided by n is exact. The device is the fake one, whose own instructions do not count."""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

N = 512  # a multiple of the requests that `waits` has outstanding
ROUNDS = 5
# OFA's provider with the registry, without the device's library: on Soft-RoCE, by the difference of two counts.
OFA = {"write": 407, "send": 775}
# What is reached, with g++ 12. Raise an entry only with a reason in the commit.
REACHED = {"write": 215, "send": 400, "waits": 560}
WHAT = {"write": "RDMA write + dequeue", "send": "recv + send + two dequeues", "waits": "RDMA write + wait, 16 there"}


def by_object(text: str) -> collections.Counter[str]:
    """Self cost by object file, from callgrind's output."""
    names: dict[str, str] = {}
    cost: collections.Counter[str] = collections.Counter()
    current, call = "", False
    for line in text.splitlines():
        if m := re.fullmatch(r"ob=\((\d+)\)(?: (.*))?", line):
            if m[2]:
                names[m[1]] = pathlib.Path(m[2]).name
            current = names[m[1]]
        elif m := re.fullmatch(r"cob=\((\d+)\)(?: (.*))?", line):
            if m[2]:
                names[m[1]] = pathlib.Path(m[2]).name
        elif line.startswith("calls="):
            call = True
        elif re.match(r"[+\-*\d]", line):
            if not call:
                cost[current] += int(line.split()[1])
            call = False
    return cost


def count(program: pathlib.Path, provider: pathlib.Path, job: str, n: int) -> collections.Counter[str]:
    """The cost of a run, by object file."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}", program, provider, job, str(n)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"cost.py: {program} ended with {done.returncode}:\n{done.stdout}")
        # The first thread makes the calls. What the service thread does meanwhile depends on the order of the threads.
        return by_object(pathlib.Path(f"{out}-01").read_text(encoding="utf-8"))


def fewest(program: pathlib.Path, provider: pathlib.Path, job: str, n: int) -> collections.Counter[str]:
    """The cheapest of some runs. The service thread polls by the clock, and sends some events another way, which costs more."""
    return min((count(program, provider, job, n) for _ in range(ROUNDS)), key=lambda cost: cost["libdatprovider.so"])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Instructions of the provider for one operation, beside those of OFA's.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build directory, with optimisation")
    parser.add_argument("--no-worse", action="store_true", help="fail where the cost is more than what was reached")
    options = parser.parse_args()
    program = options.build / "bench/provider/provider_cost"
    provider = (options.build / "examples/provider/libdatprovider.so").resolve()
    worst = 0
    print(f"{'operation':<28} {'provider':>8} {'libdat2':>8} {'sum':>6} {'OFA':>6} {'ratio':>6}")
    for job, what in WHAT.items():
        once, twice = (fewest(program, provider, job, n) for n in (N, 2 * N))
        each = {name: (twice[name] - once[name]) / N for name in twice}
        own = each.get("libdatprovider.so", 0.0)
        registry = sum(cost for name, cost in each.items() if name.startswith("libdat2.so"))
        beside = f"{OFA[job]:>6} {(own + registry) / OFA[job]:>6.2f}" if job in OFA else f"{'-':>6}"
        print(f"{what:<28} {own:>8.1f} {registry:>8.1f} {own + registry:>6.1f} {beside}")
        worst |= options.no_worse and own + registry > REACHED[job]
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
