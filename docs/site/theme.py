# Makes Debian's package of the theme furo whole, and lists the names of a page in its table of contents.
# SPDX-License-Identifier: BSL-1.0
"""Debian's package takes a style sheet and a module of a script from places that only a web server has, and its style sheet has lost the
dark colors for readers whose system asks for them. Sphinx 5 lists the names of Python in the contents of a page, and those of C++ not."""

from __future__ import annotations

import pathlib
import re
import shutil
import zlib

from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.cpp import CPPObject

NORMALIZE = pathlib.Path("/usr/share/javascript/normalize.css/normalize.css")
DARK = re.compile(r"@media not print \{\s*body\[data-theme=\"dark\"\] (\{[^}]*\})")
MENDED = "/* dark by the system */"


def mend(app: Sphinx, exception: Exception | None) -> None:
    """Changes the copies of the theme's files on the site."""
    static = pathlib.Path(app.outdir) / "_static"
    style, script = static / "styles/furo.css", static / "scripts/furo.js"
    if exception or not style.exists():
        return
    text = style.read_text(encoding="utf-8")
    if "/javascript/normalize.css" in text and NORMALIZE.exists():
        shutil.copyfile(NORMALIZE, static / "styles/normalize.css")
        text = text.replace("@import url(/javascript/normalize.css/normalize.css);", "@import url(normalize.css);")
    dark = DARK.search(text)
    if dark and MENDED not in text and "prefers-color-scheme" not in text:
        by_system = 'body:not([data-theme="light"])'
        text += (f"\n{MENDED}\n@media screen and (prefers-color-scheme: dark) {{ {by_system} {dark[1]}\n"
                 f"html {by_system} .only-light {{ display: none !important; }} {by_system} .only-dark {{ display: block !important; }} }}\n")  # fmt: skip
    style.write_text(text, encoding="utf-8")
    # The module defines a name of the page when it is loaded as a script, which conf.py does.
    script.write_text(re.sub(r"^import Gumshoe from .*$", "", script.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")


def parts(self: CPPObject, signature: addnodes.desc_signature) -> tuple[str, ...]:
    """The scopes of a name, and the name."""
    found: list[str] = []
    symbol = self.env.temp_data.get("cpp:parent_symbol")
    while symbol is not None and symbol.identOrOp is not None:
        found.insert(0, str(symbol.identOrOp))
        symbol = symbol.parent
    names = [node.astext() for node in signature.findall(addnodes.desc_name)]
    return (*found, names[-1] if names else "")


def entry(self: CPPObject, signature: addnodes.desc_signature) -> str:
    """The name in the contents; overloads have one entry."""
    scoped = signature.get("_toc_parts", ("",))
    name, listed = scoped[-1], self.env.temp_data.setdefault("theme:listed", set())
    if scoped in listed or self.objtype == "enumerator":
        return ""
    listed.add(scoped)
    return f"{name}()" if self.objtype == "function" else name


def setup(app: Sphinx) -> dict[str, bool | int]:
    """Registers both."""
    CPPObject._object_hierarchy_parts = parts
    CPPObject._toc_entry_name = entry
    app.connect("build-finished", mend)
    # Pages are read again when a script of the site has changed.
    scripts = b"".join(path.read_bytes() for path in sorted(pathlib.Path(__file__).parent.glob("*.py")))
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": zlib.crc32(scripts)}
