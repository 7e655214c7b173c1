#!/usr/bin/env python3
# Mutants: small faults, found in the syntax tree of dat's sources and planted beside the correct code.
# SPDX-License-Identifier: BSL-1.0
"""A mutant is one small fault. `find` lists all that the sources have, by libclang. `plant` writes some of them into a copy of the
sources, each behind `dat_mutant(NUMBER)`, so that one build has all of them and the environment chooses one at run time."""

from __future__ import annotations

import glob
import pathlib
import random
import re
import sys
from typing import Iterator, NamedTuple, Optional

# The folder in which Debian has the bindings; the path of another Python may not include it.
sys.path.append("/usr/lib/python3/dist-packages")
try:
    import clang.cindex as cindex
    from clang.cindex import CursorKind as kind
except ImportError:
    sys.exit("mutants: the Python bindings of libclang are missing: apt install python3-clang-14")

KINDS = {
    "leave out": "a statement is left out",
    "invert": "a condition is inverted",
    "compare": "a comparison has its neighbour: < for <=, == for !=",
    "add one": "a constant is one larger",
    "no error": "a call of verbs or rdma_cm seems to succeed",
    "swap": "two successive statements, one of which other threads see, have changed places",
    "no lock": "a lock is not taken",
}
NEIGHBOUR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
BODIES = {kind.COMPOUND_STMT, kind.IF_STMT, kind.FOR_STMT, kind.WHILE_STMT, kind.DO_STMT, kind.CXX_FOR_RANGE_STMT}
# Nodes in which no expression is evaluated at run time.
STATIC = {kind.STATIC_ASSERT, kind.ENUM_CONSTANT_DECL, kind.TEMPLATE_NON_TYPE_PARAMETER, kind.TYPE_ALIAS_DECL, kind.CONCEPT_DECL
          if hasattr(kind, "CONCEPT_DECL") else kind.STATIC_ASSERT}  # fmt: skip
# A step of a protocol between threads, whose order matters.
ORDERED = re.compile(r"\bstore\(|(?<!std::)\b(compare_)?exchange|fetch_(add|sub|or|and)|\bset_(state|next)\(|\bpublish\(|unlock\(|\bnotify")
# Code of builds in which the mutants do not run.
OTHER_BUILDS = re.compile(r"if constexpr \((checked_build|thread_sanitizer)\b")
# A note to ThreadSanitizer, which is no code in other builds.
NOTE = re.compile(r"\btsan_\w+\(")
FUNCTIONS = {kind.CXX_METHOD, kind.FUNCTION_DECL, kind.CONSTRUCTOR, kind.DESTRUCTOR, kind.CONVERSION_FUNCTION, kind.FUNCTION_TEMPLATE}
# Calls whose constants change no result: how much memory is set aside at once, and hints to the compiler.
HINTS = {"reserve", "__builtin_expect", "__builtin_prefetch"}
# libclang has no kind of its own for a variable template.
CONSTANT_TEMPLATE = re.compile(r"template <[^{;=]*>\s*(inline |static )*constexpr [^({;=]*=")


