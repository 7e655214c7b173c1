#!/usr/bin/env python3
# The cost of dat in a user's compile time, beside the headers that such a program includes anyway.
# SPDX-License-Identifier: BSL-1.0
"""compile_time.py [--rounds N] [--check] [--cxx COMPILER]... [--json FILE]

Compiles programs in turn and compares their processor time with that of `base` in the same round: an empty program that
includes verbs.h, rdma_cma.h and the standard headers that a program with RDMA needs. The ratio is the least of N rounds. hello is compared with `base of
hello`, which has its headers, too. `separate` means DAT_SEPARATE_COMPILATION: the headers only declare. With --check, a row
whose ratio to its base exceeds its budget fails; with --no-worse, one that exceeds what has been reached.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
from typing import NamedTuple, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from arguments import whole  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
BASE = ["infiniband/verbs.h", "rdma/rdma_cma.h", "variant", "span", "chrono", "system_error"]


class Program(NamedTuple):
    """One row: a program, and its budget as a multiple of `base`, compiled with -O2."""

    name: str
    source: str  # a file of the tree, or text
    separate: bool = False
    budget: Optional[float] = None
    base: str = "base"
    reached: float = 0  # the ratio of times where that is over the budget, with a quarter for a busy machine; g++ 12
    reached_memory: float = 0  # the ratio of memory with 3 %; g++ 12


def is_worse(program: Program, times: float, memory: float) -> bool:
    """Whether a row, as ratios to its base, costs more than its budget and than what has been reached."""
    return program.budget is not None and times > max(program.budget, program.reached) and memory > program.reached_memory


def includes(headers: list[str]) -> str:
    """An empty program that includes these headers."""
    return "".join(f"#include <{header}>\n" for header in headers) + "int main() {}\n"


PROGRAMS = [
    Program("base", includes(BASE)),
    Program("base of hello", includes([*BASE, "array", "iostream", "string"])),
    Program("include dat.hpp", "#include <dat/dat.hpp>\nint main() {}\n", budget=2.5, reached=3.6, reached_memory=2.6),
    Program("include dat.hpp, separate", "#include <dat/dat.hpp>\nint main() {}\n", separate=True, budget=2.5, reached_memory=1.8),
    Program("hello by hand", "bench/raw_hello.cpp"),
    Program("hello", "examples/01_hello.cpp", budget=3.8, base="base of hello", reached=15.9, reached_memory=3.65),
    Program("hello, separate", "examples/01_hello.cpp", separate=True, budget=2.5, base="base of hello", reached=4.1, reached_memory=2.35),
    Program("12_coroutine", "examples/12_coroutine.cpp"),
    Program("12_coroutine, separate", "examples/12_coroutine.cpp", separate=True),
    Program("datcp/channel", "examples/datcp/channel.cpp"),
    Program("datcp/channel, separate", "examples/datcp/channel.cpp", separate=True),
    Program("src.hpp, once a program", "#include <dat/src.hpp>\n", separate=True),
]


class Cost(NamedTuple):
    """The time and memory of one compilation."""

    seconds: float
    megabytes: float


def compile_once(cxx: str, source: pathlib.Path, separate: bool) -> Cost:
    """Compile to an object file with -O2."""
    command = [*cxx.split(), "-std=c++20", "-O2", f"-I{ROOT}/include", f"-I{ROOT}/detail", "-c", str(source), "-o", "/dev/null"]
    if separate:
        command.append("-DDAT_SEPARATE_COMPILATION")
    child = os.fork()
    if child == 0:
        os.execvp(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"compile_time: {' '.join(command)} failed")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=whole(1, 1000), default=5, metavar="N", help="compiles of each program (5)")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is over its budget")
    parser.add_argument("--no-worse", action="store_true", help="fail when a ratio is over its budget and over what has been reached")
    parser.add_argument("--budgeted", action="store_true", help="only the rows that have a budget, and base")
    parser.add_argument("--cxx", action="append", metavar="COMPILER", help="repeatable; g++ when none is given")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the numbers there, too")
    args = parser.parse_args()

    rows, over, worse = [], False, False
    with tempfile.TemporaryDirectory(prefix="dat-compile-time.") as folder:
        sources = {}
        for number, program in enumerate(PROGRAMS):
            if args.budgeted and program.budget is None and not program.name.startswith("base"):
                continue
            if (ROOT / program.source.split("\n")[0]).is_file():
                sources[program] = ROOT / program.source
            else:
                sources[program] = pathlib.Path(folder) / f"{number}.cpp"
                sources[program].write_text(program.source, encoding="utf-8")
        for cxx in args.cxx or ["g++"]:
            print(f"{cxx} -O2, processor time, the least of {args.rounds} in turn")
            print(f"{'program':<28} {'ms':>7} {'MB':>6} {'to base':>8} {'budget':>7}")
            costs: dict[Program, list[Cost]] = {program: [] for program in sources}
            for _ in range(8 if args.no_worse else 1):  # load on the host may slow one compile of a round more than the other
                for _ in range(max(1, args.rounds)):
                    for program, source in sources.items():
                        costs[program].append(compile_once(cxx, source, program.separate))
                least = {program: min(cost.seconds for cost in taken) for program, taken in costs.items()}
                most = {program: max(cost.megabytes for cost in taken) for program, taken in costs.items()}
                base_of = {p: next(b for b in costs if b.name == p.base) for p in costs}
                ratios = {p: min(c.seconds / b.seconds for c, b in zip(costs[p], costs[base_of[p]])) for p in costs}
                bad = [p for p in costs if is_worse(p, ratios[p], most[p] / most[base_of[p]])]
                if not bad:
                    break
            worse |= bool(bad)
            for program in costs:
                seconds = least[program]
                memory = most[program]
                ratio = ratios[program]
                exceeds = program.budget is not None and ratio > program.budget
                over |= exceeds
                budget = f"{program.budget:7.2f}" if program.budget is not None else " " * 7
                print(f"{program.name:<28} {1000 * seconds:7.0f} {memory:6.0f} {ratio:8.2f} {budget}{'   over the budget' if exceeds else ''}{', and worse than before' if program in bad else ''}")
                rows.append({"compiler": cxx, "program": program.name, "ms": round(1000 * seconds, 1),
                             "mb": round(memory), "ratio": round(ratio, 3), "budget": program.budget})  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if over and args.check or worse and args.no_worse else 0


if __name__ == "__main__":
    sys.exit(main())
