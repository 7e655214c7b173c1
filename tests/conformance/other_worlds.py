"""What the device tests show in other worlds: on another kernel, or on another driver than Soft-RoCE.

docs/conformance/worlds/NAME.txt has the rules of one world and the run that they were shown in. README.md there and
docs/conformance/README.md, "Other worlds", define it.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The name of a world -> its column in STATUS.md, and the driver and the kernel that its results must come from.
WORLDS = {"linux-6.12": ("rxe 6.12", "rxe", "Linux 6.12"), "siw": ("siw 6.1", "siw", "Linux 6.1")}
ORIGIN = "# From "
FOLDER = "worlds"


@dataclass
class World:
    """The rules that the device tests have shown in a world, and the run that has shown them."""

    origin: str = ""
    cases: int = 0  # the cases that passed
    rules: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.rules)


def path_of(docs: Path, name: str) -> Path:
    return docs / FOLDER / f"{name}.txt"


@dataclass(frozen=True)
class LeftOut:
    """Cases that are not run in a world, by names or tags as Catch2 takes them, and why."""

    cases: list[str]
    reason: str


@dataclass(frozen=True)
class Selection:
    """The cases that are run in a world."""

    only: str = ""  # a tag; if empty, all cases
    left_out: list[LeftOut] = field(default_factory=list)
    each_run: list[str] = field(default_factory=list)  # names of the cases that `./dev test` runs there each time

    def each_run_filter(self) -> str:
        """Catch2's filter of the cases of each run: each name up to its first comma, which would end the filter."""
        starts = (name.partition(",") for name in self.each_run)
        return ",".join(f'"{start}*"' if comma else f'"{start}"' for start, comma, _ in starts)

    def filter(self) -> str:
        """Catch2's filter; empty for all cases."""
        cases = [case for entry in self.left_out for case in entry.cases]
        return self.only + "".join(f"~{case}" if case.startswith("[") else f'~"{case}"' for case in cases)


def selection(docs: Path, name: str) -> Selection:
    """What worlds/NAME.toml selects; all cases without the file. Raises ValueError or TypeError."""
    path = docs / FOLDER / f"{name}.toml"
    told = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Selection(told.pop("only", ""), [LeftOut(**entry) for entry in told.pop("left_out", [])], told.pop("each_run", []), **told)


def render(name: str, world: World) -> str:
    """One line a family: its name and the numbers of the rules."""
    families: dict[str, list[str]] = {}
    for rule in sorted(world.rules):
        family, number = rule.rsplit("-", 1)
        families.setdefault(family, []).append(number)
    head = [
        f"# Rules shown on {WORLDS[name][0]} by {world.cases} device tests. Written by ledger.py --world; do not edit. "
        "SPDX-License-Identifier: BSL-1.0",
        f"{ORIGIN}{world.origin}",
    ]
    return "\n".join(head + [f"{family} {' '.join(numbers)}" for family, numbers in families.items()]) + "\n"


def parse(text: str, problem: Callable[[str], None]) -> World:
    """The world of a file; `problem` gets what is wrong with it."""
    world = World()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(ORIGIN):
            world.origin = line.removeprefix(ORIGIN)
        elif line.startswith("#"):
            if count := re.search(r" by (\d+) device tests", line):
                world.cases = int(count[1])
        elif re.fullmatch(r"[A-Z][A-Z0-9]*( \d{3})+", line):
            family, *numbers = line.split()
            world.rules |= {f"{family}-{n}" for n in numbers}
        else:
            problem(f"line {number}: not a family and the numbers of its rules")
    if not world.origin or not world.cases:
        problem("no line says from which run it is")
    return world


def load(docs: Path, known: Iterable[str], problems: list[str]) -> dict[str, World]:
    """All worlds that have a file, in the order of WORLDS."""
    loaded: dict[str, World] = {}
    rules = set(known)
    for path in sorted((docs / FOLDER).glob("*.txt")):
        if path.stem not in WORLDS:
            problems.append(f"{FOLDER}/{path.name}: there is no such world ({', '.join(WORLDS)})")
            continue
        where = f"{FOLDER}/{path.name}"
        world = parse(path.read_text(encoding="utf-8"), lambda text, where=where: problems.append(f"{where}: {text}"))
        problems += [f"{where}: {rule} is no rule of the catalogue" for rule in sorted(world.rules - rules)]
        loaded[path.stem] = world
    return {name: loaded[name] for name in WORLDS if name in loaded}


def render_status(docs: Path, worlds: dict[str, World], rules: Iterable[str], on_rxe: set[str]) -> Iterator[str]:
    """The section of STATUS.md: by object, how many of the rules that are shown on rxe are shown in each world, too."""
    if not worlds:
        return
    yield "## Other worlds"
    yield ""
    yield (
        "How many of the rules that Soft-RoCE of Linux 6.1 shows are shown in other worlds, too, by the same device tests. "
        "[The README](README.md#other-worlds) says what is left out where."
    )
    yield ""
    yield "| world | device tests that passed | rules | from |\n|---|--:|--:|---|"
    for name, world in worlds.items():
        yield f"| {WORLDS[name][0]} | {world.cases} | {len(world.rules & on_rxe)} | {world.origin} |"
    yield ""
    for name in worlds:
        chosen = selection(docs, name)
        if chosen.only:
            yield f"- On {WORLDS[name][0]} only the cases with the tag {chosen.only} are run."
        for entry in chosen.left_out:
            cases = ", ".join(entry.cases)
            yield f"- Left out on {WORLDS[name][0]}: {cases}. {entry.reason}"
    yield ""
    yield f"| object | shown on rxe 6.1 | {' | '.join(WORLDS[name][0] for name in worlds)} |\n|---|--:{'|--:' * len(worlds)}|"
    families: dict[str, list[str]] = {}
    for rule in rules:
        families.setdefault(rule.rsplit("-", 1)[0], []).append(rule)
    for family, members in families.items():
        shown = on_rxe & set(members)
        if shown:
            yield f"| {family} | {len(shown)} | {' | '.join(str(len(world.rules & shown)) for world in worlds.values())} |"
    yield ""


def replace_section(status: str, lines: Iterable[str]) -> str:
    """The text of STATUS.md with these lines in place of the section that render_status() has written, or behind "By part"."""
    section = "".join(f"{line}\n" for line in lines)
    head, mark, rest = status.partition("## Other worlds\n")
    if mark:
        return head + section + rest[rest.index("\n## ") + 1 :]
    after = status.index("\n## ", status.index("## By part\n")) + 1
    return status[:after] + section + status[after:]
