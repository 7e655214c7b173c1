#!/usr/bin/env python3
# Connections per second and memory per connection beside hand-written rdma_cm: runs connect and prints a table.
# SPDX-License-Identifier: BSL-1.0
"""run.py --build DIR [--rounds N] [--connections N] [--real] [--ends SERVER CLIENT] [--check]

Runs DIR/bench/connect/connect in one boot of the lab, or natively where dat-lab finds RDMA devices (then name the
addresses of two ports, or one twice, with --ends). The ways of connecting take turns. Writes connect.txt (the table)
into DIR/bench/connect. With --check it fails when dat makes less than 0.9 of the connections per second of the program
by hand.

The lab's machine has one processor, whose clock counts instructions: rounds agree within 1 %, whatever else the host
does, and all work for a connection counts, on both sides and in the kernel. With --real it has two processors and uses
the time of the host; on a busy host that needs many rounds.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from arguments import whole  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = ROOT / "tests/lab/dat-lab"
LAB_ENDS = ["10.78.2.1", "10.78.1.1"]
WAYS = ["raw", "raw, two threads", "dat", "dat manual"]
RATES = ["one at a time", "several at a time"]
MEMORY = ["heap, connecting", "heap, accepting", "resident, connecting", "resident, accepting"]
BUDGET = 0.9

Values = dict[tuple[str, str], list[float]]


def values_of(text: str) -> Values:
    """The measured values, by way and by name."""
    values: Values = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 3:
            values.setdefault((parts[0], parts[1]), []).append(float(parts[2]))
    return values


def ratios_of(values: Values, what: str) -> dict[str, float]:
    """The median ratio of each way to the one by hand."""
    raw = statistics.median(values["raw", what])
    return {way: statistics.median(values[way, what]) / raw for way in WAYS}


def table_of(values: Values) -> str:
    """Rates: the best and the median round, and the median ratio. Memory: the median round."""
    out = [f"{'connections per second':<24}{'':<18}{'best':>9}{'middle':>9}{'ratio':>7}"]
    for what in RATES:
        ratios = ratios_of(values, what)
        for way in WAYS:
            rounds = values[way, what]
            out.append(f"{what:<24}{way:<18}{max(rounds):9.1f}{statistics.median(rounds):9.1f}{ratios[way]:7.2f}")
    out += ["", f"{'bytes per connection':<24}" + "".join(f"{way:>18}" for way in WAYS)]
    for what in MEMORY:
        out.append(f"{what:<24}" + "".join(f"{statistics.median(values[way, what]):18.0f}" for way in WAYS))
    return "\n".join(out) + "\n"


def main() -> int:
    """Runs, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR", help="an optimised build directory")
    parser.add_argument("--rounds", type=whole(1, 1000), default=5, metavar="N", help="turns of each way (5)")
    parser.add_argument("--connections", type=whole(1, 4096), default=48, metavar="N", help="connections of a turn, twice as many where several are under way (48)")
    parser.add_argument("--real", action="store_true", help="two processors and the time of the host")
    parser.add_argument("--ends", nargs=2, default=LAB_ENDS, metavar=("SERVER", "CLIENT"), help="addresses to measure between")
    parser.add_argument("--check", action="store_true", help=f"fail below {BUDGET} of the rate by hand")
    options = parser.parse_args()

    folder = (options.build / "bench/connect").resolve()
    program = folder / "connect"
    if not program.exists():
        print(f"connect: {program} is not there: configure with -Dbench=enabled, and build")
        return 2
    clock = [] if options.real else ["--counted"]
    command = [LAB, *clock, "--timeout", str(120 + 60 * options.rounds), "--", program, options.rounds, options.connections, *options.ends]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    values = values_of(done.stdout)
    if done.returncode or any((way, what) not in values for way in WAYS for what in RATES + MEMORY):
        print(f"connect: exit code {done.returncode}, the measurement is not complete\n{done.stdout[-2000:]}")
        return 1
    shown = table_of(values)
    print(shown, end="")
    (folder / "connect.txt").write_text(shown, encoding="utf-8")
    slow = [
        f"{way} {what}: {ratio:.2f}"
        for what in RATES
        for way, ratio in ratios_of(values, what).items()
        if way.startswith("dat") and ratio < BUDGET
    ]
    if options.check and slow:
        print(f"connect: below {BUDGET} of the rate by hand: {', '.join(slow)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
