# The rules of the specification as tables of the site that can be searched, and the clauses with their rules.
# SPDX-License-Identifier: BSL-1.0
"""Reads the catalogue with the ledger's own functions, so the site cannot differ from docs/conformance."""

from __future__ import annotations

import html
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/conformance"))
import rule_catalogue  # noqa: E402
import status  # noqa: E402

ROW = re.compile(r"^\| (\d+)-(\d+) \| ([^|]+?) \| ([^|]+?) \|$", re.M)


def shown(text: str) -> str:
    """A cell: code and emphasis, nothing else."""
    text = html.escape(text.replace("\\|", "|"))
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


class catalogue:
    """The rules with their clauses and dispositions."""

    def __init__(self, docs: pathlib.Path):
        self.docs = docs
        self.ledger = rule_catalogue.load_catalogue(docs)
        self.ledger.tests = status.read_shown(docs, self.ledger)
        self.clauses: dict[str, str] = {}  # number -> title, of uDAPL 2.0
        for _first, _last, number, title in ROW.findall((docs / "clauses.md").read_text(encoding="utf-8")):
            self.clauses.setdefault(number, title)
        self.by_clause: dict[str, list[str]] = {number: [] for number in self.clauses}
        for identity, rule in self.ledger.rules.items():
            for number in filter(None, rule_catalogue.clauses_of(docs, self.lines(rule)).split(", ")):
                self.by_clause.setdefault(number, []).append(identity)

    @staticmethod
    def lines(rule: rule_catalogue.Rule) -> str:
        """The cell with the lines of the specification."""
        return rule.cells.get("spec lines", "")

    @staticmethod
    def text(rule: rule_catalogue.Rule) -> str:
        """What the rule asks for."""
        return rule.cells.get("rule") or next(iter(rule.cells.values()), "")

    def numbers(self) -> set[str]:
        """The clauses of uDAPL that have a place on the site."""
        return {number for number in self.clauses if re.fullmatch(r"\d+(\.\d+)+", number)}

    def disposition(self, identity: str) -> str:
        """The key of the ledger: rxe, type, fake, forced, chosen, untestable or open."""
        return self.ledger.disposition(identity)

    def reason(self, identity: str) -> str:
        """Why a rule is not shown on a device, or deviates."""
        if found := self.ledger.deviations.get(identity):
            return found.reason
        return self.ledger.untestable.get(identity) or (self.ledger.fake_only.get(identity, "") if self.disposition(identity) == "fake" else "")

    def row(self, identity: str) -> str:
        """A rule in the table."""
        rule, state = self.ledger.rules[identity], self.disposition(identity)
        clauses = rule_catalogue.clauses_of(self.docs, self.lines(rule))
        links = ", ".join(f'<a href="by-clause.html#clause-{number}">§{number}</a>' if re.fullmatch(r"\d+(\.\d+)*", number) else html.escape(number)
                          for number in filter(None, clauses.split(", ")))  # fmt: skip
        tests = "".join(f"<li>{html.escape(level)}: {html.escape(name)}</li>" for level, name in status.sort_tests(self.ledger.tests.get(identity, [])))
        details = (f"<p>{shown(self.reason(identity))}</p>" if self.reason(identity) else "") + (f"<ul>{tests}</ul>" if tests else "")
        more = f"<details><summary>{'reason' if not tests else 'tests'}</summary>{details}</details>" if details else ""
        return (f'<tr id="{identity}" data-family="{rule.family}" data-state="{state}"><th scope="row"><a href="#{identity}">{identity}</a></th>'
                f'<td>{shown(self.text(rule))}{more}</td><td>{links}</td><td><span class="state {state}">{html.escape(rule_catalogue.DISPOSITIONS[state])}</span></td></tr>')  # fmt: skip

    def table_page(self) -> str:
        """The page of all rules, with its search."""
        rules = list(self.ledger.rules)
        families = dict.fromkeys(self.ledger.rules[one].family for one in rules)
        count = {state: sum(self.disposition(one) == state for one in rules) for state in rule_catalogue.DISPOSITIONS}
        states = "".join(f'<option value="{state}">{html.escape(title)} ({count[state]})</option>' for state, title in rule_catalogue.DISPOSITIONS.items() if count[state])
        objects = "".join(f'<option value="{name}">{name}: {html.escape(rule_catalogue.FAMILIES.get(name, ""))}</option>' for name in families)
        rows = "\n".join(self.row(one) for one in rules)
        bar = "".join(f'<span class="state {state}" style="flex-grow:{count[state]}" title="{html.escape(title)}: {count[state]}"></span>'
                      for state, title in rule_catalogue.DISPOSITIONS.items() if count[state])  # fmt: skip
        legend = "".join(f'<li><span class="state {state}">{html.escape(title)}</span> {count[state]}</li>' for state, title in rule_catalogue.DISPOSITIONS.items() if count[state])
        return f"""# Rules

The {len(rules):,} rules of uDAPL 2.0 and its extensions, with the tests that show them. [The method](README.md) defines the words;
[STATUS.md](STATUS.md) has the same as one document, and [the clauses](by-clause.rst) lead from the specification to the rules.

```{{raw}} html
<div class="state-bar" role="img" aria-label="Shares of the dispositions">{bar}</div><ul class="legend">{legend}</ul>
<form class="filter" data-table="rules" role="search">
<label>Search <input type="search" name="text" placeholder="words of a rule, an id, a test" autocomplete="off"></label>
<label>Object <select name="family"><option value="">all</option>{objects}</select></label>
<label>Disposition <select name="state"><option value="">all</option>{states}</select></label>
<output name="count">{len(rules)} rules</output></form>
<table class="rules" id="rules"><thead><tr><th>Rule</th><th>What it asks for</th><th>Clause</th><th>Disposition</th></tr></thead><tbody>
{rows}
</tbody></table>
```
"""

    def clauses_page(self) -> str:
        """The clauses with their rules."""
        lines = ["Clauses", "=======", "", "The clauses of uDAPL 2.0 (January 5, 2007), with the rules that the catalogue takes from each. The pages of the",
                 "reference link here.", "", ".. raw:: html", ""]  # fmt: skip
        lines.append('   <dl class="clauses">')
        for number, title in self.clauses.items():
            if not re.fullmatch(r"\d+(\.\d+)*", number):
                continue
            rules = " ".join(f'<a class="state {self.disposition(one)}" href="rules.html#{one}">{one}</a>' for one in sorted(set(self.by_clause.get(number, []))))
            depth = number.count(".")
            lines.append(f'   <dt id="clause-{number}" class="depth-{min(depth, 4)}"><a href="#clause-{number}">§{number}</a> {html.escape(title)}</dt><dd>{rules or "no rule of its own"}</dd>')
        lines += ["   </dl>", ""]
        return "\n".join(lines)
