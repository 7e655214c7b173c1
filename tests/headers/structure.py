#!/usr/bin/env python3
# The layers of the library, and the numbers that limit its structure.
# SPDX-License-Identifier: BSL-1.0
"""structure.py [--root DIR]: print the numbers with their limits, then `N passed, N failed`.

Each header belongs to a layer. An include, or the name of a class, that leads to a higher layer is a violation. Violations
that are known are in debt.txt, which may only shrink."""

import argparse
import pathlib
import re
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check  # noqa: E402
import debt  # noqa: E402

# The layers from low to high. A word that ends in "/" is a folder below detail/dat/detail, any other word a public header.
# A public header that is not listed belongs to the highest layer.
LAYERS: list[tuple[str, str]] = [
    ("base", "base/ checked timeout"),
    (
        "vocabulary",
        "text/ request/ handle/ address async attributes communicator cookie dto end_reason ep_attributes error evd_id expected fwd ib iov log "
        "object port privileges qos segment service_id srq_attributes status streams strerror trace try version",
    ),
    ("verbs", "verbs/ work/"),
    ("progress", "progress/"),
    ("adapter", "adapter/"),
    ("discovery", "discovery/"),
    ("memory", "memory/"),
    ("posting", "posting/"),
    ("events", "events/"),
    ("connection", "connection/"),
    ("endpoint", "endpoint/"),
    ("datagram", "datagram/"),
    ("what events name", "async_events completions connection_events cr ep event"),
    ("delivery", "delivery/"),
    ("handles", ""),
]
HIGHEST = len(LAYERS) - 1
DETAIL = "detail/dat/detail/"
PUBLIC = "include/dat/"
# The header for one source file of a separately compiled program: it includes everything.
EXEMPT = {"include/dat/src.hpp"}

# The files that one send passes, from building the request to the visitor of its completion, each with a name that
# shows that the file still has this part. The list was made by reading the code from `ep.post(dat::send{...})` to
# `ibv_post_send`, and from `evd.drain` to the visitor. Change the list with the code: a missing file, or one without
# the name, is a finding.
SEND = [
    ("include/dat/dto.hpp", "send"),
    ("detail/dat/detail/request/work_request.hpp", "send_request"),
    ("detail/dat/detail/request/sge_list.hpp", "copy_to"),
    ("include/dat/ep.hpp", "post"),
    ("detail/dat/detail/posting/endpoint_queues.hpp", "submit"),
    ("detail/dat/detail/posting/post_path.hpp", "post_accepted"),
    ("detail/dat/detail/work/work_ring.hpp", "work_ring"),
    ("include/dat/evd.hpp", "drain"),
    ("detail/dat/detail/delivery/drain.hpp", "take_completion"),
    ("include/dat/completions.hpp", "send_done"),
]
# The files that one connection of the active side passes, from `ep.connect` to the visitor of `established`.
CONNECTION = [
    ("include/dat/ep.hpp", "connect"),
    ("detail/dat/detail/endpoint/ep_connect.ipp", "connect"),
    ("detail/dat/detail/connection/connection_state.ipp", "connection_state"),
    ("detail/dat/detail/adapter/cm_id_owner.ipp", "read_cm_events"),
    ("detail/dat/detail/verbs/qp_transitions.ipp", "ibv_modify_qp"),
    ("detail/dat/detail/progress/reactor.ipp", "defer"),
    ("detail/dat/detail/events/merged_evd.ipp", "merged_evd"),
    ("detail/dat/detail/events/event_queue.hpp", "event_queue"),
    ("detail/dat/detail/events/wakeup.ipp", "wakeup"),
    ("include/dat/evd.hpp", "wait_for"),
    ("detail/dat/detail/delivery/wait_for.hpp", "wait_for"),
    ("detail/dat/detail/events/wait_until.ipp", "wait_until"),
    ("detail/dat/detail/delivery/wait_for.ipp", "wait_for_record"),
    ("include/dat/connection_events.hpp", "established"),
]

