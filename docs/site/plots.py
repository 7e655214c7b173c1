# Plots of latency and rates: the numbers of docs/performance.md, as SVG in the page, so that they follow the colors of the page.
# SPDX-License-Identifier: BSL-1.0
"""`./dev bench peers` records the numbers: a table has the values of hand-written verbs with their unit, and all others in times those. The
plots have the values."""

from __future__ import annotations

import collections
import dataclasses
import html
import io
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot  # noqa: E402

BY_HAND = "verbs"
ROW = re.compile(r"(latency|write|read|atomic) (\d+) (waiting|polled) (wire|loopback)")
# What stands for a color of the page in a picture of matplotlib.
COLORS = {"#010101": "--color-foreground-primary", "#020202": "--color-brand-primary", "#030303": "--color-foreground-muted", "#040404": "--good"}
INK, OURS, PEER, HAND = COLORS
STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 8, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
         "xtick.color": INK, "ytick.color": INK}  # fmt: skip
PATHS = {"wire": "over the wire", "loopback": "by loopback"}


@dataclasses.dataclass(frozen=True)
class measurement:
    """The values of one row by library: microseconds one way, or operations per second."""

    what: str
    size: int
    mode: str
    path: str
    values: dict[str, float]

    @property
    def title(self) -> str:
        """Of its panel."""
        size = f"{self.size // 1024} KiB" if self.size >= 1024 else f"{self.size} B"
        return f"latency, {size}: µs one way" if self.what == "latency" else f"{self.what}, {size}: operations per second"


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def measurements(page: str) -> list[measurement]:
    """The rows of all tables of the page that are latencies or rates."""
    rows: list[measurement] = []
    names: list[str] = []
    for line in page.splitlines():
        if line.startswith(f"| row | {BY_HAND} |"):
            names = cells(line)
        elif not line.startswith("|"):
            names = []
        elif names and (found := ROW.fullmatch(cells(line)[0])):
            row = dict(zip(names, cells(line)))
            by_hand = float(row[BY_HAND].split()[0])
            ratios = {name: float(cell.split()[0]) for name, cell in row.items() if re.fullmatch(r"\d+\.\d+ ±\d+\.\d+", cell)}
            # A ratio above 1 is slower, for rates as well.
            values = {name: by_hand * ratio if found[1] == "latency" else by_hand / ratio for name, ratio in ratios.items()}
            rows.append(measurement(found[1], int(found[2]), found[3], found[4], {BY_HAND: by_hand, **values}))
    return rows


def color(name: str) -> str:
    """Of a library's bar."""
    return HAND if name == BY_HAND else OURS if name.startswith("dat ") else PEER


def plot(name: str, rows: list[measurement], description: str) -> str:
    """A panel for each row, as an SVG element without colors of its own."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        lines = (len(rows) + 1) // 2
        figure, axes = pyplot.subplots(lines, 2, figsize=(7.4, 1.9 * lines), constrained_layout=True, squeeze=False)
        for axis in axes.flat[len(rows) :]:
            axis.set_visible(False)
        for axis, row in zip(axes.flat, rows):
            names = list(reversed(row.values))
            values = [row.values[one] for one in names]
            bars = axis.barh(names, values, color=[color(one) for one in names])
            axis.bar_label(bars, [f"{value:,.1f}" if value < 1000 else f"{value:,.0f}" for value in values], padding=3, fontsize=7)
            axis.set_title(row.title, fontsize=9)
            axis.set_xlim(0, max(values) * 1.25)
            axis.xaxis.set_visible(False)
            axis.tick_params(length=0)
            axis.spines[["top", "right", "bottom"]].set_visible(False)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return of_the_page(out.getvalue(), description)


def of_the_page(text: str, description: str) -> str:
    """A picture of matplotlib as a part of a page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # several pictures in one page
    for stands, variable in COLORS.items():
        text = text.replace(stands, f"var({variable})")
    label = html.escape(description, quote=True)
    text, count = re.subn(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>',
                          rf'<svg class="plot" role="img" aria-label="{label}" style="max-width:\1pt" viewBox="0 0 \1 \2" xmlns:xlink="http://www.w3.org/1999/xlink">', text, count=1)  # fmt: skip
    if count != 1:
        raise ValueError("the picture of matplotlib has no size")
    return "\n".join(line for line in text.splitlines() if line.strip())


def block(page: str) -> str:
    """The plots of a page as a part of it: one for each way of waiting and each path."""
    groups: dict[tuple[str, str], list[measurement]] = collections.defaultdict(list)
    for row in measurements(page):
        groups[row.mode, row.path].append(row)
    lines = []
    for (mode, path), rows in groups.items():
        description = f"Latency and rates, {mode}, {PATHS[path]}. For latency less is better, for rates more."
        lines += ["```{raw} html", f'<figure class="picture"><div class="scroll">{plot(f"{mode} {path}", rows, description)}</div>',
                  f"<figcaption>{html.escape(description)}</figcaption></figure>", "```", ""]  # fmt: skip
    return "\n".join(lines)


def with_plots(text: str) -> str:
    """docs/performance.md with its plots, before the first table of results."""
    heading = "\n## Waiting, counted\n"
    if heading not in text or not (made := block(text)):
        raise ValueError("docs/performance.md has no table of latencies and rates behind `## Waiting, counted`")
    plots = f"\n## Latency and rates\n\nThe values of the tables below: of hand-written verbs, of dat, and of others.\n\n{made}"
    return text.replace(heading, plots + heading, 1)
