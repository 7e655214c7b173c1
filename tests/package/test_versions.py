#!/usr/bin/env python3
# The version is the same everywhere, the changelog has its form, and the recipes parse.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import versions  # noqa: E402

ROOT = HERE.parents[1]
HEADINGS = ["Breaking", "Added", "Changed", "Fixed"]


def bad_headings(changelog: str) -> list[str]:
    """The headings of third level that the changelog must not have, or has out of order, by release."""
    found = []
    for part in re.split(r"^## ", changelog, flags=re.M)[1:]:
        release, headings = part.partition("\n")[0], re.findall(r"^### (.*)$", part, re.M)
        if not headings or headings != [name for name in HEADINGS if name in headings]:
            found.append(f"{release}: {headings}")
        if not re.fullmatch(r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", release):
            found.append(f"{release}: neither [Unreleased] nor a version with its date")
    return found


class the_version(unittest.TestCase):
    def test_all_places_agree(self) -> None:
        self.assertEqual(versions.disagreements(ROOT), [])

    def test_each_place_that_differs_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            copy, version = pathlib.Path(folder), versions.version(ROOT)
            for name, *_ in versions.PLACES:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
            for name, pattern, what in versions.PLACES[1:]:
                text = (copy / name).read_text(encoding="utf-8")
                at = re.search(pattern, text, re.M)
                assert at, name
                (copy / name).write_text(text[: at.start(1)] + "9" + text[at.end(1) :], encoding="utf-8")
                found = versions.disagreements(copy)
                self.assertEqual(len(found), 1, what)
                self.assertIn(f"{name}: {what} is ", found[0])
                self.assertIn(f"meson.build has {version}", found[0])
                (copy / name).write_text(text, encoding="utf-8")


class the_changelog(unittest.TestCase):
    def test_it_has_its_form(self) -> None:
        self.assertEqual(bad_headings((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")), [])

    def test_other_forms_are_found(self) -> None:
        self.assertEqual(bad_headings("## [1.2.3] - 2026-01-02\n### Breaking\n### Fixed\n"), [])
        for text in ("## [1.2.3]\n### Added\n", "## [1.2.3] - 2026-01-02\n", "## [Unreleased]\n### Fixed\n### Added\n", "## [Unreleased]\n### News\n"):
            self.assertEqual(len(bad_headings(text)), 1, text)


class the_recipes(unittest.TestCase):
    def test_they_parse_and_name_what_the_release_fills_in(self) -> None:
        recipes = HERE / "recipes"
        port = json.loads((recipes / "vcpkg/vcpkg.json").read_text(encoding="utf-8"))
        self.assertEqual(port["version-semver"], "@version@")
        for name, digest in (("vcpkg/portfile.cmake", "sha512"), ("conan/conandata.yml", "sha256"), ("spack/package.py", "sha256"), ("wrapdb/dat.wrap", "sha256")):
            text = (recipes / name).read_text(encoding="utf-8")
            for word in ("@version@", "@url@", f"@{digest}@"):
                self.assertIn(word, text, name)
            if name.endswith(".py"):
                compile(text, name, "exec")


if __name__ == "__main__":
    unittest.main()
