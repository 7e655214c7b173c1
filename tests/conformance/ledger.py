#!/usr/bin/env python3
"""Conformance ledger: rule catalogue + results of a test run -> docs/conformance/STATUS.md.

docs/conformance/README.md defines the input files, the dispositions and what makes a run fail.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import evidence  # noqa: E402
import functions  # noqa: E402
import records  # noqa: E402
import other_worlds as worlds  # noqa: E402

DOCS = Path(__file__).resolve().parents[2] / "docs" / "conformance"

RULE_ID = re.compile(r"[A-Z][A-Z0-9]*-\d{3}")
LOOKS_LIKE_RULE = re.compile(r"[A-Z][A-Z0-9]*-\d+[a-z]?")
TAG = re.compile(r"\[([^\[\]]+)\]")
SOURCES = {".cpp", ".hpp", ".cc", ".hh", ".c", ".h"}

# First word of a result file's name -> the proof that a passing test in it gives.
TIERS = {"device": "rxe", "unit": "fake", "types": "type", "compile_fail": "type"}
# Strongest proof first; a rule has the disposition of its strongest passing test.
LEVELS = ("rxe", "type", "fake")
DISPOSITIONS = {
    "rxe": "shown on rxe",
    "type": "by type",
    "fake": "fake only",
    "forced": "deviates, forced",
    "chosen": "deviates, dat's choice",
    "untestable": "not testable",
    "open": "open",
}

ORIGIN = "Written from results of "
# A tag covers its whole case, so in a case with more rules a tag does not show which assertion belongs to which rule.
MOST_TAGS = 8
# Lines of a stale file that are printed.
MOST_CHANGED = 12

FAMILIES = {
    "MODEL": "terms and layers", "REQ": "requirements", "SAFE": "conventions and safety", "IA": "interface adapter",
    "CTX": "consumer context", "EVENT": "event model", "CNO": "consumer notification object",
    "EVD": "event dispatcher", "COMP": "completions", "ADDR": "addresses and qualifiers",
    "PSP": "public service point", "CSP": "common service point", "RSP": "reserved service point",
    "CR": "connection request", "CONN": "connecting", "DISC": "disconnect and reset", "SRQ": "shared receive queue",
    "EPS": "endpoint states", "EP": "endpoint", "EPATTR": "endpoint attributes", "DTO": "data transfer operations",
    "PZ": "protection zone", "LMR": "local memory region", "RMR": "remote memory region", "SYNC": "memory sync",
    "IBX": "IB extensions", "EXT05": "extension proposal of 2005", "DOCA": "DOCA RDMA jobs", "ERR": "errors",
    "REG": "registry", "VER": "versions", "CONF": "dat.conf", "NAME": "name service", "HA": "high availability",
}


@dataclass(frozen=True)
class Rule:
    id: str
    part: str  # file name of the part that holds it
    section: str
    cells: dict[str, str]  # column title -> text; the first column, the id, is left out

    @property
    def family(self) -> str:
        return self.id.rsplit("-", 1)[0]


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


@dataclass(frozen=True)
class Deviation:
    rule: str
    at: str
    reason: str
    fact: str
    test: str
    choice: bool = False  # dat could keep the rule


@dataclass
class Debt:
    """What the ledger counts although it should not; docs/conformance/debt.toml."""

    wide: dict[str, int] = field(default_factory=dict)  # cases with more than MOST_TAGS rules by tag -> their number
    by_name: set[str] = field(default_factory=set)  # deviations whose test has no DEVIATES


@dataclass
class Ledger:
    rules: dict[str, Rule] = field(default_factory=dict)
    deviations: dict[str, Deviation] = field(default_factory=dict)
    untestable: dict[str, str] = field(default_factory=dict)  # rule -> reason
    fake_only: dict[str, str] = field(default_factory=dict)  # rule -> why no device shows it
    tests: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # rule -> [(level, test name)]
    evidence: dict[str, list[evidence.Entry]] = field(default_factory=dict)  # rule -> main point and assertion
    debt: Debt = field(default_factory=Debt)
    paid: Debt = field(default_factory=Debt)  # the part of the debt that the results need
    worlds: dict[str, worlds.World] = field(default_factory=dict)  # other worlds, by name
    origin: str = ""  # of the results
    problems: list[str] = field(default_factory=list)

    def disposition(self, rule: str) -> str:
        if rule in self.deviations:
            return "chosen" if self.deviations[rule].choice else "forced"
        if rule in self.untestable:
            return "untestable"
        return best_level(level for level, _ in self.tests.get(rule, [])) or "open"

    def count(self, rules: Iterable[str]) -> dict[str, int]:
        counts = dict.fromkeys(DISPOSITIONS, 0)
        for rule in rules:
            counts[self.disposition(rule)] += 1
        return counts


def best_level(levels: Iterable[str]) -> str | None:
    return min(levels, key=LEVELS.index, default=None)


# --- catalogue ---------------------------------------------------------------------------------------------------


def split_row(line: str) -> list[str]:
    body = line.strip().removeprefix("|")
    body = re.sub(r"(?<!\\)\|$", "", body)
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", body)]


def parse_part(name: str, text: str, ledger: Ledger) -> None:
    """Collects the rows of every table whose first column is titled `id`, outside the section "Traps"."""
    section, in_traps = "", False
    header: list[str] | None = None
    previous = ""
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"(#+) (.*)", line)
        if heading:
            if len(heading[1]) <= 2:
                in_traps = heading[2].strip() == "Traps"
            section, header = heading[2].strip(), None
        elif not line.startswith("|"):
            header = None
        elif re.fullmatch(r"\|[-:| ]+\|\s*", line):
            header = split_row(previous)
        elif header is None:
            first = split_row(line)[0]
            if RULE_ID.fullmatch(first):
                ledger.problems.append(f"{name}:{number}: {first} stands in no table (header line missing or broken)")
        elif header[0] == "id" and not in_traps:
            add_rule(name, number, section, header, split_row(line), ledger)
        previous = line


def add_rule(name: str, number: int, section: str, header: list[str], cells: list[str], ledger: Ledger) -> None:
    where, rule = f"{name}:{number}", cells[0]
    if not RULE_ID.fullmatch(rule):
        ledger.problems.append(f"{where}: '{rule}' is not a rule id (FAMILY-nnn)")
    elif len(cells) != len(header):
        ledger.problems.append(f"{where}: {rule} has {len(cells)} cells, its table {len(header)} columns")
    elif rule in ledger.rules:
        ledger.problems.append(f"{where}: {rule} is already defined in {ledger.rules[rule].part}")
    else:
        ledger.rules[rule] = Rule(rule, name, section, dict(zip(header[1:], cells[1:], strict=True)))


def load_catalogue(docs: Path) -> Ledger:
    ledger = Ledger()
    for path in sorted((docs / "rules").glob("*.md")):
        parse_part(path.name, path.read_text(encoding="utf-8"), ledger)
    if not ledger.rules:
        ledger.problems.append(f"{docs / 'rules'}: no rule found")
    for entry in toml_entries(docs / "deviations.toml", "deviation", {"rule", "at", "reason", "fact", "test"}, ledger):
        choice = entry.pop("choice", False)
        ledger.deviations[entry["rule"]] = Deviation(**entry, choice=bool(choice))
        if bool(choice) != (entry["at"] == "dat"):
            ledger.problems.append(f"deviations.toml: {entry['rule']}: `choice = true` and `at = \"dat\"` belong together")
    ledger.debt = read_debt(docs, ledger)
    for entry in toml_entries(docs / "dispositions.toml", "not_testable", {"rule", "reason"}, ledger):
        ledger.untestable[entry["rule"]] = entry["reason"]
        if entry["rule"] in ledger.deviations:
            ledger.problems.append(f"dispositions.toml: {entry['rule']} is listed in deviations.toml, too")
    for entry in toml_entries(docs / "fake_only.toml", "fake_only", {"rule", "reason"}, ledger):
        ledger.fake_only[entry["rule"]] = entry["reason"]
    ledger.worlds = worlds.load(docs, ledger.rules, ledger.problems)
    return ledger


def toml_entries(path: Path, table: str, keys: set[str], ledger: Ledger) -> Iterator[dict[str, str]]:
    """The entries of a TOML array of tables. An entry with a list `rules` stands for as many entries with `rule`."""
    if not path.exists():
        return
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get(table, [])
    except tomllib.TOMLDecodeError as error:
        ledger.problems.append(f"{path.name}: {error}")
        return
    seen: set[str] = set()
    for entry in (one for entry in entries for one in one_rule_each(entry)):
        rule = str(entry.get("rule", "(no rule)"))
        strings = {key: value for key, value in entry.items() if (key, table) != ("choice", "deviation")}
        if set(strings) != keys or not all(isinstance(value, str) for value in strings.values()):
            ledger.problems.append(f"{path.name}: {rule}: an entry has exactly the strings {', '.join(sorted(keys))}")
        elif not all(strings[key].strip() for key in keys):
            ledger.problems.append(f"{path.name}: {rule}: no string may be empty")
        elif rule not in ledger.rules:
            ledger.problems.append(f"{path.name}: {rule} is no rule of the catalogue")
        elif rule in seen:
            ledger.problems.append(f"{path.name}: {rule} is listed twice")
        else:
            seen.add(rule)
            yield entry


def read_debt(docs: Path, ledger: Ledger) -> Debt:
    path = docs / "debt.toml"
    if not path.exists():
        return Debt()
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        debt = Debt({str(name): int(n) for name, n in told.pop("tags", {}).items()}, set(told.pop("deviations", [])))
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        ledger.problems.append(f"{path.name}: {error}")
        return Debt()
    ledger.problems += [f"{path.name}: what is {key}?" for key in told]
    return debt


def render_debt(debt: Debt) -> str:
    lines = [
        "# What the ledger counts although it should not, by number. It only shrinks: ledger.py --update takes out what is",
        "# paid, and refuses what is not listed. Format: README.md, \"Debt\". SPDX-License-Identifier: BSL-1.0",
        "",
        "# Deviations whose test does not say DEVIATES where it asserts the deviating behaviour.",
        "deviations = [" + ", ".join(f'"{rule}"' for rule in sorted(debt.by_name)) + "]",
        "",
        f"# Cases with more than {MOST_TAGS} rules by tag, and their number.",
        "[tags]",
        *(f"{json.dumps(name)} = {n}" for name, n in sorted(debt.wide.items(), key=lambda item: (-item[1], item[0]))),
    ]
    return "\n".join(lines) + "\n"


def read_evidence(docs: Path, ledger: Ledger) -> None:
    """Reads the tables, and compares them with the sources. Without the folder there is nothing to compare."""
    folder = docs / "evidence"
    if not folder.is_dir():
        return
    ledger.evidence = evidence.read(folder, ledger.problems)
    sources = evidence.read_sources(docs.parents[1] / "tests")
    for entries in ledger.evidence.values():
        for entry in entries:
            ledger.problems += evidence.problems_of(entry, sources)


def check_evidence(docs: Path, ledger: Ledger, results: bool) -> None:
    """Each rule that is shown has an entry, and no other rule has one. With results, a test of the rule's level is named."""
    if not (docs / "evidence").is_dir():
        return
    for rule in ledger.rules:
        now, entries = ledger.disposition(rule), ledger.evidence.get(rule, [])
        where = entries[0].where if entries else f"evidence/{ledger.rules[rule].family}.md"
        if now in LEVELS and not entries:
            ledger.problems.append(f"{where}: {rule} is shown, and no entry says by which assertion")
        elif now in {"forced", "chosen", "untestable"} and entries:
            ledger.problems.append(f"{where}: {rule} has an entry, and is listed as {DISPOSITIONS[now]}")
        elif results and entries:
            named = [(level, name) for level, name in ledger.tests.get(rule, []) if names_any(name, entries)]
            if best_level(level for level, _ in named) != now:
                ledger.problems.append(f"{where}: {rule} is {DISPOSITIONS[now]}, and no entry names a test that shows this")
    for rule in sorted(ledger.evidence.keys() - ledger.rules.keys()):
        ledger.problems.append(f"{ledger.evidence[rule][0].where}: {rule} is no rule of the catalogue")


