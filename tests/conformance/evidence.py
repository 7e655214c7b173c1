"""The main point of each rule that is shown, and the assertion that holds it: docs/conformance/evidence.

docs/conformance/README.md, "Evidence", defines the tables. Checked here is that each entry names a test case of the sources,
that this case names the rule, and that the assertion is in it.
"""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TITLE = ["rule", "main point", "test", "assertion"]
BY_SHOWS = "SHOWS"
CASE = re.compile(r"^(?:TEMPLATE_)?TEST_CASE(_METHOD|_SIG)?\(", re.MULTILINE)
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
TAG = re.compile(r"\[([^\[\]]+)\]")
RULE_STRING = re.compile(r'"([A-Z][A-Z0-9]*-\d{3})"')  # in SHOWS, or in a table from which a loop passes rules to SHOWS
COMPILE_FAIL = "compile_fail/cases"
# A condition, a cast or a list of tags: text that does not depend on the behaviour of dat.
NO_ASSERTION = re.compile(r"(\(void\)|(if|while|for) \([^{}]*\)|error:|tags:.*|//.*|)")


@dataclass(frozen=True)
class Source:
    """A test case as the sources have it."""

    file: str  # below tests/
    name: str
    body: str
    tags: frozenset[str]
    shows: frozenset[str]
    shared: str = ""  # the text outside of the cases: functions and tables that cases use

    @property
    def key(self) -> str:
        return f"{self.file}: {self.name}"

    def names(self, rule: str) -> bool:
        return rule in self.tags or rule in self.shows


@dataclass(frozen=True)
class Entry:
    rule: str
    point: str
    test: str  # "file: name of the case"
    assertion: str  # a piece of the case's text, or SHOWS
    where: str = field(default="", compare=False)


def squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


# --- the sources -----------------------------------------------------------------------------------------------------


def closing(text: str, start: int) -> int:
    """The position behind the parenthesis that closes the one before `start`."""
    depth, at = 1, start
    while depth and at < len(text):
        if text[at] == '"':
            string = STRING.match(text, at)
            at = string.end() if string else at + 1
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def strings(arguments: str) -> list[str]:
    """The string arguments, each joined from its adjacent literals."""
    joined = re.sub(r'"\s+"', "", arguments)
    return [re.sub(r"\\(.)", r"\1", found) for found in STRING.findall(joined)]


def cases_of(file: str, text: str) -> Iterator[Source]:
    """The cases of a C++ file. A case ends with the first line that begins with its closing brace."""
    found: list[tuple[list[str], str]] = []  # the strings of the head, and the body
    outside, before = "", 0
    for start in CASE.finditer(text):
        end_of_head = closing(text, start.end())
        end = text.find("\n}", end_of_head)
        end = end if end >= 0 else len(text)
        found.append((strings(text[start.end() : end_of_head]), text[end_of_head:end]))
        outside, before = outside + text[before : start.start()], end
    shared = squeeze(outside + text[before:])
    for head, body in found:
        name, tags = (squeeze(head[0]) if head else ""), frozenset(TAG.findall(head[1] if len(head) > 1 else ""))
        yield Source(file, name, squeeze(body), tags, frozenset(RULE_STRING.findall(body)), shared)


def refused_programs_of(file: str, text: str) -> Iterator[Source]:
    """The cases of a file of programs that must not compile. Their names in results begin with that of the file."""
    for block in re.split(r"^(?=//! case: )", text, flags=re.MULTILINE)[1:]:
        tags = frozenset(tag for line in re.findall(r"^//! tags: (.*)", block, re.MULTILINE) for tag in TAG.findall(line))
        name = squeeze(block.splitlines()[0].removeprefix("//! case: "))
        yield Source(file, f"{Path(file).stem}: {name}", squeeze(block.split("\n#endif")[0]), tags, frozenset())


def read_sources(tests: Path) -> dict[str, Source]:
    """All cases below tests/, by "file: name"."""
    known: dict[str, Source] = {}
    for path in sorted(tests.rglob("*.cpp")):
        file = path.relative_to(tests).as_posix()
        read = refused_programs_of if file.startswith(COMPILE_FAIL) else cases_of
        known |= {case.key: case for case in read(file, path.read_text(encoding="utf-8"))}
    return known