# The name of each number, its meaning and its bar. A value above the bar is a violation, which the list of debts may
# hold. The unit of `friends` is one tenth of a line in 1,000 lines, so that debts stay whole numbers.
LIMITS: dict[str, tuple[str, int]] = {
    "cycle": ("core classes in the largest cycle of names", 3),
    "includes": ("includes that run upward", 0),
    "uses": ("files that name a class of a higher layer", 0),
    "friends": ("friend lines in 10,000 lines", 15),
    "lmr": ("headers that <dat/lmr.hpp> draws", 25),
    "send": ("files that a send passes", 10),
    "connection": ("files that a connection passes", 12),
    "longest": ("lines of the longest file", 500),
}
LONG = 250  # a file with at least this number of lines explains itself
HELPER = 25  # a class of fewer lines is a helper of the main class of its file
EXPLAINED = 40  # the least number of characters of an explanation
RULES = {"include", "use", "number", "unexplained", "route"}


class Chunk(NamedTuple):
    """A declaration or definition at namespace scope: its head, and all of it."""

    head: str
    text: str


class Tree(NamedTuple):
    """The headers below a root: path -> code without comments and literals; and the raw text."""

    code: dict[str, str]
    raw: dict[str, str]


def load(root: pathlib.Path) -> Tree:
    """Read include/ and detail/."""
    raw = {}
    for folder in ("include", "detail"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in check.HEADER_SUFFIXES:
                raw[str(path.relative_to(root))] = path.read_text(encoding="utf-8")
    return Tree({name: check.blank_comments(text) for name, text in raw.items()}, raw)


def layer_of(path: str) -> int:
    """The number of the layer of a file. The bodies of a public header (impl/) are of its layer."""
    if path.startswith(DETAIL) and not path.startswith(f"{DETAIL}impl/"):
        word = path[len(DETAIL) :].partition("/")[0] + "/"
    else:
        word = pathlib.PurePath(path).stem
    for number, (_, words) in enumerate(LAYERS):
        if word in words.split():
            return number
    return HIGHEST


def unknown_folders(tree: Tree) -> list[str]:
    """Folders of detail/ that no layer has."""
    known = {word for _, words in LAYERS for word in words.split()} | {"impl/"}
    folders = {p[len(DETAIL) :].partition("/")[0] + "/" for p in tree.code if p.startswith(DETAIL)}
    return sorted(folders - known)


def target_of(include: str) -> str:
    """The path of `<dat/...>`."""
    return ("detail/" if include.startswith("dat/detail/") else "include/") + include


def includes_of(code: str) -> list[str]:
    """The paths of dat's headers that a file includes."""
    return [target_of(n) for n in re.findall(r"^[ \t]*#[ \t]*include[ \t]*<(dat/[^>]+)>", code, re.M)]


def upward_includes(tree: Tree) -> debt.Counts:
    """Includes of a header of a higher layer."""
    found: debt.Counts = {}
    for path, code in tree.code.items():
        if path in EXEMPT:
            continue
        for target in includes_of(code):
            # The bodies of a header are beside it, or in impl/, and are included at its end.
            if target.endswith(".ipp") and pathlib.PurePath(target).stem == pathlib.PurePath(path).stem:
                continue
            if layer_of(target) > layer_of(path):
                found[f"include {path} -> {target}"] = 1
    return found


def chunks(code: str) -> list[Chunk]:
    """Declarations and definitions at namespace scope, namespaces opened."""
    text = check.blank_preprocessor(code)
    found = []
    start = position = depth = parens = 0
    head_end = 0
    while position < len(text):
        c = text[position]
        if c in "([":
            parens += 1
        elif c in ")]":
            parens = max(0, parens - 1)
        elif parens:
            pass
        elif c == "{":
            if not depth:
                head = text[start:position]
                if check.kind_of(head) == "namespace" or re.search(r'\bextern\s*$|^\s*extern\s+["\s]*$', head):
                    start = position + 1
                    position += 1
                    continue
                head_end = position
            depth += 1
        elif c == "}":
            if depth:
                depth -= 1
                # A function or a class; an initialiser ends with its semicolon.
                if not depth and check.kind_of(text[start:head_end]) == "body" and "=" not in text[start:head_end].partition("(")[0]:
                    found.append(Chunk(text[start:head_end], text[start : position + 1]))
                    start = position + 1
            else:
                start = position + 1
        elif c == ";" and not depth:
            whole = text[start : position + 1]
            found.append(Chunk(whole[: head_end - start] if head_end > start else whole, whole))
            start = position + 1
        position += 1
    return found


def class_name(chunk: Chunk) -> str:
    """The name of the class that a chunk defines, or nothing; a nested class belongs to what it is nested in."""
    if "{" not in chunk.text or check.kind_of(chunk.head) != "class":
        return ""
    bare = check.without_template_heads(chunk.head)
    bare = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^)]*\)", " ", bare)
    found = re.match(r"\s*(?:class|struct|union)\s+(\w+)\b(?!\s*::)", bare)
    return found.group(1) if found else ""


