#!/usr/bin/env python3
# Compiles examples as a user's build does: each optimisation, standard and hardening, with g++ and clang, -Werror.
# SPDX-License-Identifier: BSL-1.0
"""options.py [--all] [NAME...]: ends with `N passed, N failed`.

Each optimisation, standard and hardening is used with each compiler. Without --all, three examples and warned.cpp are
compiled as one source, which takes one minute on one core. With --all, each is compiled by itself, which takes a quarter
of an hour. The normal run has three of the choices (run.py), and a nightly run has all of them. The release build shows the
warnings of g++ -O2. Clang warns before it optimises.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Iterable, Iterator, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = {p.stem: p for p in sorted([*(ROOT / "examples").glob("*.cpp"), HERE / "warned.cpp"])}
# These examples contain all code of opening an adapter, of a connection, of the coroutines and of errors.
TELLING = ["warned", "01_hello", "12_coroutine", "kv_client"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
STANDARDS = {"C++20": "-std=c++20", "C++23": "-std=c++2b"}  # clang 14 has no -std=c++23
# Some distributions have a _FORTIFY_SOURCE of their own. It needs optimisation, which every level here has.
HARDENINGS: dict[str, list[str]] = {
    "plain": [],
    "assertions": ["-D_GLIBCXX_ASSERTIONS"],
    "fortify": ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"],
}
# Compiles only if the options have the meaning of their names.
PROBE = """#include <string>
#if !defined __OPTIMIZE__ || defined __OPTIMIZE_SIZE__ != {size}
#error the level of optimisation
#endif
#if (__cplusplus > 202002L) != {newer}
#error the standard
#endif
#if defined _GLIBCXX_ASSERTIONS != {assertions} || (__USE_FORTIFY_LEVEL == 3) != {fortify}
#error the hardening
#endif
"""
FAULTY = "int faulty(int known);\nint faulty(int known) {\n  int x;\n  return known + x;\n}\n"


class choice(NamedTuple):
    """One way to call a compiler."""

    compiler: str
    level: str
    standard: str
    hardening: str

    def __str__(self) -> str:
        return f"{self.compiler} {self.level} {self.standard} {self.hardening}"

    def command(self) -> list[str]:
        """The compiler with its options, as far as no source needs more."""
        cache = ["ccache"] if shutil.which("ccache") else []
        return [*cache, self.compiler, self.level, STANDARDS[self.standard], *HARDENINGS[self.hardening], *WARNINGS]


# Each level, standard and hardening with each compiler, and each level with each standard.
CHOICES = [
    choice("g++", "-O1", "C++23", "assertions"),
    choice("g++", "-O2", "C++20", "plain"),
    choice("g++", "-O3", "C++23", "fortify"),
    choice("g++", "-Os", "C++20", "assertions"),
    choice("clang++", "-O1", "C++20", "fortify"),
    choice("clang++", "-O2", "C++23", "plain"),
    choice("clang++", "-O3", "C++20", "assertions"),
    choice("clang++", "-Os", "C++23", "fortify"),
]


# Those of a normal run: each standard and each hardening.
TELLING_CHOICES = [how for how in CHOICES if (how.compiler, how.level) in {("g++", "-O3"), ("g++", "-Os"), ("clang++", "-O3")}]


def compiles(how: choice, work: pathlib.Path, source: str, more: Iterable[str] = ()) -> str:
    """Compiles to an object file, since many warnings come from the optimiser. Returns what the compiler reports."""
    include = [f"-I{ROOT}/include", f"-I{ROOT}/detail", f"-I{ROOT}/examples", *more]
    command = [*how.command(), *include, "-c", source, "-o", "object.o"]
    done = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if done.returncode == 0 and not done.stderr:
        return ""
    return f"$ {' '.join(command)}\nexit code {done.returncode}\n{done.stderr}"


def together(work: pathlib.Path, names: list[str]) -> str:
    """One source with several examples, each in a namespace of its own. Their headers come first, at global scope."""
    lines: list[str] = []
    headers: set[str] = set()
    for name in names:
        text = SOURCES[name].read_text(encoding="utf-8")
        headers |= {line for line in text.splitlines() if line.startswith("#include")}
        lines += [f"namespace of_{name} {{", f"#define main main_of_{name}", f'#include "{SOURCES[name]}"', "#undef main", "}"]
    (work / "together.cpp").write_text("\n".join([*sorted(headers), *lines]) + "\n", encoding="utf-8")
    return "together.cpp"  # without the folder, whose name is new in each run: ccache would not find it


def probe(how: choice, work: pathlib.Path) -> str:
    """Checks that the options have the meaning of their names, and that a warning is an error."""
    words = {
        "size": how.level == "-Os",
        "newer": how.standard == "C++23",
        "assertions": how.hardening == "assertions",
        "fortify": how.hardening == "fortify",
    }
    source = work / "probe.cpp"
    source.write_text(PROBE.format(**{k: int(v) for k, v in words.items()}), encoding="utf-8")
    if wrong := compiles(how, work, "probe.cpp"):
        return wrong
    source.write_text(FAULTY, encoding="utf-8")
    return "" if "uninitialized" in compiles(how, work, "probe.cpp") else f"{how}: a variable without a value was no error\n"


def mpi() -> list[str] | None:
    """The options of MPI; None where there is no MPI."""
    for package in ("mpi-cxx", "ompi-cxx", "mpich"):
        done = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.replace("-I", "-isystem").split()
    return None


def check(full: bool, names: list[str], choices: Iterable[choice] = tuple(CHOICES)) -> Iterator[tuple[str, str]]:
    """Compiles. Yields a line for each compilation, with what the compiler reports: nothing if all is well."""
    with tempfile.TemporaryDirectory(prefix="dat-options.") as temporary:
        work = pathlib.Path(temporary)
        for how in choices:
            if not shutil.which(how.compiler):
                print(f"options: not compiled, since {how.compiler} is not installed: {how}")
                continue
            yield f"{how}: the options", probe(how, work)
            if not full:
                yield f"{how}: {', '.join(names)}", compiles(how, work, together(work, names))
                continue
            for name in names:
                more = mpi() if name == "17_mpi_allreduce" else []
                if more is not None:
                    yield f"{how}: {name}", compiles(how, work, str(SOURCES[name]), more)


def main() -> int:
    """Compiles what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="each example by itself")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    names = args.names or (list(SOURCES) if args.all else TELLING)
    passed = failed = 0
    for name, report in check(args.all, names):
        if report:
            print(f"options: {name}:\n{report}", flush=True)
        failed += report != ""
        passed += report == ""
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
