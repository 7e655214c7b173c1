# docs/performance.md and its picture, from rows.
# SPDX-License-Identifier: BSL-1.0
"""Tables in Markdown; the picture by matplotlib, with a background of its own, so that it is readable in light and dark."""

from __future__ import annotations

import pathlib

import programs
import results
import verdicts

COLUMNS = [*programs.PEERS, *programs.OURS]


def cell(row: results.row, peer: str) -> str:
    """A ratio with its noise; `-` where there is none."""
    if peer not in row.ratios:
        return "-"
    one = row.ratios[peer]
    return f"{one.median:.2f} ±{one.noise:.2f}"


def table(rows: list[results.row]) -> str:
    """Rows with ratios."""
    columns = [peer for peer in COLUMNS if any(peer in row.ratios for row in rows)]
    lines = ["| row | verbs | " + " | ".join(columns) + " | dat is |", "|---|--:|" + "--:|" * len(columns) + "---|"]
    for row in rows:
        value = f"{row.by_hand:.1f}" if row.by_hand < 1000 else f"{row.by_hand:.0f}"
        lines.append(f"| {row.name} | {value} {row.unit} | " + " | ".join(cell(row, peer) for peer in columns) + f" | {row.judged()[0]} |")
    return "\n".join(lines)


def reasons_table(rows: list[results.row], reasons: dict[str, str]) -> str:
    """Every row in which dat is not ahead of every peer."""
    lines = ["| row | not behind dat | reason |", "|---|---|---|"]
    for row in rows:
        verdict, rest = row.judged()
        if verdict in ("behind", "within noise"):
            lines.append(f"| {row.name} | {', '.join(rest)} | {reasons.get(row.name) or 'The difference is within the noise.'} |")
    return "\n".join(lines)


def missing_table(rows: list[results.row]) -> str:
    """The peers that have no value in a row, and why; rows with the same reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for peer, why in row.missing.items():
            if why.startswith(programs.AS_LEAN):
                continue
            groups.setdefault((peer, why.replace("|", "/")), []).append(row.name)
    lines = ["| peer | rows | reason, or the error of the program |", "|---|---|---|"]
    return "\n".join(lines + [f"| {peer} | {', '.join(names)} | {why} |" for (peer, why), names in groups.items()])


WIDEST = 4.0  # of a bar, in times hand-written verbs; longer ones end with their number


def title(name: str) -> str:
    """Of a panel."""
    what, *rest = name.split()
    if what == "latency":
        return f"latency, {int(rest[0]) // 1024} KiB" if int(rest[0]) >= 1024 else f"latency, {rest[0]} B"
    return {"connections": "time of a connection", "heap": "heap of a connection"}.get(what) or f"{what}, {rest[0]} B each"


def draw(rows: list[results.row], to: pathlib.Path) -> None:
    """A panel for each row of the machine that counts, over the wire."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "dat", "svg.fonttype": "none", "font.family": "sans-serif"}
    import matplotlib.pyplot as plot

    shown = [row for row in rows if row.name.endswith("waiting wire") or row.name in ("connections", "heap")]
    figure, axes = plot.subplots(2, 4, figsize=(13, 6), facecolor="white", constrained_layout=True)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, row in zip(axes.flat, shown):
        names = [name for name in reversed(COLUMNS) if name in row.ratios]
        widths = [min(WIDEST, row.ratios[name].median) for name in names]
        bars = axis.barh(names, widths, color=["#2c6fbb" if name in programs.OURS else "#9aa5b1" for name in names])
        axis.bar_label(bars, [f"{row.ratios[name].median:.2f}" for name in names], padding=3, fontsize=8)
        axis.axvline(1, color="#222222", linewidth=1)
        axis.set_title(title(row.name), fontsize=10)
        axis.set_xlim(0, max([1.2, *widths]) * 1.2)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Cost in times hand-written verbs (line), waiting, over the wire; less is better", fontsize=11)
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, format="svg", metadata={"Date": None})
    plot.close(figure)
    note = "<!-- dat beside its peers. Written by ./dev bench peers. -->\n<!-- SPDX-License-Identifier: BSL-1.0 -->\n"
    head, mark, rest = to.read_text(encoding="utf-8").partition("?>\n")
    to.write_text(head + mark + note + "\n".join(line.rstrip() for line in rest.splitlines()) + "\n", encoding="utf-8")


def page(rows: list[results.row], reasons: dict[str, str], facts: dict[str, str], lines: str) -> str:
    """The whole page."""
    counted = [row for row in rows if "waiting" in row.name]
    polled = [row for row in rows if "polled" in row.name]
    joined = [row for row in rows if row.name in dict(programs.JOINS)]
    costs = [row for row in rows if row not in counted and row not in polled and row not in joined]
    head = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"""<!-- dat beside hand-written verbs and its peers. Written by ./dev bench peers. -->
<!-- SPDX-License-Identifier: BSL-1.0 -->
# Performance beside peers

`./dev bench peers` writes this page. Each number is the time or the cost of a peer divided by that of hand-written verbs: 1 is equal, and more than 1 is
slower, also for rates. ± is the noise: half of the range of all turns, and at least {verdicts.FLOOR:.2f}. For connections per second it is at
least {verdicts.FLOOR_OF_CONNECTIONS:.2f}, because two boots differ that much. *dat is* compares the best one of *dat lean*, *dat merged* and *dat manual* with all peers; it is *ahead* or *behind* only
beyond the noise of both. [The benchmarks](../bench/README.md#peers-dat-beside-perftest-rdma-core-ofa-dapl-libfabric-and-ucx) list these programs.

![Latency, rates, connections and memory in times hand-written verbs](peers.svg)

| | |
|---|---|
{head}

## Waiting, counted

The machine counts instructions in place of time (`dat-lab --counted`, one processor), so load on the host does not matter. A value has all work
of both sides, the kernel's and the device's included. Rates have {programs.DEPTH} operations under way.

{table(counted)}

## Polled, by the host's time

Each turn of a peer runs between two turns of hand-written verbs. Both sides spin on two emulated processors. The software device needs the same processors, so an operation may wait for a tick of the
scheduler, and most differences are within the noise. On hardware, the device does its own work.

{table(polled) if polled else "Not measured in this run."}

## Connections

The same program runs with each library, over the wire, on the counted machine. It makes {programs.JOINED["connections"]} connections one after the
other, each from the first call to the end of the disconnect on both sides. *heap* and *resident* are the memory of the connecting process for each
of {programs.JOINED["heap"]} connections that stay. *resident* includes queues that the device's library shares with the kernel. *dat lean* has the
service thread, and *dat manual* has none.

{table(joined) if joined else "Not measured in this run."}

## System calls and instructions

The messages have 8 bytes, and both sides wait, over the wire, on the counted machine. Each number comes from the difference between 600 and 200
messages there and back. The kernel counts the system calls of both sides. callgrind counts the instructions of the client in user space for a message
there and back, those of the libraries included. It slows the client so much that each reply arrives before the client would sleep, so that number
includes no wake-up.

{table(costs) if costs else "Not measured in this run."}

## Lines of code

Lines without comments and blank lines of one side of the same program: connection, memory, the four operations, polling and waiting.

{lines}

## Where dat is not ahead of every peer

{reasons_table(rows, reasons)}

## What has no value

{missing_table(rows)}
"""
