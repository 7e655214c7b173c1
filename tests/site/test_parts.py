#!/usr/bin/env python3
# Tests of the parts that make the site, and of the check of its pages: each fault of a page is found.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs/site"), str(ROOT / "tests/site")]
import build  # noqa: E402
import conformance  # noqa: E402
import pages  # noqa: E402
import performance  # noqa: E402
import pictures  # noqa: E402
import plots  # noqa: E402
import reference  # noqa: E402
import test_site  # noqa: E402

HEADER = """// Doors, and what `dat::door` does.
// SPDX-License-Identifier: BSL-1.0
namespace dat { inline namespace v0 {
/// A door. `open` opens it.
class door {
public:
  /// Opens it (uDAPL 2.0 §6.6.11), as `dat::door::close` closes it:
  ///
  ///     d.open(3_cm);
  ///
  /// Errors: several:
  /// - `locked`: it is
  /// - other_things
  /// Allocates: never.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> open(int width) noexcept;
  expected<void> open(long width) noexcept;
  /// Closes it.
  /// Errors, Allocates, Blocks and Thread safety: as open.
  expected<void> close() noexcept;
};
}}
"""


class temporary(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name).resolve()

    def file(self, name: str, text: str) -> pathlib.Path:
        """Writes a file."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class the_reference(temporary):
    def page(self) -> str:
        """The page of the header."""
        self.file("include/dat/door.hpp", HEADER)
        made = reference.reference(self.work, {"6.6.11"})
        made.write(self.work / "out")
        self.assertEqual(made.unparsed, [])
        return (self.work / "out/door.rst").read_text(encoding="utf-8")

    def test_comments_become_fields_and_links(self) -> None:
        text = self.page()
        for wanted in ("dat/door.hpp\n==", ".. _api-dat-door-open:", "   .. cpp:function:: expected<void> open(int width) noexcept",
                       "      :Allocates: never.", "      :Blocks: no.", "      :Thread safety: safe.", "   :Errors, Allocates, Blocks and Thread safety: as open.",
                       ":ref:`dat::door::close <api-dat-door-close>`", "`§6.6.11 <../docs/conformance/by-clause.html#clause-6.6.11>`__", "   d.open(3_cm);",
                       "- ``locked``\\ : it is", "- other\\_things", "Doors, and what :ref:`dat::door <api-dat-door>` does.", "A door. :ref:`open <api-dat-door-open>` opens it."):  # fmt: skip
            self.assertIn(wanted, text)
        self.assertNotIn("v0", text)

    def test_an_introduction_may_continue_behind_pragma_once(self) -> None:
        text = reference.introduction_of("""// Doors.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     open(door);
//
//     close(door);
// Then lock it.
//
// | way | meaning |
// |---|---|
// | `in` | 1 |

