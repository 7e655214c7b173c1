#!/usr/bin/env python3
# Checks that links of the documentation lead to headings. tests/support/lint.py checks files and test cases.
# SPDX-License-Identifier: BSL-1.0
"""links.py [--root DIR]: print the links whose `#anchor` is no heading of the page, and `N passed, N failed`."""

import argparse
import pathlib
import re
import sys
from typing import Iterator, NamedTuple

FOLDERS = ("include", "detail", "tests", "examples", "bench", "docs", ".ci")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


class Finding(NamedTuple):
    """A reference that leads nowhere."""

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


def pages(root: pathlib.Path) -> list[pathlib.Path]:
    """All Markdown files; what is built or fetched is none of them."""
    found = list(root.glob("*.md"))
    for folder in FOLDERS:
        found += (root / folder).rglob("*.md")
    return sorted(found)


def check_page(root: pathlib.Path, page: pathlib.Path) -> Iterator[Finding]:
    """The findings of one page."""
    whole = page.read_text(encoding="utf-8")
    text, name = blank(whole), str(page.relative_to(root))

    for link in LINK.finditer(re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group()), text)):
        target, _, anchor = link[1].partition("#")
        if re.match(r"[a-z]+:", target):
            continue  # outside of the tree
        file = page.parent / target if target else page
        if anchor and file.suffix == ".md" and file.exists() and anchor not in anchors(file.read_text(encoding="utf-8")):
            line = text.count("\n", 0, link.start()) + 1
            yield Finding(name, line, f"{link[1]}: the page has no such heading")


def main() -> int:
    """Check all pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    bad = 0
    for page in (checked := pages(root)):
        findings = list(check_page(root, page))
        for one in findings:
            print(one)
        bad += 1 if findings else 0
    print(f"{len(checked) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
