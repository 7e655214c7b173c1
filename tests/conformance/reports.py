"""Reports of test programs: their cases, the rules that these show, and what makes a run fail."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import records
from rule_catalogue import DISPOSITIONS, MOST_TAGS, Ledger

LOOKS_LIKE_RULE = re.compile(r"[A-Z][A-Z0-9]*-\d+[a-z]?")
TAG = re.compile(r"\[([^\[\]]+)\]")

# First word of a result file's name -> the proof that a passing test in it is.
TIERS = {"device": "rxe", "unit": "fake", "types": "type", "compile_fail": "type"}


@dataclass(frozen=True)
class Case:
    """One test case, merged over all runs of its tier."""

    name: str
    level: str
    tags: frozenset[str]
    outcome: str  # "passed", "failed" or "skipped"
    shows: frozenset[str] = frozenset()  # rules, by SHOWS
    deviates: frozenset[str] = frozenset()  # rules, by DEVIATES

    def tagged(self, rules: Iterable[str]) -> set[str]:
        return self.tags & set(rules)

    def shown(self, rules: Iterable[str]) -> set[str]:
        return (self.tags | self.shows) & set(rules)


def read_catch2(root: ElementTree.Element) -> Iterator[tuple[str, set[str], str]]:
    """TestCase elements: children of Catch/Group in Catch2 v2, of Catch2TestRun in v3."""
    for case in root.iter("TestCase"):
        tags = set(TAG.findall(case.get("tags", "")))
        result = case.find("OverallResult")
        skipped = any(re.match(r"\s*skip", element.text or "", re.IGNORECASE) for element in case.iter("Warning"))
        faults = any(
            element.tag in {"Failure", "Exception", "FatalErrorCondition"}
            or (element.tag == "Expression" and element.get("success") == "false")
            for element in case.iter()
        )
        if result is None or faults or tags & {"!mayfail", "!shouldfail"}:
            outcome = "failed"
        elif skipped or result.get("skips", "0") != "0":
            outcome = "skipped"  # first: version 2 with -w NoAssertions calls a skipped case failed
        else:
            outcome = "passed" if result.get("success") == "true" else "failed"
        yield case.get("name", ""), tags, outcome


def read_junit(root: ElementTree.Element) -> Iterator[tuple[str, set[str], str]]:
    for case in root.iter("testcase"):
        name = case.get("name", "")
        failed = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if failed else "skipped" if case.find("skipped") is not None else "passed"
        yield TAG.sub("", name).strip(), set(TAG.findall(name)), outcome


def read_json(text: str) -> Iterator[tuple[str, set[str], str]]:
    for case in json.loads(text):
        yield str(case["name"]), {str(tag) for tag in case["tags"]}, "passed" if case["passed"] is True else "failed"


def read_results(directory: Path, ledger: Ledger, root: Path | None = None, whole: bool = True, driver: str = "rxe",
                 some: bool = False) -> list[Case]:  # fmt: skip
    """All cases of DIR/*.xml and DIR/*.json. A case that failed in one run failed; else one pass is enough.

    With `root`, the records of the files must show one run of the tree at `root` on devices of `driver`. Unless `some`, they must
    also show that the run selected all cases."""
    merged: dict[tuple[str, str], Case] = {}
    known: dict[str, tuple[records.Record, int]] = {}
    files = sorted(path for path in directory.glob("*") if path.suffix in {".xml", ".json"})
    if not files:
        ledger.problems.append(f"{directory}: no result files")
    for path in files:
        tier = path.stem.split("-", 1)[0]
        if tier not in TIERS:
            ledger.problems.append(f"{path.name}: the name does not begin with a tier ({', '.join(TIERS)})")
            continue
        try:
            cases = list(read_file(path))
        except (ElementTree.ParseError, ValueError, KeyError, TypeError) as error:
            ledger.problems.append(f"{path.name}: not a complete result file: {error!r}")
            continue
        if not cases:
            ledger.problems.append(f"{path.name}: holds no test case")
        record = read_record(path, ledger, root)
        known[path.name] = (record, len(cases))
        for raw_name, tags, outcome in cases:
            add_case(merged, case_of(path, raw_name, tags, outcome, record, ledger, root is not None))
    if root:
        ledger.problems += records.problems_of(known, root, whole, driver, some)
        ledger.origin = records.origin(record for record, _ in known.values())
    return [merged[key] for key in sorted(merged)]


def read_record(path: Path, ledger: Ledger, root: Path | None) -> records.Record:
    try:
        return records.read(path)
    except (OSError, ValueError, TypeError) as error:
        if root:
            ledger.problems.append(f"{path.name}: no record of what it was made from: {error}")
        return records.Record("", "", "")


def case_of(path: Path, raw_name: str, tags: set[str], outcome: str, record: records.Record, ledger: Ledger,
            strict: bool) -> Case:  # fmt: skip
    name, level = " ".join(raw_name.split()), TIERS[path.stem.split("-", 1)[0]]
    if "type" in tags:
        level = "type"
        if strict and outcome == "passed" and TIERS[path.stem.split("-", 1)[0]] != "type" and raw_name not in record.types_only:
            ledger.problems.append(f"{path.name}: '{name}' carries the tag [type] and asserts at run time")
    shows, deviates = (frozenset(said.get(raw_name, ())) for said in (record.shows, record.deviates))
    return Case(name, level, frozenset(tags), outcome, shows, deviates)


def add_case(merged: dict[tuple[str, str], Case], case: Case) -> None:
    before = merged.get((case.level, case.name))
    if before:
        worst_first = ("failed", "passed", "skipped")
        outcome = min(before.outcome, case.outcome, key=worst_first.index)
        shows, deviates = before.shows | case.shows, before.deviates | case.deviates
        case = Case(case.name, case.level, before.tags | case.tags, outcome, shows, deviates)
    merged[case.level, case.name] = case


def read_file(path: Path) -> Iterator[tuple[str, set[str], str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return read_json(text)
    root = ElementTree.fromstring(text)
    return read_junit(root) if root.tag in {"testsuites", "testsuite"} else read_catch2(root)


def apply_results(cases: list[Case], ledger: Ledger) -> None:
    for case in cases:
        for rule in sorted(case.shown(ledger.rules)):
            if case.outcome == "passed":
                ledger.tests.setdefault(rule, []).append((case.level, case.name))
            elif case.outcome == "failed":
                ledger.problems.append(f"{rule}: test '{case.name}' ({case.level}) failed")
        for tag in sorted(case.tags - ledger.rules.keys()):
            if LOOKS_LIKE_RULE.fullmatch(tag):
                ledger.problems.append(f"test '{case.name}': tag [{tag}] names no rule")
        for rule in sorted((case.shows | case.deviates) - ledger.rules.keys()):
            ledger.problems.append(f"test '{case.name}': {rule} names no rule")
    for rule in sorted(ledger.untestable.keys() & ledger.tests.keys()):
        name = ledger.tests[rule][0][1]
        ledger.problems.append(f"{rule}: dispositions.toml calls it not testable, but '{name}' shows it")
    for rule in ledger.rules:
        now = ledger.disposition(rule)
        if now == "fake" and rule not in ledger.fake_only:
            ledger.problems.append(f"{rule}: fake only, and fake_only.toml does not say why no device shows it")
        elif now != "fake" and rule in ledger.fake_only:
            ledger.problems.append(f"fake_only.toml: {rule} is {DISPOSITIONS[now]}; take it out")
    check_tags(cases, ledger)
    check_deviations(cases, ledger)


def check_tags(cases: list[Case], ledger: Ledger) -> None:
    """No case carries more rules by tag than MOST_TAGS, or than its debt."""
    tags: dict[str, set[str]] = {}
    for case in cases:
        tags.setdefault(case.name, set()).update(case.tagged(ledger.rules))
    for name, rules in tags.items():
        n = len(rules)
        owed = ledger.debt.wide.get(name, 0)
        if n > max(MOST_TAGS, owed):
            ledger.problems.append(f"'{name}' carries {n} rules by tag, more than {max(MOST_TAGS, owed)}: use SHOWS")
        elif n > MOST_TAGS:
            ledger.paid.wide[name] = n


def check_deviations(cases: list[Case], ledger: Ledger) -> None:
    """The test of a deviation passed and shows it, and no test shows the rule."""
    for deviation in ledger.deviations.values():
        reached = {case.outcome for case in cases if case.name == deviation.test}
        where = f"deviations.toml: {deviation.rule}"
        if "failed" in reached or "passed" not in reached:
            state = "failed" if "failed" in reached else "did not run"
            ledger.problems.append(f"{where}: test '{deviation.test}' {state}")
        elif any(deviation.rule in case.deviates for case in cases if case.name == deviation.test):
            pass
        elif deviation.rule in ledger.debt.by_name:
            ledger.paid.by_name.add(deviation.rule)
        else:
            ledger.problems.append(f"{where}: test '{deviation.test}' has no DEVIATES(\"{deviation.rule}\") that ran")
        for level, name in ledger.tests.get(deviation.rule, []):
            if level == "fake" and deviation.at not in {"verbs", "spec", "dat"}:
                continue  # the fake library is not the device that is at fault
            ledger.problems.append(f"{where}: '{name}' ({level}) shows that the rule is kept")
    for case in cases:
        if case.outcome == "passed":
            for rule in sorted((case.deviates & ledger.rules.keys()) - ledger.deviations.keys()):
                ledger.problems.append(f"{rule}: '{case.name}' says DEVIATES, deviations.toml does not list it")
