#!/usr/bin/env python3
# docs/mapping.md and docs/thread-safety.md: all 93 functions, and only names that exist.
# SPDX-License-Identifier: BSL-1.0
import pathlib
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
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


class the_headers(unittest.TestCase):
    def test_every_enumeration_has_names(self) -> None:
        """But for sets of bits, which have no single name."""
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(functions.INCLUDE.rglob("*.hpp")))
        enumerations = set(re.findall(r"^enum class (\w+) :[^;]*?\{", text, re.MULTILINE)) - {"streams", "mem_priv"}
        self.assertGreater(len(enumerations), 20)
        nameless = [name for name in enumerations if not re.search(rf"\bto_string\({name}\b", text)]
        self.assertEqual([], nameless)


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


if __name__ == "__main__":
    unittest.main()
