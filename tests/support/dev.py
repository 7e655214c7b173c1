#!/usr/bin/env python3
# The commands of ./dev: building in its flavours, all tiers of tests, lint, bench, lab and demo.
# SPDX-License-Identifier: BSL-1.0
"""./dev calls this script after it has installed missing packages. All output goes below build/:
build/FLAVOUR (Meson), build/results (what the conformance ledger reads), build/logs (full output of every step)."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import fcntl
import functools
import json
import os
import pathlib
import re
import resource
import select
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
sys.path.insert(2, str(pathlib.Path(__file__).resolve().parents[1] / "worlds"))
import catch_xml  # noqa: E402
import lint  # noqa: E402
import other_worlds  # noqa: E402
import records  # noqa: E402
import roots  # noqa: E402
import worlds  # noqa: E402
from compile_commands import without_output  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
RESULTS = BUILD / "results"
LOGS = BUILD / "logs"
LAB = ROOT / "tests/lab/dat-lab"
JOBS = os.cpu_count() or 1
COMPILERS = {"gcc": "g++", "clang": "clang++"}
# Two parts of a run may bring the same flavour up to date; Ninja expects to be alone in a directory.
BUILDING: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
# The time of each command of this run: the name of its log, seconds, and seconds of processor time with its children.
COSTS: list[tuple[str, float, float]] = []
# Why a flavour could not be set up or built, by flavour: the tiers that need the flavour show no other reason.
FAILED_BUILDS: dict[str, str] = {}

# The options of each build directory follow from its purpose. All tests are compiled three times, so compile time matters:
# no optimisation, dat in a precompiled header, several test files as one source file, and line tables only, which suffice
# for a stack trace. (clang-tidy compiles each test file alone, and so finds a missing include.) The sanitizers are
# clang's, because clang compiles faster; clang 14 cannot compile coroutines with -fsanitize=function. It compiles the tests
# for the sanitizers only; headers, examples and benchmarks have a directory of their own.
PLAIN = ["--buildtype=plain", "-Db_ndebug=false"]
TOGETHER = ["-Dunity=on", "-Dunity_size=12"]
SANITIZERS = "-gline-tables-only -fpch-instantiate-templates -Wno-shadow"
SANITIZED = PLAIN + TOGETHER + ["-Db_lundef=false", "-Dexamples=disabled", "-Dtools=disabled", "-Dbench=disabled"]
# g++ collects garbage less often and inlines std::move, which together saves a sixth of the time.
# In files that are compiled together, two warnings mean nothing: g++'s about types without linkage outside of the main file,
# and clang's about a local name that shadows a name of another test.
QUICK = "-Dcpp_args=-ffold-simple-inlines --param=ggc-min-heapsize=1000000 -Wno-subobject-linkage"
FLAVOURS: dict[str, tuple[str, list[str]]] = {
    "gcc": ("g++", PLAIN + TOGETHER + ["--werror", "-Dexamples=enabled", "-Dbench=disabled", QUICK]),
    "clang": ("clang++", PLAIN + ["--werror", "-Dexamples=enabled", "-Dbench=enabled"]),
    "asan": ("clang++", SANITIZED + ["--werror", "-Db_sanitize=address,undefined", f"-Dcpp_args={SANITIZERS} -fno-sanitize-recover=all -fno-sanitize=function"]),
    "tsan": ("clang++", SANITIZED + ["--werror", "-Db_sanitize=thread", f"-Dcpp_args={SANITIZERS}"]),
    # The unit program as a checked build (DAT_CHECKED).
    "checked": ("g++", PLAIN + TOGETHER + ["--werror", "-Dchecked=true", "-Dexamples=disabled", "-Dbench=disabled", QUICK]),
    # The unit program with trace points and a log (DAT_TRACE).
    "traced": ("g++", PLAIN + TOGETHER + ["--werror", "-Dtrace=true", "-Dexamples=disabled", "-Dbench=disabled", QUICK]),
    # Only for clang-tidy, which builds nothing: without a precompiled header.
    "tidy": ("clang++", PLAIN + ["-Db_pch=false", "-Dexamples=enabled", "-Dbench=disabled"]),
    # Only for the commands that compilers of other releases take: without a precompiled header.
    "compilers": ("g++", PLAIN + TOGETHER + ["--werror", "-Db_pch=false", "-Dexamples=enabled", "-Dbench=disabled", QUICK]),
    "release": ("g++", ["--buildtype=release", "-Doptimization=2", "-Dtests=disabled", "-Dexamples=enabled", "-Dbench=enabled"]),
}
# Other architectures, after worlds.prepare; no ./dev build.
CROSS: dict[str, tuple[str, list[str]]] = {
    name: (f"{name}-linux-gnu-g++", PLAIN + TOGETHER + ["--werror", "-Dexamples=disabled", "-Dtools=disabled", "-Dbench=disabled", QUICK, *worlds.cross_files(name)])
    for name in worlds.ARCHITECTURES
}
# librdmacm and libibverbs are not instrumented, and the kernel orders their threads: a report about a memcpy inside them
# is no fault of dat.
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:second_deadlock_stack=1:die_after_fork=0",
}
# The examples that the tests run on a device: the first column of the ladder.
LADDER = (ROOT / "examples/ladder.txt").read_text(encoding="utf-8").splitlines()
EXAMPLES = [line.partition("|")[0].strip() for line in LADDER if line and not line.startswith("#")]
# The tests on Soft-iWARP (docs/devices.md): examples, and cases of the device program.
SIW_EXAMPLES = ["01_hello", "02_client_server", "03_write_and_read", "04_drain_many", "05_batch", "06_shared_queue", "07_cno_epoll",
                "12_coroutine", "13_asio", "16_rping", "kv_server", "kv_client", "kv_test"]
# The manners of devices under which the unit program runs, too (tests/fake_verbs/README.md), and the cases: all but the
# longest, where manners add nothing. Most cases need features that iWARP does not have.
SHORT = '~[stress]~"an object that verbs cannot destroy*"~"a hundred thousand random*"~"random connection manager events*"'
# A slow device makes the sweeps over failures long, and its delay does not change a failure.
SWEEPS = '~"every call fails once*"'
MANNERS = {"rxe": SHORT, "mlx5": SHORT, "ib": SHORT, "plain": SHORT, "removed": SHORT, "slow": SHORT + SWEEPS, "iwarp": "[iwarp]"}
# Seconds after which a test program counts as hanging. The limit must not depend on the speed of the machine, so it is
# much longer than any program needs.
HANGS = 1500
# Debian's packages of Python modules work with Debian's Python only.
DEBIAN_PYTHON = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
NOT_HERE = 77  # the exit code of an example for which this host lacks a feature


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


class step:
    """Announces a step, and prints its duration at the end."""

    def __init__(self, what: str, estimate: str):
        self.what, self.estimate = what, estimate

    def __enter__(self) -> None:
        self.start = time.monotonic()
        say(f"==> {self.what} ({self.estimate})")

    def __exit__(self, *_: object) -> None:
        say(f"    {self.what.partition(':')[0]}: {time.monotonic() - self.start:.0f} s")


def tail(log: pathlib.Path, lines: int = 60) -> str:
    """The part of a log to show: from the first failed compile or sanitizer's report, otherwise its end."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    report = re.compile(r"^FAILED: |==\d+==ERROR: |WARNING: ThreadSanitizer|: runtime error: ")
    first = next((number for number, line in enumerate(text) if report.search(line)), None)
    shown = text[-lines:] if first is None else text[first : first + lines // 2]
    return "\n".join(f"    | {line[:300]}" for line in shown)


def wait_and_measure(process: subprocess.Popen[bytes], limit: float) -> tuple[int, float]:
    """The exit code of a process, and the processor time of it and its children, in seconds."""
    descriptor = os.pidfd_open(process.pid)
    try:
        if not select.select([descriptor], [], [], limit)[0]:
            raise subprocess.TimeoutExpired(process.args, limit)
    finally:
        os.close(descriptor)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def costs(most: int = 20) -> list[str]:
    """The commands of this run that took most processor time, as lines of a table."""
    everything = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = everything.ru_utime + everything.ru_stime
    rows = sorted(COSTS, key=lambda row: row[2], reverse=True)[:most]
    lines = [f"{cpu:7.0f} s of {seconds:5.0f} s  {log.removesuffix('.log')}" for log, seconds, cpu in rows]
    return [f"{total:7.0f} s of processor time in all; the commands that took most:", *lines]


def run(command: Sequence[str | pathlib.Path], log: str, limit: float, show: bool = False, **env: str) -> int:
    """Run a command from the root with its output in build/logs (and shown); 124 when it took longer than `limit` s."""
    LOGS.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    with open(LOGS / log, "wb") as out:
        out.write(f"$ {shlex.join(words)}\n".encode())
        out.flush()
        try:
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if show else out,
                stderr=subprocess.STDOUT,
            )
        except OSError as e:
            out.write(f"{e}\n".encode())
            return 127
        start = time.monotonic()
        try:
            if show:
                assert process.stdout
                for line in process.stdout:
                    out.write(line)
                    sys.stdout.buffer.write(b"    " + line)
                    sys.stdout.flush()
            code, cpu = wait_and_measure(process, limit)
            COSTS.append((log, time.monotonic() - start, cpu))
            return code
        except subprocess.TimeoutExpired:
            out.write(f"\ntook longer than {limit:.0f} s\n".encode())
            return 124
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                if process.poll() is None:
                    process.kill()
                    process.wait()


