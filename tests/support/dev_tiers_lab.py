# The tiers of ./dev test that run in the lab: device tests, tools, hosts, the soak, and the tests of the lab itself.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import subprocess
import sys

from dev_run import BUILD, DEBIAN_PYTHON, HANGS, LAB, LOGS, RESULTS, ROOT, run, step, tail
from dev_build import COMPILERS, build
from dev_tally import tally
from dev_programs import EXAMPLES, ONE_PROCESSOR, SIW_EXAMPLES, SOME_EXAMPLES, device_tests, reporting
import other_worlds
import worlds


def tier_device(sums: tally) -> None:
    """Device tests as users build them, and the examples, in the lab. (Those with sanitizers: see tier_sanitizers.)"""
    device_tests("gcc", "g++", sums, EXAMPLES, options=ONE_PROCESSOR)


def tier_siw(sums: tally) -> None:
    """The device tests and examples that Soft-iWARP can run; docs/conformance/worlds/siw.toml has the others, and why."""
    cases = other_worlds.selection(ROOT / "docs/conformance", "siw").filter()
    device_tests("gcc", "g++ on Soft-iWARP", sums, SIW_EXAMPLES, "siw", ["--device", "siw"], cases)


def tier_linux_612(sums: tally) -> None:
    """All device tests, and the examples, on Soft-RoCE of the newest Linux 6.12 that the package lists have."""
    device_tests("gcc", "g++ on Linux 6.12", sums, EXAMPLES, "linux-6.12", ["--kernel", "6.12"])


# The release of Debian whose rdma-core has flushes. That of Debian 12 lacks them.
NEWER = "trixie"
NEWER_CASES = (
    "a flush completes behind the writes before it",
    "a flush of memory that the peer has not granted",
    "a flush beyond the end of the peer's memory",
    "what a process has written and flushed is there",
    "an adapter with flushes registers memory for them",
    "an atomic write puts its word at the peer",
    "an atomic write of a word that the peer has not granted",
)


def tier_rdma_core(sums: tally) -> None:
    """Flushes and atomic writes on Soft-RoCE of Linux 6.12 with the libraries of a newer rdma-core, and dat compiled with its headers."""
    options = ["--kernel", "6.12", "--rdma-core", NEWER]
    with step(f"rdma-core of {NEWER}: getting it, a program with its headers and its libraries", "1 to 3 min"):
        got = subprocess.run([LAB, "--prepare", *options], stdout=subprocess.PIPE, text=True, check=False)
        sums.check(f"rdma-core of {NEWER}", got.returncode == 0)
        if got.returncode:
            return
        headers, program = f"{got.stdout.strip()}/include", BUILD / "results/rdma-core-flush"
        warnings = "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror".split()
        flags = ["-std=c++20", "-O1", *warnings, "-isystem", headers, "-Iinclude", "-Idetail"]
        sources = {"tests/worlds/flush.cpp": ["-o", program, "-pthread", "-lrdmacm", "-libverbs"], "tests/fake_verbs/extended.cpp": ["-fsyntax-only", "-Itests"]}
        for source, more in sources.items():
            good = run(["g++", *flags, source, *more], "rdma-core-build.log", HANGS) == 0
            if not good:
                sums.fault(tail(LOGS / "rdma-core-build.log"))
            sums.check(f"{source} with the headers of {NEWER}", good)
        sums.check("a write, a flush and an atomic write", run([LAB, *options, *ONE_PROCESSOR, "--", program], "rdma-core.log", HANGS) == 0)
    names = ",".join(f'"{name}*"' for name in NEWER_CASES)
    device_tests("gcc", f"g++ with rdma-core of {NEWER}", sums, (), "rdma-core", [*options, *ONE_PROCESSOR], names, len(NEWER_CASES))


def tier_worlds(sums: tally) -> None:
    """A few device tests and examples on Soft-iWARP and on Linux 6.12, so that each run sees what breaks there."""
    for world, what, options in (("siw", "Soft-iWARP", ["--device", "siw"]), ("linux-6.12", "Linux 6.12", ["--kernel", "6.12"])):
        chosen = other_worlds.selection(ROOT / "docs/conformance", world)
        device_tests("gcc", f"g++ on {what}, some", sums, SOME_EXAMPLES, world, [*options, *ONE_PROCESSOR], chosen.each_run_filter(), len(chosen.each_run))


def tier_arch_lab(sums: tally) -> None:
    """All device tests on Soft-RoCE of Debian's kernels of other architectures, in emulated machines; the boots of dat-lab there."""
    for arch in worlds.ARCHITECTURES:
        with step(f"{arch}: building the device program, and running it in an emulated machine", "30 to 60 min the first time"):
            worlds.prepare(arch)
            if not build(arch, "tests/device/device"):
                sums.check(f"device, {arch}", False, "not built")
                continue
            out, log = RESULTS / f"lab-{arch}", f"device-{arch}.log"
            out.mkdir(parents=True, exist_ok=True)
            command, env = reporting(BUILD / arch / "tests/device/device", out / "device.xml", "-d", "yes")
            limit = 4 * HANGS
            lab = [LAB, "--arch", arch, "--memory", "3072", "--timeout", str(limit), "--out", out, *(f"--env={k}={v}" for k, v in env.items())]
            code = run([*lab, "--", *command], log, limit + 60)
            sums.catch2(f"device, {arch}", out / "device.xml", code, LOGS / log)
    sums.unittests("boots of other architectures", ROOT / "tests/lab/test_architectures.py", HANGS, DAT_LAB_BOOT_ARCH=" ".join(worlds.ARCHITECTURES))


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


def tier_soak(sums: tally) -> None:
    """Ninety seconds of the soak. Its time limits detect what never comes, so a busy machine only makes it longer."""
    with step("Soak: all services, disturbed, in the lab", "2 to 4 min"):
        if not build("gcc", "tests/soak/soak"):
            sums.check("soak", False, "not built")
            return
        command = [sys.executable, ROOT / "tests/soak/soak.py", "--program", BUILD / "gcc/tests/soak/soak", *ONE_PROCESSOR, "--minutes", "1.5", "--seed", "1"]
        code = run(command, "soak.log", 1800)
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


def tier_lab(sums: tally) -> None:
    """The faster half of the lab's own tests. (tier_full runs all of them.)"""
    with step("The lab's own tests", "1 to 2 min"):
        sums.unittests("tests of dat-lab", ROOT / "tests/lab/test_dat_lab.py", HANGS, "--quick")


def tier_full(sums: tally) -> None:
    """What each run has in part: device tests with AddressSanitizer, the lab's own tests, the headers, and the options of compilers."""
    device_tests("asan-full", "ASan + UBSan", sums, options=ONE_PROCESSOR)
    with step("All of the lab's own tests", "5 to 10 min"):
        sums.unittests("tests of dat-lab", ROOT / "tests/lab/test_dat_lab.py", 2 * HANGS)
        sums.unittests("dat-lab in other projects' CI", ROOT / "tests/lab/test_ci.py", HANGS)
    with step("Each header alone, with g++ and with clang++", "2 min"):
        for cxx in COMPILERS.values():
            sums.counted(f"headers alone, {cxx}", [sys.executable, ROOT / "tests/headers/alone.py", "--cxx", cxx], HANGS)
    with step("All options of compilers", "2 to 4 min"):
        sums.counted("options", [sys.executable, ROOT / "tests/consume/options.py"], HANGS)
