#!/usr/bin/env python3
# Rules for the texts in the headers: hints of errors, documentation of public functions, comments.
# SPDX-License-Identifier: BSL-1.0
"""prose.py [--root DIR]: print the findings and `N passed, N failed`, one for each rule.

Violations that are known are in debt.txt, which may only shrink. `--list` shows every violation with its line."""

import argparse
import pathlib
import re
import sys
from typing import Iterator, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check  # noqa: E402
import debt  # noqa: E402

LITERAL = r'"(?:\\.|[^"\\\n])*"'
# The lines that the documentation of a public function has when it returns `expected`.
FORM = ("Errors", "Allocates", "Blocks", "Thread safety")
# Headless relatives and persons as subjects of machinery. "whose" is allowed: "the thread whose wait ended".
PERSONS = re.compile(r"\b(who|whoever|whom|nobody|somebody)\b(?!')", re.I)
RULES = {"hint", "form", "start", "person"}


class Violation(NamedTuple):
    """A broken rule at a place; `key` is how the list of debts names it."""

    key: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def line_of(text: str, position: int) -> int:
    """The number of a line."""
    return text.count("\n", 0, position) + 1


def without_comments(text: str) -> str:
    """Replace comments by spaces, and keep literals."""
    pattern = re.compile(rf"//[^\n]*|/\*.*?\*/|({LITERAL})", re.S)
    return pattern.sub(lambda m: m.group() if m.group(1) else re.sub(r"[^\n]", " ", m.group()), text)


def arguments_of(text: str, start: int) -> str:
    """The text between the parenthesis that opens at start and the one that closes it."""
    depth, position = 0, start
    for found in re.finditer(rf"{LITERAL}|[()]", text[start:]):
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if not depth:
            position = start + found.start()
            break
    return text[start + 1 : position]


def joined_literals(code: str) -> Iterator[str]:
    """The texts of an expression: adjacent literals are one."""
    for found in re.finditer(rf"{LITERAL}(?:\s*{LITERAL})*", code):
        yield "".join(literal[1:-1] for literal in re.findall(LITERAL, found.group())).replace('\\"', '"')


def is_sentence(text: str) -> bool:
    """Whether a hint begins with a capital, or with a name in quotes or a number, and ends as a sentence does."""
    return bool(re.match(r"[A-Z0-9\"'`]", text)) and text.endswith((".", "!", "?"))


def hint_expressions(plain: str) -> Iterator[tuple[int, str]]:
    """Code that gives the text of a hint, with its position: arguments of hint(), values of constants and variables that
    are named so or are passed to hint(), and arguments of functions that take one."""
    names = {"hint"} | set(re.findall(r"\bhint\((\w+)\)", plain)) | set(re.findall(r"\b(\w*hint\w*)(?:\[\])?\s*=", plain))
    takers = {"hint"} | set(re.findall(r"\b(\w+)\((?:[^(){};]*,\s*)?const char\* (?:\w*hint\w*)[,)]", plain))
    for call in re.finditer(rf"\b(?:{'|'.join(sorted(takers))})(\()", plain):
        yield call.start(), arguments_of(plain, call.start(1))
    for value in re.finditer(rf"\b(?:{'|'.join(sorted(names))})(?:\[\])?\s*=(?!=)\s*", plain):
        rest = plain[value.end() :]
        literals = re.match(rf"(?:[^;\"]|{LITERAL})*", rest)
        yield value.start(), literals.group() if literals else ""


def hints(path: str, text: str) -> list[Violation]:
    """Hints of errors that are no whole sentences."""
    plain = without_comments(text)
    found = {}
    for position, code in hint_expressions(plain):
        # The name of a call, which `at` takes, is no hint; nor are short words in comparisons.
        code = re.sub(rf"\b(?:at|strcmp|find|from)\((?:[^()]|\([^()]*\))*\)|[=!]=\s*{LITERAL}", " ", code)
        for hint in joined_literals(code):
            if " " in hint and not is_sentence(hint):
                found[line_of(plain, position), hint] = Violation(f"hint {path}", path, line_of(plain, position), f'the hint is no sentence: "{hint}"')
    return list(found.values())


def documentation(raw: str) -> list[str]:
    """The lines of the `///` comment in a declaration's text, without the slashes."""
    return [m.group(1) for m in re.finditer(r"^[ \t]*///[ ]?(.*)$", raw, re.M)]