# ---- building -------------------------------------------------------------------------------------------------------


def build_failed(flavour: str, log: pathlib.Path, what: str) -> None:
    """Show the errors of a build, now and again above the table at the end."""
    FAILED_BUILDS[flavour] = f"{tail(log)}\n    {flavour}: {what}"
    say(FAILED_BUILDS[flavour])


def configure(flavour: str) -> bool:
    """Set up the build directory, and again when its options differ from those of FLAVOURS."""
    cxx, options = (FLAVOURS | CROSS)[flavour]
    directory = BUILD / flavour
    command = ["meson", "setup", str(directory), str(ROOT), *options]
    if "-Dtests=disabled" not in options:
        command.append("-Dtests=enabled")
    stamp = directory / "dev-options.json"
    wanted = json.dumps([cxx, command], indent=1)
    if (directory / "build.ninja").exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return True
    if directory.exists():
        shutil.rmtree(directory)
    cc = cxx.replace("clang++", "clang").replace("g++", "gcc")
    if shutil.which("ccache"):
        cxx, cc = f"ccache {cxx}", f"ccache {cc}"
    if run(command, f"configure-{flavour}.log", 300, CXX=cxx, CC=cc):
        build_failed(flavour, LOGS / f"configure-{flavour}.log", "meson setup failed")
        return False
    stamp.write_text(wanted, encoding="utf-8")
    return True


def build(flavour: str, *targets: str) -> bool:
    """Bring a flavour up to date: everything, or some targets."""
    with BUILDING[flavour]:
        return build_alone(flavour, *targets)


def build_alone(flavour: str, *targets: str) -> bool:
    """As build(), for the thread that holds the flavour's lock."""
    tree()
    if not configure(flavour):
        return False
    # Let ccache keep precompiled headers, too. It must compare comments: g++ includes a header again whose text is not that of the
    # precompiled one.
    env = {"CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime", "CCACHE_COMMENTS": "1"}
    code = run(["ninja", "-C", BUILD / flavour, f"-j{JOBS}", *targets], f"build-{flavour}.log", 1800, **env)
    if code:
        build_failed(flavour, LOGS / f"build-{flavour}.log", "the build failed")
    return code == 0


def build_folder(flavour: str, folder: str) -> bool:
    """Bring the targets that a folder of the sources defines up to date; a fault elsewhere does not matter."""
    if not build(flavour, "build.ninja"):  # reads the meson.build files again
        return False
    directory = BUILD / flavour
    listed = subprocess.run(["meson", "introspect", "--targets", directory], capture_output=True, text=True, check=True).stdout
    files = [file for target in json.loads(listed) if ROOT / folder in pathlib.Path(target["defined_in"]).parents
             for file in target["filename"]]  # fmt: skip
    if not files:
        say(f"    {folder} defines nothing to build")
        return False
    return build(flavour, *(str(pathlib.Path(file).relative_to(directory)) for file in files))


