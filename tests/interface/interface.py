# The public interface of a tree of dat: its names with signatures and documentation, as Doxygen reads them.
# SPDX-License-Identifier: BSL-1.0
"""read(tree) returns the names that programs may use. Names of dat::detail are none, but a public class has the members that it
inherits from classes there, as if they were its own. Doxygen parses without including, so a tree needs no installed libraries."""

from __future__ import annotations

import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field

# The lines that end a comment (CONTRIBUTING.md, Prose). As commands of Doxygen each becomes a section of its own.
FIELDS = ("Errors", "Allocates", "Blocks", "Thread safety")
LINE_OF_FIELDS = re.compile(rf"^(\s*/// )((?:{'|'.join(FIELDS)})(?:(?:, | and )(?:{'|'.join(FIELDS)}))*):(?: |$)", re.M)

DOXYFILE = """
INPUT = "{work}/include"
STRIP_FROM_PATH = "{work}/include"
OUTPUT_DIRECTORY = "{work}"
FILE_PATTERNS = *.hpp
RECURSIVE = YES
EXTRACT_ALL = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
HAVE_DOT = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = DAT_SEPARATE_COMPILATION DAT_DECL=
AUTOLINK_SUPPORT = NO
QUIET = YES
WARNINGS = NO
ALIASES = {aliases}
"""


@dataclass
class Name:
    """A name of the interface, or one of the overloads that share it."""

    kind: str  # class, struct, concept, enum, enumerator, function, variable, typedef, define
    name: str  # with its namespaces and classes: dat::ia::open
    signature: str  # a declaration of C++, without the name's scope
    header: str  # dat/ia.hpp
    line: int
    doc: list[ElementTree.Element] = field(default_factory=list)  # descriptions in Doxygen's XML; empty without documentation
    members: list[Name] = field(default_factory=list)
    bases: list[str] = field(default_factory=list)  # public ones that programs may name
    inherited: bool = False

    def all(self) -> Iterator[Name]:
        """The name and its members."""
        yield self
        for member in self.members:
            yield from member.all()


def key_of(field_names: str) -> str:
    """The name of the command for a line of fields: "Errors, Allocates" is field_errors_allocates."""
    return "field_" + re.sub(r"\W+", "_", field_names.lower())


def titles() -> dict[str, str]:
    """The combinations of fields that comments may join, by the names of their commands."""
    found = {}
    for first in range(len(FIELDS)):
        for last in range(first, len(FIELDS)):
            some = FIELDS[first : last + 1]
            found[key_of("_".join(some))] = some[0] if len(some) == 1 else f"{', '.join(some[:-1])} and {some[-1]}"
    return found


def marked(text: str) -> str:
    """A header for Doxygen: a line of fields begins with the command of its section, and the inline namespace, which programs
    do not name, is a block of no name. All lines keep their number."""
    text = re.sub(r"\binline namespace v\d+ \{", 'extern "C++" {', text)
    return LINE_OF_FIELDS.sub(lambda m: f"{m[1]}\\{key_of(m[2].replace(' and ', ' '))} ", text)


def plain(element: ElementTree.Element | None) -> str:
    """The text of an element without line breaks and doubled spaces."""
    return re.sub(r"\s+", " ", "".join(element.itertext()) if element is not None else "").strip()


def written(text: str) -> str:
    """Code with the spacing of the headers in place of Doxygen's, which sets `& a` as ` &a` and `x<T>` as `x< T >`."""
    text = re.sub(r"(?<!operator)< (?=\S)", "<", text)
    text = re.sub(r"(?<=\S) >(?!=)(?= *(?:[>(),:&*.{]|$|[A-Za-z_]))", ">", text)
    text = re.sub(r" ([&*]+)(?=[\w(),.>]|$)", lambda m: m[1] + " ", text)
    text = re.sub(r"([&*]) (?=[(),.>])", r"\1", text)
    text = re.sub(r"\)&(&?)\s*(?=noexcept|$)", lambda m: f") &{m[1]} ", text)
    return re.sub(r"\s+", " ", text).strip()