#include <x>
// no introduction
""")
        self.assertEqual(text, ["Doors.", "    open(door);\n\n    close(door);", "Then lock it.", "| way | meaning |\n|---|---|\n| `in` | 1 |"])
        self.file("include/dat/door.hpp", HEADER.replace("namespace dat", "#pragma once\n\n// | way | meaning |\n// |---|---|\n// | `in` | 1 |\n\nnamespace dat", 1))
        made = reference.reference(self.work, set())
        made.write(self.work / "out")
        page = (self.work / "out/door.rst").read_text(encoding="utf-8")
        self.assertIn(".. list-table::\n   :header-rows: 1\n\n   * - way\n     - meaning\n   * - ``in``\n     - 1\n", page)

    def test_overloads_without_a_comment_share_that_of_the_first(self) -> None:
        lines = self.page().splitlines()
        at = lines.index("   .. cpp:function:: expected<void> open(int width) noexcept")
        self.assertEqual(lines[at + 1].strip(), "expected<void> open(long width) noexcept")

    def test_what_is_not_clear_is_no_link(self) -> None:
        self.file("include/dat/door.hpp", HEADER)
        made = reference.reference(self.work, set())
        self.assertEqual(made.find("dat::door::open(3)"), "api-dat-door-open")
        self.assertEqual(made.find("door::open"), "api-dat-door-open")
        self.assertEqual(made.find("open", "dat::door::close"), "api-dat-door-open")
        for text in ("open", "window::open", "a + b", "std::string", "door::"):
            self.assertEqual(made.find(text), "", text)


class the_documents(temporary):
    def site(self, readme: str) -> pages.documents:
        """A tree with a document."""
        self.file("README.md", readme)
        self.file("docs/guide.md", "# Guide\n")
        self.file("include/dat/ia.hpp", "//\n")
        self.file("tests/a.cpp", "//\n")
        self.file("examples/one.cpp", "//\n")
        subprocess.run(["git", "init", "-q", self.work], check=True)
        site = pages.documents(self.work, self.work / "out", lambda text: "api-dat-ia" if text == "dat::ia" else "")
        site.examples = {"examples/one.cpp": "examples/one.cpp.rst"}
        return site

    def test_links(self) -> None:
        text = "[g](docs/guide.md#x) [h](include/dat/ia.hpp) [t](tests/a.cpp) [f](tests) [e](examples/one.cpp) [w](https://a.b) [i](#here) `tests/a.cpp` `dat::ia` `x`"
        made = self.site(text).text_of("README.md", text)
        self.assertEqual(made.strip(), "[g](docs/guide.md#x) [h](reference/ia.rst) [t](source/tests/a.cpp.rst) [f](source/tests/index.rst) [e](examples/one.cpp.rst) "
                         "[w](https://a.b) [i](#here) [`tests/a.cpp`](source/tests/a.cpp.rst) [`dat::ia`](api-dat-ia) `x`")  # fmt: skip

    def test_code_and_headings_stay(self) -> None:
        text = "# About `dat::ia`\n\n```cpp\ndat::ia // `dat::ia` [x](y)\n```\n\n    `dat::ia`\n\n[`dat::ia`](docs/guide.md) `[x](y)`\n"
        self.assertEqual(self.site(text).text_of("README.md", text), text)

    def test_a_link_to_nothing_is_refused(self) -> None:
        with self.assertRaisesRegex(FileNotFoundError, "README.md links to docs/gone.md"):
            self.site("").text_of("README.md", "[x](docs/gone.md)")

    def test_an_image_comes_along(self) -> None:
        self.file("docs/door.svg", "<svg/>")
        self.assertEqual(self.site("").text_of("README.md", "![a door](docs/door.svg)").strip(), "![a door](docs/door.svg)")
        self.assertEqual((self.work / "out/docs/door.svg").read_text(encoding="utf-8"), "<svg/>")
        with self.assertRaisesRegex(FileNotFoundError, "README.md shows docs/gone.svg"):
            self.site("").text_of("README.md", "![x](docs/gone.svg)")

    def test_pages_of_sources_and_folders(self) -> None:
        site = self.site("[f](tests)")
        site.copy()
        site.write_sources()
        self.assertIn("literalinclude:: ../../../tests/a.cpp", (self.work / "out/source/tests/a.cpp.rst").read_text(encoding="utf-8"))
        self.assertIn(":doc:`a.cpp </source/tests/a.cpp>`", (self.work / "out/source/tests/index.rst").read_text(encoding="utf-8"))

    def test_a_picture_without_its_heading_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "no heading `## Layers`"):
            build.with_pictures("docs/architecture.md", "# Architecture\n")


class the_tables(unittest.TestCase):
    def test_every_rule_is_in_the_table_with_its_disposition(self) -> None:
        rules = conformance.catalogue(ROOT / "docs/conformance")
        text = rules.table_page()
        self.assertEqual(text.count('<tr id="'), len(rules.ledger.rules))
        status = (ROOT / "docs/conformance/STATUS.md").read_text(encoding="utf-8")
        for state, title in conformance.rule_catalogue.DISPOSITIONS.items():
            count = text.count(f'data-state="{state}"')
            if f"| {title} | " in status:
                self.assertIn(f"| {title} | {count} |", status)

    def test_every_rule_of_udapl_has_a_clause_that_names_it(self) -> None:
        rules = conformance.catalogue(ROOT / "docs/conformance")
        self.assertIn("6.6.20", rules.numbers())
        self.assertGreater(sum(bool(some) for some in rules.by_clause.values()), 100)

    def test_bars_are_in_proportion(self) -> None:
        text = performance.chart([("a job", [2.0, 1.0], 1.5), ("another", [4.0, 3.0], None)])
        for wanted in ("width:50.0%", "width:25.0%", "width:100.0%", "left:25.0%", "<td>1.50</td>", "<td></td>"):
            self.assertIn(wanted, text)
        self.assertGreater(len(performance.limits(ROOT)), 10)

    def test_plots_have_the_values_of_the_tables(self) -> None:
        page = """# P

