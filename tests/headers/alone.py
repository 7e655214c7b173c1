#!/usr/bin/env python3
# Each public header compiles alone, and a second time after itself.
# SPDX-License-Identifier: BSL-1.0
"""alone.py [--cxx COMPILER] [HEADER...]: compile each header of include/ (or only these: dat/ep.hpp) in a source file of its own,
without output; then `N passed, N failed`. A header that needs another one before it fails."""

import argparse
import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-pthread", "-fsyntax-only"]
# For the one source file of a separately compiled program: it includes everything.
EXEMPT = {"dat/src.hpp"}


def public_headers() -> list[str]:
    """The headers, as programs name them."""
    include = ROOT / "include"
    return sorted({str(path.relative_to(include)) for path in include.rglob("*.hpp")} - EXEMPT)


def fault(cxx: str, header: str) -> str:
    """The messages of the compiler about a header. Empty when there are none."""
    libraries = subprocess.run(["pkg-config", "--cflags", "libibverbs", "librdmacm"], capture_output=True, text=True, check=True).stdout
    command = [*shlex.split(cxx), *FLAGS, f"-I{ROOT / 'include'}", f"-I{ROOT / 'detail'}", *libraries.split(), "-x", "c++", "-"]
    source = f"#include <{header}>\n#include <{header}>\n"
    done = subprocess.run(command, input=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return "" if done.returncode == 0 else f"{header}:\n{done.stdout}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="alone.py", description="Compile each public header alone.")
    parser.add_argument("--cxx", default="g++", metavar="COMPILER", help="the compiler (g++)")
    parser.add_argument("headers", nargs="*", metavar="HEADER", help="only these, as dat/ep.hpp")
    options = parser.parse_args()
    headers = options.headers or public_headers()
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        faults = [text for text in pool.map(lambda header: fault(options.cxx, header), headers) if text]
    for text in faults:
        print(text)
    print(f"{len(headers) - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
