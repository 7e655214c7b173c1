#!/usr/bin/env python3
# The commands of ./dev: building in its flavours, all tiers of tests, lint, bench, lab and demo.
# SPDX-License-Identifier: BSL-1.0
"""./dev calls this script after it has installed missing packages. All output goes below build/:
build/FLAVOUR (Meson), build/results (what the conformance ledger reads), build/logs (full output of every step)."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from dev_run import BUILD, DEBIAN_PYTHON, JOBS, LAB, RESULTS, ROOT, run, say, step
from dev_build import FLAVOURS, alone, build, build_folder, configure
from dev_tally import tally
from dev_programs import SANITIZER_ENV
from dev_site import build_site
from dev_tiers_host import tier_lint
from dev_tiers import command_test
import lint


def command_build(arguments: list[str]) -> int:
    """./dev build"""
    parser = argparse.ArgumentParser(prog="./dev build", description="Build flavours into build/FLAVOUR.")
    parser.add_argument("flavours", nargs="*", metavar="FLAVOUR", help=", ".join(FLAVOURS) + "; gcc when none is given")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.flavours if name not in FLAVOURS]:
        parser.error(f"no flavour {', '.join(unknown)}; there are {', '.join(FLAVOURS)}")
    good = True
    with alone():
        for flavour in options.flavours or ["gcc"]:
            with step(f"Building build/{flavour}", "2 to 4 min the first time"):
                good &= build(flavour)
    return 0 if good else 1


def command_lab(arguments: list[str]) -> int:
    """./dev lab"""
    os.execv(LAB, [str(LAB), *arguments])


def command_demo(arguments: list[str]) -> int:
    """./dev demo"""
    demo = next((p for name in ("demo.py", "demo.sh") if (p := ROOT / "examples/datcp" / name).exists()), None)
    if not demo:
        say("dev: the demo is not there: examples/datcp has neither demo.py nor demo.sh")
        return 1
    with alone(), step("Building datcp", "about 30 s the first time"):
        if not build("release", "examples/datcp/datcp"):
            return 1
    env = os.environ | {"DATCP": str(BUILD / "release/examples/datcp/datcp"), "DAT_LAB": str(LAB)}
    interpreter = sys.executable if demo.suffix == ".py" else "/bin/sh"
    os.execve(interpreter, [interpreter, str(demo), *arguments], env)


def command_bench(arguments: list[str]) -> int:
    """./dev bench"""
    if arguments[:1] == ["peers"]:
        return bench_peers(arguments[1:])
    if arguments == ["growth"]:
        return bench_growth()
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="Compile time, instructions per operation, latency, rate and connections beside hand-written verbs."
    )
    parser.parse_args(arguments)
    worst = 0
    with alone():
        with step("Building with optimisation", "about 1 min the first time"):
            if not build_folder("release", "bench"):
                return 1
        for what, estimate, script, options in (
            ("Compile time", "about 30 s", "bench/compile_time.py", ["--cxx", "g++", "--cxx", "clang++"]),
            ("Instructions and ns per operation", "about 1 min", "bench/overhead/gauge.py", ["--build", str(BUILD / "release")]),
            ("Both ways of posting, in the library of a device", "under 1 min", "bench/posting/posting.py", ["--build", str(BUILD / "release")]),
            ("Latency and rate", "2 to 5 min", "bench/pingpong/run.py", ["--build", str(BUILD / "release")]),
            ("Connections", "about 1 min", "bench/connect/run.py", ["--build", str(BUILD / "release")]),
            ("Waking a thread", "about 2 min", "bench/wakeup/run.py", ["--build", str(BUILD / "release")]),
            ("Calls of C programs", "under 1 min", "bench/provider/cost.py", ["--build", str(BUILD / "release")]),
            ("Programs in C beside OFA's provider", "5 to 10 min", "bench/provider/beside.py", ["--build", str(BUILD / "release"), "--rounds", "3"]),
        ):
            with step(what, estimate):
                if not (ROOT / script).exists():
                    say(f"    {script} is not there")
                    worst = 1
                    continue
                log = script.replace("/", "-") + ".log"
                worst |= run([sys.executable, ROOT / script, *options], log, 1200, show=True) != 0
    return worst


def bench_growth() -> int:
    """./dev bench growth"""
    with alone():
        with step("Building with optimisation", "about 1 min the first time"):
            if not build_folder("release", "bench/growth"):
                return 1
        with step("Costs over sizes; writes docs/growth.md", "10 to 20 min"):
            # Debian's matplotlib is for Debian's Python.
            command = [DEBIAN_PYTHON, "-B", ROOT / "bench/growth/growth.py", "--build", BUILD / "release", "--page", ROOT / "docs/growth.md"]
            return run(command, "growth.log", 3600, show=True)


def bench_peers(arguments: list[str]) -> int:
    """./dev bench peers"""
    # Debian's matplotlib is for Debian's Python.
    command = [DEBIAN_PYTHON, "-B", ROOT / "bench/peers/run.py", *arguments]
    if {"-h", "--help"}.isdisjoint(arguments):
        with alone(), step("Building with optimisation", "about 1 min the first time"):
            if not build("release", "peers", "examples/tools/dat-perf"):
                return 1
    return subprocess.run([str(word) for word in command], check=False).returncode


def command_soak(arguments: list[str]) -> int:
    """./dev soak"""
    parser = argparse.ArgumentParser(prog="./dev soak", add_help=False, allow_abbrev=False)
    parser.add_argument("--build", choices=["gcc", "asan", "tsan"], default="gcc")
    options, rest = parser.parse_known_args(arguments)
    script = ROOT / "tests/soak/soak.py"
    if {"-h", "--help"} & set(rest):
        say("--build FLAVOUR of ./dev soak, before the options below: gcc, asan or tsan (gcc)\n")
    elif not build(options.build, "tests/soak/soak"):
        return 1
    command = [sys.executable, script, "--program", BUILD / options.build / "tests/soak/soak", *rest]
    return subprocess.run(command, env=os.environ | SANITIZER_ENV, check=False).returncode


def command_mutate(arguments: list[str]) -> int:
    """./dev mutate"""
    return subprocess.run([sys.executable, ROOT / "tests/mutate/run.py", *arguments], check=False).returncode


def command_lint(arguments: list[str]) -> int:
    """./dev lint"""
    parser = argparse.ArgumentParser(
        prog="./dev lint", description="Formatting, clang-tidy, header rules, layers, texts, scripts."
    )
    parser.add_argument("--fix", action="store_true", help="format the C++ sources in place")
    parser.add_argument("--structure", action="store_true", help="only the layers, and the numbers of the structure")
    parser.add_argument("--write-debt", action="store_true", help="write tests/headers/debt.txt anew where it shrinks")
    parser.add_argument("--grow", action="store_true", help="with --write-debt: also where it grows, as when files are renamed")
    options = parser.parse_args(arguments)
    headers = ROOT / "tests/headers"
    if options.write_debt:
        scripts = ("structure.py", "prose.py")
        command = ["--write-debt", *(["--grow"] if options.grow else [])]
        return max(subprocess.run([sys.executable, headers / script, *command], check=False).returncode for script in scripts)
    if options.structure:
        return subprocess.run([sys.executable, headers / "structure.py"], check=False).returncode
    if options.fix:
        lint.format_in_place(ROOT)
    sums = tally()
    with alone():
        tier_lint(sums)
        with step("clang-tidy", "5 to 10 min"):
            good = configure("tidy")
            findings = lint.tidy(ROOT, BUILD / "tidy", JOBS) if good else ["meson setup failed"]
            for finding in findings:
                say(f"    {finding}")
            sums.check("clang-tidy", not findings)
    return sums.finish()


def command_conformance(arguments: list[str]) -> int:
    """./dev conformance"""
    if arguments[:1] == ["device"]:
        if not build("gcc", "tests/device/device"):
            return 1
        conform = [sys.executable, str(ROOT / "tests/conformance/dat-conform"), *arguments[1:]]
        # DAT_TEST_ADDRESSES: runs on this host's adapters; otherwise on those of the lab.
        lab = [] if "DAT_TEST_ADDRESSES" in os.environ else [str(LAB), "--memory", "2048", "--timeout", "900", "--"]
        return subprocess.run([*lab, *conform], check=False).returncode
    ledger = ROOT / "tests/conformance/ledger.py"
    if arguments[:1] == ["world"]:
        names = arguments[1:] or [path.name for path in sorted((RESULTS / "worlds").glob("*"))]
        if not names:
            say("dev: there are no results of other worlds yet; ./dev test --worlds makes them")
        commands = [[sys.executable, ledger, "--world", name, "--results", RESULTS / "worlds" / name] for name in names]
        codes = [subprocess.run(command, check=False).returncode for command in commands]
        return max(codes, default=1)
    if not arguments:
        if not any(RESULTS.glob("*.xml")):
            say("dev: there are no results yet; ./dev test makes them")
            return 1
        if (RESULTS / "c/rules.json").exists():
            subprocess.run([sys.executable, ROOT / "tests/provider/rules.py", "--table"], check=True)
        arguments = ["--results", str(RESULTS), "--update", "--summary"]
    return subprocess.run([sys.executable, ledger, *arguments], check=False).returncode


def command_docs(arguments: list[str]) -> int:
    """./dev docs"""
    parser = argparse.ArgumentParser(
        prog="./dev docs",
        description="Build the site into build/docs/html: the documents, a reference of all public names, the examples with their output in the lab, "
        "the rules of the specification, and the cost of operations. Output and cost are kept for the next time.",
    )
    parser.add_argument("--no-lab", action="store_true", help="without the output of the examples")
    parser.add_argument("--no-gauge", action="store_true", help="with the limits of the cost in place of counted instructions")
    parser.add_argument("--fresh", action="store_true", help="run examples and gauge again, and write every page anew")
    options = parser.parse_args(arguments)
    with alone():
        if options.fresh:
            shutil.rmtree(BUILD / "docs", ignore_errors=True)
        good = build_site(not options.no_lab, not options.no_gauge)
    if good:
        say(f"{(BUILD / 'docs/html/index.html').relative_to(ROOT)}")
    return 0 if good else 1


def command_script(script: str, arguments: list[str]) -> int:
    """A command that is a script of its own."""
    return subprocess.run([sys.executable, ROOT / script, *arguments], check=False).returncode


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "test": command_test,
    "build": command_build,
    "lab": command_lab,
    "demo": command_demo,
    "bench": command_bench,
    "soak": command_soak,
    "mutate": command_mutate,
    "lint": command_lint,
    "conformance": command_conformance,
    "package": functools.partial(command_script, "tests/package/package.py"),
    "docs": command_docs,
    "changes": functools.partial(command_script, "tests/interface/changes.py"),
    "release": functools.partial(command_script, "tests/package/release.py"),
    "sbom": functools.partial(command_script, "tests/package/sbom.py"),
}


def main() -> int:
    """Run one command."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: ./dev {{{','.join(COMMANDS)}}} ...", file=sys.stderr)
        return 2
    try:
        return COMMANDS[sys.argv[1]](sys.argv[2:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
