#!/usr/bin/env python3
# Tests of run.py: it reads corpora and figures, and counts a finding of a target as a failure.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import run  # noqa: E402

PROGRESS = """INFO: Loaded 1 modules   (200 inline 8-bit counters): 200 [0x1, 0x2),
#2\tINITED cov: 10 ft: 11 corp: 2/9b exec/s: 0 rss: 40Mb
#900\tDONE   cov: 77 ft: 80 corp: 5/40b lim: 4 exec/s: 0 rss: 41Mb
"""


class reading(unittest.TestCase):
    def test_a_corpus_is_text(self):
        self.assertEqual(run.inputs_of("# remark\n\n0001 ff # a line\nab\n"), [b"\0\1\xff", b"\xab"])
        with self.assertRaises(ValueError):
            run.inputs_of("xyz\n")

    def test_every_corpus_of_the_tree_can_be_read_and_belongs_to_a_target(self):
        for corpus in (HERE / "corpus").iterdir():
            self.assertIn(corpus.stem, run.TARGETS)
            self.assertTrue(run.inputs_of(corpus.read_text(encoding="utf-8")))

    def test_figures(self):
        self.assertEqual(run.figures(PROGRESS), "900 runs, 77 of 200 edges, 80 features, 5 inputs")
        self.assertEqual(run.figures("nothing\n"), "no figures")


class running(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "tests/fuzz").mkdir(parents=True)

    def ends_with(self, script: str | None) -> tuple[int, str]:
        """Runs run.py with a program in place of the target `segment`."""
        if script is not None:
            program = self.folder / "tests/fuzz/segment"
            program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            program.chmod(0o755)
        command = [sys.executable, HERE / "run.py", "segment", "--build", self.folder, "--findings", self.folder / "found"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_a_quiet_target_passes(self):
        code, out = self.ends_with("echo '#9 DONE cov: 7 ft: 8 corp: 5/40b'")
        self.assertEqual(code, 0)
        self.assertIn("segment: 9 runs, 7 of ? edges", out)
        self.assertTrue(out.endswith("1 passed, 0 failed\n"))

    def test_a_finding_fails_and_is_shown(self):
        code, out = self.ends_with(f"echo 'fuzz: wrong'; printf '\\001\\253' > {self.folder}/found/segment-crash-1; exit 77")
        self.assertEqual(code, 1)
        self.assertIn("fuzz: wrong", out)
        self.assertIn("01ab", out)
        self.assertTrue(out.endswith("0 passed, 1 failed\n"))

    def test_a_target_that_is_not_built_fails(self):
        code, out = self.ends_with(None)
        self.assertEqual(code, 1)
        self.assertIn("not built", out)


if __name__ == "__main__":
    unittest.main()