class mutant(NamedTuple):
    """A fault: what of a file it replaces, and by what. `HERE` in the replacement is the call that asks for the mutant."""

    file: str  # below the root of the tree
    line: int
    begin: int  # bytes
    end: int
    kind: str
    text: str  # the text of the source, in one line
    replacement: str
    function: str = ""  # the name of the function, with its class
    nth: int = 1  # of those with the same text in the functions of this name

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What identifies it while lines move."""
        return self.file, self.function, self.kind, self.text, self.nth


class reader:
    """Walks the syntax tree of one file after the other."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.sources: dict[str, bytes] = {}
        self.found: dict[tuple[str, int, int, str], mutant] = {}
        self.function = ""

    def source(self, name: str) -> bytes:
        if name not in self.sources:
            self.sources[name] = pathlib.Path(name).read_bytes()
        return self.sources[name]

    def text_of(self, cursor: cindex.Cursor) -> str:
        extent = cursor.extent
        return self.source(extent.start.file.name)[extent.start.offset : extent.end.offset].decode()

    def add(self, what: str, cursor: cindex.Cursor, replacement: str, end: Optional[int] = None) -> None:
        start = cursor.extent.start
        name = str(pathlib.Path(start.file.name).relative_to(self.root))
        last = cursor.extent.end.offset if end is None else end
        text = " ".join(self.source(start.file.name)[start.offset : last].decode().split())
        if not NOTE.search(text):
            self.found[(name, start.offset, last, what)] = mutant(name, start.line, start.offset, last, what, text, replacement, self.function)

    def statement_end(self, cursor: cindex.Cursor) -> Optional[int]:
        """The offset behind the semicolon of a statement that is an expression."""
        source, at = self.source(cursor.extent.end.file.name), cursor.extent.end.offset
        while at < len(source) and source[at : at + 1].isspace():
            at += 1
        return at + 1 if source[at : at + 1] == b";" else None

    def is_action(self, cursor: cindex.Cursor) -> bool:
        """Whether a statement is a call, an assignment or a step, whose value is not used."""
        while cursor.kind in {kind.UNEXPOSED_EXPR} and len(list(cursor.get_children())) == 1:
            cursor = next(iter(cursor.get_children()))
        return cursor.kind in {kind.CALL_EXPR, kind.BINARY_OPERATOR, kind.COMPOUND_ASSIGNMENT_OPERATOR, kind.UNARY_OPERATOR}

    def operator_of(self, cursor: cindex.Cursor, left: cindex.Cursor, right: cindex.Cursor) -> str:
        source = self.source(cursor.extent.start.file.name)
        return source[left.extent.end.offset : right.extent.start.offset].decode().strip()

    def condition(self, cursor: cindex.Cursor) -> None:
        """The condition of an if, a loop or a conditional expression."""
        text = self.text_of(cursor)
        if text and "constexpr" not in text and text not in {"thread_sanitizer", "checked_build"}:
            self.add("invert", cursor, f"(HERE != static_cast<bool>({text}))")

    def visit(self, cursor: cindex.Cursor, parent: cindex.Cursor, used: bool) -> None:
        """One node within the body of a function. `used`: whether something depends on its value."""
        children = list(cursor.get_children())
        if cursor.kind == kind.COMPOUND_STMT:
            self.block(children)
        elif cursor.kind in {kind.IF_STMT, kind.WHILE_STMT, kind.CONDITIONAL_OPERATOR}:
            head = self.source(cursor.extent.start.file.name)[cursor.extent.start.offset :][:14]
            first = children[0] if children else None
            if first is not None and first.kind not in {kind.VAR_DECL, kind.DECL_STMT} and not head.startswith((b"if constexpr", b"if consteval")):
                self.condition(first)
        elif cursor.kind == kind.BINARY_OPERATOR and len(children) == 2:
            sign = self.operator_of(cursor, *children)
            if sign in NEIGHBOUR:
                left, right = (self.text_of(child) for child in children)
                self.add("compare", cursor, f"(HERE ? ({left} {NEIGHBOUR[sign]} {right}) : ({left} {sign} {right}))")
        elif cursor.kind == kind.INTEGER_LITERAL and self.text_of(cursor)[:1].isdigit():
            self.add("add one", cursor, f"({self.text_of(cursor)} + HERE)")
        elif cursor.kind == kind.CALL_EXPR and used and cursor.spelling.startswith(("ibv_", "rdma_")) and cursor.type.spelling == "int":
            text = self.text_of(cursor)
            self.add("no error", cursor, f"(HERE ? (static_cast<void>({text}), 0) : ({text}))")
        if cursor.kind in BODIES and cursor.kind != kind.COMPOUND_STMT:
            bodies = {kind.IF_STMT: children[1:], kind.DO_STMT: children[:1]}
            for child in bodies.get(cursor.kind, children[-1:]):
                self.action(child)

    def action(self, child: cindex.Cursor) -> Optional[int]:
        """A statement that may be left out. Returns where it ends."""
        end = self.statement_end(child) if self.is_action(child) else None
        if end is not None:
            source = self.source(child.extent.start.file.name)[child.extent.start.offset : end].decode()
            self.add("leave out", child, f"{{ if (!HERE) {{ {source} }} }}", end)
        return end

    def block(self, children: list[cindex.Cursor]) -> None:
        """The statements of a block."""
        previous: Optional[cindex.Cursor] = None
        for child in children:
            end = self.action(child)
            if end is not None and previous is not None:
                source = self.source(child.extent.start.file.name)
                first = source[previous.extent.start.offset : self.statement_end(previous)].decode()
                second = source[child.extent.start.offset : end].decode()
                if first != second and (ORDERED.search(first) or ORDERED.search(second)):
                    self.add("swap", previous, f"if (HERE) {{ {second} {first} }} else {{ {first} {second} }}", end)
            previous = child if end is not None else None
            if child.kind == kind.DECL_STMT:
                self.lock(child)

    def lock(self, statement: cindex.Cursor) -> None:
        """A lock that is held to the end of the block."""
        for variable in statement.get_children():
            text = self.text_of(statement)
            match = re.fullmatch(r"(?:const )?std::lock_guard (\w+)\((.*)\);", text, re.S)
            if variable.kind == kind.VAR_DECL and match:
                name, mutex = match.groups()
                self.add("no lock", statement, f"std::unique_lock {name}({mutex}, std::defer_lock); if (!HERE) {name}.lock();")

    def walk(self, cursor: cindex.Cursor, parent: cindex.Cursor, in_body: bool) -> None:
        """All nodes below one, from the sources of the tree."""
        for child in cursor.get_children():
            file = child.location.file
            if file is None or not self.ours(file.name) or child.extent.start.file is None or child.extent.start.file.name != file.name:
                continue
            if child.kind in STATIC or self.is_static(child):
                continue
            if cursor.kind == kind.CASE_STMT and child == next(iter(cursor.get_children())):
                continue
            if child.kind == kind.IF_STMT and OTHER_BUILDS.match(self.text_of(child)):
                continue
            if self.is_of_type(child, cursor):
                continue
            if cursor.kind == kind.CALL_EXPR and (cursor.spelling in HINTS or cursor.spelling.startswith("tsan_")):
                continue
            inside = in_body or child.kind == kind.COMPOUND_STMT
            outer = self.function
            if child.kind in FUNCTIONS:
                self.function = name_of(child)
            if inside:
                used = cursor.kind not in BODIES or cursor.kind == kind.IF_STMT and next(iter(cursor.get_children())) == child
                self.visit(child, cursor, used)
            self.walk(child, cursor, inside)
            self.function = outer

    def is_static(self, cursor: cindex.Cursor) -> bool:
        """A constant, the label of a case, or a function that only the compiler runs."""
        if cursor.kind == kind.VAR_DECL:
            return "constexpr" in self.text_of(cursor).partition("=")[0]
        if cursor.kind == kind.UNEXPOSED_DECL:  # among them a variable template
            return CONSTANT_TEMPLATE.match(self.text_of(cursor)) is not None
        if cursor.kind in FUNCTIONS:
            return cursor.spelling.startswith("tsan_") or "consteval" in self.text_of(cursor).partition("{")[0]
        return False

    def is_of_type(self, cursor: cindex.Cursor, parent: cindex.Cursor) -> bool:
        """The condition of an if constexpr, the argument of a template, or the length of an array."""
        start = cursor.extent.start.offset
        if parent.kind == kind.IF_STMT:
            head = self.source(parent.extent.start.file.name)[parent.extent.start.offset : start]
            return b"constexpr" in head and b")" not in head
        if parent.kind in {kind.VAR_DECL, kind.FIELD_DECL}:
            between = self.source(parent.extent.start.file.name)[parent.location.offset : start]
            return start < parent.location.offset or re.fullmatch(rb"\w+\[", between) is not None
        return cursor.kind == kind.INTEGER_LITERAL and parent.kind in {kind.DECL_REF_EXPR, kind.MEMBER_REF_EXPR}

    def ours(self, name: str) -> bool:
        return name.startswith((f"{self.root}/include/", f"{self.root}/detail/"))


