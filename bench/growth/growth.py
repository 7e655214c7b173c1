#!/usr/bin/env python3
"""How costs grow with sizes: instructions of dat, beside those of hand-written verbs, over a device that completes at once.

    growth.py --build build/release [--most N] [--check] [--page docs/growth.md]

Each curve is counted by callgrind at several sizes. Its exponent is the slope of log(cost) over log(size) for the upper half of
the sizes: 1 is linear, 0 is a cost that does not depend on the size. --check fails when the exponent of dat exceeds that of the
curve's limit. Curves without a raw side count the instructions of dat's own functions; the fake library, that stands in for the
device there, is left out.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

TOLERANCE = 0.05  # the tolerance of an exponent
ROUNDS = 5  # the number of runs with threads
OPERATIONS = 200_000
OWN = ("dat::v0::", "growth::")


@dataclasses.dataclass(frozen=True)
class Curve:
    """The counted value, and its allowed growth."""

    name: str  # as the program names it
    size: str  # the meaning of the size
    cost: str  # the counted work at each size
    limit: float  # the exponent that dat may have, or that of raw, whichever is larger
    per: int = 0  # the number of operations of a pass; 0 for the size


CURVES = [
    Curve("endpoints, sends, lean evd", "endpoints on one completions-only evd", "one send on each endpoint, and its completion", 1),
    Curve("endpoints, sends, merged evd", "endpoints on one merged evd", "one send on each endpoint, and its completion", 1),
    Curve("endpoints, waits, merged evd", "endpoints on one merged evd", "one send on each endpoint, and `wait_for` of its completion", 1),
    Curve("endpoints, connect, lean evd", "endpoints on one completions-only evd", "connecting all endpoints, on both sides", 1),
    Curve("endpoints, connect, merged evd", "endpoints on one merged evd", "connecting all endpoints, on both sides", 1),
    Curve("endpoints, close, lean evd", "endpoints on one completions-only evd", "closing all endpoints", 1),
    Curve("endpoints, close, merged evd", "endpoints on one merged evd", "closing all endpoints", 1),
    Curve("evds of a cno", "evds of one cno", "one event on each evd: post, wait on the cno, dequeue", 1),
    Curve("regions, register and close", "regions that are registered", "registering and closing 16 more regions", 0, 16),
    Curve("regions, found in a cache", "regions in a `registration_cache`", "finding 16 regions in the tree of the cache", 0.1, 16),
    Curve("segments of a send", "segments of a request", "64 sends and their completions", 1, 64),
    Curve("requests of one call", "requests of one call", "one call and its completions, where raw posts a chain", 1),
    Curve("bytes of a send", "bytes of a message", "64 sends and their completions", 0, 64),
    Curve("outstanding requests, lean evd", "requests that are outstanding", "posting all requests, then taking all completions", 1),
    Curve("outstanding requests, merged evd", "requests that are outstanding", "posting all requests, then taking all completions", 1),
]

Points = dict[int, float]  # size -> instructions


class Failed(Exception):
    """The program could not be run, or its output makes no sense."""


def parse(dump: str) -> tuple[str, float, float]:
    """The label of a dump of callgrind, all instructions, and those of dat's own functions and of the program."""
    label = re.search(r"^desc: Trigger: Client Request: (.*)$", dump, re.M)
    if not label:
        raise Failed("a dump without a label")
    names: dict[str, str] = {}
    own = everything = 0.0
    mine = skip = False
    for line in dump.splitlines():
        if match := re.match(r"fn=(\(\d+\))(?: (.*))?$", line):
            if match[2]:
                names[match[1]] = match[2]
            mine = any(part in names[match[1]] for part in OWN)
        elif match := re.match(r"cfn=(\(\d+\))(?: (.*))?$", line):
            if match[2]:
                names[match[1]] = match[2]
        elif line.startswith("calls="):
            skip = True  # the next line is the cost of the callee
        elif re.match(r"[+\-*\d]", line) and len(line.split()) == 2:
            if not skip:
                cost = float(line.split()[1])
                everything += cost
                own += cost if mine else 0
            skip = False
    return label[1], everything, own


