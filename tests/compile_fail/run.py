#!/usr/bin/env python3
# Compiles programs that must not compile, each beside a twin that must; README.md in this folder defines the form.
# SPDX-License-Identifier: BSL-1.0
"""run.py [--results FILE] [--jobs N] [--include DIR]... [--case TEXT] --cxx COMPILER [ARG...] [--cxx ...]

For every case and compiler: the snippet must be refused with the expected message, the twin accepted. A case passes
when it passes with every compiler. Ends with `N passed, N failed`.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Only declarations, so no message comes from a body.
FLAGS = ["-std=c++20", "-DDAT_SEPARATE_COMPILATION", "-fsyntax-only", "-fdiagnostics-color=never", "-Werror=unused-result"]


class bad_table(Exception):
    """A case file that violates the form."""


@dataclasses.dataclass
class case:
    """A snippet that must not compile and its twin, within the file that holds them."""

    path: pathlib.Path
    name: str
    line: int
    last_line: int = 0
    errors: dict[str, str] = dataclasses.field(default_factory=dict)  # '' for any compiler, or 'gcc', 'clang'
    tags: list[str] = dataclasses.field(default_factory=list)
    most_lines: int = 25  # the most lines of messages, with the compiler's echo of the source

    @property
    def title(self) -> str:
        """The name of the case in results."""
        return f"{self.path.stem}: {self.name}"


def read_cases(path: pathlib.Path) -> list[case]:
    """The cases of one file. Each runs from its `//! case:` line to the #endif of its #ifdef DAT_EXPECT_FAIL."""
    cases: list[case] = []
    current = None
    depth, seen_else = 0, False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path.name}:{number}"
        if found := re.match(r"//! case: (.+)", line):
            if current:
                raise bad_table(f"{where}: the case before has no end")
            current = case(path, found.group(1).strip(), number)
        elif found := re.match(r"//! (error|tags|lines)(?:\((gcc|clang)\))?: (.+)", line):
            if not current or depth:
                raise bad_table(f"{where}: `{found.group(1)}` outside the head of a case")
            if found.group(1) == "error":
                try:
                    re.compile(found.group(3))
                except re.error as e:
                    raise bad_table(f"{where}: {e}") from e
                current.errors[found.group(2) or ""] = found.group(3).strip()
            elif found.group(1) == "lines":
                if not found.group(3).strip().isdigit():
                    raise bad_table(f"{where}: `lines` is not a number")
                current.most_lines = int(found.group(3))
            else:
                current.tags = re.findall(r"\[([^\]]+)\]", found.group(3))
        elif line.startswith("//!"):
            raise bad_table(f"{where}: neither case, error, lines nor tags")
        elif re.match(r"#\s*if", line) and current:
            depth += 1
            if depth == 1 and line.strip() != "#ifdef DAT_EXPECT_FAIL":
                raise bad_table(f"{where}: expected `#ifdef DAT_EXPECT_FAIL`")
        elif re.match(r"#\s*else", line) and current and depth == 1:
            seen_else = True
        elif re.match(r"#\s*endif", line) and current:
            depth -= 1
            if depth == 0:
                if not seen_else:
                    raise bad_table(f"{where}: `{current.name}` has no twin that compiles")
                if not current.errors:
                    raise bad_table(f"{where}: `{current.name}` expects no message")
                current.last_line = number
                cases.append(current)
                current, seen_else = None, False
    if current:
        raise bad_table(f"{path.name}: the last case has no end")
    if not cases:
        raise bad_table(f"{path.name}: no case")
    return cases


def alone(text: str, cases: list[case], chosen: case) -> str:
    """The file with the other cases blanked out, every line at its place."""
    lines = text.splitlines()
    for other in cases:
        if other is not chosen:
            lines[other.line - 1 : other.last_line] = [""] * (other.last_line - other.line + 1)
    return "\n".join(lines) + "\n"


