#!/usr/bin/env python3
# Builds the site: guide, examples with their output, reference, architecture, conformance, cost, comparison.
# SPDX-License-Identifier: BSL-1.0
"""Builds the site into build/docs/html. Sphinx renders the documents of the tree (MyST), and a reference that Doxygen reads from the
headers. The output of the examples comes from the lab, and the numbers of the page about cost from the gauge; both are kept below
build/docs until --fresh."""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/package")]
import conformance  # noqa: E402
import examples  # noqa: E402
import pages  # noqa: E402
import performance  # noqa: E402
import plots  # noqa: E402
import reference  # noqa: E402
import versions  # noqa: E402

ROOT = HERE.parents[1]
# The pictures of pages: after which heading, and what each shows.
PICTURES = {
    "docs/architecture.md": [
        ("## Layers", "layers", "The layers of dat and the main ways between them: each includes and names lower ones only."),
        ("## Ownership", "objects", "Arrows lead to the object that another one is made from; dashed arrows are references."),
        ("## The way of one operation", "operation", "From the post to the event."),
        ("## The way of one connection", "connection", "The states of an endpoint, with the calls and events that change them."),
        ("## Waiting", "waiting", "How completions and connection events reach a thread that waits."),
    ],
}
SUBJECTS = [
    ("Objects", ["ia", "pz", "lmr", "evd", "cno", "ep", "psp", "rsp", "csp", "cr", "srq", "rmr", "object"]),
    ("Operations and memory", ["dto", "iov", "batch", "ib", "segment", "buffer", "memory", "registration_cache", "pool", "privileges", "policies", "credits", "cookie"]),
    ("Events", ["event", "completions", "connection_events", "async_events", "async", "streams", "evd_id", "describe", "end_reason"]),
    ("Connections and addresses", ["rails", "address", "port", "service_id", "communicator", "descriptor", "qos", "timeout"]),
    ("Datagrams", ["ud", "datagram", "multicast"]),
    ("Coroutines and event loops", ["coro", "coro_dto", "coro_events", "coro_set", "coro_wait", "task", "asio", "asio_coro"]),
    ("Errors and status", ["error", "expected", "status", "strerror", "try", "checked"]),
    ("Attributes, registry, counters, tracing", ["attributes", "ep_attributes", "ep_params", "srq_attributes", "ib_query", "registry", "counters", "trace", "trace_recorder", "log", "dat_code"]),
]


def with_pictures(page: str, text: str) -> str:
    """A page with its pictures behind their headings."""
    for heading, name, description in PICTURES.get(page, []):
        if f"\n{heading}\n" not in text:
            raise ValueError(f"{page} has no heading `{heading}` for the picture {name}")
        block = f"\n{heading}\n\n```{{picture}} /pictures/{name}.dot\n{description}\n```\n"
        text = text.replace(f"\n{heading}\n", block, 1)
    return text


def subjects(headers: list[str]) -> list[tuple[str, list[str]]]:
    """The headers by subject; those that no subject has are last."""
    names = [pathlib.Path(header).stem for header in headers]
    placed = {name for _, some in SUBJECTS for name in some}
    if gone := placed - set(names):
        raise ValueError(f"build.py lists headers that do not exist: {', '.join(sorted(gone))}")
    return [*SUBJECTS, ("All together, and the rest", [name for name in names if name not in placed])]