def member_of(chunk: Chunk) -> str:
    """The class whose member function or constant a chunk defines outside of it, or nothing."""
    if nested := re.match(r"\s*(?:class|struct|union)\s+(\w+)::\w+", check.without_template_heads(chunk.head)):
        return nested.group(1)
    head = chunk.head.partition("(")[0]
    found = re.search(r"\b(\w+)(?:<[^<>]*>)?::(?:~?\w+|operator\b[^(]*)\s*$", head)
    return found.group(1) if found else ""


class Class(NamedTuple):
    """A class of detail/: the file and layer of its (lowest) definition, the lines of that, and all code that belongs to it."""

    path: str
    layer: int
    own_lines: int
    code: str


def classes(tree: Tree) -> dict[str, Class]:
    """Every class that detail/ defines at namespace scope."""
    found: dict[str, Class] = {}
    parts: list[tuple[str, str]] = []
    for path, code in tree.code.items():
        for chunk in chunks(code):
            if name := class_name(chunk):
                if path.startswith(DETAIL):
                    if name not in found or layer_of(path) < found[name].layer:
                        found[name] = Class(path, layer_of(path), chunk.text.strip().count("\n") + 1, "")
                    parts.append((name, chunk.text))
            elif name := member_of(chunk):
                parts.append((name, chunk.text))
    for name, text in parts:
        if name in found:
            found[name] = found[name]._replace(code=found[name].code + text)
    return found


def names_in(code: str, wanted: set[str]) -> dict[str, int]:
    """How often code names each of some classes; members of objects that have the same name do not count."""
    counts: dict[str, int] = {}
    for found in re.finditer(r"(?<!\.)(?<!->)((?:\b\w+\s*::\s*)?)\b(\w+)\b", code):
        qualifier, word = found.group(1).rstrip(" :"), found.group(2)
        for name in (qualifier, word if qualifier in ("", "detail", "dat", "v0") else ""):
            if name in wanted:
                counts[name] = counts.get(name, 0) + 1
    own = own_words(code)
    return {name: count for name, count in counts.items() if not is_own(name, code, own)}


def is_own(name: str, code: str, own: set[str]) -> bool:
    """Whether code declares the word itself: as a nested class, a variable or a function."""
    if re.search(rf"\b(?:class|struct|enum)\s+(?:\w+::)?{name}\b[^;{{}}()]*\{{", code):
        return True
    # An indented declaration belongs to a member: the contents of namespaces are not indented.
    if re.search(rf"^[ \t]+(?:class|struct)\s+{name};", code, re.M):
        return True
    return name in own and not re.search(rf"\b(?:class\s+|struct\s+|detail::){name}\b", code)


