# The tiers of ./dev test that need no lab: builds, unit tests, fuzzing, costs, other compilers, checks of texts.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import sys

from dev_run import BUILD, DEBIAN_PYTHON, HANGS, LOGS, RESULTS, ROOT, run, say, step, tail
from dev_build import COMPILERS, build, build_folder, check_sources, configure, tree
from dev_tally import tally
from dev_programs import ONE_PROCESSOR, build_and_run_catch2, device_tests, run_catch2, unit_tests
from dev_site import build_site
import lint
import records
import worlds


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
        options = [] if flavour == "tsan" else ONE_PROCESSOR
        if good:
            sums.beside(f"unit tests, {flavour}", functools.partial(unit_tests, flavour, what, sums))
            sums.beside(f"device tests, {flavour}", functools.partial(device_tests, flavour, what, sums, options=options))


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


def tier_schedules(sums: tally) -> None:
    """Many orders of the threads of each case, and every order with one preemption more."""
    with step("Schedules: many more orders", "1 to 3 hours"):
        many = {"DAT_SCHEDULES": os.environ.get("DAT_SCHEDULES", "1000"), "DAT_PREEMPTIONS": os.environ.get("DAT_PREEMPTIONS", "3")}
        build_and_run_catch2(sums, "schedules", "gcc", "tests/schedules/schedules", "schedules-many", limit=12 * HANGS, **many)


def tier_fuzz(sums: tally) -> None:
    """The libFuzzer targets, for DAT_FUZZ_SECONDS each."""
    seconds = os.environ.get("DAT_FUZZ_SECONDS", "20")
    with step(f"Fuzz targets with ASan + UBSan, {seconds} s each", "3 to 4 min"):
        if not build_folder("asan", "tests/fuzz"):
            sums.check("fuzz", False, "not built")
            return
        sums.counted("fuzz", [sys.executable, ROOT / "tests/fuzz/run.py", "--seconds", seconds], HANGS + 8 * int(seconds), show=True)
        sums.unittests("tests of the fuzz runner", ROOT / "tests/fuzz/test_run.py", HANGS)


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
    """The cost of dat in the compile time of a user, beside the headers that such a program includes anyway."""
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


def tier_docs(sums: tally) -> None:
    """The site, and each of its pages in a browser."""
    with step("The site, page by page in a browser", "5 to 10 min"):
        good = build_site(True, True)
        sums.check("the site", good)
        if good:
            tests = [DEBIAN_PYTHON, "-B", ROOT / "tests/site/test_site.py"]
            sums.counted("pages of the site", tests, HANGS * 2, show=True)
        sums.unittests("tests of the site's parts", ROOT / "tests/site/test_parts.py", HANGS, python=DEBIAN_PYTHON)