def check_sources(flavour: str, *folders: str) -> tuple[int, list[str]]:
    """How many files of these folders of a build directory were compiled without output, and what failed."""
    directory = BUILD / flavour
    if not build(flavour, "build.ninja"):  # reads the meson.build files again
        return 0, []
    entries = json.loads((directory / "compile_commands.json").read_text(encoding="utf-8"))
    commands = [[*without_output(e["command"]), "-fsyntax-only"] for e in entries if e["output"].startswith(tuple(f"{folder}/" for folder in folders))]
    env = os.environ | {"CCACHE_DISABLE": "1"}

    def check(command: list[str]) -> str:
        done = subprocess.run(command, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)  # fmt: skip
        return "" if done.returncode == 0 and "warning:" not in done.stdout else f"$ {shlex.join(command)}\n{done.stdout}"

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        failed = [text for text in pool.map(check, commands) if text]
    (LOGS / f"check-{flavour}.log").write_text("\n".join(failed), encoding="utf-8")
    return len(commands), failed


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One ./dev at a time works in build/."""
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("dev: another ./dev works in build/; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- the tiers of ./dev test ----------------------------------------------------------------------------------------


class tally:
    """Counts what passed and what failed, by part of the run.

    Building keeps all cores busy; running tests seldom needs more than one. So tests run in a lane of their own, one part
    after the other, while the next part is built. When nothing is left to build, the thread that built takes parts, too.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, int]] = []
        self.faults: list[str] = []
        self.lane = concurrent.futures.ThreadPoolExecutor(1)
        self.under_way: collections.deque[tuple[str, Callable[[], None], concurrent.futures.Future[None]]] = collections.deque()

    def beside(self, name: str, what: Callable[[], None]) -> None:
        """Run it in the lane, after the parts that were put there before."""
        self.under_way.append((name, what, self.lane.submit(what)))

    def wait(self) -> None:
        """Run the parts that the lane has not begun, and wait for the one that it has."""
        begun = []
        while self.under_way:
            name, what, future = self.under_way.popleft()
            if future.cancel():
                self.guard(name, what)
            else:
                begun.append((name, future))
        for name, future in begun:
            self.guard(name, future.result)

    def guard(self, name: str, what: Callable[[], None]) -> None:
        """Run a part. A fault in one part must not hide the results of the others."""
        try:
            what()
        except Exception as e:
            self.check(name, False, f"{type(e).__name__}: {e}")

    def fault(self, text: str) -> None:
        """Show why something failed, now and again above the table at the end."""
        say(text)
        self.faults.append(text)

    def add(self, name: str, passed: int, failed: int, skipped: int = 0) -> None:
        """Add the counts of a part. A part in which nothing ran has failed."""
        if passed + failed + skipped == 0:
            self.fault(f"    {name}: nothing ran")
            failed = 1
        self.rows.append((name, passed, failed, skipped))

    def check(self, name: str, good: bool, why: str = "") -> None:
        """Adds a part with a single result."""
        if not good and why:
            self.fault(f"    {name}: {why}")
        self.add(name, int(good), int(not good))

    def counted(self, name: str, command: Sequence[str | pathlib.Path], limit: float, show: bool = False, **env: str) -> None:
        """A program that ends with `N passed, N failed`."""
        log = re.sub(r"\W+", "-", name) + ".log"
        code = run(command, log, limit, show, **env)
        lines = (LOGS / log).read_text(encoding="utf-8", errors="replace").splitlines()
        found = next((m for line in reversed(lines) if (m := re.fullmatch(r"(\d+) passed, (\d+) failed", line.strip()))), None)
        passed, failed = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
        if code and not failed:
            failed = 1
        if failed and not show:
            self.fault(tail(LOGS / log))
        self.add(name, passed, failed)

    def unittests(self, name: str, script: pathlib.Path, limit: float, *arguments: str, python: str = sys.executable, **env: str) -> None:
        """A Python script of unittest's."""
        log = re.sub(r"\W+", "-", name) + ".log"
        code = run([python, script, *arguments], log, limit, **env)
        text = (LOGS / log).read_text(encoding="utf-8", errors="replace")
        ran = re.search(r"^Ran (\d+) tests? in ", text, re.M)
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", text))
        skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", text))
        total = int(ran.group(1)) if ran else 0
        failed = max(bad, 1) if code else bad
        if failed:
            self.fault(tail(LOGS / log))
        self.add(name, max(0, total - bad - skipped), failed, skipped)

    def catch2(self, name: str, xml: pathlib.Path, code: int, log: pathlib.Path) -> None:
        """The report of a Catch2 program that ended with `code`."""
        report = catch_xml.read(xml)
        for text in report.failures:
            self.fault(text)
        failed = len(report.failures)
        if code and not failed or not report.complete:
            self.fault(f"{tail(log)}\n    {name}: ended with exit code {code}" + ("" if report.complete else ", its report is cut off"))
            failed += 1
        self.add(name, report.passed, failed, len(report.skipped))

    def finish(self) -> int:
        """What failed, the table and the last line."""
        faults = [*FAILED_BUILDS.values(), *self.faults]
        if faults:
            say("\nWhat failed, once more:")
        for text in faults:
            say(text)
        say("")
        width = max((len(name) for name, *_ in self.rows), default=0)
        for name, passed, failed, skipped in self.rows:
            rest = f", {skipped} skipped" if skipped else ""
            say(f"{name:<{width}}  {passed} passed, {failed} failed{rest}")
        passed = sum(row[1] for row in self.rows)
        failed = sum(row[2] for row in self.rows)
        say(f"{passed} passed, {failed} failed")
        return 0 if passed and not failed else 1


def without_randomization() -> list[str]:
    """A command prefix for ThreadSanitizer, whose fixed shadow does not fit every random layout of the address space."""
    with contextlib.suppress(OSError):
        if subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return ["setarch", "-R"]
    return []


def reporting(program: str | pathlib.Path, xml: pathlib.Path, *options: str | pathlib.Path) -> tuple[list[str | pathlib.Path], dict[str, str]]:
    """The command of a Catch2 program that reports to `xml`, and the variables that make it write the record beside it."""
    for old in (xml, records.path_of(xml)):
        old.unlink(missing_ok=True)
    command = [program, *options, "-w", "NoAssertions", "-r", "xml", "-o", xml]
    return command, {"DAT_TESTS_RECORD": str(records.path_of(xml)), "DAT_TESTS_TREE": tree()}


@functools.cache
def tree() -> str:
    """The digest of the sources before anything is built. The ledger compares it with that of the sources that it finds, so
    sources that change during a run show nothing."""
    return records.digest(ROOT)


def run_programs(flavour: str, sums: tally) -> None:
    """Every test of a built flavour that is a program of ours: those of the suite `plain` count as one,
    all others are Catch2 programs, and their reports are results. (The tests that are scripts have tiers of their own.)"""
    directory = BUILD / flavour
    listed = subprocess.run(["meson", "introspect", "--tests", directory], capture_output=True, text=True, check=True).stdout
    prefix = without_randomization() if flavour == "tsan" else []
    for test in json.loads(listed):
        program = pathlib.Path(test["cmd"][0])
        if directory / "tests" not in program.parents:
            continue
        name = test["name"]
        title = name if name == "unit" else f"unit, {name}"
        log = f"{name}-{flavour}.log"
        if any(suite.endswith(":plain") for suite in test["suite"]):
            code = run([*prefix, *test["cmd"]], log, HANGS, **SANITIZER_ENV)
            if code:
                sums.fault(tail(LOGS / log))
            sums.check(f"{name}, {flavour}", code == 0)
            continue
        xml = RESULTS / (f"unit-{flavour}.xml" if name == "unit" else f"unit-{name}-{flavour}.xml")
        command, env = reporting(test["cmd"][0], xml, *test["cmd"][1:], "-d", "yes")
        code = run([*prefix, *command], log, HANGS, **SANITIZER_ENV, **env)
        sums.catch2(f"{title}, {flavour}", xml, code, LOGS / log)


