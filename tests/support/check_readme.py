#!/usr/bin/env python3
# The first C++ program of the README is examples/hello.cpp between its `//! [readme]` marks, and stays short.
# SPDX-License-Identifier: BSL-1.0
"""check_readme.py [--readme FILE] [--example FILE] [--max-lines N]"""

import argparse
import difflib
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "//! [readme]"


def block_of(readme: str) -> list[str] | None:
    """The lines of the first ```cpp block."""
    found = re.search(r"^```cpp[^\n]*\n(.*?)^```[ \t]*$", readme, re.M | re.S)
    return found.group(1).splitlines() if found else None


def marked(example: str) -> list[str] | None:
    """The lines between the first two marks, without the indentation that they share."""
    parts = re.split(rf"^[ \t]*{re.escape(MARK)}[ \t]*\n", example, flags=re.M)
    return textwrap.dedent(parts[1]).strip("\n").splitlines() if len(parts) == 3 else None


def code_lines(lines: list[str]) -> int:
    """How many lines are neither blank nor comment alone."""
    text = re.sub(r"/\*.*?\*/", "", "\n".join(lines), flags=re.S)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def problem(readme: str, example: str, most: int) -> str:
    """What is wrong, or nothing."""
    shown, real = block_of(readme), marked(example)
    if shown is None:
        return "the README has no ```cpp block"
    if real is None:
        return f"the example has not exactly two lines `{MARK}`"
    if shown != real:
        return "README and example differ:\n" + "\n".join(difflib.unified_diff(shown, real, "README", "example", lineterm=""))
    if (count := code_lines(shown)) > most:
        return f"{count} code lines; {most} are allowed"
    return "" if count else "the program is empty"


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description="Compare the README's program with the example that is compiled and run.")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--example", type=pathlib.Path, default=ROOT / "examples/hello.cpp")
    parser.add_argument("--max-lines", type=int, default=30)
    args = parser.parse_args()
    try:
        wrong = problem(args.readme.read_text(encoding="utf-8"), args.example.read_text(encoding="utf-8"), args.max_lines)
    except OSError as e:
        wrong = str(e)
    if wrong:
        print(f"README: {wrong}")
    print("0 passed, 1 failed" if wrong else "1 passed, 0 failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
