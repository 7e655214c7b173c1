# The command ./dev test: its tiers, their order, and what runs beside what.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import argparse
import functools
import shutil
import time
from collections.abc import Callable

from dev_run import COSTS, LOGS, RESULTS, costs, say
from dev_build import alone
from dev_tally import tally
from dev_tiers_host import (
    tier_arch, tier_checked, tier_clang, tier_compile_fail, tier_compile_time, tier_compilers, tier_conformance,
    tier_consume, tier_docs, tier_fuzz, tier_gauge, tier_gcc, tier_lint, tier_mutate, tier_readme, tier_release,
    tier_sanitizers, tier_schedules, tier_traced, tier_unit,
)
from dev_tiers_lab import (
    tier_arch_lab, tier_datcp, tier_device, tier_full, tier_hosts, tier_lab, tier_linux_612, tier_peers, tier_perf, tier_provider, tier_rails,
    tier_rdma_core, tier_siw, tier_soak, tier_tools, tier_worlds,
)
import other_worlds

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
    "worlds": tier_worlds,
    "soak": tier_soak,
    "sanitizers": tier_sanitizers,
    "fuzz": tier_fuzz,
    "clang": tier_clang,
    "compile_fail": tier_compile_fail,
    "consume": tier_consume,
    "compile_time": tier_compile_time,
    "gauge": tier_gauge,
    "conformance": tier_conformance,  # this tier is last, because it reads the results of the others
}
# Tiers that run only on request: `unit`, whose work the others include, the same as a checked build and with trace points, more
# schedules, the lab's slower tests and more options of compilers, all device tests on Soft-iWARP and on another kernel,
# flushes with a newer rdma-core, rails over links that fail, other architectures, whose packages and emulator it gets, their device
# tests in emulated machines, a sample of mutants, and what a release needs.
ON_DEMAND: dict[str, Callable[[tally], None]] = {
    "unit": tier_unit,
    "checked": tier_checked,
    "traced": tier_traced,
    "schedules": tier_schedules,
    "full": tier_full,
    "siw": tier_siw,
    "linux-6.12": tier_linux_612,
    "rdma-core": tier_rdma_core,
    "rails": tier_rails,
    "perf": tier_perf,
    "peers": tier_peers,
    "arch": tier_arch,
    "arch-lab": tier_arch_lab,
    "compilers": tier_compilers,
    "mutate": tier_mutate,
    "release": tier_release,
    "docs": tier_docs,
}
WORLDS = ["device", *other_worlds.WORLDS]  # the tiers that run all device tests of a world
# Tiers that build nothing more after the tier before them, or in folders of their own, and use one core or less. The
# first tiers can run while the others are built, so that little work is left for one core at the end.
BESIDE = {"lint", "readme", "lab", "device", "datcp", "tools", "hosts", "provider", "worlds", "soak", "consume", "compile_time"}


def command_test(arguments: list[str]) -> int:
    """./dev test"""
    parser = argparse.ArgumentParser(
        prog="./dev test",
        description="Build and run all tests: " + ", ".join(TIERS) + ". From scratch about 25 minutes on two quiet cores.",
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
