# The reference of the site: a page of reStructuredText for each public header, from the comments in the headers.
# SPDX-License-Identifier: BSL-1.0
"""The names come from tests/interface/interface.py. Sphinx's domain for C++ renders the declarations, so each name is in the index and
in the search. The lines Errors, Allocates, Blocks and Thread safety become fields; a clause of uDAPL becomes a link to its rules."""

from __future__ import annotations

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator

from sphinx.domains.cpp import DefinitionError, DefinitionParser

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/interface"))
import interface  # noqa: E402

CLAUSE = re.compile(r"§(\d+(?:\.\d+)+)")
DIRECTIVES = {"class": "class", "struct": "struct", "union": "union", "concept": "concept", "enum": "enum", "enumerator": "enumerator",
              "function": "function", "variable": "var", "typedef": "type"}  # fmt: skip


class no_config:
    """What Sphinx's parser asks its configuration for."""

    cpp_id_attributes: list[str] = []
    cpp_paren_attributes: list[str] = []


def parses(kind: str, declaration: str) -> bool:
    """Whether Sphinx's domain for C++ can show a declaration."""
    names = {"var": "member", "type": "type"}
    try:
        parser = DefinitionParser(declaration, location=None, config=no_config)
        object_type = names.get(kind, "class" if kind in {"struct"} else kind)
        parser.parse_declaration("member" if kind == "var" else "type" if kind == "type" else kind if kind != "struct" else "class", object_type)
        parser.assert_end()
    except DefinitionError:
        return False
    return True


def escaped(text: str) -> str:
    """Text without meaning to reStructuredText."""
    return re.sub(r"([\\*`|_]|:(?=:))", r"\\\1", text)


def label_of(name: str) -> str:
    """The label of a name: dat::ep<rc>::connect is api-dat-ep-rc-connect."""
    special = {"~": "not", "=": "eq", "<": "lt", ">": "gt", "+": "plus", "-": "minus", "*": "star", "&": "and", "|": "or", "!": "no", "[": "at", "(": "call"}
    head, operator, tail = name.partition("operator")
    if operator and tail and not tail[0].isalnum():
        name = head + operator + "-" + "-".join(special.get(c, "x") for c in tail if not c.isspace())
    return "api-" + re.sub(r"\W+|_", "-", name.lower()).strip("-")


# Stands before and after a piece of markup in a text.
JOINT = "\0"