def tier_lint(sums: tally) -> None:
    """Formatting, syntax of the scripts, licences; layers and texts of the headers."""
    with step("Lint: formatting, scripts, header rules", "about 5 s"):
        for name, findings in lint.quick(ROOT):
            for finding in findings[:20]:
                sums.fault(f"    {finding}")
            sums.check(f"lint: {name}", not findings)
        sums.counted("header rules", [sys.executable, ROOT / "tests/headers/check.py"], HANGS)
        sums.counted("structure", [sys.executable, ROOT / "tests/headers/structure.py", "--quiet"], HANGS)
        sums.counted("prose", [sys.executable, ROOT / "tests/headers/prose.py"], HANGS)
        sums.counted("links", [sys.executable, ROOT / "tests/headers/links.py"], HANGS)
        sums.unittests("tests of the header rules", ROOT / "tests/headers/test_check.py", HANGS)
        sums.unittests("tests of structure and prose", ROOT / "tests/headers/test_structure.py", HANGS)
        sums.unittests("tests of the links", ROOT / "tests/headers/test_links.py", HANGS)
        sums.unittests("tests of the mutants", ROOT / "tests/mutate/test_mutants.py", HANGS)
        sums.unittests("tests of ./dev", ROOT / "tests/support/test_dev.py", HANGS)
        sums.unittests("tests of the peers' table", ROOT / "bench/peers/test_peers.py", HANGS, python=DEBIAN_PYTHON)
        sums.unittests("tests of the growth curves", ROOT / "bench/growth/test_growth.py", HANGS)
        sums.unittests("versions, changelog and recipes", ROOT / "tests/package/test_versions.py", HANGS)
        sums.unittests("files of the forges", ROOT / "tests/package/test_forges.py", HANGS, python=DEBIAN_PYTHON)
        sums.unittests("tests of ./dev changes", ROOT / "tests/interface/test_changes.py", HANGS)


def tier_gcc(sums: tally) -> None:
    """Everything with g++: no warning, headers alone and without exceptions, unit tests."""
    with step("g++: building all", "2 to 4 min the first time"):
        good = build("gcc")
        sums.check("build, gcc", good)
    if good:
        sums.beside("unit tests, gcc", lambda: unit_tests("gcc", "g++", sums))


def unit_tests(flavour: str, what: str, sums: tally) -> None:
    """The test programs of a built flavour that need no device."""
    with step(f"{what}, unit tests: beside what comes next", "about 1 min"):
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            # A slow device lets the program sleep most of the time, so the others run meanwhile.
            slow = beside.submit(unit_as, flavour, "slow", sums) if flavour == "gcc" else None
            run_programs(flavour, sums)
            for manner in MANNERS if flavour == "gcc" else ():
                if manner != "slow":
                    unit_as(flavour, manner, sums)
            if slow:
                slow.result()


def unit_as(flavour: str, manner: str, sums: tally) -> None:
    """The unit program on a fake device with these manners."""
    run_catch2(sums, f"unit as {manner}, {flavour}", flavour, "tests/unit/unit", manner, MANNERS[manner], FAKE_VERBS_PERSONALITY=manner)


def build_and_run_catch2(sums: tally, title: str, flavour: str, program: str, name: str, *cases: str, limit: float = HANGS,
                         xml: pathlib.Path | None = None, **env: str) -> None:  # fmt: skip
    """As run_catch2, for a program that may not be built yet."""
    if build(flavour, program):
        run_catch2(sums, title, flavour, program, name, *cases, limit=limit, xml=xml, **env)
    else:
        sums.check(title, False, "not built")


def run_catch2(sums: tally, title: str, flavour: str, program: str, name: str, *cases: str, limit: float = HANGS,
               prefix: Sequence[str | pathlib.Path] = (), xml: pathlib.Path | None = None, **env: str) -> None:  # fmt: skip
    """A Catch2 program of a flavour. The ledger does not read its results, unless `xml` says where it does."""
    xml, log = xml or RESULTS / f"some-unit-{name}.xml.part", f"unit-{name}.log"
    command, more = reporting(BUILD / flavour / program, xml, *cases)
    code = run([*prefix, *command], log, limit, **SANITIZER_ENV, **more, **env)
    sums.catch2(title, xml, code, LOGS / log)


def tier_unit(sums: tally, cases: str = "") -> None:
    """The inner loop: the unit program alone, with g++; all of its cases or some."""
    with step("The unit program", "under 1 min where one test has changed"):
        if cases:
            build_and_run_catch2(sums, "unit, gcc", "gcc", "tests/unit/unit", "gcc", cases)
        else:
            build_and_run_catch2(sums, "unit, gcc", "gcc", "tests/unit/unit", "gcc", xml=RESULTS / "unit-gcc.xml")


def tier_checked(sums: tally) -> None:
    """The unit program with each post watched: no case makes a mistake that a checked build reports as another error."""
    with step("The unit program as a checked build", "3 to 4 min the first time"):
        build_and_run_catch2(sums, "unit, checked build", "checked", "tests/unit/unit", "checked-build")


def tier_traced(sums: tally) -> None:
    """The unit program with trace points and a log: every case with a sink that takes each record."""
    with step("The unit program with trace points", "3 to 4 min the first time"):
        build_and_run_catch2(sums, "unit, with trace points", "traced", "tests/unit/unit", "traced-build")


def tier_clang(sums: tally) -> None:
    """Headers, examples and benchmarks with clang++, for errors and warnings alone: clang has them all before it generates
    code. The sanitizers' tests and the gauge's programs are compiled and linked by clang++, too."""
    with step("clang++: checking headers, examples and benchmarks", "under 1 min"):
        count, failed = check_sources("clang", "tests/headers", "examples", "bench")
        for text in failed:
            sums.fault("\n".join(f"    | {line[:300]}" for line in text.splitlines()[:30]))
        sums.add("sources, clang", count - len(failed), len(failed))


def tier_sanitizers(sums: tally) -> None:
    """Unit and device tests with AddressSanitizer + UndefinedBehaviorSanitizer, and with ThreadSanitizer."""
    for flavour, what in (("asan", "ASan + UBSan"), ("tsan", "TSan")):
        with step(f"{what}: building the test programs", "1 to 3 min the first time"):
            good = build(flavour)
            sums.check(f"build, {flavour}", good)
        if good:
            sums.beside(f"unit tests, {flavour}", functools.partial(unit_tests, flavour, what, sums))
            sums.beside(f"device tests, {flavour}", functools.partial(device_tests, flavour, what, sums))