| row | verbs | libfabric | dat lean | dat is |
|---|--:|--:|--:|---|
| latency 8 waiting wire | 50.0 us one way | 1.20 ±0.01 | 1.10 ±0.01 | ahead |
| read 8 waiting wire | 24000 per second | - | 2.00 ±0.01 | behind |

| row | verbs | dat lean | dat is |
|---|--:|--:|---|
| connections | 700 per second | 1.00 ±0.01 | ahead |
| latency 4096 polled loopback | 7.0 us one way | 1.00 ±0.01 | ahead |

| peer | reason |
|---|---|
| latency 8 waiting wire | none |

## Waiting, counted
"""
        latency, read, polled = plots.measurements(page)
        self.assertEqual(latency.values, {"verbs": 50.0, "libfabric": 60.0, "dat lean": 55.00000000000001})
        self.assertEqual(read.values, {"verbs": 24000.0, "dat lean": 12000.0})
        self.assertEqual((polled.title, polled.mode, polled.path), ("latency, 4 KiB: µs one way", "polled", "loopback"))
        text = plots.with_plots(page)
        self.assertEqual(text.count('<svg class="plot"'), 2)
        for wanted in (">50.0<", ">60.0<", ">55.0<", ">24,000<", ">12,000<", ">libfabric<", "var(--good)", 'aria-label="Latency and rates, waiting, over the wire.'):
            self.assertIn(wanted, text)
        self.assertLess(text.index("<svg"), text.index("## Waiting, counted"))
        for part in ("<style", "<metadata", "fill: #", "stroke: #"):
            self.assertNotIn(part, text)
        with self.assertRaisesRegex(ValueError, "no table of latencies"):
            plots.with_plots("# P\n\n## Waiting, counted\n")

    def test_the_recorded_numbers_have_plots(self) -> None:
        rows = plots.measurements((ROOT / "docs/performance.md").read_text(encoding="utf-8"))
        self.assertLessEqual({"latency", "write", "read", "atomic"}, {row.what for row in rows})
        for row in rows:
            self.assertTrue(any(name.startswith("dat ") for name in row.values), row)

    def test_pictures_have_no_color_of_their_own(self) -> None:
        for path in (ROOT / "docs/pictures").glob("*.dot"):
            text = pictures.svg(path, 'a "picture"')
            self.assertNotRegex(text, r'(fill|stroke)="(?!none)')
            self.assertIn('aria-label="a &quot;picture&quot;"', text)


class the_check(temporary):
    """Pages with a fault each."""

    GOOD = "<!doctype html><meta name=viewport content='width=device-width'><style>@media (prefers-color-scheme: dark) {{ body {{ background: #000; color: #fff; }} }}</style><h1 id=top>A</h1><article><p>text</p>{}</article>"

    def faults(self, inside: str, scheme: str = "light") -> list[str]:
        """The faults of a page on a phone."""
        path = self.file("page.html", self.GOOD.format(inside))
        return dict(test_site.look(self.work, [path], "phone", self.work / "shots"))[f"page.html, phone, {scheme}"]

    def test_a_good_page_has_none(self) -> None:
        self.assertEqual(self.faults("<div style='overflow-x:auto'><div style='width:900px'>scrolls</div></div>"), [])
        self.assertTrue((self.work / "shots/phone-light/page.png").is_file())

    def test_a_page_without_the_colors_of_the_system(self) -> None:
        self.assertEqual(self.faults("", "dark"), [])
        self.assertEqual(self.faults("<style>body { background: #fff !important; color: #000 !important }</style>", "dark"), ["not dark, as the system asks for"])
        self.assertEqual(self.faults("<style>body { background: #000; color: #fff }</style>"), ["not light, as the system asks for"])

    def test_faults(self) -> None:
        for inside, wanted in (("<div class=broad style='width:900px'>x</div>", 'by <div class="broad">'), ("<img src=gone.png>", "missing image gone.png"),
                               ("<p style='color:#ddd'>pale words</p>", 'too little contrast, as "pale words"'), ("<script>gone()</script>", "logged: ")):  # fmt: skip
            found = self.faults(inside)
            self.assertTrue(any(wanted in fault for fault in found), f"{inside}: {found}")

    def test_the_button_of_colors(self) -> None:
        button = "<button class=theme-toggle {}>colors</button>"
        works = """<style>body[data-theme=light] { background: #fff !important; color: #000 !important }
body[data-theme=dark] { background: #000 !important; color: #fff !important }</style><script>
document.body.dataset.theme = 'auto';
function next() {
  const light = matchMedia('(prefers-color-scheme: dark)').matches, order = light ? ['auto', 'light', 'dark'] : ['auto', 'dark', 'light'];
  document.body.dataset.theme = order[(order.indexOf(document.body.dataset.theme) + 1) % 3];
}</script>"""
        for name, inside, wanted in (("good", works + button.format("onclick='next()'"), ""), ("none", works, "gives [None, None, None]"),
                                     ("idle", works + button.format(""), "gives ['auto', 'auto', 'auto']"),
                                     ("no colors", works.replace("#000 !important; color: #fff", "#fff !important; color: #000") + button.format("onclick='next()'"),
                                      "not dark, as the reader asks for")):  # fmt: skip
            with self.subTest(name):
                path = self.file("page.html", self.GOOD.format("").replace("<h1", "<body><h1") + inside)
                found = dict(test_site.themes(self.work, [path.name]))
                self.assertEqual(len(found), 4)
                for faults in found.values():
                    self.assertTrue(any(wanted in fault for fault in faults) if wanted else not faults, faults)

    def test_addresses_of_other_sites(self) -> None:
        for good in ("https://a.b-c.org/x?y=1#z", "https://github.com/a/b/issues/1", "mailto:a@b.org"):
            self.assertEqual(test_site.fault_of_address(good), "", good)
        for bad in ("http://a.org/", "//a.org/x", "https://a", "https://localhost/x", "https://registry.internal/x", "https://example.org/x", "https://u@a.org/",
                    "https://a.org:8080/", "https://10.0.0.1/", "https://a.org/x y", "https://a.org/x.", "https://a.org/%zz", "ftp://a.org/", "https://[a.org/",
                    "mailto:a", "javascript:x()"):  # fmt: skip
            self.assertNotEqual(test_site.fault_of_address(bad), "", bad)

    def test_links(self) -> None:
        self.file("other.html", "<a id=here></a>")
        self.file("page.html", self.GOOD.format("<a href=http://a.b/></a>"))
        self.assertEqual(test_site.broken_links(self.work), {"page.html": ["http://a.b/: no https"]})
        self.file("page.html", self.GOOD.format("<a href=other.html#here></a><a href='#top'></a><a href=https://gone.org/gone></a>"))
        self.assertEqual(test_site.broken_links(self.work), {})
        self.file("page.html", self.GOOD.format("<a href=gone.html></a><a href=other.html#there></a><img src=gone.png><a href='#bottom'></a>"))
        self.assertEqual(test_site.broken_links(self.work)["page.html"], ["gone.html: no such file", "other.html#there: the page has no such anchor",
                                                                          "gone.png: no such file", "#bottom: the page has no such anchor"])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
