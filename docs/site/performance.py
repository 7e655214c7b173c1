# The page about cost: what the gauge counts, drawn as bars.
# SPDX-License-Identifier: BSL-1.0
"""The numbers are those of bench/overhead/gauge.py --json of this build; without them, the limits that the tests hold."""

from __future__ import annotations

import html
import json
import pathlib
import runpy

COMPILERS = (("g++", 0), ("clang++", 1))


def limits(tree: pathlib.Path) -> list[tuple[str, list[float], float | None]]:
    """(job, ratio for each compiler, budget): what a run must not exceed."""
    gauge = runpy.run_path(str(tree / "bench/overhead/gauge.py"), run_name="limits")
    budgets, reached = gauge["BUDGETS"], gauge["REACHED"]
    return [(job, list(reached.get(job, (budget, budget))), budget) for job, budget in budgets.items()]


def measured(path: pathlib.Path) -> list[tuple[str, list[float], float | None]]:
    """(job, ratio for each compiler, budget) of a run of the gauge."""
    rows: dict[str, tuple[list[float], float | None]] = {}
    for one in json.loads(path.read_text(encoding="utf-8")):
        if one["by_hand"]:  # two ways of posting, without dat
            continue
        ratios, _ = rows.setdefault(one["job"], ([0.0, 0.0], one["budget"]))
        ratios[1 if one["compiler"].startswith("clang") else 0] = one["ratio"]
    return [(job, ratios, budget) for job, (ratios, budget) in rows.items()]


def chart(rows: list[tuple[str, list[float], float | None]]) -> str:
    """A table whose cells are bars, from 0; 1 is the cost of hand-written verbs."""
    most = max(max(ratios) for _, ratios, _ in rows)
    lines = ['<table class="bars"><thead><tr><th>Job</th><th>Instructions in times those of hand-written verbs</th><th>Budget</th></tr></thead><tbody>']
    for job, ratios, budget in rows:
        bars = "".join(
            f'<div class="bar"><span class="fill c{number}" style="width:{100 * ratios[number] / most:.1f}%"></span><span class="number">{ratios[number]:.2f} {name}</span></div>'
            for name, number in COMPILERS
        )
        mark = f'<span class="one" style="left:{100 / most:.1f}%" title="hand-written verbs"></span>'
        lines.append(f'<tr><th scope="row">{html.escape(job)}</th><td><div class="scale">{bars}{mark}</div></td><td>{"" if budget is None else f"{budget:.2f}"}</td></tr>')
    return "\n".join([*lines, "</tbody></table>"])


def page(tree: pathlib.Path, numbers: pathlib.Path) -> str:
    """The page."""
    there = numbers.exists()
    rows = measured(numbers) if there else limits(tree)
    origin = ("Counted for this build of the site." if there else "This site was built without the gauge: the bars are the limits that the tests hold.")  # fmt: skip
    return f"""# Cost

Each job is done twice on the same queue pair and completion queue: by hand-written verbs, and by dat as a user writes it. callgrind counts
instructions, the device included, so the numbers are the same on every run and on a busy machine. A line marks 1, the cost of hand-written
verbs. [The benchmarks](bench/README.md) explain each job, and the other benchmarks: latency and rate, waking a thread, connections per
second, memory. {origin}

```{{raw}} html
{chart(rows)}
```
"""