def tier_device(sums: tally) -> None:
    """Device tests as users build them, and the examples, in the lab. (Those with sanitizers: see tier_sanitizers.)"""
    device_tests("gcc", "g++", sums, EXAMPLES)


def tier_siw(sums: tally) -> None:
    """The device tests and examples that Soft-iWARP can run; docs/conformance/worlds/siw.toml has the others, and why."""
    cases = other_worlds.selection(ROOT / "docs/conformance", "siw").filter()
    device_tests("gcc", "g++ on Soft-iWARP", sums, SIW_EXAMPLES, "siw", ["--device", "siw"], cases)


def tier_linux_612(sums: tally) -> None:
    """All device tests, and the examples, on Soft-RoCE of the newest Linux 6.12 that the package lists have."""
    device_tests("gcc", "g++ on Linux 6.12", sums, EXAMPLES, "linux-6.12", ["--kernel", "6.12"])


def device_tests(flavour: str, what: str, sums: tally, examples: Sequence[str] = (), world: str = "", options: Sequence[str] = (),
                 cases: str = "") -> None:  # fmt: skip
    """One boot of the lab, with its `options`, runs the device program of a flavour, and the examples. The results of another
    `world` than Soft-RoCE of Linux 6.1 go into a folder of their own, for `./dev conformance world`."""
    with step(f"{what}, device tests in the lab: beside what comes next", "2 to 4 min"):
        # Builds no more than is needed, so that a fault in another part does not prevent these tests.
        if not build(flavour, "tests/device/device", *(["ladder"] if examples else [])):
            sums.check(f"device, {flavour}", False, "not built")
            return
        where = world or flavour
        out = RESULTS / f"lab-{where}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        lines = []
        device = f"device-{where}"
        for name in [device] + [f"example-{example}" for example in examples]:
            if name == device:
                command = [BUILD / flavour / "tests/device/device", *([cases] if cases else [])]
                report, env = reporting(command[0], out / f"{name}.xml", *command[1:], "-d", "yes")
                command = ["env", *(f"{key}={value}" for key, value in env.items()), *map(str, report)]
            else:
                command = [str(ROOT / "examples/run.sh"), str(BUILD / flavour / "examples"), name.removeprefix("example-")]
            # Each has its own file, so that the lab's lines of progress are short.
            log, code = shlex.quote(str(out / f"{name}.log")), shlex.quote(str(out / f"{name}.rc"))
            script = out / f"{name}.sh"
            script.write_text(f"{shlex.join(command)} >{log} 2>&1\nrc=$?\necho $rc >{code}\nexit $rc\n", encoding="utf-8")
            lines.append(f"sh {script.relative_to(ROOT)}\n")
        script = out / "script"
        script.write_text("".join(lines), encoding="utf-8")
        lab = [LAB, *options, "--memory", "2048", "--timeout", str(HANGS), "--each", str(HANGS), "--out", out, "--script", script]
        whole = run(lab, f"{device}.log", HANGS + 60, show=True, **SANITIZER_ENV)

        def code_of(name: str) -> int:
            with contextlib.suppress(OSError, ValueError):
                return int((out / f"{name}.rc").read_text(encoding="utf-8"))
            return whole if whole not in (0, NOT_HERE) else 124  # the program did not run

        xml = RESULTS / (f"worlds/{world}/device.xml" if world else f"{device}.xml")
        xml.parent.mkdir(parents=True, exist_ok=True)
        for old, new in ((out / f"{device}.xml", xml), (records.path_of(out / f"{device}.xml"), records.path_of(xml))):
            new.unlink(missing_ok=True)
            if old.exists():
                shutil.copyfile(old, new)
        sums.catch2(f"device, {where}", xml, code_of(device), out / f"{device}.log")
        for example in examples:
            code = code_of(f"example-{example}")
            title = f"example {example}" + (f", {world}" if world else "")
            if code == NOT_HERE:
                sums.add(title, 0, 0, 1)
                continue
            if code:
                sums.fault(tail(out / f"example-{example}.log"))
            sums.check(title, code == 0, f"exit code {code}")


def tier_compile_fail(sums: tally) -> None:
    """Programs that must not compile, with both compilers."""
    here = ROOT / "tests/compile_fail"
    with step("Programs that must not compile", "about 30 s"):
        compilers = [word for cxx in COMPILERS.values() for word in ("--cxx", cxx)]
        results = RESULTS / "compile_fail.json"
        results.unlink(missing_ok=True)
        command = [sys.executable, here / "run.py", "--prelude", here / "prelude.hpp", "--results", results, *compilers]
        sums.counted("compile_fail", command, HANGS)
        if results.exists():
            records.write(results, tree(), len(json.loads(results.read_text(encoding="utf-8"))))
        for name, cxx in COMPILERS.items():
            sums.unittests(f"tests of compile_fail, {name}", here / "test_run.py", HANGS, CXX=cxx)


def tier_consume(sums: tally) -> None:
    """The library as its users take it."""
    with step("Consuming the library: installed, as a subproject, copied", "about 20 s"):
        sums.counted("consume", [sys.executable, ROOT / "tests/consume/run.py"], HANGS)


def tier_datcp(sums: tally) -> None:
    """The file copier in the lab: copies, resumed copies, and all kinds of failures."""
    with step("datcp: copies both ways, whatever can go wrong, in the lab", "1 to 3 min"):
        good = build("gcc", "examples/datcp/datcp", "examples/datcp/odd_peer")
        if not good:
            sums.check("datcp", False, "not built")
            return
        sums.unittests("datcp", ROOT / "tests/datcp/test_datcp.py", HANGS, DATCP=str(BUILD / "gcc/examples/datcp/datcp"))


def tier_tools(sums: tally) -> None:
    """dat-info, dat-ping, dat-perf and dat-conform, in the lab."""
    with step("dat-info, dat-ping, dat-perf and dat-conform, in the lab", "about 40 s"):
        if not build("gcc", "examples/tools/dat-info", "examples/tools/dat-ping", "examples/tools/dat-perf", "examples/datcp/datcp", "tests/device/device"):
            sums.check("tools", False, "not built")
            return
        sums.unittests("arguments of dat-perf", ROOT / "tests/tools/test_perf_arguments.py", HANGS, DAT_TOOLS=str(BUILD / "gcc/examples/tools"))
        sums.unittests("tools", ROOT / "tests/tools/test_tools.py", HANGS, DAT_TOOLS=str(BUILD / "gcc/examples/tools"))


