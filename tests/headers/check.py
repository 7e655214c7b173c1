#!/usr/bin/env python3
# Structural rules of the headers that no compiler checks; each finding names the file, the line and the rule.
# SPDX-License-Identifier: BSL-1.0
"""check.py [--root DIR]: print the findings and `N passed, N failed`, one for each rule and header."""

import argparse
import pathlib
import re
import sys
from typing import Iterator, NamedTuple

# Names of libibverbs and librdmacm. dat has words of its own that begin with rdma_ (rdma_write, rdma_read), so for
# librdmacm this lists the stems that rdma_cma.h uses for its types and functions.
FOREIGN = re.compile(
    r"\b(?:ibv_\w+|rdma_(?:cm_\w+|event_\w+|conn_\w+|addrinfo|ud_\w+|ib_\w+|route|addr|port_space|driver_id|cc_\w+"
    r"|create_\w+|destroy_\w+|bind_\w+|resolve_\w+|connect|establish|listen|accept|reject\w*|notify|disconnect"
    r"|join_\w+|leave_\w+|get_\w+|ack_\w+|free_\w+|init_\w+|migrate_\w+|set_\w+|getaddrinfo|freeaddrinfo))\b"
)

# Headers that <dat/dat.hpp> leaves out; headers that may define macros, and the prefix of these macros.
OPT_IN = {
    "asio.hpp", "asio_coro.hpp", "buffer.hpp", "coro.hpp", "coro_dto.hpp", "coro_events.hpp", "coro_set.hpp",
    "coro_wait.hpp", "counters.hpp", "credits.hpp", "csp.hpp", "dat_code.hpp", "datagram.hpp", "describe.hpp", "descriptor.hpp", "dynamic.hpp", "ep_params.hpp",
    "ib_query.hpp", "log.hpp", "memory.hpp", "multicast.hpp", "policies.hpp", "pool.hpp", "rails.hpp", "registration_cache.hpp", "registry.hpp", "rmr.hpp", "rsp.hpp",
    "src.hpp", "srq.hpp", "task.hpp", "trace.hpp", "trace_recorder.hpp", "try.hpp", "ud.hpp",
}
# Declarations, and the bodies beside them: both follow the rules of headers.
HEADER_SUFFIXES = {".hpp", ".ipp"}
# The header for one source file of a separately compiled program.
DEFINITIONS = "dat/src.hpp"
MACRO_HEADERS = {"try.hpp": ("DAT_TRY", "DAT_CO_TRY", "DAT_DETAIL_TRY", "DAT_DETAIL_CO_TRY"), "version.hpp": ("DAT_VERSION_",)}


class Finding(NamedTuple):
    """A broken rule at a place."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def blank_comments(text: str) -> str:
    """Replace comments, string and character literals by spaces, keeping every line where it is."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\ ]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
        re.S,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def blank_preprocessor(text: str) -> str:
    """Replace preprocessor lines, with their continuations, by spaces."""
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.M)


def without_template_heads(text: str) -> str:
    """Remove `template <...>` from a declaration, because its parameters contain `class`."""
    while found := re.search(r"\btemplate\s*<", text):
        depth, end = 1, found.end()
        while end < len(text) and depth:
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[end:]
    return text


class Scope(NamedTuple):
    """The scope that a brace opened: 'namespace', 'class', 'enum' or 'body'; and whether users see its contents."""

    kind: str
    visible: bool


def kind_of(head: str) -> str:
    """The kind of scope that a declaration opens with its brace."""
    head = without_template_heads(head).strip()
    head = re.sub(r"^(?:\[\[.*?\]\]\s*)+", "", head)
    if re.match(r"(?:inline\s+)?namespace\b", head):
        return "namespace"
    if re.match(r"(?:typedef\s+|friend\s+)?enum\b", head):
        return "enum"
    if re.match(r"(?:typedef\s+|friend\s+)?(?:class|struct|union)\b", head) and "(" not in re.sub(
        r"\b(?:alignas|requires|decltype|noexcept)\s*\(.*?\)", "", head
    ):
        return "class"
    return "body"


