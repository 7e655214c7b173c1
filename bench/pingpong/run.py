#!/usr/bin/env python3
# Latency and rate of dat beside hand-written verbs: runs pingpong, prints a table and draws it.
# SPDX-License-Identifier: BSL-1.0
"""run.py --build DIR [--rounds N] [--path NAME SERVER CLIENT]... [--from FILE]

Runs DIR/bench/pingpong/pingpong in one boot of the lab, or natively where dat-lab finds RDMA devices (then name the
addresses of two ports, or one twice, with --path). Both sides take turns, and the best round of each counts.
Writes pingpong.csv (the measured values), pingpong.txt (the table) and pingpong.svg into DIR/bench/pingpong.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from arguments import whole  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = ROOT / "tests/lab/dat-lab"
LAB_PATHS = [["wire", "10.78.2.1", "10.78.1.1"], ["loopback", "10.78.1.1", "10.78.1.1"]]

# (path, waiting, bytes) -> side -> (microseconds one way, writes per second)
Table = dict[tuple[str, str, int], dict[str, tuple[float, float]]]


def best_of(lines: list[list[str]]) -> Table:
    """The best latency and the best rate of each side at each point."""
    table: Table = {}
    for path, side, waiting, size, latency, rate in lines:
        sides = table.setdefault((path, waiting, int(size)), {})
        old = sides.get(side, (float("inf"), 0.0))
        sides[side] = (min(old[0], float(latency)), max(old[1], float(rate)))
    return table


def text_of(table: Table) -> str:
    """The table as plain text."""
    head = f"{'':<10}{'':<9}{'bytes':>7} |{'raw us':>9}{'dat us':>9}{'ratio':>7} |{'raw /s':>10}{'dat /s':>10}{'ratio':>7}"
    out = [f"{'':26} |{'one way, send and receive':^25} |{'RDMA writes, 32 in flight':^27}", head]
    last = ("", "")
    for (path, waiting, size), sides in table.items():
        raw, dat = sides["raw"], sides["dat"]
        label = f"{path:<10}{waiting:<9}" if (path, waiting) != last else " " * 19
        last = (path, waiting)
        out.append(
            f"{label}{size:>7} |{raw[0]:9.1f}{dat[0]:9.1f}{dat[0] / raw[0]:7.2f} |{raw[1]:10.0f}{dat[1]:10.0f}{dat[1] / raw[1]:7.2f}"
        )
    return "\n".join(out) + "\n"


def panel(table: Table, which: int, title: str, x0: int, y0: int, key: tuple[str, str]) -> list[str]:
    """One chart: pairs of bars (raw, dat) by size; the height is linear, relative to the larger bar of the pair."""
    width, height = 380, 130
    points = [(size, sides) for (path, waiting, size), sides in table.items() if (path, waiting) == key]
    step = width / max(1, len(points))
    out = [f'<text x="{x0}" y="{y0 - 8}" class="t">{title}: {key[0]}, {key[1]}</text>']
    out.append(f'<line x1="{x0}" y1="{y0 + height}" x2="{x0 + width}" y2="{y0 + height}" class="a"/>')
    for i, (size, sides) in enumerate(points):
        top = max(side[which] for side in sides.values()) or 1
        for j, name in enumerate(("raw", "dat")):
            value = sides[name][which]
            h = (height - 30) * value / top
            x = x0 + i * step + 6 + j * step * 0.42
            out.append(f'<rect x="{x:.1f}" y="{y0 + height - h:.1f}" width="{step * 0.38:.1f}" height="{h:.1f}" class="{name}"/>')
            shown = f"{value:.0f}" if value < 10000 else f"{value / 1000:.0f}k"
            out.append(f'<text x="{x + step * 0.19:.1f}" y="{y0 + height - h - 3:.1f}" class="n">{shown}</text>')
        label = f"{size}" if size < 1024 else f"{size // 1024}K"
        out.append(f'<text x="{x0 + (i + 0.5) * step:.1f}" y="{y0 + height + 14}" class="n">{label}</text>')
    return out


def svg_of(table: Table) -> str:
    """The table as a picture."""
    keys = list(dict.fromkeys((path, waiting) for path, waiting, _ in table))
    body: list[str] = []
    for row, key in enumerate(keys):
        body += panel(table, 0, "Latency one way, µs (less is better)", 20, 70 + row * 190, key)
        body += panel(table, 1, "RDMA writes per second (more is better)", 440, 70 + row * 190, key)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="850" height="{80 + 190 * len(keys)}" font-family="sans-serif">',
            "<style>.t{font-size:12px;font-weight:bold}.n{font-size:9px;text-anchor:middle}.a{stroke:#444}"
            ".raw{fill:#9aa5b1}.dat{fill:#2c6fbb}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            '<text x="20" y="24" font-size="15">dat beside hand-written verbs, by bytes of a message</text>',
            '<rect x="20" y="34" width="10" height="10" class="raw"/><text x="34" y="43" font-size="11">verbs</text>'
            '<rect x="84" y="34" width="10" height="10" class="dat"/><text x="98" y="43" font-size="11">dat</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def main() -> int:
    """Runs, prints, draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR", help="an optimised build directory")
    parser.add_argument("--rounds", type=whole(1, 1000), default=3, metavar="N", help="turns of each side (3)")
    parser.add_argument("--path", nargs=3, action="append", metavar=("NAME", "SERVER", "CLIENT"), help="addresses to measure between")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FILE", help="show an earlier pingpong.csv, measure nothing")
    options = parser.parse_args()

    folder = (options.build / "bench/pingpong").resolve()
    if options.source:
        text = options.source.read_text(encoding="utf-8")
    else:
        program = folder / "pingpong"
        if not program.exists():
            print(f"pingpong: {program} is not there: configure with -Dbench=enabled, and build")
            return 2
        words = [word for path in options.path or LAB_PATHS for word in path]
        command = [LAB, "--timeout", str(120 + 120 * options.rounds), "--", program, str(options.rounds), *words]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"pingpong: exit code {done.returncode}\n{done.stdout[-2000:]}")
            return 1
        text = done.stdout
        (folder / "pingpong.csv").write_text(text, encoding="utf-8")
    lines = [row for row in csv.reader(text.splitlines()) if len(row) == 6]
    table = best_of(lines)
    if not table or any(sides.keys() != {"raw", "dat"} for sides in table.values()):
        print("pingpong: the measurement is not complete")
        return 1
    shown = text_of(table)
    print(shown, end="")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pingpong.txt").write_text(shown, encoding="utf-8")
    (folder / "pingpong.svg").write_text(svg_of(table), encoding="utf-8")
    print(f"picture: {folder / 'pingpong.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