def names_any(name: str, entries: list[evidence.Entry]) -> bool:
    return any(evidence.is_case(name, entry.test) for entry in entries)


def one_rule_each(entry: dict[str, object]) -> Iterator[dict[str, object]]:
    rules = entry.get("rules")
    if not isinstance(rules, list) or not rules:
        yield entry
        return
    for rule in rules:
        yield {key: value for key, value in entry.items() if key != "rules"} | {"rule": rule}


# --- results of a test run -----------------------------------------------------------------------------------------


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

    With `root`, the records of the files must say that they belong together, to the tree at `root`, and ran on devices of
    `driver`; and that all cases were asked for, unless `some`."""
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


# --- other worlds ----------------------------------------------------------------------------------------------------


def render_worlds(docs: Path, ledger: Ledger) -> Iterator[str]:
    return worlds.render_status(docs, ledger.worlds, ledger.rules, {r for r in ledger.rules if ledger.disposition(r) == "rxe"})


def update_world(docs: Path, name: str, directory: Path) -> int:
    """Writes worlds/NAME.txt, and its numbers in STATUS.md, from the results of the device tests in that world."""
    ledger = load_catalogue(docs)
    cases = read_results(directory, ledger, docs.parents[1], False, worlds.WORLDS[name][1], bool(worlds.selection(docs, name).filter()))
    world = worlds.World(ledger.origin)
    kernel = worlds.WORLDS[name][2]
    if not re.search(rf" on {re.escape(kernel)}(?!\d)", ledger.origin):
        ledger.problems.append(f"{directory}: results of {ledger.origin}; those of {name} are made on {kernel}")
    for case in cases:
        if case.outcome == "failed":
            ledger.problems.append(f"test '{case.name}' failed")
        elif case.outcome == "passed":
            world.cases += 1
            world.rules |= case.shown(ledger.rules) - case.deviates
    if not world.rules:
        ledger.problems.append(f"{directory}: no test shows a rule")
    for problem in ledger.problems:
        print(f"conformance: {problem}", file=sys.stderr)
    if ledger.problems:
        print("conformance: nothing written", file=sys.stderr)
        return 1
    path = worlds.path_of(docs, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(worlds.render(name, world), encoding="utf-8")
    print(f"{path.name}: {len(world.rules)} rules by {world.cases} tests")
    known = load_catalogue(docs)
    known.tests = read_shown(docs, known)
    status = docs / "STATUS.md"
    text = worlds.replace_section(status.read_text(encoding="utf-8"), render_worlds(docs, known))
    status.write_text(text, encoding="utf-8")
    return 0


# --- earlier records -------------------------------------------------------------------------------------------------


def read_shown(docs: Path, ledger: Ledger) -> dict[str, list[tuple[str, str]]]:
    """shown.txt: rule TAB level TAB test name, '#' begins a comment line."""
    shown: dict[str, list[tuple[str, str]]] = {}
    path = docs / "shown.txt"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        fields = line.split("\t")
        if len(fields) == 3 and fields[1] in LEVELS:
            shown.setdefault(fields[0], []).append((fields[1], fields[2]))
        elif line and not line.startswith("#"):
            ledger.problems.append(f"shown.txt:{number}: not rule, proof ({', '.join(LEVELS)}) and test, by tabs")
    return shown


def check_recorded(shown: dict[str, list[tuple[str, str]]], ledger: Ledger) -> None:
    for rule, tests in sorted(shown.items()):
        recorded = best_level(level for level, _ in tests)
        assert recorded is not None
        names = ", ".join(f"'{name}'" for level, name in tests if level == recorded)
        now = ledger.disposition(rule)
        if rule not in ledger.rules:
            ledger.problems.append(f"shown.txt: {rule} is no rule of the catalogue")
        elif now in {"forced", "chosen", "untestable"}:
            ledger.problems.append(f"{rule}: recorded as {DISPOSITIONS[recorded]}, now listed as {DISPOSITIONS[now]}")
        elif now == "open" or LEVELS.index(now) > LEVELS.index(recorded):
            ledger.problems.append(f"{rule}: recorded as {DISPOSITIONS[recorded]}, but {names} did not run or failed")
        elif now == recorded:
            gone = {name for level, name in tests if level == now} - {name for _, name in ledger.tests[rule]}
            new = {name for level, name in ledger.tests[rule] if level == now} - {name for _, name in tests}
            if len(new) < len(gone):
                ledger.problems.append(f"{rule}: no longer shown by {', '.join(repr(name) for name in sorted(gone))}")


def render_shown(ledger: Ledger) -> str:
    lines = ["# Written by tests/conformance/ledger.py --update: rule, proof, test. SPDX-License-Identifier: BSL-1.0"]
    for rule in ledger.rules:
        if ledger.disposition(rule) in LEVELS:
            lines += [f"{rule}\t{level}\t{name}" for level, name in sort_tests(ledger.tests[rule])]
    return "\n".join(lines) + "\n"


# --- STATUS.md -------------------------------------------------------------------------------------------------------


def sort_tests(tests: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(set(tests), key=lambda test: (LEVELS.index(test[0]), test[1]))


def escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


def count_row(label: str, ledger: Ledger, rules: list[str]) -> str:
    counts = ledger.count(rules)
    done = len(rules) - counts["open"]
    return f"| {label} | {len(rules)} | {' | '.join(str(n) for n in counts.values())} | {percent(done, len(rules))} |"


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


@dataclass(frozen=True)
class Line:
    """The known facts about one of the 93 functions."""

    function: functions.Function
    rules: list[str]  # whose first line is in the clause of the function
    done: int  # the number of these that are shown, or otherwise disposed of
    test: tuple[str, str] | None  # level and name of the one that shows most of them, on the best proof


def function_lines(docs: Path, ledger: Ledger) -> list[Line]:
    """Empty where the pages do not exist."""
    inventory, mapping = docs / "rules/0-api-inventory.md", docs.parent / "mapping.md"
    if not inventory.exists() or not mapping.exists():
        return []
    listed = functions.inventory(inventory.read_text(encoding="utf-8"))
    mapped = functions.mapping(mapping.read_text(encoding="utf-8"), listed, [])
    lines = []
    for function in mapped.values():
        rules = [r.id for r in ledger.rules.values() if functions.in_range(function, r.cells.get("spec lines", ""))]
        shows: dict[tuple[str, str], int] = {}
        for rule in rules:
            for test in set(ledger.tests.get(rule, [])):
                shows[test] = shows.get(test, 0) + 1
        # A test of a planned function can only pass by chance, through a rule of other functions.
        best = None if function.planned else min(shows, key=lambda t: (LEVELS.index(t[0]), -shows[t], t[1]), default=None)
        lines.append(Line(function, rules, sum(ledger.disposition(r) != "open" for r in rules), best))
    return lines


def render_functions(lines: list[Line]) -> Iterator[str]:
    yield f"## Functions ({len(lines)})"
    yield ""
    yield ("What each function is in dat ([mapping](../mapping.md)); how many of the rules of its clause are disposed of; "
           "and the test that shows most of them.")  # fmt: skip
    yield ""
    yield "| # | function | dat | header | rules | test |\n|--:|---|---|---|--:|---|"
    for line in lines:
        f = line.function
        test = f"{line.test[0]}: {escape(line.test[1])}" if line.test else ""
        rules = f"{line.done}/{len(line.rules)}" if line.rules else ""
        yield f"| {f.number} | `{f.name}` | {f.dat} | {f.header} | {rules} | {test} |"
    yield ""


def function_summary(lines: list[Line]) -> str:
    planned = [line.function.name for line in lines if line.function.planned]
    none = sum(line.function.dat.startswith("none") for line in lines)
    text = f"{len(lines)} functions: {len(lines) - len(planned) - none} in dat, {none} without counterpart, {len(planned)} planned"
    text += f"; {sum(line.test is not None for line in lines)} shown by a test"
    return text + (f"\nplanned: {' '.join(planned)}" if planned else "")


def group(rules: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for rule in rules:
        groups.setdefault(key(rule), []).append(rule)
    return groups


def render_mutation(docs: Path) -> Iterator[str]:
    """The score that `./dev mutate --record` has written."""
    path = docs / "mutation.json"
    if not path.exists():
        return
    score = json.loads(path.read_text(encoding="utf-8"))
    yield from (
        "## Mutation testing",
        "",
        f"`./dev mutate --sample {score['sample']} --seed {score['seed']}` of {score['date']}: the tests find {score['found']} of "
        f"{score['of']} random faults in the sources of dat ({percent(score['found'], score['of'])}). "
        "[The README](../../tests/mutate/README.md) defines the kinds.",
        "",
        "| fault | found | of |\n|---|--:|--:|",
        *(f"| {kind} | {counts['found']} | {counts['of']} |" for kind, counts in score["kinds"].items()),
        "",
    )


def render_status(docs: Path, ledger: Ledger, lines: list[Line]) -> str:
    rules = ledger.rules
    counts = ledger.count(rules)
    columns = "rules | " + " | ".join(DISPOSITIONS.values()) + " | disposed of |\n|---" + "|--:" * (len(DISPOSITIONS) + 2) + "|"
    out = [
        "<!-- Generated by tests/conformance/ledger.py --update; do not edit. SPDX-License-Identifier: BSL-1.0 -->",
        "# Conformance status",
        "",
        "What each rule of the [catalogue](README.md) rests on, taken from the results of a complete test run. "
        "The terms are defined in [README.md](README.md#dispositions).",
        "",
        *([f"{ORIGIN}{ledger.origin}.", ""] if ledger.origin else []),
        "## Totals",
        "",
        "| disposition | rules | share |\n|---|--:|--:|",
        *(f"| {title} | {counts[key]} | {percent(counts[key], len(rules))} |" for key, title in DISPOSITIONS.items()),
        f"| **all** | **{len(rules)}** | |",
        "",
        "## By object",
        "",
        f"| object | {columns}",
        *(
            count_row(f"[{family}](#{family.lower()}) {FAMILIES.get(family, '')}".rstrip(), ledger, members)
            for family, members in group(rules, lambda r: rules[r].family).items()
        ),
        "",
        "## By part",
        "",
        f"| part | {columns}",
        *(
            count_row(f"[{part}](rules/{part})", ledger, members)
            for part, members in group(rules, lambda r: rules[r].part).items()
        ),
        "",
        *render_worlds(docs, ledger),
        *(render_functions(lines) if lines else []),
        *render_mutation(docs),
        f"## Deviations ({len(ledger.deviations)}: {counts['forced']} forced, {counts['chosen']} dat's choice)",
        "",
        "| rule | at fault | reason | measured fact | test |\n|---|---|---|---|---|",
        *(
            f"| {d.rule} | {escape(d.at)} | {escape(d.reason)} | {escape(d.fact)} | {escape(d.test)} |"
            for d in sorted(ledger.deviations.values(), key=lambda d: list(rules).index(d.rule))
        ),
        "",
        f"## Not testable ({len(ledger.untestable)})",
        "",
        "| rule | reason |\n|---|---|",
        *(f"| {rule} | {escape(ledger.untestable[rule])} |" for rule in rules if rule in ledger.untestable),
        "",
        f"## Fake only ({counts['fake']})",
        "",
        "| why no device shows it | rules |\n|---|---|",
        *(
            f"| {escape(reason)} | {' '.join(members)} |"
            for reason, members in group(
                (r for r in rules if ledger.disposition(r) == "fake"), lambda r: ledger.fake_only.get(r, "")
            ).items()
        ),
        "",
        "## Rules",
    ]
    for family, members in group(rules, lambda r: rules[r].family).items():
        out += ["", f"### {family}", "", f"{FAMILIES.get(family, family)}, [{rules[members[0]].part}]"
                f"(rules/{rules[members[0]].part}), {len(members)} rules."]
        out += render_family(ledger, members)
    return "\n".join(out) + "\n"


def render_family(ledger: Ledger, members: list[str]) -> Iterator[str]:
    disposed = [rule for rule in members if ledger.disposition(rule) != "open"]
    if disposed:
        yield "\n| rule | main point | disposition | tests |\n|---|---|---|---|"
    for rule in disposed:
        tests = sort_tests(ledger.tests.get(rule, []))
        shown = "<br>".join(f"{level}: {escape(name)}" for level, name in tests)
        point = "<br>".join(escape(entry.point) for entry in ledger.evidence.get(rule, []))
        yield f"| {rule} | {point} | {DISPOSITIONS[ledger.disposition(rule)]} | {shown} |"
    still_open = [rule for rule in members if ledger.disposition(rule) == "open"]
    if still_open:
        yield f"\nOpen ({len(still_open)}): {' '.join(still_open)}"


# --- commands --------------------------------------------------------------------------------------------------------


def summary(ledger: Ledger) -> str:
    counts, total = ledger.count(ledger.rules), len(ledger.rules)
    lines = [f"{total} rules: " + ", ".join(f"{counts[key]} {title}" for key, title in DISPOSITIONS.items())]
    done, deviating = percent(total - counts["open"], total), percent(counts["forced"] + counts["chosen"], total)
    lines.append(f"disposed of: {done}, deviations: {deviating}")
    debt = ledger.debt
    if debt.wide or debt.by_name:
        lines.append(f"debt: {len(debt.wide)} cases with {sum(debt.wide.values())} tags, {len(debt.by_name)} deviations by name")
    return "\n".join(lines)


def clauses_of(docs: Path, lines_cell: str) -> str:
    """The clauses that hold the first line of every range in a `spec lines` cell, by clauses.md."""
    path, found = docs / "clauses.md", dict[str, None]()
    table = re.findall(r"^\| (\d+)-(\d+) \| ([^|]+) \|", path.read_text("utf-8"), re.MULTILINE) if path.exists() else []
    for number in re.findall(r"(?<![\w:.-])(?<!IBX )U?(\d{3,5})", lines_cell):
        found |= {clause: None for first, last, clause in table if int(first) <= int(number) <= int(last)}
    return ", ".join(found)


def describe(docs: Path, ledger: Ledger, rule_id: str) -> str:
    rule = ledger.rules[rule_id]
    out = [f"{rule.id}  ({rule.part}: {rule.section})"]
    for title, text in rule.cells.items():
        clauses = clauses_of(docs, text) if title == "spec lines" else ""
        out.append(f"  {title}: {text}" + (f"  (clause {clauses})" if clauses else ""))
    out.append(f"  disposition: {DISPOSITIONS[ledger.disposition(rule_id)]}")
    if deviation := ledger.deviations.get(rule_id):
        out += [f"  at fault: {deviation.at}", f"  reason: {deviation.reason}", f"  measured: {deviation.fact}"]
    if reason := ledger.untestable.get(rule_id):
        out.append(f"  reason: {reason}")
    if reason := ledger.fake_only.get(rule_id):
        out.append(f"  no device shows it: {reason}")
    out += [f"  main point: {e.point}\n    {e.test}: {e.assertion}" for e in ledger.evidence.get(rule_id, [])]
    return "\n".join(out + [f"  {level}: {name}" for level, name in sort_tests(ledger.tests.get(rule_id, []))])


def unknown_tags(paths: Iterable[Path], ledger: Ledger) -> Iterator[str]:
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.suffix in SOURCES and p.is_file()) if path.is_dir() else [path]
        for source in files:
            for number, line in enumerate(source.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                for tag in TAG.findall(line):
                    if LOOKS_LIKE_RULE.fullmatch(tag) and tag not in ledger.rules:
                        yield f"{source}:{number}: tag [{tag}] names no rule"
                for rule in re.findall(r'"([^"]*)"', line) if re.search(r"\b(SHOWS|DEVIATES)\(", line) else ():
                    if rule not in ledger.rules:
                        yield f"{source}:{number}: {rule} names no rule"


def stale(docs: Path, name: str, text: str) -> list[str]:
    """Of what the results say, with the first lines that differ. From which results the file was written makes no
    difference."""
    path = docs / name
    origin = re.compile(f"^{ORIGIN}.*\n\n", re.MULTILINE)
    written = origin.sub("", path.read_text(encoding="utf-8")) if path.exists() else ""
    now = origin.sub("", text)
    if path.exists() and written == now:
        return []
    lines = difflib.unified_diff(written.splitlines(), now.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    more = [f"  and {len(changed) - MOST_CHANGED} more lines"] if len(changed) > MOST_CHANGED else []
    head = f"{path}: differs from what these results give; run ledger.py --results DIR --update and commit it"
    return ["\n".join([head, *(f"  {line}" for line in changed[:MOST_CHANGED]), *more])]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ledger.py", description="Conformance ledger of dat.")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder with rules/ and the .toml files")
    parser.add_argument("--results", type=Path, metavar="DIR", help="result files of a complete test run")
    parser.add_argument("--update", action="store_true", help="write STATUS.md and shown.txt from the results")
    parser.add_argument("--check", action="store_true", help="fail if STATUS.md or shown.txt would change")
    parser.add_argument("--summary", action="store_true", help="print the counts (also the default)")
    parser.add_argument("--rule", metavar="ID", help="print one rule and where it is shown")
    parser.add_argument("--tags", nargs="+", type=Path, metavar="PATH", help="list unknown rule tags in sources")
    parser.add_argument("--world", choices=worlds.WORLDS, help="write worlds/WORLD.txt from the results of a run in that world")
    parser.add_argument("--part", action="store_true", help="the results may be those of some programs; writes nothing")
    options = parser.parse_args(arguments)
    if options.part and (options.update or options.check):
        parser.error("--update and --check need a whole run")
    if (options.update or options.check or options.world) and not options.results:
        parser.error("--update, --check and --world need --results DIR")
    if options.world:
        return update_world(options.docs, options.world, options.results)

    docs: Path = options.docs
    ledger = load_catalogue(docs)
    read_evidence(docs, ledger)
    recorded = read_shown(docs, ledger)
    if options.tags:
        ledger.problems += unknown_tags(options.tags, ledger)
    if options.results:
        cases = read_results(options.results, ledger, docs.parents[1], not options.part)
        apply_results(cases, ledger)
        if not options.part:
            check_recorded(recorded, ledger)
    else:
        ledger.tests = {rule: tests for rule, tests in recorded.items() if rule in ledger.rules}
    check_evidence(docs, ledger, bool(options.results) and not options.part)
    if options.rule and options.rule not in ledger.rules:
        ledger.problems.append(f"{options.rule} is no rule of the catalogue")
    elif options.rule:
        print(describe(docs, ledger, options.rule))

    lines = function_lines(docs, ledger)
    files = {"STATUS.md": render_status(docs, ledger, lines), "shown.txt": render_shown(ledger)}
    if options.results and not options.part:
        files["debt.toml"] = render_debt(ledger.paid)
    if options.check:
        ledger.problems += [line for name, text in files.items() for line in stale(docs, name, text)]
    if options.update and not ledger.problems:
        for name, text in files.items():
            (docs / name).write_text(text, encoding="utf-8")
    if options.summary or not (options.rule or options.tags):
        print(summary(ledger))
        if lines:
            print(function_summary(lines))
    for problem in ledger.problems:
        print(f"conformance: {problem}", file=sys.stderr)
    if ledger.problems and options.update:
        print("conformance: nothing written", file=sys.stderr)
    return 1 if ledger.problems else 0


if __name__ == "__main__":
    sys.exit(main())
