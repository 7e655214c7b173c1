"""Rules, and what is listed of them: the tables of docs/conformance, their deviations, dispositions, debt and evidence."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import evidence
import other_worlds as worlds

DOCS = Path(__file__).resolve().parents[2] / "docs" / "conformance"

RULE_ID = re.compile(r"[A-Z][A-Z0-9]*-\d{3}")

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

# The most tags of one case. A tag covers its whole case, so many tags do not show which assertion belongs to which rule.
MOST_TAGS = 8

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
    """The entries of a TOML array of tables. An entry with a list `rules` is the same as one entry with `rule` for each."""
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


def clauses_of(docs: Path, lines_cell: str) -> str:
    """The clauses that hold the first line of every range in a `spec lines` cell, by clauses.md."""
    path, found = docs / "clauses.md", dict[str, None]()
    table = re.findall(r"^\| (\d+)-(\d+) \| ([^|]+) \|", path.read_text("utf-8"), re.MULTILINE) if path.exists() else []
    for number in re.findall(r"(?<![\w:.-])(?<!IBX )U?(\d{3,5})", lines_cell):
        found |= {clause: None for first, last, clause in table if int(first) <= int(number) <= int(last)}
    return ", ".join(found)
