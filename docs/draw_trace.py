#!/usr/bin/env python3
# Draws docs/trace.svg: a part of a trace of examples/18_trace, as Perfetto shows it.
# SPDX-License-Identifier: BSL-1.0
"""draw_trace.py TRACE.json PICTURE.svg: needs python3-matplotlib. Record the trace where the clock does not depend on the load:
./dev lab --counted -- sh -c 'build/gcc/examples/18_trace /tmp/t.json >&2; cat /tmp/t.json' > TRACE.json"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
matplotlib.rcParams["svg.hashsalt"] = "dat"  # the same file each time
import matplotlib.pyplot as plt  # noqa: E402

SHOWN = 1500  # microseconds from the first attempt to connect
COLOURS = {"state": "#9db4c0", "send": "#e07a5f", "recv": "#3d85a8", "wait": "#cfcfcf"}


def rows_of(events: list[dict]) -> tuple[list[str], list[tuple[str, str, float, float]], list[tuple[str, str, float]]]:
    """The names of the rows, the bars (row, text, from, to) and the marks (row, text, at)."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    begun = {(e["name"], e["id"]): e["ts"] for e in events if e["ph"] == "b"}
    bars = [(names.get(e["tid"], f"thread {e['tid']}"), e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    bars += [(e["name"], e["name"], begun[e["name"], e["id"]], e["ts"]) for e in events if e["ph"] == "e"]
    marks = [(names.get(e["tid"], f"thread {e['tid']}"), e["name"], e["ts"]) for e in events if e["ph"] == "i"]
    rows = sorted({row for row, *_ in bars + marks}, key=lambda row: (row.startswith("thread"), row))
    return rows, bars, marks


def main() -> int:
    """Draws the picture."""
    events = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["traceEvents"]
    rows, bars, marks = rows_of(events)
    start = min(begin for _, text, begin, _ in bars if text == "active connection pending") - 50
    rows = [r for r in rows if any(r == b[0] and b[2] < start + SHOWN and b[3] > start for b in bars) or any(r == m[0] and start <= m[2] < start + SHOWN for m in marks)]  # fmt: skip
    figure, axes = plt.subplots(figsize=(11, 0.55 * len(rows) + 1))
    figure.patch.set_facecolor("white")  # also on a dark page
    place = {row: len(rows) - i for i, row in enumerate(rows)}
    for row, name, begin, end in bars:
        text = name.removeprefix(row.rpartition(" ")[0] + " ") if row == name else name
        left, right = max(begin - start, 0), min(end - start, SHOWN)
        if right <= left:
            continue
        kind = "wait" if text.startswith("wait") else next((k for k in ("send", "recv") if text.endswith(k)), "state")
        axes.barh(place[row], right - left, left=left, height=0.62, color=COLOURS[kind], edgecolor="white", linewidth=0.8)
        if right - left > 9 * len(text):
            axes.text(left + 6, place[row], text, va="center", fontsize=8, color="#1b1b1b")
    for row, text, at in marks:
        if 0 <= at - start <= SHOWN:
            axes.plot(at - start, place[row] + 0.36, marker="v", markersize=4, color="#7a1f1f" if "arm" not in text else "#8a8a8a")
            if not text.startswith("arm"):
                axes.annotate(text, (at - start, place[row] + 0.42), fontsize=7, color="#7a1f1f", ha="left", va="bottom")
    axes.set_yticks([place[row] for row in rows], rows, fontsize=8)
    axes.set_xlim(0, SHOWN)
    axes.set_ylim(0.4, len(rows) + 0.9)
    axes.set_xlabel("microseconds", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    picture = pathlib.Path(sys.argv[2])
    figure.savefig(picture, format="svg", metadata={"Date": None})
    head, body = picture.read_text(encoding="utf-8").split("\n", 1)
    lines = [line.rstrip() for line in body.splitlines()]
    licence = "<!-- A part of a trace of examples/18_trace, drawn by draw_trace.py. -->\n<!-- SPDX-License-Identifier: BSL-1.0 -->\n"
    picture.write_text(f"{head}\n{licence}" + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
