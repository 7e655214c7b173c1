#!/usr/bin/env python3
# Compiles headers, examples and the unit program with compilers of other releases of Debian, only for errors and
# warnings.
# SPDX-License-Identifier: BSL-1.0
"""The compilers run in a tree of packages below build/worlds (roots.py), with that release's libraries and a copy of the
sources at the same path. BUILD is a build directory of Meson's without precompiled headers: its commands are used, with the
other compiler in place of its own. Ends with `N passed, N failed`: a file with a compiler is one."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import roots
from compile_commands import without_output

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The packages that the sources include, beside the compilers.
LIBRARIES = """catch2 libboost-dev libcli11-dev libfmt-dev libibverbs-dev libopenmpi-dev librdmacm-dev libssl-dev libxxhash-dev
    nlohmann-json3-dev systemtap-sdt-dev""".split()


@dataclasses.dataclass(frozen=True)
class compiler:
    """One compiler of a release, with its options."""

    release: str
    program: str
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in results."""
        return " ".join([self.program, *self.options])


COMPILERS = (compiler("trixie", "clang++-19", ("-stdlib=libc++", "-fexperimental-library")),)
# The tool that needs std::from_chars of floating-point numbers, which libc++ 19 lacks.
LEFT_OUT = {"-stdlib=libc++": "examples/tools/dat-perf.p"}
# Without -fexperimental-library, libc++ 19 has no std::stop_token. The first message of the compiler must name the
# option.
REFUSES = compiler("trixie", "clang++-19", ("-stdlib=libc++",))
MESSAGE = "dat: coroutines need std::stop_token"
PACKAGES = {"trixie": ["clang-19", "libc++-19-dev", "libc++abi-19-dev"]}
# The folders of the build directory whose commands are used. Each header alone is left out: all compilers find the same
# missing includes.
FOLDERS = ("libdat.a.p", "examples", "tests/headers/libheaders_noexcept.a.p", "tests/unit/unit.p", "tests/unit/libunit_shared.a.p")


def root_of(release: str) -> pathlib.Path:
    """The tree of a release, with a copy of the sources and of nothing else."""
    architecture = roots.command(["dpkg", "--print-architecture"]).strip()
    return roots.root_of(ROOT / f"build/worlds/{release}", architecture, [*PACKAGES[release], *LIBRARIES], release)


def copy_sources(root: pathlib.Path, build: pathlib.Path) -> None:
    """Put what a compiler reads into the tree, at the path that the commands name."""
    inside = root / ROOT.relative_to("/")
    shutil.rmtree(inside, ignore_errors=True)
    for folder in ("include", "detail", "examples", "tests"):
        shutil.copytree(ROOT / folder, inside / folder)
    (inside / build.relative_to(ROOT)).mkdir(parents=True)
    for file in build.rglob("*.[ch]pp"):
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def commands(build: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
    """The files, and the options with which Meson compiles them."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if not entry["output"].startswith(FOLDERS):
            continue
        words = without_output(entry["command"])
        yield entry["output"], [w for w in words if w.startswith(("-I", "-D", "-W", "-f", "-std", "-isystem")) or w.endswith(".cpp")]


def inside(root: pathlib.Path, folder: pathlib.Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """A command in the tree, which has no shell."""
    rights = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    enter = "import os, sys; os.chroot(sys.argv[1]); os.chdir(sys.argv[2]); os.execvp(sys.argv[3], sys.argv[3:])"
    return subprocess.run([*rights, sys.executable, "-c", enter, root, folder, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False)  # fmt: skip


def check(which: compiler, build: pathlib.Path, jobs: int, text: str) -> tuple[int, list[str]]:
    """The number of files that one compiler compiled, and its messages about files that it does not compile without a warning."""
    root = root_of(which.release)
    copy_sources(root, build)
    # g++ has options of its own in the commands.
    drop = ("-fpch", "-ffold-simple-inlines", "-Wno-subobject-linkage", "-Winvalid-pch") if which.program.startswith("clang") else ("-Winvalid-pch",)
    more = ["-Wno-shadow"] if which.program.startswith("clang") else []  # for tests that are compiled together

    def one(item: tuple[str, list[str]]) -> str:
        name, words = item
        words = [word for word in words if not word.startswith(drop)]
        done = inside(root, build, [which.program, *words, *which.options, *more, "-fsyntax-only", "-fdiagnostics-color=never"])
        bad = done.returncode != 0 or "warning:" in done.stderr
        return f"{which.title}: {name}: exit code {done.returncode}\n{done.stderr}" if bad else ""

    left_out = tuple(LEFT_OUT[option] for option in which.options if option in LEFT_OUT)
    chosen = [item for item in commands(build) if text in item[0] and not item[0].startswith(left_out)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return len(chosen), [said for said in pool.map(one, chosen) if said]


def refuses(build: pathlib.Path) -> str:
    """The fault of the first message of a compiler whose library lacks a feature. Empty when the message names the feature."""
    _, said = check(REFUSES, build, 1, "headers_noexcept")
    first = next((line for text in said for line in text.splitlines() if "error:" in line), "no error")
    return "" if MESSAGE in first else first


def main() -> int:
    """All compilers, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--compiler", default="", help="only those whose title contains this")
    parser.add_argument("--files", default="", help="only outputs whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    passed, failed = 0, 0
    for which in COMPILERS:
        if options.compiler not in which.title:
            continue
        count, said = check(which, options.build.resolve(), options.jobs, options.files)
        for text in said:
            print("\n".join(line[:300] for line in text.splitlines()[:30]))
        print(f"{which.title}, {which.release}: {count - len(said)} of {count} files without a warning", flush=True)
        passed, failed = passed + count - len(said), failed + len(said)
    if options.compiler in REFUSES.title:
        wrong = refuses(options.build.resolve())
        print(f"{REFUSES.title}, {REFUSES.release}: {wrong or 'refused with the reason'}")
        passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