# --- the tables ------------------------------------------------------------------------------------------------------


def split_row(line: str) -> list[str]:
    body = re.sub(r"(?<!\\)\|$", "", line.strip().removeprefix("|"))
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", body)]


def read(folder: Path, problems: list[str]) -> dict[str, list[Entry]]:
    """The entries of FAMILY.md for each family, by rule."""
    entries: dict[str, list[Entry]] = {}
    for path in sorted(folder.glob("*.md")):
        header: list[str] = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"evidence/{path.name}:{number}"
            if not line.startswith("|"):
                header = []
            elif not header:
                header = split_row(line)
                if header != TITLE:
                    problems.append(f"{where}: the columns are {', '.join(TITLE)}")
            elif re.fullmatch(r"\|[-:| ]+\|\s*", line):
                pass
            elif len(cells := split_row(line)) != len(TITLE) or not all(cells):
                problems.append(f"{where}: an entry has {len(TITLE)} cells, and none is empty")
            elif cells[0].rsplit("-", 1)[0] != path.stem:
                problems.append(f"{where}: {cells[0]} does not belong to {path.stem}")
            else:
                assertion = cells[3] if cells[3] == BY_SHOWS else cells[3].removeprefix("`").removesuffix("`")
                entries.setdefault(cells[0], []).append(Entry(*cells[:3], assertion, where))
    return entries


def asserts_nothing(text: str) -> bool:
    """A condition counts as one when its parenthesis closes at the end of the text."""
    if NO_ASSERTION.fullmatch(text) is None:
        return False
    return not text.startswith(("if (", "while (", "for (")) or closing(text, text.index("(") + 1) == len(text)


def stands_behind(text: str, rule: str, source: Source) -> bool:
    """Whether the case names the rule by SHOWS alone, and only before the text."""
    last = max((found.start() for found in RULE_STRING.finditer(source.body) if found[1] == rule), default=-1)
    return rule not in source.tags and last >= 0 and source.body.find(text) > last


def problems_of(entry: Entry, sources: dict[str, Source]) -> Iterator[str]:
    """Why the entry does not match the sources."""
    source = sources.get(entry.test)
    if source is None:
        yield f"{entry.where}: {entry.rule}: tests/ has no case '{entry.test}'"
    elif entry.assertion == BY_SHOWS:
        # SHOWS may be in a function that several cases of the file call.
        if entry.rule not in source.shows and f'"{entry.rule}"' not in source.shared:
            yield f"{entry.where}: '{entry.test}' has no SHOWS(\"{entry.rule}\")"
    elif squeeze(entry.assertion) not in source.body and squeeze(entry.assertion) not in source.shared:
        yield f"{entry.where}: {entry.rule}: '{entry.test}' does not contain `{entry.assertion}`"
    elif asserts_nothing(squeeze(entry.assertion)):
        yield f"{entry.where}: {entry.rule}: `{entry.assertion}` asserts nothing"
    elif stands_behind(squeeze(entry.assertion), entry.rule, source):
        yield f"{entry.where}: {entry.rule}: `{entry.assertion}` stands behind each SHOWS(\"{entry.rule}\")"
    elif not source.names(entry.rule) and f'"{entry.rule}"' not in source.shared:
        yield f"{entry.where}: '{entry.test}' names {entry.rule} neither by tag nor by SHOWS"


def title_of(test: str) -> str:
    """The name of the case in results, where that of a template is followed by its arguments."""
    return test.split(": ", 1)[1]


def is_case(name: str, test: str) -> bool:
    title = title_of(test)
    return name == title or name.startswith(title + " - ")


def render(rows: Iterable[Entry], title: str) -> str:
    """The text of FAMILY.md."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    lines = [
        f"<!-- {title}. Form: ../README.md, \"Evidence\". SPDX-License-Identifier: BSL-1.0 -->",
        f"# {title}",
        "",
        "| " + " | ".join(TITLE) + " |",
        "|---|---|---|---|",
    ]
    for row in rows:
        assertion = row.assertion if row.assertion == BY_SHOWS else f"`{row.assertion}`"
        lines.append(f"| {row.rule} | {cell(row.point)} | {cell(row.test)} | {cell(assertion)} |")
    return "\n".join(lines) + "\n"
