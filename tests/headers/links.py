#!/usr/bin/env python3
# Checks what the documentation names: headings of pages, and test cases. tests/support/lint.py checks the files.
# SPDX-License-Identifier: BSL-1.0
"""links.py [--root DIR]: print the findings and `N passed, N failed`, one for each kind of reference.

    link    [text](file.md#anchor) leads to a heading of the page
    case    `file.cpp`: "name" is the name of a test case in that file; `folder`: "name" in a Python test below the folder
"""

import argparse
import pathlib
import re
import sys
from typing import Iterator, NamedTuple

FOLDERS = ("include", "detail", "tests", "examples", "bench", "docs", ".ci")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CASE = re.compile(r'`([\w./-]+)`: ("[^"\n]+"(?:, "[^"\n]+")*)')
TEST_CASE = re.compile(r'TEST_CASE(?:_\w+)?\((?:\w+, )?((?:\s*"(?:\\.|[^"\\])*")+)')


class Finding(NamedTuple):
    """A reference that leads nowhere."""

    kind: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def slug(heading: str) -> str:
    """The anchor that forges make of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page; a heading that occurs again gets a number."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", text), re.M):
        name, n = slug(heading), 0
        while name in found:
            n += 1
            name = f"{slug(heading)}-{n}"
        found.add(name)
    return found | set(re.findall(r'<a (?:name|id)="([^"]+)"', text))


def blank(text: str) -> str:
    """The page without its code blocks, lines kept."""
    return FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


class tree:
    """The files of a tree, and the names of its tests."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.cases: dict[pathlib.Path, set[str]] = {}

    def pages(self) -> list[pathlib.Path]:
        """All Markdown files; what is built or fetched is none of them."""
        found = list(self.root.glob("*.md"))
        for folder in FOLDERS:
            found += (self.root / folder).rglob("*.md")
        return sorted(found)

    def cases_of(self, file: pathlib.Path) -> set[str]:
        """The names of the test cases of a source file."""
        if file not in self.cases:
            text = file.read_text(encoding="utf-8")
            names = {"".join(re.findall(r'"((?:\\.|[^"\\])*)"', m)) for m in TEST_CASE.findall(text)}
            # The tags are a string of their own behind a comma, so the name ends before them.
            names |= {name.replace("_", " ") for name in re.findall(r"def test_(\w+)", text)}
            self.cases[file] = names
        return self.cases[file]

    def has_case(self, where: str, name: str, page: pathlib.Path) -> bool:
        """Whether a file, or a Python test below a folder, has a test of this name."""
        candidates = [self.root / where, page.parent / where]
        files = [c for c in candidates if c.is_file()]
        for folder in (c for c in candidates if c.is_dir()):
            files += folder.rglob("*.py")
        if not files and "/" not in where:
            files = list((self.root / "tests").rglob(where))
        return any(name in self.cases_of(file) for file in files)


def check_page(t: tree, page: pathlib.Path) -> Iterator[Finding]:
    """The findings of one page."""
    whole = page.read_text(encoding="utf-8")
    text, name = blank(whole), str(page.relative_to(t.root))

    def finding(kind: str, at: int, what: str) -> Finding:
        return Finding(kind, name, text.count("\n", 0, at) + 1, what)

    for link in LINK.finditer(re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group()), text)):
        target, _, anchor = link[1].partition("#")
        if re.match(r"[a-z]+:", target):
            continue  # outside of the tree
        file = page.parent / target if target else page
        if anchor and file.suffix == ".md" and file.exists() and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield finding("link", link.start(), f"{link[1]}: the page has no such heading")
    for case in CASE.finditer(text):
        if case[1].split("/")[0] not in FOLDERS and not case[1].endswith((".cpp", ".py")):
            continue
        for quoted in re.findall(r'"([^"]+)"', case[2]):
            if not t.has_case(case[1], quoted, page):
                yield finding("case", case.start(), f"`{case[1]}` has no test case \"{quoted}\"")


def main() -> int:
    """Check all pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    t = tree(parser.parse_args().root)
    findings = [f for page in t.pages() for f in check_page(t, page)]
    for one in findings:
        print(one)
    failed = {f.kind for f in findings}
    print(f"{2 - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
