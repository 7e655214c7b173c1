#!/usr/bin/env python3
# Tests of the compile_fail driver: it must fail for every kind of wrong case.
# SPDX-License-Identifier: BSL-1.0
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.py"
GOOD = """struct only_int { only_int(int); template <class T> only_int(T) = delete; };
//! case: one
//! error: deleted
//! tags: [A-001] [A-002]
#ifdef DAT_EXPECT_FAIL
only_int a{1.0};
#else
only_int a{1};
#endif
//! case: two
//! error: dat: sentence
#ifdef DAT_EXPECT_FAIL
static_assert(sizeof(int) == 0, "dat: sentence");
#else
static_assert(sizeof(int) != 0, "dat: sentence");
#endif
"""


class driver(unittest.TestCase):
    def run_table(self, *files):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "cases").mkdir()
            for number, text in enumerate(files):
                (folder / f"cases/f{number}.cpp").write_text(text)
            cxx = os.environ.get("CXX", "c++").split()
            done = subprocess.run(
                [sys.executable, str(RUN), "--cases", name + "/cases", "--results", name + "/r.json", "--jobs", "2", "--cxx"]
                + cxx,
                capture_output=True,
                text=True,
            )
            results = json.loads((folder / "r.json").read_text()) if (folder / "r.json").exists() else None
            return done.returncode, done.stdout.splitlines()[-1], results, done.stdout + done.stderr

    def test_good_cases_pass(self):
        code, last, results, _ = self.run_table(GOOD)
        self.assertEqual((code, last), (0, "2 passed, 0 failed"))
        self.assertEqual(results[0], {"name": "f0: one", "tags": ["A-001", "A-002"], "passed": True})

    def test_a_snippet_that_compiles_fails(self):
        code, last, results, text = self.run_table(GOOD.replace("only_int a{1.0};", "only_int a{2};"))
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertFalse(results[0]["passed"])
        self.assertIn("compiles, but must not", text)

    def test_another_message_fails(self):
        code, last, _, text = self.run_table(GOOD.replace("error: deleted", "error: something else"))
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertIn("without `something else`", text)

    def test_more_lines_of_messages_than_allowed_fail(self):
        limited = GOOD.replace("//! error: deleted", "//! error: deleted\n//! lines: 25")
        self.assertEqual(self.run_table(limited)[:2], (0, "2 passed, 0 failed"))
        code, last, _, text = self.run_table(limited.replace("lines: 25", "lines: 1"))
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertIn("more than 1 lines", text)

    def test_a_twin_that_does_not_compile_fails(self):
        code, last, _, text = self.run_table(GOOD.replace("only_int a{1};", "only_imt a{1};"))
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertIn("the twin does not compile", text)

    def test_the_message_of_another_case_does_not_help(self):
        text = GOOD.replace("error: deleted", "error: dat: sentence")
        self.assertEqual(self.run_table(text)[:2], (1, "1 passed, 1 failed"))

    def test_no_case_at_all_fails(self):
        self.assertEqual(self.run_table()[:2], (1, "0 passed, 0 failed"))

    def test_a_broken_table_fails(self):
        for broken in (
            "int a;\n",
            GOOD.replace("//! error: deleted", "//! error: deleted\n//! lines: few"),
            GOOD.replace("#else\nonly_int a{1};\n", ""),
            GOOD.replace("//! error: deleted\n", ""),
            GOOD.replace("error: deleted", "eror: deleted"),
            GOOD.replace("error: deleted", "error: ("),
            GOOD.replace("#ifdef DAT_EXPECT_FAIL", "#ifdef OTHER", 1),
            GOOD.rsplit("#endif", 1)[0],
        ):
            with self.subTest(broken):
                self.assertEqual(self.run_table(GOOD, broken)[:2], (1, "0 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main()
