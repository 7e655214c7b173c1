#!/usr/bin/env python3
"""Tests of ledger.py: tables, result formats, what makes a run fail, and the catalogue itself."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import unittest
from pathlib import Path

import evidence
import ledger
import records
import other_worlds as worlds

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
            cases = [case for case, *_ in ledger.read_file(self.results / name)]
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


class Tables(LedgerTest):
    def test_rows_of_id_tables_are_rules_and_facts_and_traps_are_not(self) -> None:
        rules = ledger.load_catalogue(self.docs).rules
        self.assertEqual(list(rules), ["EVD-001", "EVD-002", "COMP-001"])
        self.assertEqual(rules["EVD-001"].cells["rule"], "first | with a bar")
        self.assertEqual((rules["COMP-001"].family, rules["COMP-001"].section), ("COMP", "A"))

    def test_a_rule_given_twice_is_a_problem(self) -> None:
        self.part(PART.replace("EVD-002", "EVD-001"))
        self.expect_problem(r"1-part.md:6: EVD-001 is already defined in 1-part.md", results=False)

    def test_a_rule_given_in_two_parts_is_a_problem(self) -> None:
        self.write(self.docs / "rules" / "2-part.md", PART)
        code, _, problems = self.run_ledger(results=False)
        self.assertEqual((code, len(problems)), (1, 3))

    def test_a_row_with_a_missing_or_an_extra_cell_is_a_problem(self) -> None:
        self.part(PART.replace("| EVD-002 | second |", "| EVD-002 |"))
        self.expect_problem(r"1-part.md:6: EVD-002 has 4 cells, its table 5 columns", results=False)
        self.part(PART.replace("second", "sec | ond"))
        self.expect_problem(r"EVD-002 has 6 cells", results=False)

    def test_a_malformed_id_is_a_problem(self) -> None:
        self.part(PART.replace("EVD-002", "EVD-2"))
        self.expect_problem(r"'EVD-2' is not a rule id", results=False)

    def test_a_rule_outside_a_table_is_a_problem(self) -> None:
        self.part(PART.replace("|---|---|---|---|---|\n", "", 1))
        code, _, problems = self.run_ledger(results=False)
        self.assertEqual(code, 1)
        self.assertEqual(len([line for line in problems if "stands in no table" in line]), 2)

    def test_no_rules_at_all_is_a_problem(self) -> None:
        self.part("# Empty\n")
        self.expect_problem("no rule found", results=False)

    def test_the_catalogue_has_1908_rules_and_its_lists_are_sound(self) -> None:
        catalogue = ledger.load_catalogue(ledger.DOCS)
        self.assertEqual(catalogue.problems, [])
        self.assertEqual(len(catalogue.rules), 1908)
        self.assertLessEqual({rule.family for rule in catalogue.rules.values()}, set(ledger.FAMILIES))
        self.assertLessEqual(len(catalogue.deviations), 1908 * 5 // 100)

    def test_the_catalogue_cites_lines_that_have_a_clause(self) -> None:
        self.assertEqual(ledger.clauses_of(ledger.DOCS, "3631-3763, 2033"), "6.3.4.10, 6.1.3.5")
        self.assertEqual(ledger.clauses_of(ledger.DOCS, "U7401, IB365, ib:270, IBX 663"), "6.6.23")


class Results(LedgerTest):
    def test_catch2_version_2(self) -> None:
        self.result("device-gcc.xml", CATCH2_V2)
        self.expect_counts("1 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 2 open")

    def test_catch2_version_3(self) -> None:
        self.result("unit-gcc.xml", CATCH2_V3)
        self.write(self.docs / "fake_only.toml", fake_only("EVD-001"))
        self.expect_counts("0 shown on rxe, 0 by type, 1 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 2 open")

    def test_compile_time_proofs_as_json_junit_and_by_the_tag_type(self) -> None:
        cases = [{"name": "does not compile", "tags": ["EVD-001", "x"], "passed": True}]
        self.result("compile_fail.json", json.dumps(cases))
        junit = '<testsuites><testsuite><testcase name="holds [EVD-002]"/></testsuite></testsuites>'
        self.result("types-clang.xml", junit)
        self.result("unit.xml", catch2("static", "[COMP-001][type]"), types_only=["static"])
        self.expect_counts("0 shown on rxe, 3 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 0 open")

    def test_the_strongest_tier_counts(self) -> None:
        for tier, disposition in (("unit", "fake only"), ("types", "by type"), ("device", "shown on rxe")):
            self.result(f"{tier}.xml", catch2(f"by {tier}", "[EVD-001]"))
            _, out, _ = self.run_ledger("--rule", "EVD-001")
            self.assertIn(f"disposition: {disposition}\n", out)

    def test_one_pass_beside_skips_is_a_pass(self) -> None:
        self.result("device-a.xml", CATCH2_V2)
        self.result("device-b.xml", catch2("second is skipped", "[EVD-002]"))
        self.expect_counts("2 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open")

    def test_the_tags_of_all_runs_count(self) -> None:
        self.result("device-a.xml", catch2("case", "[EVD-001]"))
        self.result("device-b.xml", catch2("case", "[EVD-002]"))
        self.expect_counts("2 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open")

    def test_a_failed_test_with_a_rule_is_a_problem(self) -> None:
        for body, success in ((FAILURE, "false"), ("", "false"), ("<Exception>x</Exception>", "true")):
            self.result("unit.xml", catch2("bad", "[EVD-001]", body, success))
            self.expect_problem(r"EVD-001: test 'bad' \(fake\) failed")

    def test_a_failure_in_one_flavour_outweighs_a_pass_in_another(self) -> None:
        self.result("unit-gcc.xml", catch2("case", "[EVD-001]"))
        self.result("unit-tsan.xml", catch2("case", "[EVD-001]", FAILURE, "false"))
        self.expect_problem("EVD-001: test 'case' .* failed")

    def test_a_skip_does_not_hide_a_failure(self) -> None:
        self.result("unit.xml", catch2("case", "[EVD-001]", FAILURE + "<Warning>skipped: x</Warning>", "false"))
        self.expect_problem("EVD-001: test 'case' .* failed")

    def test_a_case_that_may_fail_shows_nothing(self) -> None:
        self.result("unit.xml", catch2("case", "[EVD-001][!mayfail]"))
        self.expect_problem("EVD-001: test 'case' .* failed")

    def test_failed_json_and_junit_cases_are_problems(self) -> None:
        self.result("types.json", json.dumps([{"name": "j", "tags": ["EVD-001"], "passed": False}]))
        self.expect_problem("EVD-001: test 'j' .* failed")
        (self.results / "types.json").unlink()
        self.result("types.xml", '<testsuite><testcase name="u [EVD-001]"><failure/></testcase></testsuite>')
        self.expect_problem("EVD-001: test 'u' .* failed")

    def test_an_unknown_tag_is_a_problem_and_other_tags_are_not(self) -> None:
        self.result("unit.xml", catch2("case", "[EVD-999][evd][slow]"))
        self.expect_problem(r"test 'case': tag \[EVD-999\] names no rule")

    def test_traps_are_no_tags(self) -> None:
        self.result("unit.xml", catch2("case", "[T-01]"))
        self.expect_problem(r"tag \[T-01\] names no rule")

    def test_incomplete_empty_missing_and_misnamed_files_are_problems(self) -> None:
        self.expect_problem("no result files")
        self.result("unit.xml", CATCH2_V2[:300])
        self.expect_problem("unit.xml: not a complete result file")
        self.result("unit.xml", '<Catch name="t"/>')
        self.expect_problem("unit.xml: holds no test case")
        self.result("unit.xml", catch2("case", "[EVD-001]"))
        self.result("devices.xml", catch2("case", "[EVD-001]"))
        self.expect_problem("devices.xml: the name does not begin with a tier")
        (self.results / "devices.xml").unlink()
        self.result("types.json", '[{"name": "no tags"}]')
        self.expect_problem("types.json: not a complete result file")


class Lists(LedgerTest):
    def test_a_deviation_names_a_test_that_shows_it(self) -> None:
        self.write(self.docs / "deviations.toml", deviation("COMP-001", "first works"))
        self.result("device.xml", CATCH2_V2, deviates={"first works": ["COMP-001"]})
        self.expect_counts("1 shown on rxe, 0 by type, 0 fake only, 1 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open")
        self.result("device.xml", CATCH2_V2)
        self.expect_problem(r"COMP-001: test 'first works' has no DEVIATES\(\"COMP-001\"\) that ran")

    def test_a_choice_is_counted_by_itself(self) -> None:
        self.write(self.docs / "deviations.toml", deviation("COMP-001", "first works", 'at = "dat"\nchoice = true'))
        self.result("device.xml", CATCH2_V2, deviates={"first works": ["COMP-001"]})
        self.expect_counts("1 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 1 deviates, dat's choice, 0 not testable, 1 open")
        for more in ('at = "verbs"\nchoice = true', 'at = "dat"'):
            self.write(self.docs / "deviations.toml", deviation("COMP-001", "first works", more))
            self.expect_problem("COMP-001: `choice = true` and `at = \"dat\"` belong together")

    def test_a_deviation_without_a_test_is_a_problem(self) -> None:
        self.write(self.docs / "deviations.toml", deviation("EVD-002", ""))
        self.expect_problem("EVD-002: no string may be empty", results=False)

    def test_a_deviation_that_a_test_of_the_same_device_refutes_is_a_problem(self) -> None:
        self.write(self.docs / "deviations.toml", deviation("COMP-001"))
        self.result("device.xml", CATCH2_V2, deviates={"first works": ["COMP-001"]})
        self.result("unit.xml", catch2("on the fake", "[COMP-001]"))
        self.expect_counts("1 shown on rxe, 0 by type, 0 fake only, 1 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open")
        self.result("device-b.xml", catch2("kept", "[COMP-001]"))
        self.expect_problem(r"COMP-001: 'kept' \(rxe\) shows that the rule is kept")
        (self.results / "device-b.xml").unlink()
        self.write(self.docs / "deviations.toml", deviation("COMP-001", more='at = "verbs"'))
        self.expect_problem(r"COMP-001: 'on the fake' \(fake\) shows that the rule is kept")

    def test_a_test_may_not_show_a_deviation_that_is_not_listed(self) -> None:
        self.result("device.xml", CATCH2_V2, deviates={"first works": ["COMP-001"]})
        self.expect_problem("COMP-001: 'first works' says DEVIATES, deviations.toml does not list it")

    def test_a_deviation_whose_test_did_not_run_was_skipped_or_failed_is_a_problem(self) -> None:
        self.result("device.xml", CATCH2_V2)
        self.result("unit.xml", catch2("bad", "[evd]", FAILURE, "false"))
        for test, state in (("gone", "did not run"), ("second is skipped", "did not run"), ("bad", "failed")):
            self.write(self.docs / "deviations.toml", deviation("EVD-002", test))
            self.expect_problem(f"EVD-002: test '{test}' {state}")

    def test_entries_must_name_rules_once_and_be_complete(self) -> None:
        for name, entry, table in (
            ("deviations.toml", deviation, "deviation"),
            ("dispositions.toml", not_testable, "not_testable"),
        ):
            path = self.docs / name
            for text, pattern in (
                (entry("EVD-999"), "EVD-999 is no rule of the catalogue"),
                (entry("EVD-001") * 2, "EVD-001 is listed twice"),
                (f'[[{table}]]\nrule = "EVD-001"\n', "EVD-001: an entry has exactly the strings"),
                (entry("EVD-001").replace('"why"', '" "'), "EVD-001: no string may be empty"),
                ("[[", name),
            ):
                self.write(path, text)
                self.expect_problem(pattern, results=False)
            path.unlink()

    def test_a_rule_cannot_be_in_both_lists(self) -> None:
        self.write(self.docs / "deviations.toml", deviation("EVD-001"))
        self.write(self.docs / "dispositions.toml", not_testable("EVD-001"))
        self.expect_problem("EVD-001 is listed in deviations.toml, too", results=False)

    def test_a_rule_called_not_testable_must_not_be_shown(self) -> None:
        self.write(self.docs / "dispositions.toml", not_testable("EVD-002"))
        self.result("device.xml", CATCH2_V2)
        self.expect_counts("1 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 1 not testable, 1 open")
        self.write(self.docs / "dispositions.toml", not_testable("EVD-001"))
        self.expect_problem("EVD-001: .*not testable, but 'first works' shows it")

    def test_what_is_shown_on_the_fake_only_has_its_reason_and_nothing_else_has(self) -> None:
        self.result("unit.xml", catch2("both", "[EVD-001][EVD-002]"))
        self.write(self.docs / "fake_only.toml", fake_only("EVD-001"))
        self.expect_problem("EVD-002: fake only, and fake_only.toml does not say why")
        self.write(self.docs / "fake_only.toml", fake_only("EVD-001", "EVD-002"))
        self.expect_counts("0 shown on rxe, 0 by type, 2 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open", "--update")
        self.assertIn("| a REP cannot be lost | EVD-001 EVD-002 |", self.status())
        self.assertIn("no device shows it: a REP cannot be lost", self.run_ledger("--rule", "EVD-002")[1])
        self.result("device.xml", catch2("both", "[EVD-001]"))
        self.expect_problem("fake_only.toml: EVD-001 is shown on rxe; take it out")
        self.write(self.docs / "fake_only.toml", fake_only("EVD-001", "EVD-999"))
        self.expect_problem("EVD-999 is no rule of the catalogue", results=False)


class NotTested(LedgerTest):
    """The ways of counting what was not tested, each refused."""

    def setUp(self) -> None:
        super().setUp()
        self.result("device.xml", catch2("works", "[EVD-001]"))

    def test_a_case_that_checks_nothing_fails(self) -> None:
        # The report of version 2 with -w NoAssertions, which dev.reporting passes to every program.
        self.result("device.xml", catch2("works", "[EVD-001]", success="false"))
        self.expect_problem(r"EVD-001: test 'works' \(rxe\) failed")
        self.assertIn("NoAssertions", (ledger.DOCS.parents[1] / "tests/support/dev.py").read_text(encoding="utf-8"))

    def test_results_of_another_tree_are_refused_committed_or_not(self) -> None:
        self.assertEqual(self.run_ledger()[0], 0)
        self.write(self.root / "include/a.hpp", "int a, b;")
        self.expect_problem("device.xml: results of another tree", "--update")
        self.assertFalse((self.docs / "STATUS.md").exists())
        self.result("device.xml", catch2("works", "[EVD-001]"))
        self.assertEqual(self.run_ledger()[0], 0)

    def test_a_mix_of_trees_is_refused(self) -> None:
        self.result("unit.xml", catch2("works", "[EVD-001]"), tree="0123")
        self.expect_problem(r"unit.xml: results of another tree \(0123")

    def test_results_without_a_record_are_refused(self) -> None:
        records.path_of(self.results / "device.xml").unlink()
        code, _, problems = self.run_ledger()
        self.assertEqual((code, "device.xml: no record" in problems[0]), (1, True), problems)

    def test_an_incomplete_set_is_refused(self) -> None:
        records.WHOLE_RUN = ("device.xml", "device-asan.xml")
        self.expect_problem("device-asan.xml is missing: the results are not those of a whole run", "--update")
        self.assertEqual(self.run_ledger("--part")[0], 0)
        with self.assertRaises(SystemExit):
            self.run_ledger("--part", "--update")

    def test_a_run_of_some_cases_is_refused(self) -> None:
        self.result("device.xml", catch2("works", "[EVD-001]"), filtered=True)
        self.expect_problem("device.xml: only some cases were run")
        self.result("device.xml", catch2("works", "[EVD-001]"), cases=2)
        self.expect_problem("device.xml: 1 cases, its record has 2")

    def test_a_name_makes_no_rxe(self) -> None:
        for devices in ("", "mlx5_0 (vendor 713)", "rx1 (rxe), siw0 (vendor 6451572)"):
            self.result("device.xml", catch2("works", "[EVD-001]"), devices=devices)
            self.expect_problem("device.xml: ran on .*; what it shows is called 'shown on rxe'")

    def test_results_of_two_machines_are_refused(self) -> None:
        self.result("device-asan.xml", catch2("works", "[EVD-001]"), kernel="Linux 6.9")
        self.expect_problem("results of several machines")

    def test_what_a_case_leaves_on_the_device_is_refused(self) -> None:
        self.result("device.xml", catch2("works", "[EVD-001]"), left_behind={"works": "qp: 3 where there were 2"})
        self.expect_problem("device.xml: 'works' leaves behind qp: 3")

    def test_an_assertion_that_did_not_run_shows_nothing(self) -> None:
        self.result("device.xml", catch2("works", "[evd]"))
        self.expect_counts("0 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 3 open")
        self.result("device.xml", catch2("works", "[evd]"), shows={"works": ["EVD-001", "EVD-002"]})
        self.expect_counts("2 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open")

    def test_an_assertion_of_a_failed_or_skipped_case_shows_nothing(self) -> None:
        self.result("device.xml", catch2("works", "[evd]", FAILURE, "false"), shows={"works": ["EVD-001"]})
        self.expect_problem(r"EVD-001: test 'works' \(rxe\) failed")
        self.result("device.xml", catch2("works", "[evd]", "<Warning>skipped: x</Warning>"), shows={"works": ["EVD-001"]})
        self.expect_counts("0 shown on rxe, 0 by type, 0 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 3 open")

    def test_an_assertion_must_name_a_rule(self) -> None:
        self.result("device.xml", catch2("works", "[evd]"), shows={"works": ["EVD-999"]})
        self.expect_problem("test 'works': EVD-999 names no rule")

    def test_a_case_with_more_than_eight_rules_by_tag_is_refused(self) -> None:
        rows = "".join(f"| EVD-{n:03} | r | 1 | m | t |\n" for n in range(3, 11))
        self.part(PART.replace("\n| id | status", rows + "\n| id | status"))
        tags = "".join(f"[EVD-{n:03}]" for n in range(1, 11))
        self.result("device.xml", catch2("wide", tags[: 8 * 9]))
        self.assertEqual(self.run_ledger()[0], 0)
        self.result("device.xml", catch2("wide", tags[: 9 * 9]))
        self.expect_problem("'wide' carries 9 rules by tag, more than 8: use SHOWS")
        # A debt allows only the rules that it names.
        self.write(self.docs / "debt.toml", '[tags]\nwide = 9\n')
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.assertEqual(self.run_ledger("--check")[0], 0)
        self.result("device.xml", catch2("wide", tags))
        self.expect_problem("'wide' carries 10 rules by tag, more than 9: use SHOWS")

    def test_a_debt_that_is_paid_is_taken_out(self) -> None:
        self.write(self.docs / "debt.toml", 'deviations = ["COMP-001"]\n[tags]\nworks = 12\n')
        self.write(self.docs / "deviations.toml", deviation("COMP-001", "works"))
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.assertEqual(ledger.read_debt(self.docs, ledger.Ledger()), ledger.Debt({}, {"COMP-001"}))
        self.result("device.xml", catch2("works", "[EVD-001]"), deviates={"works": ["COMP-001"]})
        self.expect_problem("debt.toml: differs", "--check")
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.result("device.xml", catch2("works", "[EVD-001]"))
        self.expect_problem("COMP-001: test 'works' has no DEVIATES")

    def test_a_case_is_by_type_only_if_it_asserts_nothing_at_run_time(self) -> None:
        self.result("unit.xml", catch2("static", "[EVD-002][type]"), types_only=["static"])
        self.assertEqual(self.run_ledger()[0], 0)
        self.result("unit.xml", catch2("static", "[EVD-002][type]"))
        self.expect_problem(r"unit.xml: 'static' carries the tag \[type\] and asserts at run time")

    def test_the_lists_of_a_whole_run_name_files_with_tiers(self) -> None:
        self.doCleanups()
        self.assertGreater(len(records.WHOLE_RUN), 5)
        self.assertLessEqual({name.split("-")[0].split(".")[0] for name in records.WHOLE_RUN}, ledger.TIERS.keys())


ENTRIES = """# EVD
| rule | main point | test | assertion |
|---|---|---|---|
| EVD-001 | it works | evd/a.cpp: first works | `CHECK(a == 1 \\|\\| b)` |
| EVD-002 | so does this | evd/a.cpp: second | SHOWS |
| EVD-002 | and the rest | evd/a.cpp: by table | SHOWS |
"""
CASES = """#include "x.hpp"
const row rows[] = {{"EVD-002", 3}};
TEST_CASE("first "
          "works", "[evd][EVD-001]") {
  CHECK(a == 1 ||
        b);
}
TEMPLATE_TEST_CASE_SIG("second", "[evd]", ((int N), N), 1, 2) {
  CHECK(c(")"));
  SHOWS("EVD-002", "COMP-001");
}
TEST_CASE_METHOD(fixture, "by table", "[evd]") { run(rows); }
"""


class Evidence(LedgerTest):
    """The main point of each rule and the assertion that holds it."""

    def setUp(self) -> None:
        super().setUp()
        self.write(self.root / "tests/evd/a.cpp", CASES)
        self.entries(ENTRIES)
        self.write(self.docs / "shown.txt", "EVD-001\trxe\tfirst works\nEVD-002\trxe\tsecond - 1\n")

    def entries(self, text: str, name: str = "EVD.md") -> None:
        self.write(self.docs / "evidence" / name, text)

    def test_entries_that_match_the_sources_are_no_problem(self) -> None:
        self.assertEqual(self.run_ledger(results=False)[2], [])

    def test_an_entry_must_name_a_case_of_the_sources(self) -> None:
        self.entries(ENTRIES.replace("first works", "first worked"))
        self.expect_problem(r"evidence/EVD.md:4: EVD-001: tests/ has no case 'evd/a.cpp: first worked'", results=False)

    def test_the_assertion_must_be_in_the_case(self) -> None:
        self.write(self.root / "tests/evd/a.cpp", CASES.replace("a == 1", "a == 2"))
        self.expect_problem(r"EVD-001: 'evd/a.cpp: first works' does not contain `CHECK\(a == 1 \|\| b\)`", results=False)

    def test_the_assertion_must_assert_something(self) -> None:
        for nothing in ("(void)", "if (a == 1 || b)", "while (c(1))", "tags: [EVD-001]", "error:", "// says nothing"):
            with self.subTest(nothing):
                self.write(self.root / "tests/evd/a.cpp", CASES.replace("  b);", f"  b); {nothing};"))
                escaped = nothing.replace("|", "\\|")
                self.entries(ENTRIES.replace("CHECK(a == 1 \\|\\| b)", escaped))
                self.expect_problem(rf"EVD-001: `{re.escape(nothing)}` asserts nothing", results=False)
        self.write(self.root / "tests/evd/a.cpp", CASES.replace("  b);", "  b); if (a) CHECK(b);"))
        self.entries(ENTRIES.replace("CHECK(a == 1 \\|\\| b)", "if (a) CHECK(b)"))
        self.assertEqual(self.run_ledger(results=False)[2], [])

    def test_the_assertion_must_come_before_the_shows_of_its_rule(self) -> None:
        self.entries(ENTRIES.replace("evd/a.cpp: second | SHOWS", "evd/a.cpp: second | `CHECK(c(1))`"))
        shows = 'SHOWS("EVD-002", "COMP-001");'
        self.write(self.root / "tests/evd/a.cpp", CASES.replace(shows, f"CHECK(c(1)); {shows}"))
        self.assertEqual(self.run_ledger(results=False)[2], [])
        self.write(self.root / "tests/evd/a.cpp", CASES.replace(shows, f"{shows} CHECK(c(1));"))
        self.expect_problem(r'stands behind each SHOWS\("EVD-002"\)', results=False)

    def test_the_case_must_name_the_rule(self) -> None:
        self.write(self.root / "tests/evd/a.cpp", CASES.replace("[EVD-001]", ""))
        self.expect_problem("'evd/a.cpp: first works' names EVD-001 neither by tag nor by SHOWS", results=False)
        self.write(self.root / "tests/evd/a.cpp", CASES.replace('"EVD-002", ', ""))
        code, _, problems = self.run_ledger(results=False)
        self.assertEqual((code, len(problems)), (1, 2), problems)

    def test_a_shown_rule_needs_an_entry_and_no_other_rule_may_have_one(self) -> None:
        self.entries(ENTRIES.replace("| EVD-001 | it works | evd/a.cpp: first works | `CHECK(a == 1 \\|\\| b)` |\n", ""))
        self.expect_problem("EVD.md: EVD-001 is shown, and no entry says by which assertion", results=False)
        self.entries(ENTRIES)
        self.write(self.docs / "shown.txt", "EVD-002\trxe\tsecond - 1\n")
        self.write(self.docs / "dispositions.toml", not_testable("EVD-001"))
        self.expect_problem("EVD-001 has an entry, and is listed as not testable", results=False)

    def test_an_entry_is_complete_and_in_the_table_of_its_family(self) -> None:
        self.entries(ENTRIES.replace("| it works |", "| |"))
        self.assertIn("an entry has 4 cells, and none is empty", self.run_ledger(results=False)[2][0])
        self.entries(ENTRIES.replace("| main point ", "| point "))
        self.expect_problem("EVD.md:2: the columns are rule, main point, test, assertion", results=False)
        self.entries(ENTRIES)
        self.entries(ENTRIES.replace("# EVD", "# COMP"), "COMP.md")
        code, _, problems = self.run_ledger(results=False)
        self.assertEqual((code, len(problems)), (1, 3), problems)

    def test_results_must_show_the_rule_by_a_test_that_an_entry_names(self) -> None:
        shows = {"second - 1": ["EVD-002"]}
        cases = "".join(
            f'<TestCase name="{name}" tags="{tags}"><OverallResult success="true"/></TestCase>'
            for name, tags in (("first works", "[EVD-001]"), ("second - 1", ""), ("another", "[EVD-001]"))
        )
        self.result("device.xml", f"<Catch>{cases}</Catch>", shows=shows)
        self.assertEqual(self.run_ledger("--update")[2], [])
        self.assertIn("| EVD-002 | so does this<br>and the rest | shown on rxe | rxe: second - 1 |", self.status())
        self.result("device.xml", f"<Catch>{cases.replace('first works', 'other')}</Catch>", shows=shows)
        self.write(self.docs / "shown.txt", "")
        self.expect_problem("EVD-001 is shown on rxe, and no entry names a test that shows this")

    def test_a_program_that_must_not_compile_is_named_as_in_results(self) -> None:
        text = "//! case: a bad one\n//! error: dat: no\n//! tags: [EVD-001]\n#ifdef X\nbad();\n#else\ngood();\n#endif\nrest\n"
        self.write(self.root / "tests/compile_fail/cases/evd.cpp", text)
        self.entries(ENTRIES.replace("evd/a.cpp: first works | `CHECK(a == 1 \\|\\| b)`",
                                     "compile_fail/cases/evd.cpp: evd: a bad one | `error: dat: no`"))  # fmt: skip
        self.assertEqual(self.run_ledger(results=False)[2], [])
        self.assertTrue(evidence.is_case("evd: a bad one", "compile_fail/cases/evd.cpp: evd: a bad one"))

    def test_the_tables_match_the_tests_of_this_tree(self) -> None:
        self.doCleanups()
        problems: list[str] = []
        entries = evidence.read(ledger.DOCS / "evidence", problems)
        sources = evidence.read_sources(ledger.DOCS.parents[1] / "tests")
        problems += [line for of in entries.values() for entry in of for line in evidence.problems_of(entry, sources)]
        self.assertEqual(problems, [])
        self.assertGreater(len(entries), 1600)


class Recorded(LedgerTest):
    def setUp(self) -> None:
        super().setUp()
        self.result("device.xml", catch2("first works", "[EVD-001]"))
        self.result("unit.xml", catch2("also on the fake", "[EVD-001][COMP-001]"))
        self.write(self.docs / "fake_only.toml", fake_only("COMP-001"))
        self.assertEqual(self.run_ledger("--update")[0], 0)

    def test_update_then_check_agree(self) -> None:
        self.assertEqual(self.run_ledger("--check")[0], 0)
        self.assertIn("| EVD-001 |  | shown on rxe | rxe: first works<br>fake: also on the fake |", self.status())
        self.assertIn("Open (1): EVD-002", self.status())

    def test_status_shows_the_recorded_score_of_mutants(self) -> None:
        self.assertNotIn("Mutation", self.status())
        score = {"date": "2026-01-31", "sample": 200, "seed": 7, "found": 181, "of": 199, "kinds": {"invert": {"found": 50, "of": 51}}}
        self.write(self.docs / "mutation.json", json.dumps(score))
        self.expect_problem("STATUS.md: differs", "--check")
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.assertIn("`./dev mutate --sample 200 --seed 7` of 2026-01-31: the tests find 181 of 199 random faults", self.status())
        self.assertIn("(91.0 %)", self.status())
        self.assertIn("| invert | 50 | 51 |", self.status())

    def test_status_does_not_depend_on_the_number_of_runs(self) -> None:
        self.result("device-asan.xml", catch2("first works", "[EVD-001]"))
        self.assertEqual(self.run_ledger("--check")[0], 0)

    def test_check_notices_new_proofs_and_edited_files(self) -> None:
        self.result("types-b.xml", catch2("new", "[EVD-002]"))
        code, _, problems = self.run_ledger("--check")
        self.assertEqual(code, 1)
        self.assertEqual(len([line for line in problems if "differs from what these results give" in line]), 2)
        self.assertIn("  +EVD-002\ttype\tnew", problems)  # the line that differs
        (self.results / "types-b.xml").unlink()
        records.path_of(self.results / "types-b.xml").unlink()
        self.write(self.docs / "STATUS.md", self.status().replace("Open (1)", "Open (0)"))
        self.expect_problem("STATUS.md: differs", "--check")

    def test_a_shown_rule_whose_test_did_not_run_is_a_problem_and_nothing_is_written(self) -> None:
        self.result("device.xml", catch2("another", "[evd]"))
        before = self.status()
        self.expect_problem("EVD-001: recorded as shown on rxe, but 'first works' did not run or failed", "--update")
        self.assertEqual(self.status(), before)

    def test_a_shown_rule_whose_test_was_skipped_is_a_problem(self) -> None:
        self.result("device.xml", catch2("first works", "[EVD-001]", "<Warning>skipped: no device</Warning>"))
        self.expect_problem("EVD-001: recorded as shown on rxe")

    def test_a_shown_rule_may_move_to_another_test_and_to_a_stronger_tier(self) -> None:
        (self.docs / "fake_only.toml").unlink()
        self.result("device.xml", catch2("renamed", "[EVD-001][COMP-001]"))
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.assertIn("COMP-001\trxe\trenamed", (self.docs / "shown.txt").read_text(encoding="utf-8"))

    def test_a_shown_rule_becomes_a_deviation_only_when_its_record_is_deleted(self) -> None:
        self.write(self.docs / "deviations.toml", deviation("EVD-001", "it does not"))
        self.result("device.xml", catch2("it does not", "[evd]"), deviates={"it does not": ["EVD-001"]})
        self.expect_problem("EVD-001: recorded as shown on rxe, now listed as deviates", "--update")
        shown = self.docs / "shown.txt"
        kept = [line for line in shown.read_text(encoding="utf-8").splitlines() if not line.startswith("EVD-001")]
        self.write(shown, "\n".join(kept) + "\n")
        self.result("unit.xml", catch2("also on the fake", "[EVD-001][COMP-001]"))
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.assertIn("| EVD-001 | rxe | why | seen | it does not |", self.status())

    def test_a_rule_may_not_lose_one_of_its_tests(self) -> None:
        both = "<Catch>" + "".join(
            f'<TestCase name="{name}" tags="[EVD-001]"><OverallResult success="true"/></TestCase>' for name in ("strong", "weak")
        )
        self.result("device.xml", both + "</Catch>")
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.result("device.xml", catch2("weak", "[EVD-001]"))
        self.expect_problem("EVD-001: no longer shown by 'strong'", "--update")

    def test_a_record_of_a_rule_that_does_not_exist_is_a_problem(self) -> None:
        self.write(self.docs / "shown.txt", "EVD-999\trxe\tx\n")
        self.expect_problem("shown.txt: EVD-999 is no rule")

    def test_a_broken_record_is_a_problem(self) -> None:
        self.write(self.docs / "shown.txt", "EVD-001 rxe x\nEVD-001\tnowhere\tx\n")
        code, _, problems = self.run_ledger()
        self.assertEqual((code, len(problems)), (1, 2))

    def test_without_results_the_counts_come_from_the_record(self) -> None:
        counts = "1 shown on rxe, 0 by type, 1 fake only, 0 deviates, forced, 0 deviates, dat's choice, 0 not testable, 1 open"
        self.expect_counts(counts, results=False)

    def test_a_rule_is_printed_with_its_tests(self) -> None:
        code, out, _ = self.run_ledger("--rule", "EVD-001", results=False)
        self.assertEqual(code, 0)
        for part in ("rule: first | with a bar", "spec lines: 10-12", "shown on rxe", "  rxe: first works"):
            self.assertIn(part, out)
        self.expect_problem("EVD-777 is no rule of the catalogue", "--rule", "EVD-777", results=False)

    def test_tags_are_found_in_sources_without_a_run(self) -> None:
        source = self.docs / "src" / "a.cpp"
        self.write(source, 'TEST_CASE("x", "[evd][EVD-001]") {}\n')
        self.assertEqual(self.run_ledger("--tags", str(source.parent), results=False)[0], 0)
        self.write(source, '\nTEST_CASE("x", "[EVD-043][evd]") {}\n')
        self.expect_problem(r"a.cpp:2: tag \[EVD-043\] names no rule", "--tags", str(source), results=False)
        self.write(source, '  SHOWS("EVD-001", "EVD-043");\n')
        self.expect_problem(r"a.cpp:1: EVD-043 names no rule", "--tags", str(source), results=False)



class Worlds(LedgerTest):
    """What the device tests show on another kernel or driver."""

    def setUp(self) -> None:
        super().setUp()
        self.result("device.xml", catch2("works", "[EVD-001][EVD-002]"))
        self.assertEqual(self.run_ledger("--update")[0], 0)
        self.assertNotIn("Other worlds", self.status())

    def in_world(self, name: str, text: str, **record: object) -> tuple[int, list[str]]:
        """Records the results `text` of a world."""
        self.result("device.xml", text, **record)
        code, _, problems = self.run_ledger("--world", name)
        return code, problems

    def test_a_world_has_a_column_of_what_it_shows(self) -> None:
        code, problems = self.in_world("siw", catch2("works", "[EVD-001]"), devices="siw1 (siw)", kernel="Linux 6.1", date="2026-02-03")
        self.assertEqual((code, problems), (0, []))
        self.assertEqual((self.docs / "worlds/siw.txt").read_text(encoding="utf-8").splitlines()[2:], ["EVD 001"])
        self.assertIn("| EVD | 2 | 1 |", self.status())
        self.assertIn("| siw 6.1 | 1 | 1 | tree ", self.status())
        self.assertIn("2026-02-03, on Linux 6.1 with siw1 (siw) |", self.status())

    def test_status_with_worlds_is_what_a_whole_run_gives(self) -> None:
        self.in_world("siw", catch2("works", "[EVD-001]"), devices="siw1 (siw)")
        self.in_world("linux-6.12", catch2("works", "[EVD-001][EVD-002]"), kernel="Linux 6.12")
        self.assertIn("| object | shown on rxe 6.1 | rxe 6.12 | siw 6.1 |", self.status())
        self.assertIn("| EVD | 2 | 2 | 1 |", self.status())
        self.result("device.xml", catch2("works", "[EVD-001][EVD-002]"))
        self.assertEqual(self.run_ledger("--check")[::2], (0, []))

    def test_a_failed_test_leaves_the_record_as_it_was(self) -> None:
        code, problems = self.in_world("siw", catch2("works", "[EVD-001]", FAILURE, "false"), devices="siw1 (siw)")
        self.assertEqual((code, problems[0]), (1, "conformance: test 'works' failed"))
        self.assertFalse((self.docs / "worlds").exists())

    def test_results_of_another_driver_or_tree_are_refused(self) -> None:
        later = {"kernel": "Linux 6.12.9"}
        for name, record in (("siw", {}), ("linux-6.12", later | {"devices": "siw1 (siw)"}), ("linux-6.12", later | {"tree": "0123"})):
            code, problems = self.in_world(name, catch2("works", "[EVD-001]"), **record)
            self.assertEqual((code, len(problems)), (1, 2), problems)

    def test_results_of_the_usual_kernel_are_not_those_of_another(self) -> None:
        code, problems = self.in_world("linux-6.12", catch2("works", "[EVD-001]"), kernel="Linux 6.1.0-1-amd64 x86_64")
        self.assertEqual(code, 1)
        self.assertIn("those of linux-6.12 are made on Linux 6.12", problems[0])

    def test_a_deviation_of_a_world_is_not_shown_there(self) -> None:
        text = catch2("works", "[EVD-001][EVD-002]")
        self.assertEqual(self.in_world("siw", text, devices="siw1 (siw)", deviates={"works": ["EVD-002"]})[0], 0)
        self.assertIn("| EVD | 2 | 1 |", self.status())

    def test_a_run_of_some_cases_counts_where_a_list_says_which_are_left_out(self) -> None:
        some = {"devices": "siw1 (siw)", "filtered": True}
        code, problems = self.in_world("siw", catch2("works", "[EVD-001]"), **some)
        self.assertEqual((code, problems[0]), (1, "conformance: device.xml: only some cases were run"))
        self.write(self.docs / "worlds/siw.toml", 'only = "[ep]"\n[[left_out]]\ncases = ["[ud]", "a, b*"]\nreason = "It has no datagrams."\n')
        self.assertEqual(worlds.selection(self.docs, "siw").filter(), '[ep]~[ud]~"a, b*"')
        self.assertEqual(self.in_world("siw", catch2("works", "[EVD-001]"), **some)[0], 0)
        self.assertIn("- Left out on siw 6.1: [ud], a, b*. It has no datagrams.", self.status())

    def test_a_damaged_record_is_a_problem(self) -> None:
        self.result("device.xml", catch2("works", "[EVD-001][EVD-002]"))
        self.write(self.docs / "worlds/siw.txt", "EVD 1\nEVD 777\n")
        self.write(self.docs / "worlds/mars.txt", "")
        _, _, problems = self.run_ledger()
        told = ("mars.txt: there is no such world", "line 1: not a family", "no line says from which run", "EVD-777 is no rule")
        for part in told:
            self.assertEqual(len([line for line in problems if part in line]), 1, problems)
        self.assertEqual(len(problems), len(told))

    def test_each_world_of_this_tree_is_a_tier(self) -> None:
        told = (ledger.DOCS.parents[1] / "tests/support/dev.py").read_text(encoding="utf-8")
        for name in worlds.WORLDS:
            self.assertIn(f'"{name}": tier_', told)


if __name__ == "__main__":
    unittest.main()
