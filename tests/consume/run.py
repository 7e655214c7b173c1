#!/usr/bin/env python3
# Installs dat, and builds and runs one small program in each way in which a user may take the library.
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

import options

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The files of the library, without the trees that only its own tests need.
SOURCES = ["meson.build", "meson_options.txt", "include", "detail"]
# The output of the device tests, with one test that passed.
REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<Catch2TestRun name="device">
  <TestCase name="a region is registered" tags="[LMR-021]"><OverallResult success="true"/></TestCase>
  <OverallResults successes="1" failures="0" expectedFailures="0"/>
  <OverallResultsCases successes="1" failures="0" expectedFailures="0"/>
</Catch2TestRun>
"""

TOOLS = ["dat-conform", "dat-info", "dat-lab", "dat-perf", "dat-ping", "datcp"]


class failure(Exception):
    """A failed step; the text names the step and the reason."""


def run(*command: str | pathlib.Path, cwd: pathlib.Path, **env: str) -> str:
    """Runs a command; returns its output, or fails."""
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
        """Checks that the program runs and has this version."""
        said = run(program, cwd=program.parent).strip()
        if not said.startswith(f"dat {self.version}, RDMA_CM_EVENT_ESTABLISHED"):
            raise failure(f"{program} said `{said}`, not `dat {self.version}, ...`")

    def install(self) -> None:
        """Install into the prefix, from a build of its own that has neither tests nor examples."""
        build = self.work / "build"
        run("meson", "setup", build, ROOT, f"--prefix={self.prefix}", *(f"-D{o}=disabled" for o in ("tests", "examples", "tools", "bench")), "-Dseparate=true",
            "--buildtype=plain", cwd=self.work, CXX=self.cxx)  # fmt: skip
        run("meson", "install", "-C", build, cwd=self.work)
        for tree in ("include/dat", "detail/dat"):
            for header in (ROOT / tree).rglob("*.hpp"):
                there = self.prefix / "include/dat" / header.relative_to(ROOT / tree)
                if not there.is_file():
                    raise failure(f"{header.relative_to(ROOT)} was not installed as {there.relative_to(self.prefix)}")
        if (self.prefix / "include/dat/detail").is_dir() != (ROOT / "detail/dat/detail").is_dir():
            raise failure("the private headers are not in include/dat/detail")

    def lab(self) -> None:
        """The installed dat-lab finds its modules and the files of its machine, also when a symbolic link names it."""
        link = self.work / "linked"
        link.symlink_to(self.prefix / "bin/dat-lab")
        for program in (self.prefix / "bin/dat-lab", link):
            said = run("sh", "-c", '"$0" --check || true', program, cwd=self.work)  # a host may lack what a machine needs
            if f"guest files ({self.prefix}/share/dat/lab/guest)" not in said:
                raise failure(f"{program} --check said\n{said}")
        for installed in (self.prefix / "bin/dat-lab", *(self.prefix / "share/dat/lab").rglob("*.py")):
            if str(ROOT) in installed.read_text(encoding="utf-8"):
                raise failure(f"the installed {installed.name} names the checkout")

    def conform(self) -> None:
        """The installed dat-conform finds its rules without the checkout, and without the tests."""
        build, prefix = self.work / "tools", self.work / "tools-installed"
        run("meson", "setup", build, ROOT, f"--prefix={prefix}", *(f"-D{o}=disabled" for o in ("tests", "examples", "bench")), "-Dtools=enabled",
            cwd=self.work, CXX=self.cxx)  # fmt: skip
        run("meson", "install", "-C", build, "--no-rebuild", "--tags", "conform", cwd=self.work)  # compiles nothing
        results = self.work / "results"
        results.mkdir()
        (results / "device.xml").write_text(REPORT, encoding="utf-8")
        said = json.loads(run(prefix / "bin/dat-conform", "--results", results, "--json", cwd=self.work))
        if (said["tests"]["passed"], said["rules"].get("LMR-021"), len(said["functions"])) != (1, "shown here", 93):
            raise failure(f"the installed dat-conform said {said['tests']}, {said['rules'].get('LMR-021')} of LMR-021")
        if str(ROOT) in (prefix / "bin/dat-conform").read_text(encoding="utf-8"):
            raise failure("the installed dat-conform names the checkout")
        try:
            run(prefix / "bin/dat-conform", cwd=self.work)
        except failure as e:
            if "--program must name the device tests" not in str(e):
                raise
        else:
            raise failure("the installed dat-conform ran without device tests")

    def man_pages(self) -> None:
        """Every tool has a man page, made from its --help; without help2man or with the option off none has."""
        for choice, wanted in (("enabled", TOOLS), ("disabled", [])):
            build, prefix = self.work / f"man-{choice}", self.work / f"man-{choice}-installed"
            run("meson", "setup", build, ROOT, f"--prefix={prefix}", *(f"-D{o}=disabled" for o in ("tests", "examples", "bench")), "-Dtools=enabled",
                f"-Dman={choice}", cwd=self.work, CXX=self.cxx)  # fmt: skip
            installed = json.loads(run("meson", "introspect", "--installed", build, cwd=self.work))
            pages = sorted(pathlib.Path(name).name for name in installed if name.endswith(".1"))
            if pages != sorted(f"{tool}.1" for tool in wanted):
                raise failure(f"with -Dman={choice} the man pages are {pages}")
        # The others need the compiled tools: the test of the Debian packages has all of them.
        build = self.work / "man-enabled"
        targets = {pathlib.Path(name).name: name for one in json.loads(run("meson", "introspect", "--targets", build, cwd=self.work)) for name in one["filename"]}
        for tool, said in (("dat-conform", "say which rules of uDAPL 2.0 an RDMA adapter shows"), ("dat-lab", "run a command on software RDMA devices in a virtual machine")):
            page = pathlib.Path(targets[f"{tool}.1"])
            run("ninja", "-C", build, page.relative_to(build.resolve()), cwd=self.work)
            text = page.read_text(encoding="utf-8")
            if f'.TH {tool.upper()} "1"' not in text or f"{tool} \\- {said}" not in text or self.version not in text or ".SH DESCRIPTION" not in text:
                raise failure(f"the man page of {tool} is\n{text[:600]}")

    def meson_pkg_config(self) -> None:
        """A Meson project finds the installed dat through pkg-config."""
        at = self.folder("meson", "meson")
        # --wrap-mode: the library must be found, not built.
        run("meson", "setup", "--wrap-mode=nofallback", "out", cwd=at, CXX=self.cxx, PKG_CONFIG_PATH=self.pkg_config_path)
        run("ninja", "-C", "out", cwd=at)
        self.check(at / "out/consumer")

    def plain_pkg_config(self) -> None:
        """Compiles with the options that pkg-config prints."""
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
        lists.write_text(lists.read_text(encoding="utf-8").replace("dat 0.2", "dat 99.0"), encoding="utf-8")
        try:
            run(*find, cwd=at, CXX=self.cxx)
        except failure:
            return
        raise failure("find_package(dat 99.0) found this version")

    def cmake_from_source(self) -> None:
        """A CMake project builds with dat's sources, which need no Meson: below it, or fetched; in either form."""
        source = self.work / "source"
        source.mkdir()
        for name in [*SOURCES, "CMakeLists.txt"]:
            (source / name).symlink_to(ROOT / name)
        run("tar", "--dereference", "-cf", "dat.tar", "source", cwd=self.work)
        for way, form, place in (
            ("add_subdirectory", "dat::dat", source),
            ("add_subdirectory", "dat::separate", source),
            ("FetchContent", "dat::dat", self.work / "dat.tar"),
        ):
            at = self.folder(f"cmake-{way}-{form.removeprefix('dat::')}", "cmake")
            options = [f"-DWAY={way}", f"-DFORM={form}", f"-DSOURCE={place}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"]
            said = run("cmake", "-G", "Ninja", "-S", ".", "-B", "out", *options, cwd=at, CXX=self.cxx)
            if "CMake Warning at" in said:
                raise failure(f"CMake warns:\n{said}")
            run("cmake", "--build", "out", cwd=at)
            self.check(at / "out/consumer")
            if (list((at / "out").rglob("libdat.a")) != []) != (form == "dat::separate"):
                raise failure(f"{form} by {way}: libdat.a is not where it should be, or is there without need")

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
        """Compiles with two -I options of a copied tree and the two libraries."""
        at = self.folder("bare")
        run(*self.cxx.split(), "-std=c++20", f"-I{ROOT}/include", f"-I{ROOT}/detail", "-c", "main.cpp", "-o", "main.o", cwd=at)
        run(*self.cxx.split(), "main.o", "-libverbs", "-lrdmacm", "-pthread", "-o", "consumer", cwd=at)
        self.check(at / "consumer")

    def options(self) -> None:
        """Examples compile without a warning: each optimisation, standard and hardening with g++ and clang."""
        reports = [f"{name}:\n{report}" for name, report in options.check(False, options.TELLING, options.TELLING_CHOICES) if report]
        if reports:
            raise failure("\n".join(reports))

    def compile_to(self, at: pathlib.Path, source: str, target: str, *flags: str) -> pathlib.Path:
        """Compiles one source file in a copied tree to an object file."""
        run(*self.cxx.split(), "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-I{ROOT}/detail", *flags,
            "-c", source, "-o", target, cwd=at)  # fmt: skip
        return at / target

    def separate_bare(self) -> None:
        """Links two source files, one of them with the definitions; without it, the linker names what is missing."""
        at = self.folder("separate")
        separate = "-DDAT_SEPARATE_COMPILATION"
        program = self.compile_to(at, "main.cpp", "main.o", separate)
        (at / "dat.cpp").write_text("#include <dat/src.hpp>\n", encoding="utf-8")
        definitions = self.compile_to(at, "dat.cpp", "dat.o", separate)
        libraries = ["-libverbs", "-lrdmacm", "-pthread"]
        run(*self.cxx.split(), program, definitions, *libraries, "-o", "consumer", cwd=at)
        self.check(at / "consumer")
        (at / "open.cpp").write_text("#include <dat/dat.hpp>\nint main() { return dat::ia::open() ? 0 : 1; }\n", encoding="utf-8")
        opening = self.compile_to(at, "open.cpp", "open.o", separate)
        run(*self.cxx.split(), opening, definitions, *libraries, "-o", "with", cwd=at)
        try:
            run(*self.cxx.split(), opening, *libraries, "-o", "without", cwd=at)
        except failure as e:
            if "undefined reference" not in str(e):
                raise
        else:
            raise failure("a program without <dat/src.hpp> has linked")
        try:
            self.compile_to(at, "dat.cpp", "dat.o")
        except failure as e:
            if "DAT_SEPARATE_COMPILATION" not in str(e):
                raise
        else:
            raise failure("<dat/src.hpp> compiled without DAT_SEPARATE_COMPILATION")

    def mixed(self) -> None:
        """Links a header-only source file with separate definitions: the linker names the remedy."""
        at = self.folder("mixed")
        program, definitions = self.work / "bare/main.o", self.work / "separate/dat.o"  # variables of the steps before
        for order in ([program, definitions], [definitions, program]):
            try:
                run(*self.cxx.split(), *order, "-libverbs", "-lrdmacm", "-pthread", "-o", "consumer", cwd=at)
            except failure as e:
                if "dat_define_DAT_SEPARATE_COMPILATION_in_all_source_files_or_in_none" not in str(e):
                    raise
            else:
                raise failure("a program that mixes header-only and separate source files has linked")

    def separate_meson(self) -> None:
        """A Meson project finds the installed static library through pkg-config."""
        at = self.folder("separate-meson", "meson")
        libraries = next(self.prefix.rglob("dat-separate.pc")).parent
        run("meson", "setup", "--wrap-mode=nofallback", "-Dform=dat-separate", "out", cwd=at, CXX=self.cxx, PKG_CONFIG_PATH=str(libraries))
        run("ninja", "-C", "out", cwd=at)
        self.check(at / "out/consumer")

    def separate_cmake(self) -> None:
        """A CMake project finds the installed static library."""
        at = self.folder("separate-cmake", "cmake")
        run("cmake", "-G", "Ninja", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DFORM=dat::separate", cwd=at, CXX=self.cxx)
        run("cmake", "--build", "out", cwd=at)
        self.check(at / "out/consumer")

    def separate_subproject(self) -> None:
        """A Meson project builds the static library as its subproject."""
        at = self.folder("separate-subproject", "meson")
        dat = at / "subprojects/dat"
        dat.mkdir(parents=True)
        for name in SOURCES:
            (dat / name).symlink_to(ROOT / name)
        (at / "subprojects/dat.wrap").write_text("[wrap-file]\n[provide]\ndependency_names = dat, dat-separate\n", encoding="utf-8")
        run("meson", "setup", "--wrap-mode=forcefallback", "-Dform=dat-separate", "out", cwd=at, CXX=self.cxx)
        run("ninja", "-C", "out", cwd=at)
        self.check(at / "out/consumer")


def main() -> int:
    """Tries all ways."""
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
            ("dat-lab, installed", ways.lab),
            ("dat-conform, installed", ways.conform),
            ("man pages", ways.man_pages),
            ("Meson through pkg-config", ways.meson_pkg_config),
            ("pkg-config", ways.plain_pkg_config),
            ("CMake find_package", ways.cmake),
            ("CMake add_subdirectory and FetchContent", ways.cmake_from_source),
            ("Meson subproject", ways.meson_subproject),
            ("bare include directories", ways.bare),
            ("the compilers' options", ways.options),
            ("compiled separately, copied", ways.separate_bare),
            ("compiled separately, Meson through pkg-config", ways.separate_meson),
            ("compiled separately, CMake", ways.separate_cmake),
            ("compiled separately, Meson subproject", ways.separate_subproject),
            ("header-only and separate do not mix", ways.mixed),
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
