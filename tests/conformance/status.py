"""What the ledger writes of a run: shown.txt, the record of the rules that are shown, and STATUS.md."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import functions
import other_worlds as worlds
from rule_catalogue import DISPOSITIONS, FAMILIES, LEVELS, Ledger, best_level

ORIGIN = "Written from results of "


# --- other worlds ----------------------------------------------------------------------------------------------------


def render_worlds(docs: Path, ledger: Ledger) -> Iterator[str]:
    return worlds.render_status(docs, ledger.worlds, ledger.rules, {r for r in ledger.rules if ledger.disposition(r) == "rxe"})


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