def tier_perf(sums: tally) -> None:
    """dat-perf: every operation, mode and result, and all pairs of hosts, in the lab."""
    with step("dat-perf in full, in the lab", "about 5 min"):
        if not build("gcc", "examples/tools/dat-perf"):
            sums.check("dat-perf", False, "not built")
            return
        sums.unittests("dat-perf", ROOT / "tests/tools/test_perf.py", HANGS, DAT_TOOLS=str(BUILD / "gcc/examples/tools"))
        sums.unittests("all pairs of hosts", ROOT / "tests/tools/test_perf_pairs.py", HANGS, DAT_TOOLS=str(BUILD / "gcc/examples/tools"))


def tier_provider(sums: tally) -> None:
    """uDAPL for C programs: the headers against libdapl-dev's, programs with either registry; rules of the ledger by C calls, and
    a few of OFA's programs, on dat's provider in the lab. (tests/provider/judge.py runs all programs.)"""
    with step("uDAPL for C programs: headers, rules in C, OFA's programs, in the lab", "about 1 min"):
        here = ROOT / "tests/provider"
        sums.unittests("C headers", here / "test_layout.py", HANGS)
        if not build("gcc", "examples/provider/libdatprovider.so", "tests/provider/rules", "tests/provider/libstub_provider.so"):
            sums.check("provider", False, "not built")
            return
        sums.unittests("both registries", here / "test_registries.py", HANGS, DAT_BUILD=str(BUILD / "gcc"))
        sums.counted("rules in C", [sys.executable, here / "rules.py"], HANGS)
        sums.counted("OFA's programs", [sys.executable, here / "judge.py", "--short", "--check", "--columns", "dat-dat"], HANGS)


def tier_hosts(sums: tally) -> None:
    """dat between hosts of their own, which lose power and freeze."""
    with step("dat between three hosts that fail, in the lab", "about 20 s"):
        if not build("gcc", "examples/tools/dat-ping", "tests/hosts/writer"):
            sums.check("hosts", False, "not built")
            return
        sums.unittests("hosts", ROOT / "tests/hosts/test_hosts.py", HANGS, DAT_BUILD=str(BUILD / "gcc"))


def tier_schedules(sums: tally) -> None:
    """Many orders of the threads of each case, and every order with one preemption more."""
    with step("Schedules: many more orders", "1 to 3 hours"):
        many = {"DAT_SCHEDULES": os.environ.get("DAT_SCHEDULES", "1000"), "DAT_PREEMPTIONS": os.environ.get("DAT_PREEMPTIONS", "3")}
        build_and_run_catch2(sums, "schedules", "gcc", "tests/schedules/schedules", "schedules-many", limit=12 * HANGS, **many)


def tier_soak(sums: tally) -> None:
    """Ninety seconds of the soak. Its time limits detect what never comes, so a busy machine only makes it longer."""
    with step("Soak: all services, disturbed, in the lab", "3 to 5 min"):
        if not build("gcc", "tests/soak/soak"):
            sums.check("soak", False, "not built")
            return
        code = run([sys.executable, ROOT / "tests/soak/soak.py", "--program", BUILD / "gcc/tests/soak/soak", "--minutes", "1.5", "--seed", "1"], "soak.log", 1800)
        if code:
            sums.fault(tail(LOGS / "soak.log"))
        sums.check("soak", code == 0)
        sums.unittests("tests of the soak's audit", ROOT / "tests/soak/test_audit.py", HANGS)


def tier_rails(sums: tally) -> None:
    """Rails under load over four links, each of which is cut, slowed, made lossy and restored in turn."""
    with step("Rails over four links that fail, in the lab", "2 to 10 min"):
        if not build("gcc", "tests/rails/rails_load"):
            sums.check("rails", False, "not built")
            return
        lab = [LAB, "--links", "8", "--memory", "2048", "--timeout", str(HANGS), "--", BUILD / "gcc/tests/rails/rails_load", "4", "500"]
        sums.check("rails", run(lab, "rails.log", HANGS + 60, show=True) == 0)
        # Its clock counts instructions, so the time until a rail is down does not depend on the load of this machine.
        lab = [LAB, "--counted", "--links", "4", "--memory", "2048", "--timeout", str(HANGS), "--", BUILD / "gcc/tests/rails/rails_load", "2", "100", "cut", "timed"]
        sums.check("failover of rails, timed", run(lab, "rails-timed.log", HANGS + 60, show=True) == 0)


def tier_fuzz(sums: tally) -> None:
    """The libFuzzer targets, for DAT_FUZZ_SECONDS each."""
    seconds = os.environ.get("DAT_FUZZ_SECONDS", "5")
    with step(f"Fuzz targets with ASan + UBSan, {seconds} s each", "2 to 3 min"):
        if not build_folder("asan", "tests/fuzz"):
            sums.check("fuzz", False, "not built")
            return
        sums.counted("fuzz", [sys.executable, ROOT / "tests/fuzz/run.py", "--seconds", seconds], HANGS + 8 * int(seconds), show=True)
        sums.unittests("tests of the fuzz runner", ROOT / "tests/fuzz/test_run.py", HANGS)


def tier_peers(sums: tally) -> None:
    """The peers' table in short: two of dat's ways and rdma-core's program, on the machine that counts."""
    with step("The peers' table in short, in the lab", "1 to 2 min"):
        if not build("release", "peers"):
            sums.check("peers' table", False, "not built")
            return
        out = BUILD / "results/peers/performance.md"
        command = [DEBIAN_PYTHON, "-B", ROOT / "bench/peers/run.py", "--short", "--rounds", "2", "--count", "20", "--peers", "rdma-core,dat lean,dat merged", "--page", out]
        code = run(command, "peers.log", HANGS)
        text = out.read_text(encoding="utf-8") if out.exists() else ""
        if code:
            sums.fault(tail(LOGS / "peers.log"))
        sums.check("peers' table", code == 0)
        for way in ("latency 8 waiting wire", "atomic 8 waiting loopback"):
            sums.check(f"row {way}", f"| {way} |" in text)


