#!/usr/bin/env python3
# Installs dat and builds and runs one small program in each way in which a user may take the library.
# SPDX-License-Identifier: BSL-1.0
"""run.py [--results FILE] [--keep DIR] [--cxx COMPILER]: ends with `N passed, N failed`."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Callable

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What the library is, without the trees that only its own tests need.
SOURCES = ["meson.build", "meson_options.txt", "include", "detail"]


class failure(Exception):
    """A step that did not do what it should; the text says which and why."""


def run(*command: str | pathlib.Path, cwd: pathlib.Path, **env: str) -> str:
    """Run a command; its output, or a failure."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise failure(f"$ {' '.join(words)}\n{e}") from e
    if done.returncode:
        raise failure(f"$ {' '.join(words)}\nexit code {done.returncode}\n{done.stdout}")
    return done.stdout


class consumers:
    """The ways, each in a folder of its own below `work`; `prefix` is where dat is installed."""

    def __init__(self, work: pathlib.Path, cxx: str):
        self.work = work
        self.cxx = cxx
        self.prefix = work / "installed"
        self.pkg_config_path = str(self.prefix / "share" / "pkgconfig")
        text = (ROOT / "meson.build").read_text(encoding="utf-8")
        self.version = re.search(r"^\s*version: '([^']+)'", text, re.M).group(1)  # type: ignore[union-attr]

    def folder(self, name: str, template: str = "") -> pathlib.Path:
        """A new folder with the program, and the build files of a template."""
        made = self.work / name
        made.mkdir()
        shutil.copy(HERE / "main.cpp", made)
        if template:
            shutil.copytree(HERE / template, made, dirs_exist_ok=True)
        return made

    def check(self, program: pathlib.Path) -> None:
        """The program runs and is of this version."""
        said = run(program, cwd=program.parent).strip()
        if not said.startswith(f"dat {self.version}, RDMA_CM_EVENT_ESTABLISHED"):
            raise failure(f"{program} said `{said}`, not `dat {self.version}, ...`")

    def install(self) -> None:
        """Install into the prefix, from a build of its own that has neither tests nor examples."""
        build = self.work / "build"
        run("meson", "setup", build, ROOT, f"--prefix={self.prefix}", *(f"-D{o}=disabled" for o in ("tests", "examples", "bench")),
            cwd=self.work, CXX=self.cxx)  # fmt: skip
        run("meson", "install", "-C", build, cwd=self.work)
        for tree in ("include/dat", "detail/dat"):
            for header in (ROOT / tree).rglob("*.hpp"):
                there = self.prefix / "include/dat" / header.relative_to(ROOT / tree)
                if not there.is_file():
                    raise failure(f"{header.relative_to(ROOT)} was not installed as {there.relative_to(self.prefix)}")
        if (self.prefix / "include/dat/detail").is_dir() != (ROOT / "detail/dat/detail").is_dir():
            raise failure("the private headers are not in include/dat/detail")

    def meson_pkg_config(self) -> None:
        """A Meson project finds the installed dat through pkg-config."""
        at = self.folder("meson", "meson")
        # --wrap-mode: it must be found, not built.
        run("meson", "setup", "--wrap-mode=nofallback", "out", cwd=at, CXX=self.cxx, PKG_CONFIG_PATH=self.pkg_config_path)
        run("ninja", "-C", "out", cwd=at)
        self.check(at / "out/consumer")

    def plain_pkg_config(self) -> None:
        """The compiler's command line with what pkg-config says."""
        at = self.folder("pkg-config")
        flags = run("pkg-config", "--cflags", "--libs", "dat", cwd=at, PKG_CONFIG_PATH=self.pkg_config_path).split()
        run(*self.cxx.split(), "-std=c++20", "-Werror", "main.cpp", *flags, "-o", "consumer", cwd=at)
        self.check(at / "consumer")

    def cmake(self) -> None:
        """A CMake project finds the installed dat by find_package, and refuses an interface that it does not have."""
        at = self.folder("cmake", "cmake")
        find = ["cmake", "-G", "Ninja", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={self.prefix}"]
        run(*find, cwd=at, CXX=self.cxx)
        run("cmake", "--build", "out", cwd=at)
        self.check(at / "out/consumer")
        lists = at / "CMakeLists.txt"
        lists.write_text(lists.read_text(encoding="utf-8").replace("dat 0.1", "dat 99.0"), encoding="utf-8")
        try:
            run(*find, cwd=at, CXX=self.cxx)
        except failure:
            return
        raise failure("find_package(dat 99.0) found this version")

    def meson_subproject(self) -> None:
        """A Meson project builds dat as its subproject; neither tests nor warnings of dat come with it."""
        at = self.folder("subproject", "meson")
        dat = at / "subprojects/dat"
        dat.mkdir(parents=True)
        for name in SOURCES:
            (dat / name).symlink_to(ROOT / name)
        said = run("meson", "setup", "--wrap-mode=forcefallback", "out", cwd=at, CXX=self.cxx)
        if "catch2" in said.lower():
            raise failure(f"the subproject looked for Catch2:\n{said}")
        run("ninja", "-C", "out", cwd=at)
        self.check(at / "out/consumer")

    def bare(self) -> None:
        """Two -I of a copied tree and the two libraries."""
        at = self.folder("bare")
        run(*self.cxx.split(), "-std=c++20", f"-I{ROOT}/include", f"-I{ROOT}/detail", "main.cpp",
            "-libverbs", "-lrdmacm", "-pthread", "-o", "consumer", cwd=at)  # fmt: skip
        self.check(at / "consumer")


def main() -> int:
    """Try all ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="work here and leave everything")
    parser.add_argument("--cxx", default=os.environ.get("CXX", "c++"))
    args = parser.parse_args()

    results = []
    with tempfile.TemporaryDirectory(prefix="dat-consume.") as temporary:
        ways = consumers((args.keep or pathlib.Path(temporary)).resolve(), args.cxx)
        steps: list[tuple[str, Callable[[], None]]] = [
            ("install", ways.install),
            ("Meson through pkg-config", ways.meson_pkg_config),
            ("pkg-config", ways.plain_pkg_config),
            ("CMake find_package", ways.cmake),
            ("Meson subproject", ways.meson_subproject),
            ("bare include directories", ways.bare),
        ]
        for name, step in steps:
            try:
                step()
                results.append({"name": name, "tags": [], "passed": True})
            except failure as e:
                results.append({"name": name, "tags": [], "passed": False})
                print(f"consume: {name}:\n{e}")

    if args.results:
        args.results.parent.mkdir(parents=True, exist_ok=True)
        args.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    passed = sum(r["passed"] for r in results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
