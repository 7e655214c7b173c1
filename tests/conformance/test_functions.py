#!/usr/bin/env python3
# Tests docs/mapping.md and docs/thread-safety.md: all 93 functions, and only existing names.
# SPDX-License-Identifier: BSL-1.0
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import functions  # noqa: E402


class the_pages(unittest.TestCase):
    def test_all_functions_are_there_and_every_name_exists(self) -> None:
        mapped, problems = functions.load()
        self.assertEqual([], problems)
        self.assertEqual(functions.HOW_MANY, len(mapped))

    def test_a_function_that_dat_has_names_it(self) -> None:
        mapped, _ = functions.load()
        nameless = [f.name for f in mapped.values() if not f.names and not f.planned and not f.dat.startswith("none: ")]
        self.assertEqual([], nameless)


    def test_the_headers_that_have_to_be_included_are_named(self) -> None:
        text = (functions.DOCS / "mapping.md").read_text(encoding="utf-8")
        umbrella = set(re.findall(r"<dat/(\w+\.hpp)>", (functions.INCLUDE / "dat.hpp").read_text(encoding="utf-8")))
        used = {name for cells in functions.rows(text) for name in re.findall(r"\w+\.hpp", cells[3])}
        said = re.search(r"All but (.*?) come\s+with\s+`<dat/dat.hpp>`", text, re.DOTALL)
        self.assertEqual(used - umbrella, set(re.findall(r"\w+\.hpp", said[1])) if said else None)


class the_headers(unittest.TestCase):
    def test_every_enumeration_has_names(self) -> None:
        """Except sets of bits, which have no single name."""
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(functions.INCLUDE.rglob("*.hpp")))
        enumerations = set(re.findall(r"^enum class (\w+) :[^;]*?\{", text, re.MULTILINE)) - {"streams", "mem_priv", "completion_flag"}
        self.assertGreater(len(enumerations), 20)
        nameless = [name for name in enumerations if not re.search(rf"\bto_string\({name}\b", text)]
        self.assertEqual([], nameless)
        # A test checks all values, so it knows the names of the others.
        tests = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.parent.glob("*/*.cpp")))
        self.assertEqual([], [name for name in sorted(enumerations) if f'"unknown {name}"' not in tests])


class what_is_wrong_is_seen(unittest.TestCase):
    """On a copy of the pages with one change each."""

    def problems_after(self, page: str, pattern: str, replacement: str) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            docs = pathlib.Path(directory)
            (docs / "conformance/rules").mkdir(parents=True)
            for name in ("conformance/rules/0-api-inventory.md", "mapping.md", "thread-safety.md"):
                text = (functions.DOCS / name).read_text(encoding="utf-8")
                if name == page:
                    text, changes = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
                    self.assertEqual(1, changes)
                (docs / name).write_text(text, encoding="utf-8")
            return functions.load(docs)[1]

    def test_a_member_that_does_not_exist(self) -> None:
        self.assertIn("mapping.md: 66: ia::make_pz is not in the headers",
                      self.problems_after("mapping.md", "`ia::create_pz`", "`ia::make_pz`"))  # fmt: skip
        self.assertIn("thread-safety.md: 66: ia::make_pz is not in the headers",
                      self.problems_after("thread-safety.md", "`ia::create_pz`", "`ia::make_pz`"))  # fmt: skip

    def test_a_member_of_another_class(self) -> None:
        self.assertIn("mapping.md: 66: pz::create_pz is not in the headers",
                      self.problems_after("mapping.md", "`ia::create_pz`", "`pz::create_pz`"))  # fmt: skip

    def test_a_name_in_the_wrong_header(self) -> None:
        self.assertIn("mapping.md: 82: strerror is not in the headers",
                      self.problems_after("mapping.md", r"strerror\.hpp, error\.hpp", "error.hpp"))  # fmt: skip

    def test_a_function_that_is_missing(self) -> None:
        self.assertIn("mapping.md: 40 dat_cr_handoff is missing",
                      self.problems_after("mapping.md", r"^\| 40 .*\n", ""))  # fmt: skip
        self.assertIn("thread-safety.md: 40 dat_cr_handoff is missing",
                      self.problems_after("thread-safety.md", r"^\| 40 .*\n", ""))  # fmt: skip

    def test_a_function_with_the_wrong_number(self) -> None:
        self.assertIn("mapping.md: 41 is dat_srq_create, not dat_cr_handoff",
                      self.problems_after("mapping.md", r"^\| 40 \|", "| 41 |"))  # fmt: skip

    def test_no_counterpart_and_no_reason(self) -> None:
        self.assertIn("mapping.md: 86 has no counterpart, and no reason",
                      self.problems_after("mapping.md", r"none: as 85 ", ""))  # fmt: skip


REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<Catch name="device"><Group name="device">
  <TestCase name="zones work" tags="[PZ-001][PZ-003]"><OverallResult success="true"/></TestCase>
  <TestCase name="closing works" tags="[PZ-005]"><OverallResult success="{closing}"/></TestCase>
</Group></Catch>
"""


class dat_conform(unittest.TestCase):
    """Tests with reports that no device has made."""

    def conform(self, *arguments: str, closing: str = "true") -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as results:
            (pathlib.Path(results) / "device-x.xml").write_text(REPORT.format(closing=closing), encoding="utf-8")
            command = [sys.executable, str(HERE / "dat-conform"), "--results", results, *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_what_the_device_shows_is_counted_by_function(self) -> None:
        done = self.conform("--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        told = json.loads(done.stdout)
        self.assertEqual(told["tests"], {"passed": 2, "failed": 0, "skipped": 0})
        self.assertEqual(len(told["functions"]), functions.HOW_MANY)
        by_name = {f["function"]: f for f in told["functions"]}
        self.assertEqual(by_name["dat_pz_create"]["shown"], 2)
        self.assertEqual(by_name["dat_pz_free"]["shown"], 1)
        self.assertEqual(by_name["dat_evd_wait"]["shown"], 0)
        self.assertEqual(by_name["dat_pz_create"]["dat"], "ia::create_pz")

    def test_each_rule_stands_somewhere_on_the_device(self) -> None:
        told = json.loads(self.conform("--json", closing="false").stdout)
        self.assertEqual([told["rules"][r] for r in ("PZ-001", "PZ-003", "PZ-005")], ["shown here", "shown here", "failed"])
        self.assertEqual(told["rules"]["REQ-047"], "deviates")
        self.assertEqual(told["rules"]["REQ-058"], "not testable")
        self.assertEqual(told["rules"]["ERR-046"], "by type")
        self.assertEqual(told["rules"]["REG-003"], "fake only")
        self.assertEqual(told["rules"]["CONN-003"], "not run")
        self.assertEqual(sum(n for counts in told["objects"].values() for n in counts.values()), len(told["rules"]))
        self.assertEqual(told["objects"]["PZ"]["failed"], 1)
        lines = self.conform("--rules").stdout.splitlines()
        for start in ("PZ +protection zone +14 +3 +0 ", r"PZ-005 +shown here +\S", "all +1908 +3 "):
            self.assertEqual(len([line for line in lines if re.match(start, line)]), 1, start)

    def test_a_failed_test_is_named_where_it_belongs(self) -> None:
        done = self.conform(closing="false")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"dat_pz_create +ok +2/")
        self.assertRegex(done.stdout, r"dat_pz_free +FAIL +0/.*\n     failed: closing works\n")
        self.assertTrue(done.stdout.endswith("1 tests passed, 1 failed, 0 skipped on this device\n"))

    def test_without_a_device_it_says_what_to_do(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in {"DAT_LAB", "DAT_TEST_ADDRESSES"}}
        done = subprocess.run([sys.executable, str(HERE / "dat-conform"), "--program", "/bin/true"],
                              env=environment, capture_output=True, text=True, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertIn("DAT_TEST_ADDRESSES must name two addresses", done.stderr)


if __name__ == "__main__":
    unittest.main()
