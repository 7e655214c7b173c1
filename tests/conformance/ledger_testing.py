"""The parts that the tests of the ledger share: a part of a catalogue, reports, and a tree with results to run the ledger on."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import unittest
from pathlib import Path

import ledger
import records
import reports

PART = """# Part one
## A
| id | rule | spec lines | mapping | test |
|---|---|---|---|---|
| EVD-001 | first \\| with a bar | 10-12 | m | t |
| EVD-002 | second | 13 | m | t |

| id | status | Recv |
| --- | --- | --- |
| COMP-001 | OK | SUCCESS |

| F | fact |
|---|---|
| F1 | not a rule |

## Traps
| id | lines | problem |
|---|---|---|
| T-01 | 3 | not a rule |
"""

# The output of Catch2 2.13.9 with -r xml -w NoAssertions.
CATCH2_V2 = """<?xml version="1.0" encoding="UTF-8"?>
<Catch name="t">
  <Group name="t">
    <TestCase name="first works" tags="[EVD-001][evd]" filename="t.cpp" line="3">
      <OverallResult success="true"/>
    </TestCase>
    <TestCase name="second is skipped" tags="[EVD-002]" filename="t.cpp" line="5">
      <Warning>
        skipped: no device
      </Warning>
      <OverallResult success="false"/>
    </TestCase>
    <OverallResults successes="1" failures="0" expectedFailures="0"/>
  </Group>
</Catch>
"""

# The output of Catch2 3.
CATCH2_V3 = """<?xml version="1.0" encoding="UTF-8"?>
<Catch2TestRun name="t" rng-seed="1" xml-format-version="3" catch2-version="3.4.0">
  <TestCase name="first works" tags="[EVD-001][evd]" filename="t.cpp" line="3">
    <OverallResult success="true" skips="0"/>
  </TestCase>
  <TestCase name="second is skipped" tags="[EVD-002]" filename="t.cpp" line="5">
    <Skip filename="t.cpp" line="6">no device</Skip>
    <OverallResult success="true" skips="1"/>
  </TestCase>
  <OverallResults successes="1" failures="0" expectedFailures="0" skips="1"/>
</Catch2TestRun>
"""

FAILURE = (
    '<Section name="a"><Expression success="false" type="CHECK"><Original>1 == 2</Original></Expression>'
    '<OverallResults successes="0" failures="1" expectedFailures="0"/></Section>'
)


def catch2(name: str, tags: str, body: str = "", success: str = "true") -> str:
    case = f'<TestCase name="{name}" tags="{tags}">{body}<OverallResult success="{success}"/></TestCase>'
    return f'<Catch name="t"><Group name="t">{case}</Group></Catch>'


def deviation(rule: str, test: str = "first works", more: str = 'at = "rxe"') -> str:
    return f'[[deviation]]\nrule = "{rule}"\n{more}\nreason = "why"\nfact = "seen"\ntest = "{test}"\n'


def not_testable(rule: str) -> str:
    return f'[[not_testable]]\nrule = "{rule}"\nreason = "why"\n'


def fake_only(*rules: str) -> str:
    return f'[[fake_only]]\nrules = {json.dumps(rules)}\nreason = "a REP cannot be lost"\n'


class LedgerTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root, self.results = Path(scratch.name), Path(scratch.name) / "results"
        self.docs = self.root / "docs/conformance"
        self.results.mkdir()
        self.write(self.root / "include/a.hpp", "int a;")
        whole, records.WHOLE_RUN = records.WHOLE_RUN, ()
        self.addCleanup(setattr, records, "WHOLE_RUN", whole)
        self.write(self.docs / "rules" / "1-part.md", PART)

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")

    def part(self, text: str) -> None:
        self.write(self.docs / "rules" / "1-part.md", text)

    def result(self, name: str, text: str, **more: object) -> None:
        """A result file and its record."""
        self.write(self.results / name, text)
        try:
            cases = [case for case, *_ in reports.read_file(self.results / name)]
        except Exception:  # a file that the ledger must refuse
            cases = []
        told = {"tree": records.digest(self.root), "date": "2026-01-01", "kernel": "Linux 6.1", "cases": len(cases)}
        told |= {"devices": "rx1 (rxe), rx2 (rxe)"} if name.startswith("device") else {}
        self.write(records.path_of(self.results / name), json.dumps(told | more))

    def run_ledger(self, *arguments: str, results: bool = True) -> tuple[int, str, list[str]]:
        out, err = io.StringIO(), io.StringIO()
        command = ["--docs", str(self.docs), *(["--results", str(self.results)] if results else []), *arguments]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = ledger.main(command)
        return code, out.getvalue(), err.getvalue().splitlines()

    def expect_problem(self, pattern: str, *arguments: str, results: bool = True) -> None:
        code, _, problems = self.run_ledger(*arguments, results=results)
        self.assertEqual(code, 1)
        self.assertEqual(len([line for line in problems if re.search(pattern, line)]), 1, problems)

    def expect_counts(self, expected: str, *arguments: str, results: bool = True) -> None:
        code, out, problems = self.run_ledger(*arguments, results=results)
        self.assertEqual((code, problems), (0, []))
        self.assertEqual(out.splitlines()[0], f"3 rules: {expected}")

    def status(self) -> str:
        return (self.docs / "STATUS.md").read_text(encoding="utf-8")
