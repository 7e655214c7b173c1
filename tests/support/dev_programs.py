# How ./dev test runs test programs: the unit program and others on this host, the device program and the examples in the lab.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import pathlib
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from dev_run import BUILD, HANGS, LAB, LOGS, NOT_HERE, RESULTS, ROOT, run, step, tail
from dev_build import build, tree
from dev_tally import tally
import records

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
# The tests on Soft-iWARP (docs/devices.md): some examples and some cases of the device program.
SIW_EXAMPLES = ["01_hello", "02_client_server", "03_write_and_read", "04_drain_many", "05_batch", "06_shared_queue", "07_cno_epoll",
                "12_coroutine", "13_asio", "16_rping", "kv_server", "kv_client", "kv_test"]
# An option of the lab. Qemu emulates two virtual processors, which halt and interrupt each other, in twice the time of one. What
# threads break only when they run at the same time needs two: the device tests with ThreadSanitizer, and those of whole other worlds.
ONE_PROCESSOR = ["--cpus", "1"]
# The examples of each run in another world.
SOME_EXAMPLES = ["01_hello", "03_write_and_read", "kv_test"]
# The manners of devices under which the unit program runs, too (tests/fake_verbs/README.md), and the cases: all but the
# longest, where manners add nothing. Most cases need features that iWARP does not have.
SHORT = '~[stress]~"an object that verbs cannot destroy*"~"a hundred thousand random*"~"random connection manager events*"'
# A slow device makes the sweeps over failures long, and its delay does not change a failure.
SWEEPS = '~"every call fails once*"'
MANNERS = {"rxe": SHORT, "mlx5": SHORT, "ib": SHORT, "plain": SHORT, "removed": SHORT, "slow": SHORT + SWEEPS, "iwarp": "[iwarp]"}


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
    """Builds a program that may not be built yet, and runs it as run_catch2 does."""
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


def device_tests(flavour: str, what: str, sums: tally, examples: Sequence[str] = (), world: str = "", options: Sequence[str] = (),
                 cases: str = "", part: int = 0) -> None:  # fmt: skip
    """One boot of the lab, with its `options`, runs the device program of a flavour, and the examples. The results of another
    `world` than Soft-RoCE of Linux 6.1 go into a folder of their own, for `./dev conformance world`. `part`: `cases` chooses
    this number of cases, and nothing reads the results."""
    with step(f"{what}, device tests in the lab: beside what comes next", "2 to 4 min"):
        # Builds no more than is needed, so that a fault in another part does not prevent these tests.
        if not build(flavour, "tests/device/device", *(["ladder"] if examples else [])):
            sums.check(f"device, {flavour}", False, "not built")
            return
        where = f"{world}-part" if part else (world or flavour)
        out = RESULTS / f"lab-{where}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        lines = []
        device = f"device-{where}"
        for name in [device] + [f"example-{example}" for example in examples]:
            if name == device:
                command = [BUILD / flavour / "tests/device/device", *([cases] if cases else [])]
                reporter, env = reporting(command[0], out / f"{name}.xml", *command[1:], "-d", "yes")
                command = ["env", *(f"{key}={value}" for key, value in env.items()), *map(str, reporter)]
            else:
                command = [str(ROOT / "examples/run.sh"), str(BUILD / flavour / "examples"), name.removeprefix("example-")]
            # Each has its own file, so that the lab's lines of progress are short.
            log, code = shlex.quote(str(out / f"{name}.log")), shlex.quote(str(out / f"{name}.rc"))
            script = out / f"{name}.sh"
            # Soft-iWARP may leave the first message of a connection unread (docs/devices.md). The example then times out.
            tries = "1 2 3" if name != device and "siw" in options else "1"
            attempt = f"{shlex.join(command)} >{log} 2>&1\nrc=$?\ncase $rc in 0 | {NOT_HERE}) break ;; esac\n"
            script.write_text(f"for try in {tries}; do\n{attempt}done\necho $rc >{code}\nexit $rc\n", encoding="utf-8")
            lines.append(f"sh {script.relative_to(ROOT)}\n")
        script = out / "script"
        script.write_text("".join(lines), encoding="utf-8")
        lab = [LAB, *options, "--memory", "2048", "--timeout", str(HANGS), "--each", str(HANGS), "--out", out, "--script", script]
        whole = run(lab, f"{device}.log", HANGS + 60, show=True, **SANITIZER_ENV)

        def code_of(name: str) -> int:
            with contextlib.suppress(OSError, ValueError):
                return int((out / f"{name}.rc").read_text(encoding="utf-8"))
            return whole if whole not in (0, NOT_HERE) else 124  # the program did not run

        report = out / f"{device}.xml"
        if not part:
            xml = RESULTS / (f"worlds/{world}/device.xml" if world else f"{device}.xml")
            xml.parent.mkdir(parents=True, exist_ok=True)
            for old, new in ((report, xml), (records.path_of(report), records.path_of(xml))):
                new.unlink(missing_ok=True)
                if old.exists():
                    shutil.copyfile(old, new)
        ran = sums.catch2(f"device, {where}", report, code_of(device), out / f"{device}.log")
        if part:
            sums.check(f"cases of {where}", ran == part, f"{ran} of {part} ran: a name has changed")
        for example in examples:
            code = code_of(f"example-{example}")
            title = f"example {example}" + (f", {world}" if world else "")
            if code == NOT_HERE:
                sums.add(title, 0, 0, 1)
                continue
            if code:
                sums.fault(tail(out / f"example-{example}.log"))
            sums.check(title, code == 0, f"exit code {code}")