def joined(text: str) -> str:
    """A paragraph. Markup needs a blank on both sides; where the text has none, an escaped one shows as nothing."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(rf"{JOINT}+(?= |$)", "", re.sub(rf"(^| ){JOINT}+", r"\1", text))
    return re.sub(rf"{JOINT}+", r"\\ ", text).strip()


def introduction_of(text: str) -> list[str]:
    """The blocks of the comments that begin a header: those in front of `#pragma once` and the one behind it."""
    found = re.match(r"((?://[^\n]*\n)*)(?:#pragma once\n\n((?://(?!/)[^\n]*\n)+)\n)?", text)
    blocks = []
    for comment in found.groups("") if found else ():
        lines = [re.sub(r"^// ?", "", line) for line in comment.splitlines() if "SPDX" not in line]
        # Lines of code are a block, also where a paragraph touches them; empty lines between lines of code belong to it.
        pieces = re.findall(r"(?:^ {4}[^\n]*\n(?:\n+(?= {4}))?)+|(?:^(?! {4})[^\n]+\n)+", "\n".join(lines) + "\n", re.M)
        blocks += [piece.rstrip("\n") for piece in pieces]
    return blocks


class reference:
    """All pages, and the links to their names."""

    def __init__(self, tree: pathlib.Path, clauses: set[str]):
        self.tree, self.clauses = tree, clauses
        self.names = interface.read(tree)
        self.labels: dict[str, str] = {}  # by the name without template arguments; the first definition has the label
        self.by_tail: dict[str, set[str]] = {}
        self.unparsed: list[str] = []
        for top in self.names:
            for one in top.all():
                if one.kind != "define" and one.name.count("::") < 1:
                    continue
                plain = self.without_arguments(one.name)
                self.labels.setdefault(plain, label_of(one.name))
        for plain in self.labels:
            parts = plain.split("::")
            for first in range(len(parts)):
                self.by_tail.setdefault("::".join(parts[first:]), set()).add(plain)

    @staticmethod
    def without_arguments(name: str) -> str:
        """dat::ep<rc>::connect as dat::ep::connect."""
        if "operator" in name:
            return name
        while "<" in name:
            shorter = re.sub(r"\s*<[^<>]*>", "", name)
            if shorter == name:
                break
            name = shorter
        return name

    def find(self, text: str, scope: str = "") -> str:
        """The label of what a text in code names, seen from a scope; empty when it is not clear."""
        name = re.sub(r"\(.*\)$", "", text.strip())
        if not re.fullmatch(r"[A-Za-z_]\w*(?:<[\w:]+>)?(?:::~?[A-Za-z_]\w*)*", name):
            return ""
        name = re.sub(r"<[\w:]+>", "", name)
        if name.startswith("DAT_"):
            return self.labels.get(name, "")
        outer = self.without_arguments(scope)
        while outer:
            if found := self.labels.get(f"{outer}::{name}"):
                return found
            outer = outer.rpartition("::")[0]
        if "::" not in name:
            return ""
        candidates = self.by_tail.get(name, set())
        return self.labels[next(iter(candidates))] if len(candidates) == 1 else ""

    # ---- texts ----

    def code(self, text: str, scope: str) -> str:
        """Code in a text, with a link where it names something."""
        label = self.find(text, scope)
        if label and not re.search(r"[<>`\\]", text):
            return f":ref:`{text} <{label}>`"
        return f"``{text}``" if text and "`" not in text else escaped(text)

    def clause_links(self, text: str) -> str:
        """Text with links to the rules of the clauses that it names."""
        out, last = [], 0
        for found in CLAUSE.finditer(text):
            number = found[1]
            while number and number not in self.clauses and "." in number:
                number = number.rpartition(".")[0]
            if number not in self.clauses:
                continue
            out.append(escaped(text[last : found.start()]))
            out.append(f"{JOINT}`{found[0]} <../docs/conformance/by-clause.html#clause-{number}>`__{JOINT}")
            last = found.end()
        return "".join(out) + escaped(text[last:])

    def inline(self, element: ElementTree.Element, scope: str) -> Iterator[tuple[bool, str]]:
        """The pieces of a paragraph: (is a block, text)."""
        if element.text:
            yield False, self.clause_links(element.text)
        for child in element:
            if child.tag == "computeroutput":
                code = self.code("".join(child.itertext()).strip(), scope)
                yield False, f"{JOINT}{code}{JOINT}"
            elif child.tag in {"verbatim", "programlisting"}:
                yield True, self.code_block("".join(child.itertext()) if child.tag == "verbatim" else self.listing(child))
            elif child.tag in {"itemizedlist", "orderedlist"}:
                mark = "-" if child.tag == "itemizedlist" else "#."
                items = ["\n\n".join(self.blocks(item, scope)) for item in child.findall("listitem")]
                yield True, "\n".join(f"{mark} " + text.replace("\n", "\n" + " " * (len(mark) + 1)) for text in items)
            elif child.tag == "xrefsect":
                title = interface.plain(child.find("xreftitle"))
                body = child.find("xrefdescription")
                text = "\n\n".join(self.blocks(body, scope)) if body is not None else ""
                yield True, f":{title}: " + text.replace("\n", "\n    ")
            elif child.tag == "parameterlist":
                for item in child.findall("parameteritem"):
                    names = ", ".join(interface.plain(n) for n in item.iter("parametername"))
                    described = item.find("parameterdescription")
                    text = " ".join(self.blocks(described, scope)) if described is not None else ""
                    yield True, f":param {names}: {text}"
            elif child.tag == "bold":
                yield False, f"{JOINT}**{escaped(''.join(child.itertext()).strip())}**{JOINT}"
            elif child.tag == "ulink":
                yield False, f"{JOINT}`{escaped(''.join(child.itertext()))} <{child.get('url')}>`__{JOINT}"
            elif child.tag == "linebreak":
                yield False, " "
            elif child.tag in {"para", "simplesect", "table"}:
                for block in self.blocks(child, scope):
                    yield True, block
            else:
                yield from self.inline(child, scope)
            if child.tail:
                yield False, self.clause_links(child.tail)

    @staticmethod
    def listing(element: ElementTree.Element) -> str:
        """The code of a programlisting: blanks are elements there."""
        lines = []
        for line in element.findall("codeline"):
            text = ""
            for part in line.iter():
                text += (" " if part.tag == "sp" else part.text or "") + (part.tail or "" if part is not line else "")
            lines.append(text)
        return "\n".join(lines)

    @staticmethod
    def code_block(text: str) -> str:
        """A block of C++."""
        lines = text.strip("\n").splitlines()
        return ".. code-block:: cpp\n\n" + "\n".join(f"   {line}".rstrip() for line in lines)

    def blocks(self, element: ElementTree.Element, scope: str) -> list[str]:
        """The paragraphs, lists and fields of a description."""
        found, text = [], ""

        def flush() -> None:
            nonlocal text
            if clean := joined(text):
                found.append(clean)
            text = ""

        for is_block, piece in self.inline(element, scope):
            if is_block:
                flush()
                found.append(piece)
            else:
                text += piece
        flush()
        return found

    # ---- declarations ----

    def body(self, one: interface.Name) -> list[str]:
        """The documentation of a name: text, then fields together."""
        scope = one.name if one.members else one.name.rpartition("::")[0]
        blocks = [block for description in one.doc for block in self.blocks(description, scope)]
        fields = [block for block in blocks if re.match(r":[A-Z][\w, ]+:|:param ", block)]
        text = [block for block in blocks if block not in fields]
        return text + (["\n".join(fields)] if fields else [])

    @staticmethod
    def groups(names: Iterable[interface.Name]) -> Iterator[list[interface.Name]]:
        """A documented name with the overloads without documentation that follow it."""
        group: list[interface.Name] = []
        for one in names:
            if group and one.kind == "function" == group[0].kind and one.name == group[0].name and not one.doc and one.inherited == group[0].inherited:
                group.append(one)
                continue
            if group:
                yield group
            group = [one]
        if group:
            yield group

    def declaration(self, one: interface.Name) -> str:
        """The signature for the directive; names of classes are complete."""
        text = one.signature.replace("\\", "\\\\")
        if one.kind in {"class", "struct", "union"}:
            text = re.sub(r"^(template <.*?>\s*(?:requires .*? )?)?(?:class|struct|union) ", lambda m: m[1] or "", text)
        elif one.kind == "enum":
            text = text.replace("enum class ", "").replace("enum ", "")
        elif one.kind == "concept":
            text = text.partition(" = ")[0].replace("concept ", "")
        elif one.kind == "typedef":
            text = re.sub(r"\busing ", "", text)
        elif one.kind == "variable":
            text = re.sub(r"^(?:inline )?", "", text)
        return text.strip()

    def entry(self, group: list[interface.Name], level: int) -> Iterator[str]:
        """The lines of a group of overloads, with its members."""
        first, pad = group[0], "   " * level
        label = label_of(first.name)
        if label not in self.written:
            self.written.add(label)
            yield f"{pad}.. _{label}:"
            yield ""
        if first.kind == "define":
            yield f"{pad}.. c:macro:: {first.signature}"
        else:
            kind = DIRECTIVES[first.kind]
            directive = "enum-class" if first.signature.startswith("enum class") else kind
            shown = [self.declaration(one) for one in group]
            good = [text for text in shown if parses(kind, text)]
            self.unparsed += [f"{one.header}:{one.line}: {text}" for one, text in zip(group, shown) if text not in good]
            if good:
                yield f"{pad}.. cpp:{directive}:: {good[0]}"
                for text in good[1:]:
                    yield f"{pad}{' ' * (len(directive) + 10)}{text}"
                if first.inherited:
                    yield f"{pad}   :nocontentsentry:"
            else:
                yield f"{pad}.. describe:: {shown[0]}"
        yield ""
        inner = pad + "   "
        if first.kind == "concept":
            yield from (inner + line for line in self.code_block(first.signature).splitlines())
            yield ""
        if first.bases:
            yield f"{inner}Is a {', '.join(self.code(base, first.name.rpartition('::')[0]) for base in first.bases)}."
            yield ""
        for block in self.body(first):
            yield from (inner + line if line else "" for line in block.splitlines())
            yield ""
        own = [m for m in first.members if not m.inherited]
        inherited = [m for m in first.members if m.inherited]
        for members, title in ((own, ""), (inherited, "Members of all such objects")):
            if members and title:
                yield f"{inner}.. rubric:: {title}"
                yield ""
            for some in self.groups(members):
                yield from self.entry(some, level + 1)

    def sentence(self, text: str) -> str:
        """A text of a comment that Doxygen does not read."""
        pieces = re.split(r"`([^`]*)`", text)
        return joined("".join(escaped(p) if n % 2 == 0 else f"{JOINT}{self.code(p, 'dat')}{JOINT}" for n, p in enumerate(pieces)))

    def introduction(self, block: str) -> str:
        """A block of an introduction: code, a table or a paragraph."""
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines if line):
            return self.code_block("\n".join(line[4:] for line in lines))
        if block.startswith("| "):
            rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if not line.startswith("|---")]
            out = [".. list-table::", "   :header-rows: 1", ""]
            for row in rows:
                out += [f"   {'* -' if n == 0 else '  -'} {self.sentence(cell)}" for n, cell in enumerate(row)]
            return "\n".join(out)
        return self.sentence(block)

    def page(self, header: str) -> str:
        """The page of a header."""
        text = (self.tree / "include" / header).read_text(encoding="utf-8")
        title = header
        out = [f".. _api-header-{re.sub(r'[^a-z0-9]+', '-', header)}:", "", title, "=" * len(title), ""]
        for block in introduction_of(text):
            out += [self.introduction(block), ""]
        out += [f":doc:`Source </source/include/{header}>`", ""]
        scope = None
        names = [one for one in self.names if one.header == header]
        for group in self.groups(names):
            here = group[0].name.rpartition("::")[0] if group[0].kind != "define" else ""
            if here != scope and here:
                scope = here
                out += [f".. cpp:namespace:: {here}", ""]
            out += list(self.entry(group, 0))
        return "\n".join(out) + "\n"

    def write(self, to: pathlib.Path) -> list[str]:
        """Writes all pages; returns the headers."""
        to.mkdir(parents=True, exist_ok=True)
        self.written: set[str] = set()
        headers = sorted({f"dat/{path.name}" for path in (self.tree / "include/dat").glob("*.hpp")})
        for header in headers:
            (to / f"{pathlib.Path(header).stem}.rst").write_text(self.page(header), encoding="utf-8")
        return headers