def public_declarations(text: str) -> Iterator[tuple[int, str]]:
    """The declarations that a user sees, as (position, text): no bodies, no private members, no namespace detail."""
    scopes: list[Scope] = []
    start = position = 0
    depth = 0  # of parentheses: a default argument such as `x = {}` neither ends nor opens a declaration

    def visible() -> bool:
        return all(s.visible for s in scopes)

    while position < len(text):
        c = text[position]
        if c in "([":
            depth += 1
        elif c in ")]":
            depth = max(0, depth - 1)
        elif depth:
            pass
        elif c == "{":
            head = text[start:position]
            kind = kind_of(head)
            if visible():
                yield start, head
            if kind == "class":
                bare = without_template_heads(head)
                scopes.append(Scope("class", not re.match(r"\s*(?:\[\[.*?\]\]\s*)*class\b", bare)))
            elif kind == "namespace":
                scopes.append(Scope("namespace", not re.search(r"\bdetail\b", head)))
            else:
                scopes.append(Scope(kind, kind == "enum"))
            start = position + 1
        elif c == "}":
            if visible():
                yield start, text[start:position]
            if scopes:
                scopes.pop()
            start = position + 1
        elif c == ";":
            if visible():
                yield start, text[start:position]
            start = position + 1
        elif c == ":" and scopes and scopes[-1].kind == "class":
            label = re.fullmatch(r"\s*(public|protected|private)\s*", text[start:position])
            if label:
                scopes[-1] = Scope("class", label.group(1) == "public")
                start = position + 1
        position += 1
    if visible() and text[start:].strip():
        yield start, text[start:]


def foreign_names(path: str, text: str) -> list[Finding]:
    """Public declarations that show a name of libibverbs or librdmacm, other than native_handle()."""
    plain = blank_preprocessor(blank_comments(text))
    findings = []
    for start, declaration in public_declarations(plain):
        if re.search(r"\bnative_handle\s*\(", declaration):
            continue
        for found in FOREIGN.finditer(declaration):
            line = plain.count("\n", 0, start + found.start()) + 1
            findings.append(Finding(path, line, f"`{found.group()}` in a public declaration other than native_handle()"))
    return findings


def umbrella_includes(path: str, text: str) -> list[Finding]:
    """Includes of Boost.Outcome's umbrella, which costs a user most of a second."""
    findings = []
    for found in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*[<\"]boost/outcome(?:/outcome)?\.hpp[>\"]", text, re.M):
        findings.append(Finding(path, text.count("\n", 0, found.start()) + 1, "the umbrella header of Boost.Outcome"))
    return findings