def missing_lines(comment: list[str]) -> list[str]:
    """The lines of the fixed form that a comment lacks. `Errors, Allocates, Blocks: as connect.` has three of them."""
    heads = set()
    for line in comment:
        if found := re.match(rf"((?:{'|'.join(FORM)})(?:(?:, | and )(?:{'|'.join(FORM)}))*):", line, re.I):
            heads |= {word.strip().lower() for word in re.split(r", | and ", found.group(1))}
    return [word for word in FORM if word.lower() not in heads]


def form(path: str, text: str) -> list[Violation]:
    """Public functions that return `expected` and whose documentation lacks a line."""
    plain = check.blank_preprocessor(check.blank_comments(text))
    found = []
    for start, declaration in check.public_declarations(plain):
        bare = check.without_template_heads(declaration)
        head = re.search(r"\bexpected\s*<.*>\s+(\w+)\s*\(", bare, re.S)
        trailing = re.search(r"\b(\w+)\s*\([^{}]*\)[^{}();]*->\s*(?:\w+::)*expected\s*<", bare)
        name = head.group(1) if head else trailing.group(1) if trailing else ""
        if not name or re.search(r"\bfriend\b|\boperator\b|=\s*(?:delete|default)\s*$", bare):
            continue
        missing = missing_lines(documentation(text[start : start + len(declaration)]))
        at = line_of(text, start + declaration.find(name + "(") if name + "(" in declaration else start)
        found += [Violation(f"form {path} {name}", path, at, f"`{name}` has no line `{word}:`") for word in missing]
    return found


def blocks(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """The comments that begin with a mark, each as (line, text): consecutive lines are one comment."""
    current: list[str] = []
    begin = 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        matched = re.match(rf"\s*{mark}(?!/)[<!]?\s?(.*)$", line)
        if matched:
            if not current:
                begin = number
            current.append(matched.group(1))
        elif current:
            yield begin, "\n".join(current)
            current = []


def starts(path: str, text: str) -> list[Violation]:
    """Documentation that begins in lower case, or as a continuation of something else."""
    found = []
    for line, comment in blocks(text, "///"):
        first = comment.lstrip()
        # A name of code may come first: it has an underscore, or is qualified.
        if re.match(r"(?!\w*(?:_|::))[a-z]", first) or re.match(r"The same\b", first):
            words = " ".join(first.split()[:4])
            found.append(Violation(f"start {path}", path, line, f"a comment begins with `{words}`"))
    return found


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Every comment with its position; literals are none."""
    for found in re.finditer(rf"//[^\n]*|/\*.*?\*/|({LITERAL})", text, re.S):
        if not found.group(1):
            yield found.start(), found.group()


def persons(path: str, text: str) -> list[Violation]:
    """Comments with a person for a subject."""
    found = []
    for position, comment in comments(text):
        for word in PERSONS.finditer(comment):
            at = line_of(text, position + word.start())
            found.append(Violation(f"person {path}", path, at, f"`{word.group()}` in a comment: name the thread, the caller or the object"))
    return found


def violations(root: pathlib.Path) -> list[Violation]:
    """Every violation below a root."""
    found = []
    for folder, rules in (("include", (hints, form, starts, persons)), ("detail", (hints, starts, persons))):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in check.HEADER_SUFFIXES:
                text = file.read_text(encoding="utf-8")
                for rule in rules:
                    found += rule(str(file.relative_to(root)), text)
    return found


def counted(found: list[Violation]) -> debt.Counts:
    """The violations by key."""
    counts: debt.Counts = {}
    for violation in found:
        counts[violation.key] = counts.get(violation.key, 0) + 1
    return counts


def main() -> int:
    """Check the tree."""
    parser = argparse.ArgumentParser(description="Check the texts in the headers.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--debt", type=pathlib.Path, default=debt.FILE)
    parser.add_argument("--list", metavar="RULE", nargs="?", const="", help="show every violation, of one rule or of all")
    debt.add_options(parser)
    options = parser.parse_args()
    found = violations(options.root)
    if options.list is not None:
        print("\n".join(str(v) for v in found if not options.list or debt.rule_of(v.key) == options.list))
        return 0
    measured, listed = counted(found), debt.read(options.debt)
    if options.write_debt:
        return debt.write(options.debt, measured, RULES, options.grow)
    failed = 0
    for rule in sorted(RULES):
        findings = debt.compare({k: n for k, n in measured.items() if debt.rule_of(k) == rule}, listed, {rule})
        for finding in findings:
            print(finding)
            key = finding.partition(":")[0]
            if measured.get(key, 0) > listed.get(key, 0):
                print("".join(f"    {v}\n" for v in found if v.key == key), end="")
        failed += bool(findings)
    print(f"{len(RULES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
