#!/usr/bin/env python3
# Known violations of a rule: a list that may only shrink.
# SPDX-License-Identifier: BSL-1.0
"""A debt file has one violation a line, sorted: `COUNT KEY`. A key names the rule, the file and the fault.

A measured violation that is not listed fails, and so does a count above the listed one. A listed violation that no longer exists, or whose count is now smaller, fails as well: the list must be exact. `--write-debt` rewrites the list, and refuses where the debt would grow (`--grow` permits that, for a new rule only)."""

import argparse
import pathlib

FILE = pathlib.Path(__file__).resolve().parent / "debt.txt"
HEAD = """# Violations that were there when their rule came. This list may only shrink.
# Written by: ./dev lint --write-debt
"""

Counts = dict[str, int]


def parse(text: str) -> Counts:
    """The counts of a debt file."""
    counts = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            count, _, key = line.strip().partition(" ")
            counts[key] = int(count)
    return counts


def render(counts: Counts) -> str:
    """The debt file of some counts."""
    return HEAD + "".join(f"{count} {key}\n" for key, count in sorted(counts.items()) if count)


def read(path: pathlib.Path = FILE) -> Counts:
    """The debt on disk; none when there is no file."""
    return parse(path.read_text(encoding="utf-8")) if path.exists() else {}


def rule_of(key: str) -> str:
    """The first word of a key."""
    return key.partition(" ")[0]


def compare(measured: Counts, listed: Counts, rules: set[str]) -> list[str]:
    """The faults of some rules: violations beyond the debt, and debt that has been paid."""
    findings = []
    for key in sorted(set(measured) | {k for k in listed if rule_of(k) in rules}):
        now, then = measured.get(key, 0), listed.get(key, 0)
        if now > then:
            findings.append(f"{key}: {now}" + (f", and {then} were allowed so far" if then else ""))
        elif now < then:
            paid = "is gone" if not now else f"has only {now} of {then} left"
            findings.append(f"{key}: {paid}. Remove it from the list: ./dev lint --write-debt")
    return findings


def grown(measured: Counts, listed: Counts) -> list[str]:
    """The keys whose count would grow if the list were rewritten."""
    return sorted(key for key, count in measured.items() if count > listed.get(key, 0))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options by which a script writes its part of the list."""
    parser.add_argument("--write-debt", action="store_true", help="write the list anew; refused where it would grow")
    parser.add_argument("--grow", action="store_true", help="with --write-debt: even where the list grows")


def write(path: pathlib.Path, measured: Counts, rules: set[str], grow: bool) -> int:
    """Writes the part of some rules, and prints their number."""
    listed = read(path)
    if not grow and (more := grown(measured, listed)):
        print("".join(f"{key}: {measured[key]}, and {listed.get(key, 0)} are listed\n" for key in more), end="")
        print("The debt would grow. Mend these, or use --grow.")
        return 1
    others = {key: count for key, count in listed.items() if rule_of(key) not in rules}
    path.write_text(render(others | measured), encoding="utf-8")
    print(f"{path.name}: {sum(1 for count in measured.values() if count)} lines of {', '.join(sorted(rules))}")
    return 0
