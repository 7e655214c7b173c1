# Every place of the tree that states the version of dat.
# SPDX-License-Identifier: BSL-1.0
"""PLACES says where, as (file, pattern, what it is); disagreements() compares them with meson.build."""

from __future__ import annotations

import pathlib
import re

NUMBER = r"(\d+\.\d+\.\d+)"
SHORT = r"(\d+\.\d+)"
PLACES = [
    ("meson.build", rf"^  version: '{NUMBER}',$", "the version of the build"),
    ("include/dat/version.hpp", r"^#define DAT_VERSION_MAJOR (\d+)\n///[^\n]*\n#define DAT_VERSION_MINOR (\d+)\n///[^\n]*\n#define DAT_VERSION_PATCH (\d+)$", "the version of the headers"),
    ("README.md", rf"^revision = v{NUMBER}$", "the wrap for Meson"),
    ("README.md", rf"\bGIT_TAG v{NUMBER}\)", "FetchContent"),
    ("CHANGELOG.md", rf"^## \[{NUMBER}\]", "the newest release"),
    ("debian/changelog", rf"\A\S+ \({NUMBER}-", "the newest entry"),
    ("docs/releases.md", rf"^## {NUMBER}$", "the newest release notes"),
    ("docs/versions.md", rf"`git tag --sign v{NUMBER}`", "the name of the tag"),
    ("tests/consume/cmake/CMakeLists.txt", rf"find_package\(dat {SHORT} ", "the interface that the tests ask for"),
    ("tests/consume/meson/meson.build", rf"version: '>={SHORT}'", "the interface that the tests ask for"),
]


def version(root: pathlib.Path) -> str:
    """The version of meson.build, from which the others follow."""
    found = re.search(PLACES[0][1], (root / PLACES[0][0]).read_text(encoding="utf-8"), re.M)
    if not found:
        raise ValueError("meson.build has no line `  version: 'N.N.N',`")
    return found[1]


def disagreements(root: pathlib.Path) -> list[str]:
    """The places that have another version, or none."""
    wanted, found = version(root), []
    for name, pattern, what in PLACES:
        stated = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.M)
        here = ".".join(stated.groups()) if stated else "none"
        if here != (wanted.rpartition(".")[0] if SHORT in pattern and NUMBER not in pattern else wanted):
            found.append(f"{name}: {what} is {here}, and meson.build has {wanted}")
    return found
