#!/usr/bin/env python3
# A program does not link if only a part of it defines DAT_CHECKED, or DAT_TRACE.
# SPDX-License-Identifier: BSL-1.0
"""mixed.py INCLUDE CXX...: compile two sources in all combinations, and link them."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

INCLUDE = sys.argv.pop(1)
CXX = [sys.argv.pop(1) for _ in sys.argv[1:]]
MACROS = ["DAT_CHECKED", "DAT_TRACE"]


class Mixed(unittest.TestCase):
    """Two source files that include dat."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compiled(self, name: str, text: str, *flags: str) -> str:
        """The object file of a source file."""
        source = self.folder / f"{name}.cpp"
        source.write_text(f"#include <dat/detail/base/config.hpp>\n{text}\n", encoding="utf-8")
        target = source.with_suffix(".o")
        subprocess.run([*CXX, "-std=c++20", f"-I{INCLUDE}", *flags, "-c", source, "-o", target], check=True)
        return str(target)

    def linked(self, *flags: list[str]) -> subprocess.CompletedProcess:
        """The link of a program whose two sources have these flags."""
        objects = [self.compiled("main", "int main() {}", *flags[0]), self.compiled("other", "", *flags[1])]
        return subprocess.run([*CXX, *objects, "-o", self.folder / "program"], capture_output=True, text=True, check=False)

    def test_the_linker_refuses_a_mixture_and_names_the_remedy(self):
        for macro in MACROS:
            for flags in ([[f"-D{macro}"], []], [[], [f"-D{macro}"]]):
                link = self.linked(*flags)
                self.assertNotEqual(link.returncode, 0)
                self.assertIn(f"dat_define_{macro}_in_all_source_files_or_in_none", link.stderr)

    def test_programs_of_one_kind_link(self):
        for flags in (*([[f"-D{macro}"], [f"-D{macro}"]] for macro in MACROS), [[], []]):
            link = self.linked(*flags)
            self.assertEqual(link.returncode, 0, link.stderr)


if __name__ == "__main__":
    unittest.main()