def count(program: pathlib.Path, most: int | None) -> dict[tuple[str, str], Points]:
    """(curve, side) -> its points."""
    points: dict[tuple[str, str], Points] = collections.defaultdict(dict)
    own_points: dict[tuple[str, str], Points] = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory(prefix="dat-growth.") as folder:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=out", str(program), "dump"]
        if most:
            command.append(str(most))
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{program}: exit code {done.returncode}\n{done.stderr}")
        for dump in pathlib.Path(folder).glob("out.*"):
            text = dump.read_text(encoding="utf-8", errors="replace")
            if "desc: Trigger: Client Request:" not in text:
                continue  # the one at the end of the program
            label, everything, own = parse(text)
            curve, side, size = label.split("|")
            points[curve, side][int(size)] = everything
            own_points[curve, side][int(size)] = own
    for key in points:
        if (key[0], "raw") not in points:
            points[key] = own_points[key]
    if missing := {c.name for c in CURVES} - {curve for curve, _ in points}:
        raise Failed(f"nothing was counted for {', '.join(sorted(missing))}")
    return points


def exponent(points: Points) -> float:
    """The slope of the upper half of the points in logarithms."""
    upper = sorted(points.items())[len(points) // 2 :] if len(points) > 3 else sorted(points.items())
    x = [math.log(size) for size, _ in upper]
    y = [math.log(max(cost, 1.0)) for _, cost in upper]
    return statistics.linear_regression(x, y).slope if len(upper) > 1 else 0.0


def within(curve: Curve, sides: dict[str, Points]) -> bool:
    """Whether dat grows no faster than the limit, or than raw."""
    allowed = max([curve.limit, *(exponent(sides[side]) for side in sides if side == "raw")])
    return exponent(sides["dat"]) <= allowed + TOLERANCE


def table(curve: Curve, sides: dict[str, Points]) -> list[str]:
    """A table in Markdown: a line for each side, a column for each size."""
    sizes = sorted(sides["dat"])
    lines = [f"| {curve.size} | " + " | ".join(f"{size:,}" for size in sizes) + " | exponent |", "|---|" + "--:|" * (len(sizes) + 1)]
    for side in ("raw", "dat"):
        if side in sides:
            each = (sides[side][size] / (curve.per or size) for size in sizes)
            lines.append(f"| {side} | " + " | ".join(f"{cost:,.0f}" for cost in each) + f" | {exponent(sides[side]):.2f} |")
    if "raw" in sides:
        ratios = (sides["dat"][size] / sides["raw"][size] for size in sizes)
        lines.append("| ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " | |")
    return lines


def threads(program: pathlib.Path) -> list[tuple[int, float, float, float, float]]:
    """The medians of raw and dat in nanoseconds, and their spreads, with 1, 2 and 4 threads."""
    rows = []
    for n in (1, 2, 4):
        pairs = []
        for _ in range(ROUNDS):
            done = subprocess.run([str(program), "threads", str(n), str(OPERATIONS)], capture_output=True, text=True, check=True)
            pairs.append([float(value) for value in done.stdout.split("|")])
        raw, dat = zip(*pairs)
        rows.append((n, statistics.median(raw), statistics.median(dat), max(raw) - min(raw), max(dat) - min(dat)))
    return rows


def threads_table(rows: list[tuple[int, float, float, float, float]]) -> list[str]:
    """Beside hand-written verbs on the same number of threads."""
    lines = ["| threads | raw, ns | dat, ns | ratio | spread of raw, dat |", "|--:|--:|--:|--:|---|"]
    lines += [f"| {n} | {raw:.0f} | {dat:.0f} | {dat / raw:.2f} | {a:.0f}, {b:.0f} |" for n, raw, dat, a, b in rows]
    return lines


def page(points: dict[str, dict[str, Points]], rows: list[tuple[int, float, float, float, float]], cpus: int) -> str:
    """docs/growth.md."""
    parts = [
        "<!-- How costs grow with sizes. Written by `./dev bench growth`; do not edit. SPDX-License-Identifier: BSL-1.0 -->",
        "# Growth",
        "Instructions of one operation at several sizes (callgrind, g++, -O2). *raw* is hand-written verbs over the same device, which"
        " completes each operation at once. Without a raw side, the numbers are those of dat's own functions, and the device is the fake"
        " verbs library. An exponent is the slope of the whole cost over the size, in logarithms, for the upper half of the sizes. An"
        " exponent of 1 is linear growth, and 0 is a cost that does not depend on the size. `bench/growth/growth.py --check` checks that dat"
        " grows no faster than linearly, or than raw.",
        "![The cost of an operation over the size, of dat and of hand-written verbs](growth.svg)",
    ]
    for curve in CURVES:
        sides = points[curve.name]
        divided = f"divided by {curve.per}" if curve.per else "divided by the size"
        parts += [f"## {curve.name[0].upper()}{curve.name[1:]}", f"{curve.cost[0].upper()}{curve.cost[1:]}, {divided}.", "\n".join(table(curve, sides))]
    parts += [
        "## Threads",
        f"Each thread posts to an endpoint of its own and takes from an evd of its own, on one ia. The numbers are nanoseconds of an"
        f" operation, medians of {ROUNDS} runs on {cpus} processors. If the ratio is the same as with one thread, the threads of dat do not"
        f" disturb each other.",
        "\n".join(threads_table(rows)),
    ]
    return "\n\n".join(parts) + "\n"


def draw(points: dict[str, dict[str, Points]], to: pathlib.Path) -> None:
    """A panel for each curve."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "dat", "svg.fonttype": "none", "font.family": "sans-serif"}
    import matplotlib.pyplot as plot

    figure, axes = plot.subplots(5, 3, figsize=(13, 15), facecolor="white", constrained_layout=True)
    for axis, curve in zip(axes.flat, CURVES):
        for side, color in (("raw", "#888888"), ("dat", "#1f6feb")):
            if side in points[curve.name]:
                sizes = sorted(points[curve.name][side])
                axis.plot(sizes, [points[curve.name][side][size] / (curve.per or size) for size in sizes], marker="o", color=color, label=side)
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_title(curve.name, fontsize=10)
        axis.set_xlabel(curve.size, fontsize=8)
        axis.set_ylabel("instructions of one", fontsize=8)
        axis.legend(fontsize=8)
    figure.savefig(to, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(prog="growth.py", description="How the costs of dat grow with sizes.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build directory with -Dbench=enabled")
    parser.add_argument("--most", type=int, help="leave larger sizes out")
    parser.add_argument("--check", action="store_true", help="fail when a curve grows faster than its limit")
    parser.add_argument("--page", type=pathlib.Path, help="write the tables there as Markdown, and a picture beside them")
    options = parser.parse_args()
    program = (options.build / "bench/growth/growth").resolve()
    try:
        counted = count(program, options.most)
        rows = [] if options.check and not options.page else threads(program)
    except (Failed, OSError, subprocess.CalledProcessError, ValueError, KeyError) as e:
        print(f"growth: {e}")
        return 2
    points: dict[str, dict[str, Points]] = collections.defaultdict(dict)
    for (curve, side), of_side in counted.items():
        points[curve][side] = of_side
    passed = 0
    for curve in CURVES:
        good = within(curve, points[curve.name])
        passed += good
        print(f"\n{curve.name}: {curve.cost}" + ("" if good else "   GROWS TOO FAST"))
        print("\n".join(table(curve, points[curve.name])))
    if rows:
        print("\nthreads")
        print("\n".join(threads_table(rows)))
    if options.page:
        options.page.write_text(page(points, rows, os.cpu_count() or 1), encoding="utf-8")
        draw(points, options.page.with_suffix(".svg"))
    print(f"{passed} passed, {len(CURVES) - passed} failed")
    return 1 if options.check and passed != len(CURVES) else 0


if __name__ == "__main__":
    sys.exit(main())