def macros(path: str, text: str) -> list[Finding]:
    """Macros that a public header leaves behind."""
    plain = blank_comments(text)
    name = pathlib.PurePath(path).name
    gone = set(re.findall(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", plain, re.M))
    findings = []
    for found in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", plain, re.M):
        allowed = name in MACRO_HEADERS and found.group(1).startswith(MACRO_HEADERS[name])
        if not allowed and found.group(1) not in gone:
            line = plain.count("\n", 0, found.start()) + 1
            findings.append(Finding(path, line, f"macro `{found.group(1)}` in a public header"))
    return findings


def opening(path: str, text: str) -> list[Finding]:
    """The first lines: the purpose of the file, its licence, its guard."""
    lines = text.splitlines()
    findings = []
    if not lines or not re.match(r"// \S", lines[0]) or "SPDX" in lines[0]:
        findings.append(Finding(path, 1, "the first line does not say what the file is for"))
    if "// SPDX-License-Identifier: BSL-1.0" not in lines[:6]:
        findings.append(Finding(path, 1, "no SPDX line at the top"))
    if "#pragma once" not in lines:
        findings.append(Finding(path, 1, "no `#pragma once`"))
    return findings


def unlisted(root: pathlib.Path, folder: str, variable: str) -> list[Finding]:
    """Headers on disk that the build does not know, and headers of the build that are not on disk."""
    build = root / folder / "meson.build"
    found = re.search(rf"^{variable} = \[(.*?)\]", build.read_text(encoding="utf-8"), re.M | re.S)
    listed = re.findall(r"'([^']+)'", found.group(1)) if found else []
    on_disk = {str(p.relative_to(root / folder)) for p in (root / folder / "dat").rglob("*") if p.is_file()} - {DEFINITIONS}
    where = f"{folder}/meson.build"
    findings = [Finding(where, 1, f"{n} is on disk but not in {variable}") for n in sorted(on_disk - set(listed))]
    findings += [Finding(where, 1, f"{n} is in {variable} but not on disk") for n in sorted(set(listed) - on_disk)]
    if listed != sorted(listed):
        findings.append(Finding(where, 1, f"{variable} is not in alphabetical order"))
    return findings


def not_in_umbrella(root: pathlib.Path) -> list[Finding]:
    """Public headers that <dat/dat.hpp> does not include, other than the opt-in ones."""
    folder = root / "include"
    reached, todo = set(), ["dat/dat.hpp"]
    while todo:
        name = todo.pop()
        if name in reached or not (folder / name).is_file():
            continue
        reached.add(name)
        text = blank_comments((folder / name).read_text(encoding="utf-8"))
        todo += re.findall(r"^[ \t]*#[ \t]*include[ \t]*<(dat/(?!detail/)[^>]+)>", text, re.M)
    every = {str(p.relative_to(folder)) for p in folder.rglob("*.hpp")} - {f"dat/{n}" for n in OPT_IN}
    return [Finding("include/dat/dat.hpp", 1, f"does not include <{n}>") for n in sorted(every - reached)]


def not_in_src(root: pathlib.Path) -> list[Finding]:
    """Bodies that <dat/src.hpp> does not include, and whether its list is in alphabetical order."""
    source = root / "include" / DEFINITIONS
    text = blank_comments(source.read_text(encoding="utf-8")) if source.is_file() else ""
    listed = re.findall(r"^[ \t]*#[ \t]*include[ \t]*<(dat/[^>]+\.ipp)>", text, re.M)
    on_disk = {str(p.relative_to(root / "detail")) for p in (root / "detail").rglob("*.ipp")}
    where = f"include/{DEFINITIONS}"
    findings = [Finding(where, 1, f"does not include <{n}>") for n in sorted(on_disk - set(listed))]
    if listed != sorted(listed):
        findings.append(Finding(where, 1, "the bodies are not in alphabetical order"))
    return findings


def printing(path: str, text: str) -> list[Finding]:
    """Output of the library: only the program decides what is printed, with what the log and the errors give it."""
    plain = blank_comments(text)
    pattern = r"\bstd::(?:cout|cerr|clog)\b|\b(?:stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b|\b(?:v?f?printf|f?puts|putchar|perror|v?syslog)\s*\("
    return [Finding(path, plain.count("\n", 0, found.start()) + 1, "the library prints") for found in re.finditer(pattern, plain)][:1]


def bodies(path: str, text: str) -> list[Finding]:
    """Functions of an .ipp that say `inline`: DAT_DECL is `inline`, or nothing where bodies are compiled separately."""
    findings = []
    if pathlib.PurePath(path).suffix == ".ipp":
        plain = blank_preprocessor(blank_comments(text))
        for found in re.finditer(r"^(?:\[\[.*?\]\]\s*)*inline\s+(?!namespace\b|constexpr\b|constinit\b|const\b)[^;{}=]*\(", plain, re.M):
            findings.append(Finding(path, plain.count("\n", 0, found.start()) + 1, "`inline` in place of DAT_DECL"))
    return findings


def check(root: pathlib.Path) -> list[list[Finding]]:
    """Apply every rule to every header below root: the findings of each application."""
    results = [
        unlisted(root, "include", "dat_public_headers"),
        unlisted(root, "detail", "dat_detail_headers"),
        not_in_umbrella(root),
        not_in_src(root),
    ]
    for folder, rules in (
        ("include", (opening, umbrella_includes, foreign_names, macros, printing)),
        ("detail", (opening, umbrella_includes, bodies, printing)),
    ):
        for header in sorted(p for p in (root / folder).rglob("*") if p.suffix in HEADER_SUFFIXES):
            text = header.read_text(encoding="utf-8")
            results += [rule(str(header.relative_to(root)), text) for rule in rules]
    return results


def main() -> int:
    """Check the tree."""
    parser = argparse.ArgumentParser(description="Check the structural rules of the headers.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    results = check(parser.parse_args().root)
    for findings in results:
        for finding in findings:
            print(finding)
    failed = sum(1 for findings in results if findings)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
