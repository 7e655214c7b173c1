# Pictures from Graphviz, as SVG in the page, so that they follow the colors of the page.
# SPDX-License-Identifier: BSL-1.0
"""The directive `picture` takes the file of a graph, and its content is the description. The classes of nodes and edges in the graph
have their colors in static/site.css."""

from __future__ import annotations

import html
import pathlib
import re
import subprocess

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def svg(path: pathlib.Path, description: str) -> str:
    """The picture without colors of its own."""
    done = subprocess.run(["dot", "-Tsvg", "-Gbgcolor=transparent", "-Nfontname=sans-serif", "-Efontname=sans-serif", "-Gfontname=sans-serif", "-Nfontsize=11",
                           "-Efontsize=10", "-Gfontsize=10", path], capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{path}: {done.stderr.strip()}")
    text = done.stdout[done.stdout.index("<svg") :]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"<title>.*?</title>", "", text, flags=re.S)
    text = re.sub(r' (?:fill|stroke)="(?!none)[^"]*"', "", text)
    text = re.sub(r' id="[^"]*"', "", text)  # several pictures in one page
    label = html.escape(description, quote=True)
    return re.sub(r'<svg width="(\d+)pt" height="(\d+)pt"', rf'<svg class="picture" role="img" aria-label="{label}" style="max-width:\1pt"', text, count=1)


class picture(SphinxDirective):
    """.. picture:: pictures/layers.dot"""

    required_arguments = 1
    has_content = True
    option_spec = {"class": directives.class_option}

    def run(self) -> list[nodes.Node]:
        """The figure."""
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        description = " ".join(self.content)
        text = f'<figure class="picture"><div class="scroll">{svg(pathlib.Path(path), description)}</div><figcaption>{html.escape(description)}</figcaption></figure>'
        return [nodes.raw("", text, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("picture", picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