class compiler:
    """One compiler, with the includes of every snippet precompiled."""

    def __init__(self, command: list[str], includes: list[str], work: pathlib.Path):
        self.command = command
        self.flags = FLAGS + [f"-I{d}" for d in includes]
        banner = subprocess.run(command + ["--version"], capture_output=True, text=True, check=True).stdout
        self.family = "clang" if "clang" in banner else "gcc"
        self.flags.append("-ferror-limit=0" if self.family == "clang" else "-fmax-errors=0")
        self.work = work
        self.prelude: list[str] = []

    def parse_prelude(self, header: pathlib.Path) -> None:
        """Precompile the header; the snippets' own includes of the same files are then empty."""
        copy = self.work / "prelude.hpp"
        shutil.copyfile(header, copy)
        parsed = copy.with_suffix(".hpp.pch" if self.family == "clang" else ".hpp.gch")
        flags = [f for f in self.flags if f != "-fsyntax-only"]
        done = subprocess.run(
            self.command + flags + ["-x", "c++-header", str(copy), "-o", str(parsed)], capture_output=True, text=True
        )
        if done.returncode:
            raise bad_table(f"{header.name} does not compile with {self.family}:\n{done.stderr}")
        self.prelude = ["-include-pch", str(parsed)] if self.family == "clang" else ["-include", str(copy)]

    def without_echo(self, messages: str) -> str:
        """The messages without the compiler's echo of the source, in which the expected message must not be found."""
        echo = r" +\d* \|.*" if self.family == "gcc" else r"(?!In file included from |\S+:\d+:\d+: ).*"
        return "\n".join(line for line in messages.splitlines() if not re.fullmatch(echo, line))

    def run(self, source: str, name: pathlib.Path, negative: bool) -> tuple[int, str]:
        """Compiles a text; returns the exit code and the messages."""
        flags = self.flags + (["-DDAT_EXPECT_FAIL"] if negative else [])
        done = subprocess.run(
            self.command + self.prelude + flags + ["-x", "c++", "-"],
            input=f'#line 1 "{name.name}"\n{source}',
            capture_output=True,
            text=True,
            cwd=name.parent,
            env=os.environ | {"LC_ALL": "C"},  # plain quotes in the messages
        )
        return done.returncode, done.stderr


def judge(cxx: compiler, chosen: case, cases: list[case], text: str, twins: "concurrent.futures.Future[tuple[int, str]]") -> list[str]:
    """The fault of the case with this compiler; empty when it passes. `twins`: whether all twins of the file compile together."""
    wrong = []
    source = alone(text, cases, chosen)
    if twins.result()[0]:
        code, messages = cxx.run(source, chosen.path, negative=False)
        if code:
            wrong.append(f"{cxx.family}: the twin does not compile:\n{messages}")
    code, messages = cxx.run(source, chosen.path, negative=True)
    expected = chosen.errors.get(cxx.family, chosen.errors.get(""))
    if expected is None:
        wrong.append(f"{cxx.family}: the case says nothing about this compiler's message")
    elif code == 0:
        wrong.append(f"{cxx.family}: compiles, but must not")
    elif code < 0 or "internal compiler error" in messages:
        wrong.append(f"{cxx.family}: the compiler itself failed:\n{messages}")
    elif not re.search(expected, cxx.without_echo(messages)):
        wrong.append(f"{cxx.family}: refused, but without `{expected}`:\n{messages}")
    elif messages.count("\n") > chosen.most_lines:
        wrong.append(f"{cxx.family}: more than {chosen.most_lines} lines of messages:\n{messages}")
    return wrong


def main() -> int:
    """Runs all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", nargs="+", action="append", required=True, metavar=("COMPILER", "ARG"))
    parser.add_argument("--include", action="append", default=[], metavar="DIR")
    parser.add_argument("--cases", type=pathlib.Path, default=HERE / "cases", metavar="DIR")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose title holds TEXT")
    parser.add_argument("--prelude", type=pathlib.Path, metavar="FILE", help="parsed once, before every snippet")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    includes = args.include or [str(ROOT / "include"), str(ROOT / "detail")]

    with tempfile.TemporaryDirectory(prefix="dat-compile-fail.") as temporary:
        try:
            files = {path: read_cases(path) for path in sorted(args.cases.glob("*.cpp"))}
            compilers = []
            for number, command in enumerate(args.cxx):
                work = pathlib.Path(temporary) / str(number)
                work.mkdir()
                compilers.append(compiler(command, includes, work))
                if args.prelude:
                    compilers[-1].parse_prelude(args.prelude)
        except (bad_table, OSError, subprocess.CalledProcessError) as e:
            print(f"compile_fail: {e}", file=sys.stderr)
            print("0 passed, 1 failed")
            return 1
        with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
            jobs = []
            texts = {path: path.read_text(encoding="utf-8") for path in files}
            # This step is listed first, because later steps wait for it.
            twins = {path: [pool.submit(cxx.run, text, path, False) for cxx in compilers] for path, text in texts.items()}
            for path, cases in files.items():
                for chosen in cases:
                    if args.case in chosen.title:
                        pairs = zip(compilers, twins[path])
                        jobs.append((chosen, [pool.submit(judge, cxx, chosen, cases, texts[path], all_of) for cxx, all_of in pairs]))
            results = []
            for chosen, parts in jobs:
                wrong = [w for part in parts for w in part.result()]
                results.append({"name": chosen.title, "tags": chosen.tags, "passed": not wrong})
                for w in wrong:
                    print(f"{chosen.path.name}:{chosen.line}: {chosen.name}\n  {w.rstrip()}")

    if args.results:
        args.results.parent.mkdir(parents=True, exist_ok=True)
        args.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    passed = sum(r["passed"] for r in results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if results and passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
