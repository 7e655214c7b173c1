#!/usr/bin/env python3
"""Tests of the ledger: the lists of deviations and of rules that are not tested, and the tables of evidence."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import re
import unittest

import evidence
import rule_catalogue
from ledger_testing import CATCH2_V2, FAILURE, LedgerTest, catch2, deviation, fake_only, not_testable


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
        entries = evidence.read(rule_catalogue.DOCS / "evidence", problems)
        sources = evidence.read_sources(rule_catalogue.DOCS.parents[1] / "tests")
        problems += [line for of in entries.values() for entry in of for line in evidence.problems_of(entry, sources)]
        self.assertEqual(problems, [])
        self.assertGreater(len(entries), 1600)


if __name__ == "__main__":
    unittest.main()
