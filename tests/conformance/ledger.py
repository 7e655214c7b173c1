#!/usr/bin/env python3
"""Conformance ledger: rule catalogue + results of a test run -> docs/conformance/STATUS.md.

docs/conformance/README.md defines the input files, the dispositions and what makes a run fail.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import other_worlds as worlds  # noqa: E402
from reports import LOOKS_LIKE_RULE, TAG, apply_results, read_results  # noqa: E402
from rule_catalogue import (  # noqa: E402
    DISPOSITIONS, DOCS, Ledger, check_evidence, clauses_of, load_catalogue, read_evidence, render_debt,
)
from status import (  # noqa: E402
    ORIGIN, check_recorded, function_lines, function_summary, percent, read_shown, render_shown, render_status,
    render_worlds, sort_tests,
)

SOURCES = {".cpp", ".hpp", ".cc", ".hh", ".c", ".h"}

# Lines of a stale file that are printed.
MOST_CHANGED = 12


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


def summary(ledger: Ledger) -> str:
    counts, total = ledger.count(ledger.rules), len(ledger.rules)
    lines = [f"{total} rules: " + ", ".join(f"{counts[key]} {title}" for key, title in DISPOSITIONS.items())]
    done, deviating = percent(total - counts["open"], total), percent(counts["forced"] + counts["chosen"], total)
    lines.append(f"disposed of: {done}, deviations: {deviating}")
    debt = ledger.debt
    if debt.wide or debt.by_name:
        lines.append(f"debt: {len(debt.wide)} cases with {sum(debt.wide.values())} tags, {len(debt.by_name)} deviations by name")
    return "\n".join(lines)


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
