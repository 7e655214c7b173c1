# The documents of the tree as pages of the site, and pages for the source files that they name.
# SPDX-License-Identifier: BSL-1.0
"""Markdown files keep their paths, so links between them stay as they are. A link to another file leads to a page with its text, a link to
a folder to a list. Names of dat in code, and paths in code, become links, too."""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:hpp|ipp|cpp|py|toml|txt|md|sh)")
# Where a path in code may begin, besides the root (tests/support/lint.py).
ROOTS = ("", "include/dat", "detail/dat/detail", "docs")
LANGUAGES = {".hpp": "cpp", ".ipp": "cpp", ".cpp": "cpp", ".h": "cpp", ".c": "c", ".py": "python", ".sh": "sh", ".build": "meson", ".toml": "toml",
             ".json": "json", ".cmake": "cmake", ".yml": "yaml", ".dot": "dot"}  # fmt: skip
# Documents that are no pages: other forms of what the site has.
NOT_PAGES = re.compile(r"^(\.github/|\.gitlab/|docs/site/)")


def included(path: pathlib.Path, document: pathlib.Path) -> str:
    """How a document includes a file of the tree. (Sphinx takes an absolute path from the sources of the site.)"""
    return pathlib.Path(os.path.relpath(path.resolve(), document.parent.resolve())).as_posix()


class documents:
    """Copies documents to the sources of the site and remembers which files they name."""

    def __init__(self, tree: pathlib.Path, to: pathlib.Path, name_of: Callable[[str], str]):
        self.tree, self.to, self.label_of_name = tree, to, name_of
        listed = subprocess.run(["git", "-C", tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True).stdout
        self.files = {name for name in listed.split("\0") if name and (tree / name).is_file()}
        self.folders = {parent.as_posix() for name in self.files for parent in pathlib.PurePosixPath(name).parents if parent.as_posix() != "."}
        self.pages = sorted(name for name in self.files if name.endswith(".md") and not NOT_PAGES.match(name))
        self.sources: set[str] = set()
        self.lists: set[str] = set()
        self.examples: dict[str, str] = {}  # a source file with a page of its own in place of one below source/

    def place(self, name: str) -> str:
        """The document of the site for a file or folder of the tree; empty when there is none."""
        if name in self.pages:
            return name
        if name in self.examples:
            return self.examples[name]
        header = re.fullmatch(r"include/(dat/)(\w+)\.hpp", name)
        if header and name in self.files:
            return f"reference/{header[2]}.rst"
        if name in self.files:
            self.sources.add(name)
            return f"source/{name}.rst"
        if name in self.folders:
            self.lists.add(name)
            return f"source/{name}/index.rst"
        return ""

    def image(self, page: str, target: str) -> str:
        """The target of an image of a page, which it copies to the site."""
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if name not in self.files:
            raise FileNotFoundError(f"{page} shows {target}, which git does not have")
        (self.to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.tree / name, self.to / name)
        return target

    def link(self, page: str, target: str) -> str:
        """The target of a link of a page on the site."""
        if re.match(r"[a-z]+:|#|/", target):
            return target
        path, hash_sign, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        place = self.place(name)
        if not place:
            raise FileNotFoundError(f"{page} links to {target}, which git does not have")
        there = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return there + (hash_sign + anchor if place.endswith(".md") else "")

    def code(self, page: str, text: str) -> str:
        """Code of a page as a link, where it is a path or a name of dat; empty otherwise."""
        if PATH.fullmatch(text):
            for start in (posixpath.dirname(page), *ROOTS):
                name = posixpath.normpath(posixpath.join(start, text))
                if name in self.files:
                    return posixpath.relpath(self.place(name), posixpath.dirname(page) or ".")
            return ""
        return self.label_of_name(text)

    def text_of(self, page: str, text: str) -> str:
        """A page with its links."""
        out, fence = [], ""
        for line in text.splitlines():
            mark = re.match(r"\s*(```+|~~~+)", line)
            if mark and (not fence or line.strip().startswith(fence)):
                fence = "" if fence else mark[1]
                out.append(line)
                continue
            if fence or line.startswith("    ") and not re.match(r"\s*([-*]|\d+\.) ", line):
                out.append(line)
                continue
            out.append(self.line_of(page, line))
        return "\n".join(out) + "\n"

    def line_of(self, page: str, line: str) -> str:
        """A line of text: links, then code outside of links."""
        kept: list[str] = []

        def keep(text: str) -> str:
            kept.append(text)
            return f"\0{len(kept) - 1}\0"

        line = LINK.sub(lambda m: keep(f"{m[1]}[{m[2]}]({(self.image if m[1] else self.link)(page, m[3])})") if not self.in_code(line, m.start()) else m[0], line)

        def code(found: re.Match[str]) -> str:
            target = "" if line.startswith("#") else self.code(page, found[1])
            return f"[`{found[1]}`]({target})" if target else found[0]

        line = re.sub(r"(?<!`)`([^`\n\0]+)`(?!`)", code, line)
        return re.sub(r"\0(\d+)\0", lambda m: kept[int(m[1])], line)

    @staticmethod
    def in_code(line: str, position: int) -> bool:
        """Whether a position of a line is inside of code."""
        return line.count("`", 0, position) % 2 == 1

    def copy(self) -> None:
        """Writes all pages."""
        for page in self.pages:
            made = self.to / page
            made.parent.mkdir(parents=True, exist_ok=True)
            text = (self.tree / page).read_text(encoding="utf-8")
            made.write_text(self.text_of(page, text), encoding="utf-8")

    def write_sources(self) -> None:
        """Pages for the files and folders that pages name, and for the files of these folders."""
        for folder in sorted(self.lists):
            self.sources.update(name for name in self.files if posixpath.dirname(name) == folder and not name.endswith(".md"))
        for name in sorted(self.sources):
            self.write_source(name)
        for folder in sorted(self.lists):
            inside = sorted(name for name in self.files if posixpath.dirname(name) == folder)
            below = sorted(other for other in self.folders if posixpath.dirname(other) == folder)
            lines = [":orphan:", "", folder + "/", "=" * (len(folder) + 1), ""]
            lines += [f"- ``{posixpath.basename(one)}/``" for one in below]
            for one in inside:
                place = self.place(one)
                there = "/" + re.sub(r"\.(rst|md)$", "", place) if place else ""
                lines.append(f"- :doc:`{posixpath.basename(one)} <{there}>`" if there and not (one.endswith(".md") and one not in self.pages) else f"- ``{posixpath.basename(one)}``")
            self.write(f"source/{folder}/index.rst", lines)

    def write_source(self, name: str) -> None:
        """The page of one file."""
        path = self.tree / name
        language = LANGUAGES.get(path.suffix, "text")
        if language == "text":
            first = path.read_bytes()[:60]
            language = "python" if b"python" in first else "sh" if first.startswith(b"#!") else "text"
        there = included(path, self.to / "source" / name)
        lines = [":orphan:", "", name, "=" * len(name), "", f".. literalinclude:: {there}", f"   :language: {language}", "   :linenos:", ""]
        self.write(f"source/{name}.rst", lines)

    def write(self, place: str, lines: list[str]) -> None:
        """A document of the site."""
        made = self.to / place
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text("\n".join(lines) + "\n", encoding="utf-8")
