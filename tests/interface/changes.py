#!/usr/bin/env python3
# Lists the changes of the public interface between two versions of dat, and the version number that they require.
# SPDX-License-Identifier: BSL-1.0
"""Lists the names that programs may use and that were added, removed or changed between two versions. A version is a tag or commit,
or a folder that has include/dat. With --check the exit code is 1 where docs/versions.md asks for another version number."""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import interface  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACRO = re.compile(r"^#define DAT_VERSION_(MAJOR|MINOR|PATCH) (\d+)$", re.M)


class bad_version(Exception):
    """A version that cannot be read."""


@dataclass
class difference:
    """The differences between two versions. Each entry is a line of text."""

    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    @property
    def breaks(self) -> bool:
        """Whether a program that compiled may not compile any more."""
        return bool(self.removed or self.changed)


def signatures(tree: pathlib.Path) -> dict[str, set[str]]:
    """The declarations of each name: overloads share one."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for top in interface.read(tree):
        for one in top.all():
            found[one.name].add(one.signature)
    return dict(found)


def scope_of(name: str) -> str:
    """The class or namespace of a name."""
    return name.rpartition("::")[0]


def compare(old: dict[str, set[str]], new: dict[str, set[str]]) -> difference:
    """The differences. The members of a class that came or went as a whole are not listed one by one."""
    result = difference()
    gone, came = old.keys() - new.keys(), new.keys() - old.keys()
    for name in sorted(gone):
        if scope_of(name) not in gone:
            result.removed.append(f"`{name}`")
    for name in sorted(came):
        if scope_of(name) not in came:
            result.added.append(f"`{name}`")
    for name in sorted(old.keys() & new.keys()):
        before, after = sorted(old[name] - new[name]), sorted(new[name] - old[name])
        if before and after:
            result.changed.append(f"`{name}`: was `{'`, `'.join(before)}`; is `{'`, `'.join(after)}`")
        elif before:
            result.removed.append(f"`{name}`: the overload `{'`, `'.join(before)}`")
        elif after:
            result.added.append(f"`{name}`: the overload `{'`, `'.join(after)}`")
    return result


def version_of(tree: pathlib.Path) -> tuple[int, int, int]:
    """The version that the headers of a tree state."""
    header = tree / "include/dat/version.hpp"
    parts = dict(MACRO.findall(header.read_text(encoding="utf-8"))) if header.exists() else {}
    if len(parts) != 3:
        raise bad_version(f"{header} does not define DAT_VERSION_MAJOR, DAT_VERSION_MINOR and DAT_VERSION_PATCH")
    return int(parts["MAJOR"]), int(parts["MINOR"]), int(parts["PATCH"])


def objection(old: tuple[int, int, int], new: tuple[int, int, int], found: difference) -> str:
    """Why the new number does not fit the differences, or nothing (docs/versions.md)."""
    said = "{}.{}.{}".format
    if new < old:
        return f"version {said(*new)} is lower than {said(*old)}"
    if found.breaks:
        needed = (0, old[1] + 1, 0) if old[0] == 0 else (old[0] + 1, 0, 0)
        if new < needed:
            return f"the interface breaks, so the version after {said(*old)} is at least {said(*needed)}, not {said(*new)}"
    elif found.added and new[:2] == old[:2]:
        return f"the interface grows, so the version after {said(*old)} is at least {said(old[0], old[1] + 1, 0)}, not {said(*new)}"
    return ""


def tree_of(version: str, work: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    """A folder as it is; otherwise the headers of a tag or commit, unpacked below `work`."""
    if (pathlib.Path(version) / "include/dat").is_dir():
        return pathlib.Path(version)
    packed = subprocess.run(["git", "-C", root, "archive", "--format=tar", version, "include", "detail"], capture_output=True, check=False)
    if packed.returncode:
        why = packed.stderr.decode(errors="replace").strip().splitlines()
        raise bad_version(f"'{version}' is neither a folder with include/dat nor a tag or commit with headers of dat: {why[0] if why else 'git failed'}")
    to = work / re.sub(r"\W+", "-", version)
    to.mkdir()
    subprocess.run(["tar", "-x", "-C", to], input=packed.stdout, check=True)
    return to


def report(found: difference) -> str:
    """The differences under the headings of CHANGELOG.md."""
    lines = []
    for title, entries in (("Breaking: removed", found.removed), ("Breaking: changed", found.changed), ("Added", found.added)):
        if entries:
            lines += [f"### {title}", "", *(f"- {entry}" for entry in entries), ""]
    return "\n".join(lines) or "The interfaces are the same.\n"


def main(arguments: list[str] | None = None, root: pathlib.Path = ROOT) -> int:
    """Compares two versions."""
    parser = argparse.ArgumentParser(prog="./dev changes", description=__doc__)
    parser.add_argument("old", metavar="OLD", help="the earlier version")
    parser.add_argument("new", metavar="NEW", nargs="?", help="the later version; this work tree when none is given")
    parser.add_argument("--check", action="store_true", help="fail when the version number does not fit the changes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dat-changes-") as work:
        try:
            old = tree_of(options.old, pathlib.Path(work), root)
            new = tree_of(options.new, pathlib.Path(work), root) if options.new else root
            found = compare(signatures(old), signatures(new))
            why = objection(version_of(old), version_of(new), found) if options.check else ""
        except (bad_version, OSError, RuntimeError) as e:
            print(f"changes: {e}", file=sys.stderr)
            return 2
    print(report(found))
    if why:
        print(f"changes: {why}", file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