def own_words(code: str) -> set[str]:
    """Words that a file uses for something other than a class of detail/: its functions, variables, members, enumerators."""
    plain = re.sub(r"\b(?:class|struct|friend|return|new)\s+", "", code)
    declared = set(re.findall(r"[\w>&*\]]\s+(\w+)(?=\s*(?:\(|\{\}|=|;|,|\)))", plain))
    enumerators = {w for body in re.findall(r"\benum\b[^;{}()]*\{([^}]*)\}", plain) for w in re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", body)}
    return declared | enumerators | set(re.findall(r"\b(?!detail::)\w+::(\w+)\s*\(", plain))


def upward_uses(tree: Tree, known: dict[str, Class]) -> debt.Counts:
    """Names of classes of a higher layer, in code."""
    found: debt.Counts = {}
    for path, code in tree.code.items():
        if path in EXEMPT:
            continue
        layer = layer_of(path)
        above = {name for name, c in known.items() if c.layer > layer}
        for name, count in names_in(check.blank_preprocessor(code), above).items():
            found[f"use {path} {name}"] = count
    return found


def without_friends(code: str) -> str:
    """Code without friend declarations and friend functions' heads."""
    return re.sub(r"\bfriend\s+(?:class|struct)\b[^;]*;", " ", code)


def core_classes(known: dict[str, Class]) -> dict[str, str]:
    """From each class above the vocabulary to its core class: itself, or for a small helper the main class of its file."""
    above = {name: c for name, c in known.items() if c.layer > layer_index("vocabulary")}
    main: dict[str, str] = {}
    for name, c in sorted(above.items()):
        if c.path not in main or c.own_lines > above[main[c.path]].own_lines:
            main[c.path] = name
    return {name: name if c.own_lines >= HELPER else main[c.path] for name, c in above.items()}


def edges_of(known: dict[str, Class]) -> dict[str, list[str]]:
    """The core classes that each core class names in its body and in the bodies of its functions."""
    core = core_classes(known)
    edges: dict[str, list[str]] = {name: [] for name in core.values()}
    for name, owner in core.items():
        named = {core[other] for other in names_in(without_friends(known[name].code), set(core))}
        edges[owner] += [other for other in named if other != owner and other not in edges[owner]]
    return edges


def cycles(known: dict[str, Class]) -> list[list[str]]:
    """The cycles among core classes by these names: strongly connected components of two and more."""
    edges = edges_of(known)
    return sorted((sorted(part) for part in components(edges) if len(part) > 1), key=lambda part: (-len(part), part))


def layer_index(name: str) -> int:
    """The number of a layer."""
    return next(number for number, (n, _) in enumerate(LAYERS) if n == name)


def components(edges: dict[str, list[str]]) -> list[list[str]]:
    """The strongly connected components of a graph (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            found.append(part)

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def declarations_only(code: str) -> str:
    """The text of a file with DAT_SEPARATE_COMPILATION: without the parts for the header-only form."""
    return re.sub(r"^[ \t]*#[ \t]*ifndef[ \t]+DAT_SEPARATE_COMPILATION\b.*?^[ \t]*#[ \t]*endif\b", "", code, flags=re.M | re.S)


def drawn(tree: Tree, start: str, separate: bool) -> set[str]:
    """The headers that a header includes, itself among them; of a separately compiled program, or of a header-only one."""
    reached: set[str] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path in reached or path not in tree.code:
            continue
        reached.add(path)
        todo += includes_of(declarations_only(tree.code[path]) if separate else tree.code[path])
    return reached


def friend_lines(tree: Tree) -> int:
    """Lines that make a class a friend."""
    return sum(len(re.findall(r"^\s*(?:template\s*<[^;{}]*>\s*)?friend\s+(?:class|struct)\b", code, re.M)) for code in tree.code.values())


def stale_route(tree: Tree, name: str, route: list[tuple[str, str]]) -> debt.Counts:
    """Files of a route that are missing, or that lack the name of the route."""
    found: debt.Counts = {}
    for path, word in route:
        if path not in tree.code:
            found[f"route {name} {path} is not there"] = 1
        elif not re.search(rf"\b{word}\b", tree.code[path]):
            found[f"route {name} {path} has no `{word}`"] = 1
    return found


def unexplained(tree: Tree) -> debt.Counts:
    """Long files whose opening comment does not explain them."""
    found: debt.Counts = {}
    for path, text in tree.raw.items():
        lines = text.count("\n")
        opening = re.match(r"//([^\n]*)", text)
        words = opening.group(1).strip() if opening else ""
        if lines > LONG and (len(words) < EXPLAINED or not words.endswith((".", ":"))):
            found[f"unexplained {path}"] = 1
    return found


def closing_edges(known: dict[str, Class], part: list[str]) -> list[str]:
    """The names that run upward within a cycle: without them there is none that spans layers."""
    edges = edges_of(known)
    return sorted(f"{a} -> {b}" for a in part for b in edges[a] if b in part and known[b].layer > known[a].layer)


class Numbers(NamedTuple):
    """The measured values, the cycles, the violations by key, and values that are only shown."""

    values: dict[str, int]
    cycles: list[list[str]]
    closing: list[str]
    violations: debt.Counts
    longest: str
    header_only: int


def measure(root: pathlib.Path) -> Numbers:
    """Measure everything."""
    tree = load(root)
    known = classes(tree)
    includes, uses = upward_includes(tree), upward_uses(tree, known)
    found = cycles(known)
    lines = {path: text.count("\n") for path, text in tree.raw.items()}
    longest = max(lines, key=lambda path: lines[path])
    values = {
        "cycle": len(found[0]) if found else 1,
        "includes": len(includes),
        "uses": len(uses),
        "friends": round(10000 * friend_lines(tree) / sum(lines.values())),
        "lmr": len(drawn(tree, "include/dat/lmr.hpp", True)) - 1,
        "send": len(SEND),
        "connection": len(CONNECTION),
        "longest": lines[longest],
    }
    violations = includes | uses | unexplained(tree)
    violations |= stale_route(tree, "send", SEND) | stale_route(tree, "connection", CONNECTION)
    violations |= {f"include {folder} is in no layer": 1 for folder in unknown_folders(tree)}
    for rule, value in values.items():
        if value > LIMITS[rule][1] and rule not in ("includes", "uses"):  # those are listed one by one
            violations[f"number {rule}"] = value
    closing = closing_edges(known, found[0]) if found else []
    return Numbers(values, found, closing, violations, longest, len(drawn(tree, "include/dat/lmr.hpp", False)) - 1)


def report(numbers: Numbers, listed: debt.Counts) -> str:
    """The table of the numbers."""
    rows = []
    for rule, (text, bar) in LIMITS.items():
        value = numbers.values[rule]
        allowed = listed.get(f"number {rule}", bar)
        note = "" if value <= bar else f"   (debt: {allowed})" if rule not in ("includes", "uses") else "   (debt, listed)"
        rows.append(f"{text:<46} {value:>6}   bar {bar:>4}{note}")
    rows.append(f"{'headers that <dat/lmr.hpp> draws, header-only':<46} {numbers.header_only:>6}")
    rows.append(f"longest file: {numbers.longest}")
    rows += [f"cycle of {len(part)}: {' '.join(part)}" for part in numbers.cycles]
    if numbers.closing:
        rows.append("upward within the largest cycle: " + ", ".join(numbers.closing))
    return "\n".join(rows)


def main() -> int:
    """Check the tree."""
    parser = argparse.ArgumentParser(description="Check the layers and the numbers of the structure.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--debt", type=pathlib.Path, default=debt.FILE)
    parser.add_argument("--quiet", action="store_true", help="findings alone, without the table")
    debt.add_options(parser)
    options = parser.parse_args()
    numbers, listed = measure(options.root), debt.read(options.debt)
    if options.write_debt:
        return debt.write(options.debt, numbers.violations, RULES, options.grow)
    if not options.quiet:
        print(report(numbers, listed))
    failed = 0
    for rule in sorted(RULES):
        findings = debt.compare({k: n for k, n in numbers.violations.items() if debt.rule_of(k) == rule}, listed, {rule})
        print("".join(f"{finding}\n" for finding in findings), end="")
        failed += bool(findings)
    print(f"{len(RULES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
