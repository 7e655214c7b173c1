#!/usr/bin/env python3
# What including <dat/dat.hpp> costs a user's compile, beside the headers that such a program includes anyway.
# SPDX-License-Identifier: BSL-1.0
"""compile_time.py [--rounds N] [--check] [--cxx COMPILER]...

Compiles two empty programs in turn and compares the medians: one includes <dat/dat.hpp>, the other verbs.h, rdma_cma.h,
<variant> <span> <chrono> <system_error>. The budget is a ratio of 2.5; with --check a higher one fails.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUDGET = 2.5
PROGRAMS = {
    "base": ["infiniband/verbs.h", "rdma/rdma_cma.h", "variant", "span", "chrono", "system_error"],
    "dat": ["dat/dat.hpp"],
}


def compile_once(cxx: str, source: pathlib.Path) -> float:
    """Seconds of one compile to an object file."""
    command = [*cxx.split(), "-std=c++20", f"-I{ROOT}/include", f"-I{ROOT}/detail", "-c", str(source), "-o", f"{source}.o"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"compile_time: {' '.join(command)}\n{done.stderr}")
    return seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="compiles of each program (9)")
    parser.add_argument("--check", action="store_true", help=f"fail when the ratio is over {BUDGET}")
    parser.add_argument("--cxx", action="append", metavar="COMPILER", help="repeatable; g++ when none is given")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the numbers there, too")
    args = parser.parse_args()
    if not (ROOT / "include/dat/dat.hpp").exists():
        print("compile_time: include/dat/dat.hpp is not there: nothing to measure")
        return 1

    rows, over = [], False
    print(f"{'compiler':<12} {'base ms':>8} {'dat ms':>8} {'ratio':>6}   (medians of {args.rounds} in turn; budget {BUDGET})")
    with tempfile.TemporaryDirectory(prefix="dat-compile-time.") as folder:
        sources = {}
        for name, headers in PROGRAMS.items():
            sources[name] = pathlib.Path(folder) / f"{name}.cpp"
            includes = "".join(f"#include <{header}>\n" for header in headers)
            sources[name].write_text(f"{includes}int main() {{}}\n", encoding="utf-8")
        for cxx in args.cxx or ["g++"]:
            for source in sources.values():  # once for the page cache
                compile_once(cxx, source)
            times: dict[str, list[float]] = {name: [] for name in sources}
            for _ in range(max(1, args.rounds)):
                for name, source in sources.items():
                    times[name].append(compile_once(cxx, source))
            base, dat = (1000 * statistics.median(times[name]) for name in ("base", "dat"))
            rows.append({"compiler": cxx, "base_ms": round(base, 1), "dat_ms": round(dat, 1), "ratio": round(dat / base, 3)})
            over |= dat / base > BUDGET
            print(f"{cxx:<12} {base:8.0f} {dat:8.0f} {dat / base:6.2f}   {'over the budget' if dat / base > BUDGET else 'ok'}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if over and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