def tier_arch(sums: tally) -> None:
    """The unit program on a big-endian and on a weakly ordered architecture, emulated; the wire forms between these and this
    machine; what a compiler for 32 bits says."""
    native = RESULTS / "wire/native.txt"
    native.parent.mkdir(parents=True, exist_ok=True)
    wire = "tests/worlds/wire"
    with step("This machine's wire forms", "about 1 min"):
        good = build("gcc", wire) and run([BUILD / "gcc" / wire, "write"], "wire-native.log", HANGS) == 0
        shutil.copyfile(LOGS / "wire-native.log", native)
        sums.check("wire forms, here", good)
    for arch in worlds.ARCHITECTURES:
        with step(f"{arch}: building and running the unit program", "6 to 20 min the first time"):
            worlds.prepare(arch)
            prefix = worlds.prefix(arch)
            if not build(arch, "tests/unit/unit", wire):
                sums.check(f"unit, {arch}", False, "not built")
                continue
            run_catch2(sums, f"unit, {arch}", arch, "tests/unit/unit", arch, prefix=prefix, limit=2 * HANGS)
            program = BUILD / arch / wire
            code = run([*prefix, program, "write"], f"wire-{arch}.log", HANGS)
            different = worlds.differences(native, LOGS / f"wire-{arch}.log")
            sums.check(f"wire forms, {arch}: the same bytes as here", code == 0 and not different, ", ".join(different))
            sums.counted(f"wire forms of {arch}, read here", [BUILD / "gcc" / wire, "read", LOGS / f"wire-{arch}.log"], HANGS)
            sums.counted(f"wire forms from here, read on {arch}", [*prefix, program, "read", native], HANGS)
    with step("A compiler for 32 bits", "under 1 min"):
        for header in ("dat/dat.hpp", "dat/ia.hpp", "dat/rails.hpp"):
            error = worlds.first_error_on_32_bits(header)
            sums.check(f"32 bits: {header}", "static assertion failed: dat: needs a 64-bit system" in error, error or "compiles")


def tier_compilers(sums: tally) -> None:
    """Headers, examples and the unit program with compilers of other releases of Debian's, with libc++."""
    with step("Compilers of other releases, for errors and warnings", "5 to 15 min"):
        if not configure("compilers"):
            sums.check("compilers", False, "not configured")
            return
        sums.counted("compilers", [sys.executable, ROOT / "tests/worlds/compilers.py", BUILD / "compilers"], 4 * HANGS, show=True)


def tier_mutate(sums: tally) -> None:
    """A sample of small faults, of which the unit tests must find most."""
    with step("Mutants: 40 random faults", "6 to 10 min"):
        command = [sys.executable, ROOT / "tests/mutate/run.py", "--sample", "40", "--seed", "1", "--at-least", "0.8"]
        code = run(command, "mutate.log", 3 * HANGS)
        say(tail(LOGS / "mutate.log"))
        sums.check("mutants", code == 0)


def tier_lab(sums: tally) -> None:
    """The lab's own tests."""
    with step("The lab's own tests", "1 to 2 min"):
        sums.unittests("tests of dat-lab", ROOT / "tests/lab/test_dat_lab.py", HANGS, "--quick")
        sums.unittests("dat-lab in other projects' CI", ROOT / "tests/lab/test_ci.py", HANGS)


def tier_conformance(sums: tally) -> None:
    """The ledger's tests; whether the recorded status is what these results show."""
    here = ROOT / "tests/conformance"
    with step("Conformance ledger", "about 5 s"):
        sums.unittests("tests of the ledger", here / "test_ledger.py", HANGS)
        sums.unittests("mapping and thread safety", here / "test_functions.py", HANGS)
        code = run([sys.executable, here / "ledger.py", "--results", RESULTS, "--check"], "ledger.log", HANGS)
        if code:
            sums.fault(tail(LOGS / "ledger.log"))
        sums.check("conformance status", code == 0, "./dev conformance writes it anew")


def tier_gauge(sums: tally) -> None:
    """Instructions per operation against the budgets."""
    with step("Building with optimisation: no warnings, and the cost gauge", "about 1 min"):
        gauge = ROOT / "bench/overhead/gauge.py"
        good = gauge.exists()
        warnings: list[str] = []
        for folder in ("bench/overhead", "bench/growth"):
            good = good and build_folder("release", folder)
            # The tests are compiled without optimisation. Warnings that need optimisation appear here.
            log = (LOGS / "build-release.log").read_text(encoding="utf-8", errors="replace") if good else ""
            warnings += [line for line in log.splitlines() if "warning:" in line]
        if good:
            sums.check("no warnings with optimisation", not warnings, "\n".join(f"    | {line[:300]}" for line in warnings))
    if good:
        sums.beside("cost gauge", functools.partial(gauge_costs, gauge, sums))
    else:
        sums.check("cost gauge", False, "not built" if gauge.exists() else "bench/overhead/gauge.py is not there")


def gauge_costs(gauge: pathlib.Path, sums: tally) -> None:
    """The built programs of the gauge."""
    with step("Cost gauge: beside what comes next", "about 1 min"):
        code = run([sys.executable, gauge, "--no-worse", "--build", BUILD / "release"], "gauge.log", HANGS)
        say(tail(LOGS / "gauge.log"))
        sums.check("cost gauge", code == 0)
        growth = [sys.executable, ROOT / "bench/growth/growth.py", "--check", "--most", "64", "--build", BUILD / "release"]
        sums.counted("growth of costs", growth, HANGS)


def tier_compile_time(sums: tally) -> None:
    """What dat costs a user's compile, beside the headers that such a program includes anyway."""
    with step("Compile time against its budgets: beside what comes next", "about 1 min"):
        script = ROOT / "bench/compile_time.py"
        code = run([sys.executable, script, "--no-worse", "--budgeted", "--rounds", "1"], "compile-time.log", HANGS)
        if code:
            sums.fault(tail(LOGS / "compile-time.log"))
        sums.check("compile time", code == 0)


def tier_readme(sums: tally) -> None:
    """The program in the README is the compiled and tested one."""
    code = run([sys.executable, ROOT / "tests/support/check_readme.py"], "readme.log", HANGS)
    if code:
        sums.fault(tail(LOGS / "readme.log"))
    sums.check("README", code == 0)


def tier_release(sums: tally) -> None:
    """A release, and a program by each recipe from its tarball; the completions of the shells."""
    with step("Release: tarball, recipes, completions", "1 to 2 min"):
        sums.unittests("release and recipes", ROOT / "tests/package/test_recipes.py", HANGS, DAT_RECIPE_TOOLS="1")
        if build("gcc", "examples/tools/dat-info", "examples/tools/dat-ping", "examples/tools/dat-perf", "examples/datcp/datcp"):
            sums.unittests("completions", ROOT / "tests/tools/test_completions.py", HANGS, DAT_TOOLS=str(BUILD / "gcc/examples/tools"))
        else:
            sums.check("completions", False, "not built")