def name_of(function: cindex.Cursor) -> str:
    """The name of a function, with that of its class."""
    owner = function.semantic_parent
    name = function.spelling.partition("<")[0] if not function.spelling.startswith("operator") else function.spelling
    inside = owner is not None and owner.kind in {kind.STRUCT_DECL, kind.CLASS_DECL, kind.CLASS_TEMPLATE, kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
    return f"{owner.spelling}::{name}" if inside else name


def counted(found: list[mutant]) -> list[mutant]:
    """Mutants in the order of their places, each with its number among those that look the same."""
    seen: dict[tuple[str, str, str, str], int] = {}
    out = []
    for one in sorted(found):
        key = one.file, one.function, one.kind, one.text
        seen[key] = seen.get(key, 0) + 1
        out.append(one._replace(nth=seen[key]))
    return out


def library() -> Optional[str]:
    """The newest libclang of the system."""
    found = sorted(glob.glob("/usr/lib/*/libclang-[0-9]*.so.1"))
    return found[-1] if found else None


def find(root: pathlib.Path, headers: Optional[list[str]] = None) -> list[mutant]:
    """All mutants of include/ and detail/ below `root`, in the order of the files. Some may not compile."""
    root = root.resolve()
    if not cindex.Config.loaded and (path := library()):
        cindex.Config.set_library_file(path)
    names = headers or [f"dat/{p.relative_to(root / 'include/dat')}" for p in sorted((root / "include/dat").rglob("*.hpp")) if p.name != "src.hpp"]
    text = "".join(f"#include <{name}>\n" for name in names)
    own = sorted(glob.glob("/usr/lib/llvm-*/lib/clang/*/include"))
    arguments = ["-std=c++20", f"-I{root}/include", f"-I{root}/detail", *(f"-I{path}" for path in own[-1:])]
    unit = cindex.Index.create().parse("mutants.cpp", args=arguments, unsaved_files=[("mutants.cpp", text)])
    errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        sys.exit("mutants: libclang cannot read the sources:\n" + "\n".join(errors[:5]))
    walker = reader(root)
    walker.walk(unit.cursor, unit.cursor, False)
    return counted(list(walker.found.values()))


def sample(every: list[mutant], count: int, seed: int) -> list[mutant]:
    """Random mutants whose places do not overlap; each place is equally likely."""
    pick = list(every)
    random.Random(seed).shuffle(pick)
    chosen: list[mutant] = []
    for one in pick:
        if len(chosen) == count:
            break
        if all(one.file != other.file or one.end <= other.begin or other.end <= one.begin for other in chosen):
            chosen.append(one)
    return sorted(chosen)


def rounds(every: list[mutant]) -> Iterator[list[mutant]]:
    """All mutants, in sets whose places do not overlap."""
    rest = sorted(every, key=lambda one: (one.file, one.end, -one.begin))
    while rest:
        chosen: list[mutant] = []
        left: list[mutant] = []
        for one in rest:
            last = chosen[-1] if chosen else None
            (chosen if last is None or last.file != one.file or last.end <= one.begin else left).append(one)
        yield sorted(chosen)
        rest = left


def planted(source: bytes, numbered: list[tuple[int, mutant]]) -> tuple[bytes, dict[int, range]]:
    """A source with mutants beside the correct code, and the lines of each mutant there."""
    out, at, lines = b"", 0, {}
    for number, one in sorted(numbered, key=lambda pair: pair[1].begin):
        out += source[at : one.begin]
        first = out.count(b"\n") + 1
        out += re.sub(r"\bHERE\b", f"::dat_mutant({number})", one.replacement).encode()
        lines[number] = range(first, out.count(b"\n") + 2)
        at = one.end
    return out + source[at:], lines


def plant(root: pathlib.Path, tree: pathlib.Path, chosen: dict[int, mutant]) -> dict[str, dict[int, range]]:
    """Write the mutants into `tree`, a copy of `root`, over those that it had. Returns their lines by file and number."""
    by_file: dict[str, list[tuple[int, mutant]]] = {}
    for number, one in chosen.items():
        by_file.setdefault(one.file, []).append((number, one))
    lines = {}
    for folder in ("include", "detail"):
        for path in sorted((root / folder).rglob("*.?pp")):
            name = str(path.relative_to(root))
            text, lines[name] = planted(path.read_bytes(), by_file.get(name, []))
            copy = tree / name
            if not copy.exists() or copy.read_bytes() != text:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(text)
    return lines