class reader:
    """Doxygen's XML as names."""

    def __init__(self, folder: pathlib.Path):
        self.compounds: dict[str, ElementTree.Element] = {}
        for path in folder.glob("*.xml"):
            if path.name != "index.xml":
                for compound in ElementTree.parse(path).getroot().findall("compounddef"):
                    self.compounds[compound.get("id", "")] = compound
        self.nested: set[str] = {inner.get("refid", "") for compound in self.compounds.values()
                                 if compound.get("kind") in {"class", "struct", "union"} for inner in compound.findall("innerclass")}  # fmt: skip

    def names(self) -> list[Name]:
        """All names in namespaces and classes, by header and line."""
        found = []
        for identity, compound in self.compounds.items():
            kind, name = compound.get("kind", ""), plain(compound.find("compoundname"))
            if "detail" in re.split(r"\W+", name) or self.place(compound)[0].startswith("dat/detail"):
                continue
            if kind == "concept":
                found.append(self.concept(compound, name))
            elif kind in {"class", "struct", "union"} and identity not in self.nested and name.startswith("dat::"):
                found.append(self.record(compound, name))
            elif kind == "namespace" and name.startswith("dat"):
                found += self.members(compound, name)
            elif kind == "file":
                found += [one for one in self.members(compound, "") if one.kind == "define" and re.match(r"DAT_(?!DETAIL)", one.name)]
        public = [one for one in found if one and one.header.startswith("dat/") and not one.header.startswith("dat/detail")]
        return sorted(public, key=lambda one: (one.header, one.line))

    @staticmethod
    def place(element: ElementTree.Element) -> tuple[str, int]:
        """The header and the line of a definition."""
        at = element.find("location")
        return (at.get("file", ""), int(at.get("line", "0"))) if at is not None else ("", 0)

    @staticmethod
    def documentation(element: ElementTree.Element) -> list[ElementTree.Element]:
        """The descriptions that are not empty."""
        found = [element.find("briefdescription"), element.find("detaileddescription")]
        return [one for one in found if one is not None and plain(one)]

    @staticmethod
    def template(element: ElementTree.Element) -> str:
        """`template <...> requires ...`, or nothing."""
        parameters = element.find("templateparamlist")
        if parameters is None:
            return ""
        listed = []
        for one in parameters.findall("param"):
            kind, name, default = plain(one.find("type")), plain(one.find("declname")), plain(one.find("defval"))
            text = kind if not name or re.search(rf"\b{name}$", kind) else f"{kind} {name}"
            listed.append(text + (f" = {default}" if default else ""))
        needed = plain(element.find("requiresclause"))
        return f"template <{', '.join(listed)}> " + (f"requires {needed} " if needed else "")

    def concept(self, compound: ElementTree.Element, name: str) -> Name:
        """A concept, whose signature has its definition."""
        value = plain(compound.find("initializer")).partition("=")[2].strip()
        header, line = self.place(compound)
        return Name("concept", name, f"{self.template(compound)}concept {name.rpartition('::')[2]} = {value}", header, line, self.documentation(compound))

    def record(self, compound: ElementTree.Element, name: str) -> Name:
        """A class with its own members, and those of its bases in dat::detail."""
        header, line = self.place(compound)
        kind = compound.get("kind", "class")
        one = Name(kind, name, f"{self.template(compound)}{kind} {self.short(name)}", header, line, self.documentation(compound))
        own = self.members(compound, name)
        for inner in compound.findall("innerclass"):
            nested = self.compounds.get(inner.get("refid", ""))
            # Doxygen takes a private class that is defined apart for a public one.
            if inner.get("prot") == "public" and nested is not None and not self.place(nested)[0].startswith("dat/detail"):
                own.append(self.record(nested, plain(nested.find("compoundname"))))
        one.members = sorted(own, key=lambda member: member.line)
        have = {member.name for member in one.members}
        for base in compound.findall("basecompoundref"):
            if base.get("prot") != "public":
                continue
            text, parent = written(plain(base)), self.compounds.get(base.get("refid", ""))
            if not re.search(r"\bdetail\b|^object<|^dat::object<", text):
                one.bases.append(text)
            elif parent is not None:
                above = self.record(parent, plain(parent.find("compoundname")))
                one.bases += above.bases
                for member in above.members:
                    is_special = self.short(member.name) in {self.short(above.name), "operator="} or self.short(member.name).startswith("~")
                    if not is_special and (new := f"{name}::{self.short(member.name)}") not in have:
                        member.name, member.inherited = new, True
                        one.members.append(member)
        return one

    @staticmethod
    def short(name: str) -> str:
        """The name without its scope; template arguments may have scopes of their own."""
        head, bracket, arguments = name.partition("<")
        if head.endswith("operator") or "::operator" in name:
            return name[name.rindex("operator") :] if "operator" in name else name
        return (head.rpartition("::")[2] + bracket + arguments).strip()

    def members(self, compound: ElementTree.Element, scope: str) -> list[Name]:
        """The public members of a namespace, a class or a file."""
        found = []
        for definition in compound.findall("sectiondef/memberdef"):
            if definition.get("prot") in {"private", "protected"}:
                continue
            one = self.member(definition, scope)
            if one is not None:
                found.append(one)
        return found

    def member(self, definition: ElementTree.Element, scope: str) -> Name | None:
        """Returns one member, or None for a member that only the library uses."""
        kind, short = definition.get("kind", ""), plain(definition.find("name"))
        name = f"{scope}::{short}" if scope else short
        arguments, result = plain(definition.find("argsstring")), plain(definition.find("type"))
        header, line = self.place(definition)
        one = Name(kind, name, "", header, line, self.documentation(definition))
        words = [word for word in ("static", "explicit") if definition.get(word) == "yes" and not result.startswith(word)]
        if kind == "enum":
            strong = "enum class" if definition.get("strong") == "yes" else "enum"
            one.signature = f"{strong} {short}" + (f" : {result}" if result else "")
            one.members = [self.enumerator(value, one) for value in definition.findall("enumvalue")]
            return one if short else None
        if kind in {"function", "friend"}:
            if result.endswith(("class", "struct")) or result.startswith(("class ", "struct ")) or "(" not in arguments or "->" in arguments and not result:
                return None  # a friend class, a deduction guide
            one.kind = "function"
            one.signature = written(f"{self.template(definition)}{' '.join([*words, result])} {short}{arguments}")
        elif kind == "variable":
            value = plain(definition.find("initializer"))
            default = f" {value}" if value.startswith("=") and len(value) < 60 else ""
            one.signature = written(f"{self.template(definition)}{' '.join([*words, result])} {short}{arguments}") + default
        elif kind == "typedef":
            one.signature = written(f"{self.template(definition)}using {short} = {result.removeprefix('typedef ')}")
        elif kind == "define":
            parameters = [plain(p.find("defname")) for p in definition.findall("param")]
            one.signature = f"{short}({', '.join(parameters)})" if parameters else short
        else:
            return None
        internal = re.search(r"\bdetail::", written(" ".join([result, "" if kind == "variable" else arguments])))
        unnamed = all(not plain(p.find("declname")) for p in definition.findall("param"))
        if kind == "function" and not one.doc and result == "void" and unnamed and definition.find("param") is not None:
            return None  # only a message for a wrong call
        if not one.doc and internal or short.startswith("~") or "=delete" in one.signature.replace(" ", "") and not one.doc:
            return None
        return one

    def enumerator(self, value: ElementTree.Element, of: Name) -> Name:
        """A value of an enumeration."""
        short = plain(value.find("name"))
        return Name("enumerator", f"{of.name}::{short}", short, of.header, of.line, self.documentation(value))


def read(tree: pathlib.Path) -> list[Name]:
    """The names of the tree's public headers."""
    inputs = [path for path in (tree / "include", tree / "detail") if path.is_dir()]
    if not inputs:
        raise FileNotFoundError(f"{tree} has no include/")
    with tempfile.TemporaryDirectory(prefix="dat-interface-") as folder:
        work = pathlib.Path(folder)
        for above in inputs:
            for header in above.rglob("*.hpp"):
                copy = work / "include" / header.relative_to(above)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(marked(header.read_text(encoding="utf-8")), encoding="utf-8")
        aliases = " ".join(f'"{key}=\\xrefitem {key} \\"{title}\\" \\"{title}\\""' for key, title in titles().items())
        (work / "Doxyfile").write_text(DOXYFILE.format(work=work, aliases=aliases), encoding="utf-8")
        done = subprocess.run(["doxygen", work / "Doxyfile"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"doxygen failed: {done.stderr.strip()[-500:]}")
        return reader(work / "xml").names()