def reference_index(tree: pathlib.Path, headers: list[str]) -> str:
    """The table of contents of the reference."""
    lines = ["Reference", "=========", "", "Every public name of dat, by header. ``#include <dat/dat.hpp>`` has what most programs need. :ref:`The index <genindex>`",
             "lists all names in alphabetical order.", ""]  # fmt: skip
    for title, names in subjects(headers):
        lines += [title, "-" * len(title), "", ".. list-table::", "   :widths: 25 75", ""]
        for name in names:
            first = (tree / f"include/dat/{name}.hpp").read_text(encoding="utf-8").splitlines()[0].removeprefix("//").strip()
            lines += [f"   * - :doc:`{name}.hpp <{name}>`", f"     - {quoted(first)}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A comment as reStructuredText."""
    pieces = re.split(r"`([^`]*)`", text)
    return "".join(reference.escaped(piece) if number % 2 == 0 else f"``{piece}``" for number, piece in enumerate(pieces))


def section(text: str, heading: str) -> str:
    """A section of a document with its heading."""
    found = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    if not found:
        raise ValueError(f"the document has no section {heading}")
    return found[0]


def write(path: pathlib.Path, text: str) -> None:
    """Writes a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def assemble(tree: pathlib.Path, to: pathlib.Path, kept: pathlib.Path) -> list[str]:
    """Writes all sources of the site; returns declarations that Sphinx cannot show as such."""
    rules = conformance.catalogue(tree / "docs/conformance")
    names = reference.reference(tree, rules.numbers())
    site = pages.documents(tree, to, lambda text: names.find(text))
    steps = examples.ladder(tree, kept / "outputs")
    site.examples = steps.places()

    headers = names.write(to / "reference")
    write(to / "reference/index.rst", reference_index(tree, headers))
    site.sources.update(f"include/{header}" for header in headers)
    site.copy()
    for page in PICTURES:
        write(to / page, with_pictures(page, (to / page).read_text(encoding="utf-8")))
    beside_peers = to / "docs/performance.md"
    write(beside_peers, plots.with_plots(beside_peers.read_text(encoding="utf-8")))
    shutil.copytree(tree / "docs/pictures", to / "pictures")
    write(to / "docs/conformance/rules.md", rules.table_page())
    write(to / "docs/conformance/by-clause.rst", rules.clauses_page())
    write(to / "performance.md", performance.page(tree, kept / "gauge.json"))
    readme = (tree / "README.md").read_text(encoding="utf-8")
    comparison = section(readme, "Compared with others").replace("## Compared with others", "# Alternatives", 1)
    write(to / "alternatives.md", site.text_of("README.md", comparison))
    order = steps.write(to)
    index = (HERE / "index.md").read_text(encoding="utf-8")
    index = index.replace("@examples@", "\n".join(order)).replace("@version@", versions.version(tree))
    listed = set(re.findall(r"^(?:[\w ]+ <)?([\w./-]+)>?$", index, re.M))
    others = [page.removesuffix(".md") for page in site.pages if page.removesuffix(".md") not in listed]
    write(to / "index.md", index.replace("@program@", program(readme)))
    write(to / "other.md", "---\norphan: true\n---\n# Other documents\n\n```{toctree}\n" + "\n".join(others) + "\n```\n")
    site.write_sources()
    return names.unparsed


def program(readme: str) -> str:
    """The first program of the README."""
    found = re.search(r"^```cpp\n.*?^```$", readme, re.M | re.S)
    if not found:
        raise ValueError("README.md has no program")
    return found[0]


def bring_up_to_date(fresh: pathlib.Path, old: pathlib.Path) -> None:
    """Makes the old folder equal to the fresh one and touches only what differs, so that Sphinx reads no page twice."""
    names = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for path in [path for path in old.rglob("*") if path.is_file() and path.relative_to(old) not in names]:
        path.unlink()
    for name in names:
        if not (old / name).exists() or (old / name).read_bytes() != (fresh / name).read_bytes():
            (old / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / name, old / name)
    shutil.rmtree(fresh)


def main() -> int:
    """Builds the site."""
    parser = argparse.ArgumentParser(prog="./dev docs", description=__doc__)
    parser.add_argument("--tree", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/docs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    source, html = options.build / "source", options.build / "html"
    fresh = options.build / "source.new"
    shutil.rmtree(fresh, ignore_errors=True)
    unparsed = assemble(options.tree, fresh, options.build)
    bring_up_to_date(fresh, source)
    if unparsed:
        print("\n".join(["Sphinx's domain for C++ does not parse these declarations; the site shows them as text:", *unparsed]))
    if not (html / "searchindex.js").exists():  # an earlier build did not come to its end
        shutil.rmtree(html, ignore_errors=True)
    command = ["sphinx-build", "-W", "--keep-going", "-q", "-j", "auto", "-b", "html", "-c", HERE, "-d", options.build / "doctrees", source, html]
    done = subprocess.run([str(word) for word in command], check=False)
    if done.returncode == 0:
        print(html / "index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
