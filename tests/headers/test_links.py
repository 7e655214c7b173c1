#!/usr/bin/env python3
# The checks of the documentation's references find each kind of fault, and no other.
# SPDX-License-Identifier: BSL-1.0
import pathlib
import subprocess
import sys
import tempfile
import unittest

LINKS = pathlib.Path(__file__).resolve().parent / "links.py"


class Links(unittest.TestCase):
    """Each test writes a small tree."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("docs/page.md", "# A page\n\n## The `first` part\n\n## Twice\n\n## Twice\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def findings(self, text):
        self.write("README.md", text)
        ran = subprocess.run([sys.executable, LINKS, "--root", self.root], capture_output=True, text=True, check=False)
        lines = ran.stdout.splitlines()
        self.assertEqual(ran.returncode, 1 if len(lines) > 1 else 0, ran.stdout + ran.stderr)
        return lines[:-1]

    def test_references_that_lead_somewhere(self):
        self.assertEqual(
            self.findings(
                "[a](docs/page.md) [b](docs/page.md#the-first-part) [c](docs/page.md#twice-1) [d](https://example.org/x)\n"
                "[e](#here)\n# Here\n```\n[x](docs/page.md#nowhere)\n```\n"
            ),
            [],
        )

    def test_a_missing_heading(self):
        found = self.findings("[a](docs/page.md#second) [b](docs/page.md#twice-2)")
        self.assertEqual([f.split(": ")[1] for f in found], ["docs/page.md#second", "docs/page.md#twice-2"])


if __name__ == "__main__":
    unittest.main()
