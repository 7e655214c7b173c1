#!/usr/bin/env python3
# The cost gauge: instructions and nanoseconds per operation, hand-written verbs beside dat, against the budgets.
# SPDX-License-Identifier: BSL-1.0
"""gauge.py --build DIR [--check | --no-worse] [--no-clock] [--json FILE]

Runs the programs DIR/bench/overhead/overhead* (one per compiler) under callgrind, for n and for 2n operations of each
job: the difference divided by n is what one operation costs, to the instruction and the same each time. With --check,
an operation over its budget fails, and so does one that allocates, or a way of posting whose cost beside the other way is
not the recorded one. --no-worse holds what has been reached instead of the budgets. The last line is `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Budgets: instructions of dat divided by those of raw. Jobs without a budget are shown and not judged.
BUDGETS = {
    "send, 1 segment": 1.35,
    "send, 2 segments": 1.35,
    "send, 4 segments": 1.35,
    "send, inline": 1.35,
    "RDMA write": 1.35,
    "RDMA write with immediate": 1.35,
    "RDMA read": 1.35,
    "send with immediate": 1.35,
    "fetch and add": 1.35,
    "compare and swap": 1.35,
    "UD send": 1.35,
    "recv": 1.35,
    "recv, shared queue": 1.5,
    "recv, shared queue, kept": 1.25,
    "batch of 16": 1.10,
    "batch of 16, kept": 1.10,
    "post of 4": 1.10,
    "drain, 16 there": 1.25,
    "rmr bind": 2.5,
    "send, merged evd": 1.9,
    "drain of all, merged evd": 1.9,
    "drain, 16 there, merged evd": 1.6,
    "send, taken by dequeue": 1.45,
    "dequeue, merged evd": 2.1,
    "wait_for, merged evd": 2.5,
    "coroutine, merged evd": 3.0,
    "send, with counters": 3.4,
    "send, cached region": 3.65,
}
# Ratios above the budget that the code has reached: (g++ 12, clang 14). bench/README.md explains the rest.
REACHED = {
    "recv, shared queue": (2.57, 2.59),
    "batch of 16": (1.14, 1.16),
    "batch of 16, kept": (1.22, 1.22),
    "post of 4": (1.06, 1.12),
    "rmr bind": (2.86, 3.29),
    "drain, 16 there, merged evd": (1.69, 1.84),
}
# Hand-written verbs on both sides: ibv_wr_* of an extended queue pair divided by ibv_post_send, (g++ 12, clang 14).
# dat posts by ibv_post_send because of these ratios and those of bench/posting: another ratio questions that decision.
POSTS = {
    "ibv_wr: send": (1.03, 1.03),
    "ibv_wr: RDMA write": (1.01, 1.01),
    "ibv_wr: write, inline": (1.00, 0.99),
    "ibv_wr: RDMA read": (1.01, 1.01),
    "ibv_wr: batch of 16": (1.03, 1.01),
    "ibv_wr: write, from a link": (1.39, 1.39),
    "ibv_wr: 16, from a chain": (1.35, 1.41),
}
POSTS_MAY_DIFFER = 0.05
OPERATIONS = 1024
# The counted functions, as callgrind demangles them; without the lambdas in them, which would stop the counting.
COUNTED = "*::counted_*(overhead::place&, long)"
DUMP_TIMES = OPERATIONS // 16


class failed(Exception):
    """A program that could not be run, or whose output makes no sense."""


@dataclasses.dataclass
class row:
    """One job with one compiler."""

    compiler: str
    job: str
    raw: float
    dat: float
    allocations: int
    raw_ns: float | None = None
    dat_ns: float | None = None

    @property
    def ratio(self) -> float:
        """The ratio of dat to raw."""
        return self.dat / self.raw

    @property
    def budget(self) -> float | None:
        """The limit of the ratio."""
        return BUDGETS.get(self.job)

    @property
    def within(self) -> bool:
        """Whether the budget is kept, rounded to a hundredth as it is printed."""
        return self.budget is None or round(self.ratio, 2) <= self.budget

    @property
    def as_recorded(self) -> bool:
        """Whether the ratio of two ways of posting is the recorded one; true of the other jobs."""
        recorded = POSTS.get(self.job)
        return recorded is None or abs(self.ratio - recorded[self.compiler.startswith("clang")]) <= POSTS_MAY_DIFFER

    @property
    def no_worse(self) -> bool:
        """Whether the ratio exceeds neither the budget nor the reached value."""
        reached = REACHED.get(self.job, (0.0, 0.0))[self.compiler.startswith("clang")]
        return self.within or round(self.ratio, 2) <= reached


def output_of(command: list[str | pathlib.Path], cwd: pathlib.Path | None = None) -> str:
    """The output of a command."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def instructions(program: pathlib.Path) -> dict[str, tuple[float, float]]:
    """Instructions per operation, raw and dat, of every job."""
    with tempfile.TemporaryDirectory(prefix="dat-gauge.") as folder:
        callgrind = ["valgrind", "--tool=callgrind", f"--toggle-collect={COUNTED}", "--callgrind-out-file=out"]
        output_of([*callgrind, program, "dump", str(DUMP_TIMES)], pathlib.Path(folder))
        counts: dict[str, int] = {}
        for dump in sorted(pathlib.Path(folder).glob("out.*"), key=lambda file: int(file.suffix[1:])):
            text = dump.read_text(encoding="utf-8", errors="replace")
            label = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.M)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
            if label and total:
                counts[label.group(1)] = int(total.group(1))
    jobs = dict.fromkeys(label.split("|")[0] for label in counts)
    if not jobs:
        raise failed(f"{program}: callgrind left no counts")

    def each(job: str, side: str) -> float:
        once, twice = (counts[f"{job}|{side}|{times}"] for times in (1, 2))
        if twice <= once or once == 0:
            raise failed(f"{program}: nothing was counted for {job}, {side}")
        return (twice - once) / OPERATIONS

    return {job: (each(job, "raw"), each(job, "dat")) for job in jobs}


