#!/usr/bin/env python3
# The C++ programs of the README are examples between `//! [readme]` marks; these and the ladder are short; the guide compiles.
# SPDX-License-Identifier: BSL-1.0
"""check_readme.py: ends with `N passed, N failed`. CXX names the compiler."""

import difflib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "//! [readme]"


# The programs of the README in their order, with the most code lines that each may have.
PROGRAMS = [("01_hello", 30), ("02_client_server", 55)]


# The most lines of a rung of the ladder, and of larger examples, all files of an example together.
RUNG = 99
LARGER = [(["rpc.cpp"], 150), (["kv.hpp", "kv_server.cpp", "kv_client.cpp"], 250)]


def too_long(folder: pathlib.Path) -> list[str]:
    """The examples that are longer than they may be, each with its number of lines."""
    examples = [([path.name], RUNG) for path in sorted(folder.glob("[0-9][0-9]_*.cpp"))] + LARGER
    counted = [(names, sum(len((folder / name).read_text(encoding="utf-8").splitlines()) for name in names), most) for names, most in examples]
    return [f"{', '.join(names)}: {lines} lines; {most} are allowed" for names, lines, most in counted if lines > most]


def blocks_of(text: str) -> list[tuple[int, str]]:
    """The ```cpp blocks of a document, each with the number of its first line."""
    found = re.finditer(r"^```cpp[^\n]*\n(.*?)^```[ \t]*$", text, re.M | re.S)
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in found]


def marked(example: str) -> list[str] | None:
    """The lines between the first two marks, without the indentation that they share."""
    parts = re.split(rf"^[ \t]*{re.escape(MARK)}[ \t]*\n", example, flags=re.M)
    return textwrap.dedent(parts[1]).strip("\n").splitlines() if len(parts) == 3 else None


def code_lines(lines: list[str]) -> int:
    """How many lines are neither blank nor comment alone."""
    text = re.sub(r"/\*.*?\*/", "", "\n".join(lines), flags=re.S)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def problem(readme: str, example: str, most: int, nth: int = 0) -> str:
    """The faults of the nth block; empty if there are none."""
    blocks, real = blocks_of(readme), marked(example)
    if nth >= len(blocks):
        return "the README has no ```cpp block" + (f" {nth + 1}" if nth else "")
    shown = blocks[nth][1].splitlines()
    if real is None:
        return f"the example has not exactly two lines `{MARK}`"
    if shown != real:
        return "README and example differ:\n" + "\n".join(difflib.unified_diff(shown, real, "README", "example", lineterm=""))
    if (count := code_lines(shown)) > most:
        return f"{count} code lines; {most} are allowed"
    return "" if count else "the program is empty"


def source_of(guide: str) -> str:
    """One source file of all blocks of the guide, each as the body of a function, with the lines of the guide."""
    parts = ['#include "guide_prelude.hpp"\nnamespace guide {\n']
    for number, (line, text) in enumerate(blocks_of(guide)):
        head = f'dat::expected<void> block_{number}();\ndat::expected<void> block_{number}() {{\n#line {line} "docs/guide.md"\n'
        parts.append(f"{head}{text}return dat::success();\n}}\n")
    return "".join(parts) + "} // namespace guide\n"


def compile_guide(guide: str, cxx: str) -> str:
    """The compiler's errors, or nothing."""
    includes = [f"-I{ROOT / folder}" for folder in ("include", "detail", "tests/support")]
    command = [*shlex.split(cxx), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Werror", *includes, "-xc++", "-"]
    done = subprocess.run(command, input=source_of(guide), capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main() -> int:
    """Compare, compile."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    guide = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    results = []
    for nth, (name, most) in enumerate(PROGRAMS):
        results.append(problem(readme, (ROOT / f"examples/{name}.cpp").read_text(encoding="utf-8"), most, nth))
    results.append("" if blocks_of(guide) else "the guide has no ```cpp block")
    results.append("; ".join(too_long(ROOT / "examples")))
    results.append(compile_guide(guide, os.environ.get("CXX", "c++")))
    for wrong in filter(None, results):
        print(f"README, guide: {wrong}")
    failed = sum(1 for wrong in results if wrong)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
