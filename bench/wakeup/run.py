#!/usr/bin/env python3
# The time until a sleeping thread has its completion: runs wakeup and prints a table.
# SPDX-License-Identifier: BSL-1.0
"""run.py --build DIR [--rounds N] [--wakes N] [--ends SERVER CLIENT]

Runs DIR/bench/wakeup/wakeup in one boot of the lab, or natively where dat-lab finds RDMA devices (then name the
addresses of two ports, or one twice, with --ends). Each turn of a way of waiting runs between two turns of hand-written
verbs and is compared with those; the median ratio counts. Writes wakeup.txt (the table) into DIR/bench/wakeup.
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


BY_HAND = "verbs: channel, arm, poll"


def table_of(text: str) -> str:
    """The median turn of each way, and the median of its ratios to the two neighbouring turns of hand-written verbs."""
    times: dict[str, list[float]] = {BY_HAND: []}
    ratios: dict[str, list[float]] = {BY_HAND: [1.0]}
    for line in text.splitlines():
        name, *numbers = line.split("|")
        if len(numbers) != 3:
            continue
        here, before, after = map(float, numbers)
        times.setdefault(name, []).append(here)
        times[BY_HAND] += [before, after]
        ratios.setdefault(name, []).append(2 * here / (before + after))
    if len(times) < 2 or len({len(turns) for name, turns in times.items() if name != BY_HAND}) != 1:
        return ""
    out = [f"{'a sleeping thread has its completion after':<44}{'best us':>9}{'middle us':>11}{'ratio':>7}"]
    out += [f"{name:<44}{min(t):9.1f}{statistics.median(t):11.1f}{statistics.median(ratios[name]):7.2f}" for name, t in times.items()]
    return "\n".join(out) + "\n"


def main() -> int:
    """Run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR", help="an optimised build directory")
    parser.add_argument("--rounds", type=whole(1, 1000), default=15, metavar="N", help="turns of each way (15)")
    parser.add_argument("--wakes", type=whole(1, 100000), default=50, metavar="N", help="wake-ups of a turn, of which the median counts (50)")
    parser.add_argument("--ends", nargs=2, default=LAB_ENDS, metavar=("SERVER", "CLIENT"), help="addresses to measure between")
    options = parser.parse_args()

    folder = (options.build / "bench/wakeup").resolve()
    program = folder / "wakeup"
    if not program.exists():
        print(f"wakeup: {program} is not there: configure with -Dbench=enabled, and build")
        return 2
    command = [LAB, "--timeout", str(120 + 30 * options.rounds), "--", program, options.rounds, options.wakes, *options.ends]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    shown = table_of(done.stdout)
    if done.returncode or not shown:
        print(f"wakeup: exit code {done.returncode}, the measurement is not complete\n{done.stdout[-2000:]}")
        return 1
    print(shown, end="")
    (folder / "wakeup.txt").write_text(shown, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
