#!/usr/bin/env python3
"""Tests of the ledger: STATUS.md, the record of the rules that are shown, and other worlds."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
import unittest

import other_worlds as worlds
import records
import rule_catalogue
from ledger_testing import FAILURE, LedgerTest, catch2, deviation, fake_only


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
        self.write(self.docs / "worlds/siw.toml", 'each_run = ["one", "two, or three"]\nonly = "[ep]"\n[[left_out]]\ncases = ["[ud]", "a, b*"]\nreason = "It has no datagrams."\n')
        self.assertEqual(worlds.selection(self.docs, "siw").filter(), '[ep]~[ud]~"a, b*"')
        self.assertEqual(worlds.selection(self.docs, "siw").each_run_filter(), '"one","two*"')
        self.assertEqual(worlds.selection(self.docs, "linux-6.12").each_run, [])
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
        told = (rule_catalogue.DOCS.parents[1] / "tests/support/dev_tiers.py").read_text(encoding="utf-8")
        for name in worlds.WORLDS:
            self.assertIn(f'"{name}": tier_', told)


if __name__ == "__main__":
    unittest.main()
