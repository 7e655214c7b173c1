#!/usr/bin/env python3
"""Tests of the ledger: the tables of the catalogue, the formats of results, and results that are refused."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
import unittest

import records
import reports
import rule_catalogue
from ledger_testing import CATCH2_V2, CATCH2_V3, FAILURE, PART, LedgerTest, catch2, deviation, fake_only


class Tables(LedgerTest):
    def test_rows_of_id_tables_are_rules_and_facts_and_traps_are_not(self) -> None:
        rules = rule_catalogue.load_catalogue(self.docs).rules
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
        catalogue = rule_catalogue.load_catalogue(rule_catalogue.DOCS)
        self.assertEqual(catalogue.problems, [])
        self.assertEqual(len(catalogue.rules), 1908)
        self.assertLessEqual({rule.family for rule in catalogue.rules.values()}, set(rule_catalogue.FAMILIES))
        self.assertLessEqual(len(catalogue.deviations), 1908 * 5 // 100)

    def test_the_catalogue_cites_lines_that_have_a_clause(self) -> None:
        self.assertEqual(rule_catalogue.clauses_of(rule_catalogue.DOCS, "3631-3763, 2033"), "6.3.4.10, 6.1.3.5")
        self.assertEqual(rule_catalogue.clauses_of(rule_catalogue.DOCS, "U7401, IB365, ib:270, IBX 663"), "6.6.23")


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


class NotTested(LedgerTest):
    """The ways of counting what was not tested, each refused."""

    def setUp(self) -> None:
        super().setUp()
        self.result("device.xml", catch2("works", "[EVD-001]"))

    def test_a_case_that_checks_nothing_fails(self) -> None:
        # Catch2 reports such a case as failed with -w NoAssertions, which dev_programs.reporting passes to every program.
        self.result("device.xml", catch2("works", "[EVD-001]", success="false"))
        self.expect_problem(r"EVD-001: test 'works' \(rxe\) failed")
        self.assertIn("NoAssertions", (rule_catalogue.DOCS.parents[1] / "tests/support/dev_programs.py").read_text(encoding="utf-8"))

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
        self.assertEqual(rule_catalogue.read_debt(self.docs, rule_catalogue.Ledger()), rule_catalogue.Debt({}, {"COMP-001"}))
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
        self.assertLessEqual({name.split("-")[0].split(".")[0] for name in records.WHOLE_RUN}, reports.TIERS.keys())


if __name__ == "__main__":
    unittest.main()
