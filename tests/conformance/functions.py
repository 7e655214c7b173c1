"""The functions of uDAPL, their names in dat, and whether those names exist.

Reads the inventory (docs/conformance/rules/0-api-inventory.md), docs/mapping.md, docs/thread-safety.md and the headers.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INCLUDE = ROOT / "include" / "dat"
HOW_MANY = 93

SPAN = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[a-z_]\w*(?:::[a-z_]\w*)*")
OPENING = re.compile(r"^(?:template <[^\n]*>\n)?(?:class|struct) (\w+)(?:<\w+>)?(?: final)?(?: : [^;{]*?)? ?\{", re.MULTILINE)


@dataclass(frozen=True)
class Function:
    """One of the 93 functions, and its row of docs/mapping.md."""

    number: int
    name: str
    lines: tuple[int, int] | None  # of the specification
    extension: bool  # lines of the IB extensions instead
    dat: str = ""
    header: str = ""

    @property
    def planned(self) -> bool:
        return self.dat.startswith("planned")

    @property
    def names(self) -> list[str]:
        """The names of dat in the row."""
        return [] if self.planned else names_in(self.dat)


@dataclass
class Names:
    """The declarations of the headers: members by class, and all words by header."""

    members: dict[str, set[str]] = field(default_factory=dict)
    words: dict[str, set[str]] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)

    def has(self, name: str, headers: list[str]) -> bool:
        owner, _, member = name.rpartition("::")
        if owner and owner not in self.namespaces:
            return member in self.members.get(owner, set())
        return any(member in self.words.get(header, set()) for header in headers or list(self.words))


def in_range(function: Function, cell: str) -> bool:
    """Whether a cell of `spec lines` begins one of its ranges within the function's clause."""
    if function.lines is None:
        return False
    pattern = r"\bIB(\d+)" if function.extension else r"(?<![\w:.-])(?<!IBX )U?(\d{3,5})"
    return any(function.lines[0] <= int(number) <= function.lines[1] for number in re.findall(pattern, cell))


def names_in(cell: str) -> list[str]:
    return [span for span in SPAN.findall(cell) if NAME.fullmatch(span) and not span.startswith("std::")]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of the table rows that begin with a number."""
    for line in text.splitlines():
        if re.match(r"\| *\d+ *\|", line):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]


def inventory(text: str) -> dict[int, Function]:
    """The numbered rows whose second cell begins with a function's name; tables of types have numbers, too."""
    functions: dict[int, Function] = {}
    for cells in rows(text):
        name = re.match(r"`(dat_\w+|\w+_func)`", cells[1])
        if not name or len(cells) < 5 or int(cells[0]) in functions:
            continue
        number = int(cells[0])
        lines = re.search(r"\b(\d{3,5})(?:-(\d+))?\b", cells[4])
        functions[number] = Function(
            number, name[1], (int(lines[1]), int(lines[2] or lines[1])) if lines else None, number >= 90 or "ib:" in cells[4]
        )
    return functions


def mapping(text: str, functions: dict[int, Function], problems: list[str]) -> dict[int, Function]:
    """The functions with their rows of docs/mapping.md."""
    seen: dict[int, Function] = {}
    for cells in rows(text):
        number, name = int(cells[0]), cells[1].strip("`")
        known = functions.get(number)
        if known is None or known.name != name:
            problems.append(f"mapping.md: {number} is {known.name if known else 'no function'}, not {name}")
        elif len(cells) != 5:
            problems.append(f"mapping.md: {number} has {len(cells)} cells instead of 5")
        elif number in seen:
            problems.append(f"mapping.md: {number} is there twice")
        elif not cells[2]:
            problems.append(f"mapping.md: {number} has no counterpart, and no reason")
        else:
            seen[number] = Function(number, name, known.lines, known.extension, cells[2], cells[3])
    problems += [f"mapping.md: {f.number} {f.name} is missing" for f in functions.values() if f.number not in seen]
    return seen


def body(text: str, start: int) -> str:
    """The text from an opening brace to its closing one."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return text[start:]


def declared(include: Path) -> Names:
    """The text without comments."""
    names = Names()
    bases: dict[str, list[str]] = {}
    for path in sorted(include.glob("*.hpp")):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        names.namespaces |= set(re.findall(r"^namespace (\w+) \{", text, re.MULTILINE))
        names.words[path.name] = set(re.findall(r"\w+", text))
        for opening in OPENING.finditer(text):
            # The declared or defined name: a function's before its parenthesis, a constant's before its `=`, a member's
            # before its end.
            members = re.findall(r"\b(\w+)(?=\s*(?:\(|=|;|\{))", body(text, opening.end()))
            names.members.setdefault(opening[1], set()).update(members)
            bases[opening[1]] = re.findall(r"\bpublic\s+(?:\w+::)*(\w+)", opening[0])
    for derived, listed in bases.items():
        for base in listed:
            names.members[derived] |= names.members.get(base, set())
    return names


def check_names(page: str, cells: Iterator[tuple[str, list[str]]], names: Names, problems: list[str]) -> None:
    for cell, headers in cells:
        problems += [f"{page}: {name} is not in the headers" for name in names_in(cell) if not names.has(name, headers)]


def load(docs: Path = DOCS, include: Path = INCLUDE) -> tuple[dict[int, Function], list[str]]:
    """The 93 functions with their rows, and all faults of the two pages."""
    problems: list[str] = []
    functions = inventory((docs / "conformance/rules/0-api-inventory.md").read_text(encoding="utf-8"))
    if sorted(functions) != list(range(1, HOW_MANY + 1)):
        problems.append(f"0-api-inventory.md: {len(functions)} functions instead of {HOW_MANY}")
    names = declared(include)

    page = (docs / "mapping.md").read_text(encoding="utf-8")
    mapped = mapping(page, functions, problems)
    for function in mapped.values():
        headers = re.findall(r"\w+\.hpp", function.header)
        problems += [f"mapping.md: {function.number}: no header {header}" for header in headers if header not in names.words]
        if not headers and function.names:
            problems.append(f"mapping.md: {function.number} names no header")
        check_names(f"mapping.md: {function.number}", iter([(function.dat, headers)] if not function.planned else []), names, problems)
    # The two tables at the end: uDAPL's and verbs' types in dat.
    others = [cells for line in page.splitlines() if (cells := re.fullmatch(r"\| ([^|]+) \| ([^|]+) \|", line))]
    check_names("mapping.md", ((cells[2], []) for cells in others), names, problems)

    safety = list(rows((docs / "thread-safety.md").read_text(encoding="utf-8")))
    for cells in safety:
        number = int(cells[0])
        if number not in functions or cells[1] != f"`{functions[number].name}`":
            problems.append(f"thread-safety.md: {number} is not {cells[1]}")
        elif number in mapped and cells[3].startswith("planned") != mapped[number].planned:
            problems.append(f"thread-safety.md: {number} {cells[1]}: planned here or in mapping.md, not in both")
        elif not cells[3].startswith("planned"):
            check_names(f"thread-safety.md: {number}", iter([(cells[3], [])]), names, problems)
    missing = set(functions) - {int(cells[0]) for cells in safety}
    problems += [f"thread-safety.md: {number} {functions[number].name} is missing" for number in sorted(missing)]
    return mapped, problems