def has_run(log: pathlib.Path) -> bool:
    """Whether an example has written its output, or this host lacks something for it."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return re.search(rf"^{re.escape(log.stem)}: exit code (0|{NOT_HERE})$", text, re.M) is not None


def measure_for_site(kept: pathlib.Path, lab: bool, gauge: bool) -> bool:
    """What the site shows of runs: the output of the examples in the lab, and the instructions that the gauge counts. Whatever
    an earlier build of the site has left stays."""
    out = kept / "outputs"
    if lab and not all(has_run(out / f"{name}.log") for name in EXAMPLES):
        with step("The examples, in the lab", "2 to 4 min the first time"):
            if not build("gcc", "ladder"):
                return False
            out.mkdir(parents=True, exist_ok=True)
            # Examples have time limits, which a busy machine can exceed.
            for _ in range(3):
                missing = [name for name in EXAMPLES if not has_run(out / f"{name}.log")]
                lines = [f"{shlex.join([str(ROOT / 'examples/run.sh'), str(BUILD / 'gcc/examples'), name])} >{shlex.quote(str(out / name))}.log 2>&1\n" for name in missing]
                (out / "script").write_text("".join(lines), encoding="utf-8")
                if missing:
                    run([LAB, "--memory", "2048", "--timeout", str(HANGS), "--out", out, "--script", out / "script"], "site-lab.log", HANGS + 60)
            for name in missing:
                if not has_run(out / f"{name}.log"):
                    say(f"{tail(out / f'{name}.log')}\n    example {name} fails")
                    return False
    if gauge and not (kept / "gauge.json").exists():
        with step("The cost gauge", "1 to 2 min the first time"):
            script = ROOT / "bench/overhead/gauge.py"
            if not build_folder("release", "bench/overhead"):
                return False
            if run([sys.executable, script, "--no-worse", "--no-clock", "--build", BUILD / "release", "--json", kept / "gauge.json"], "site-gauge.log", HANGS):
                say(tail(LOGS / "site-gauge.log"))
                return False
    return True


def build_site(lab: bool, gauge: bool) -> bool:
    """Build the site into build/docs/html."""
    kept = BUILD / "docs"
    kept.mkdir(parents=True, exist_ok=True)
    if not measure_for_site(kept, lab, gauge):
        return False
    with step("The site", "about 1 min"):
        code = run([DEBIAN_PYTHON, "-B", ROOT / "docs/site/build.py"], "site.log", HANGS)
        if code:
            say(tail(LOGS / "site.log"))
    return code == 0


def tier_docs(sums: tally) -> None:
    """The site, and each of its pages in a browser."""
    with step("The site, page by page in a browser", "5 to 10 min"):
        good = build_site(True, True)
        sums.check("the site", good)
        if good:
            tests = [DEBIAN_PYTHON, "-B", ROOT / "tests/site/test_site.py"]
            sums.counted("pages of the site", tests, HANGS * 2, show=True)
        sums.unittests("tests of the site's parts", ROOT / "tests/site/test_parts.py", HANGS, python=DEBIAN_PYTHON)


# In this order, the lane always has something to run.
TIERS: dict[str, Callable[[tally], None]] = {
    "lint": tier_lint,
    "readme": tier_readme,
    "lab": tier_lab,
    "gcc": tier_gcc,
    "device": tier_device,
    "datcp": tier_datcp,
    "tools": tier_tools,
    "hosts": tier_hosts,
    "provider": tier_provider,
    "sanitizers": tier_sanitizers,
    "fuzz": tier_fuzz,
    "clang": tier_clang,
    "compile_fail": tier_compile_fail,
    "consume": tier_consume,
    "compile_time": tier_compile_time,
    "gauge": tier_gauge,
    "conformance": tier_conformance,  # this tier is last, because it reads the results of the others
}
# Tiers that run only on request: `unit`, whose work the others include, the same as a checked build and with trace points, more schedules, the soak, Soft-iWARP, whose driver the lab
# builds from about 150 MB of packages, another kernel, which the lab gets (110 MB), rails over links that fail, other architectures, whose packages and emulator it gets, a sample of mutants, and what a release needs.
ON_DEMAND: dict[str, Callable[[tally], None]] = {
    "unit": tier_unit,
    "checked": tier_checked,
    "traced": tier_traced,
    "schedules": tier_schedules,
    "soak": tier_soak,
    "siw": tier_siw,
    "linux-6.12": tier_linux_612,
    "rails": tier_rails,
    "perf": tier_perf,
    "peers": tier_peers,
    "arch": tier_arch,
    "compilers": tier_compilers,
    "mutate": tier_mutate,
    "release": tier_release,
    "docs": tier_docs,
}
WORLDS = ["device", *other_worlds.WORLDS]  # the tiers that run the device tests
# Tiers that build nothing more after the tier before them, or in folders of their own, and use one core or less. The
# first tiers can run while the others are built, so that little work is left for one core at the end.
BESIDE = {"lint", "readme", "lab", "device", "datcp", "tools", "hosts", "provider", "consume", "compile_time"}


# ---- the commands ---------------------------------------------------------------------------------------------------


def command_test(arguments: list[str]) -> int:
    """./dev test"""
    parser = argparse.ArgumentParser(
        prog="./dev test",
        description="Build and run all tests: " + ", ".join(TIERS) + ". From scratch about 35 minutes on two cores.",
        epilog="The last line is `N passed, N failed`. Full output of every step: build/logs; results: build/results.",
    )
    parser.add_argument("--only", metavar="TIER[,TIER]", default="", help="only these tiers; `unit` is the inner loop")
    parser.add_argument("--worlds", action="store_true", help=f"only the device tests, in every world: {', '.join(WORLDS)}")
    parser.add_argument("--cases", metavar="FILTER", default="", help="with `--only unit`: some cases, as Catch2 takes them")
    options = parser.parse_args(arguments)
    chosen = WORLDS if options.worlds else [name for name in options.only.split(",") if name]
    if options.worlds and options.only:
        parser.error("--worlds is a choice of tiers: without --only")
    if unknown := [name for name in chosen if name not in TIERS | ON_DEMAND]:
        parser.error(f"no tier {', '.join(unknown)}; there are {', '.join(TIERS | ON_DEMAND)}")
    if options.cases and chosen != ["unit"]:
        parser.error("--cases goes with --only unit")
    sums = tally()
    with alone():
        if not chosen:
            # Results of an earlier run must not count for tiers that did not run this time.
            shutil.rmtree(RESULTS, ignore_errors=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        if "unit" in chosen:
            tier_unit(sums, options.cases)
        for name, tier in ON_DEMAND.items():
            if name in chosen and name != "unit":
                sums.guard(name, functools.partial(tier, sums))
        for name, tier in TIERS.items():
            if chosen and name not in chosen:
                continue
            if name in BESIDE:
                sums.beside(name, functools.partial(tier, sums))
                continue
            if name == "conformance":
                sums.wait()
            sums.guard(name, functools.partial(tier, sums))
        sums.wait()
        (LOGS / "costs.txt").write_text("\n".join(costs(len(COSTS))) + "\n", encoding="utf-8")
        say(f"\nAfter {(time.monotonic() - start) / 60:.1f} minutes:")
    return sums.finish()


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