def pairs(program: pathlib.Path, *arguments: str) -> dict[str, tuple[float, float]]:
    """The lines `job|number|number` of the program's output."""
    lines = (line.split("|") for line in output_of([program, *arguments]).splitlines())
    return {name: (float(raw), float(dat)) for name, raw, dat in lines}


def compiler_of(program: pathlib.Path) -> str:
    """The compiler of a program, by its own output."""
    return output_of([program, "compiler"]).strip()


def measure(program: pathlib.Path, clock: bool) -> list[row]:
    """All jobs of one program."""
    compiler = compiler_of(program)
    allocated = pairs(program, "allocations", "4")
    times = pairs(program, "clock", "15", "2000") if clock else {}
    rows = []
    counts = instructions(program)
    for job in allocated:  # in the program's order
        raw, dat = counts[job]
        raw_ns, dat_ns = times.get(job, (None, None))
        rows.append(row(compiler, job, raw, dat, int(sum(allocated[job])), raw_ns, dat_ns))
    return rows


def show(rows: list[row]) -> None:
    """The table."""
    print("Instructions per operation (callgrind, -O2), device included; ns on this machine, medians, sides in turn")
    print("ibv_wr: ibv_post_send as raw, ibv_wr_* of an extended queue pair as dat")
    print(f"{'':<28} {'raw':>7} {'dat':>7} {'ratio':>6} {'budget':>6}      {'raw ns':>7} {'dat ns':>7}")
    compiler = ""
    for r in rows:
        if r.compiler != compiler:
            compiler = r.compiler
            print(compiler)
        budget = f"{r.budget:.2f}" if r.budget else ""
        verdict = "OVER" if not r.within else "NEW" if not r.as_recorded else "ok" if r.budget or r.job in POSTS else ""
        ns = f"{r.raw_ns:7.1f} {r.dat_ns:7.1f}" if r.raw_ns is not None else ""
        allocated = f"  {r.allocations} allocations" if r.allocations else ""
        print(f"  {r.job:<26} {r.raw:7.1f} {r.dat:7.1f} {r.ratio:6.2f} {budget:>6} {verdict:<4} {ns}{allocated}")


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR", help="an optimised build directory")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="fail when something is over its budget or allocates")
    how.add_argument("--no-worse", action="store_true", help="fail when something costs more than has been reached, or allocates")
    parser.add_argument("--no-clock", dest="clock", action="store_false", help="instructions only")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the numbers there, too")
    options = parser.parse_args()

    folder = options.build / "bench/overhead"
    programs = sorted(p.resolve() for p in folder.glob("overhead*") if p.is_file() and p.suffix == "" and os.access(p, os.X_OK))
    try:
        if not programs:
            raise failed(f"no program in {folder}: configure with -Dbench=enabled, and build")
        if not shutil.which("valgrind"):
            raise failed("valgrind is missing: apt-get install valgrind")
        rows = [r for program in programs for r in measure(program, options.clock)]
        if unknown := (BUDGETS.keys() | POSTS.keys()) - {r.job for r in rows}:
            raise failed(f"budgets of jobs that do not exist: {', '.join(sorted(unknown))}")
    except (failed, OSError, subprocess.TimeoutExpired, ValueError, KeyError) as e:
        print(f"gauge: {type(e).__name__}: {e}" if isinstance(e, KeyError) else f"gauge: {e}")
        return 2
    show(rows)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        fields = [dataclasses.asdict(r) | {"ratio": round(r.ratio, 3), "budget": r.budget, "within": r.within, "by_hand": r.job in POSTS} for r in rows]
        options.json.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")

    judged = [r.no_worse if options.no_worse else r.within for r in rows if r.budget]
    judged += [r.as_recorded for r in rows if r.job in POSTS] + [r.allocations == 0 for r in rows]
    if options.no_worse:
        print(f"{sum(not r.within for r in rows)} over the budget, held at what has been reached")
    print(f"{sum(judged)} passed, {len(judged) - sum(judged)} failed")
    return 1 if (options.check or options.no_worse) and not all(judged) else 0


if __name__ == "__main__":
    sys.exit(main())
