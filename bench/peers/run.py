#!/usr/bin/env python3
# dat beside hand-written verbs and its peers: runs all in the lab, writes docs/performance.md and its picture.
# SPDX-License-Identifier: BSL-1.0
"""run.py --build DIR [--rounds N] [--count N] [--peers NAME,...] [--short] [--only MODE] [--page FILE] [--from DIR]

Runs the same work with each peer: waiting on the machine that counts instructions (one boot), polled by the host's time (one boot). A peer that is
not there or fails is named with its error. Fails when dat is behind in a row for which reasons.toml has no reason."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import page  # noqa: E402
import programs  # noqa: E402
import results  # noqa: E402
import verdicts  # noqa: E402
from arguments import whole  # noqa: E402

ROOT = HERE.parents[1]
TIME_LIMIT = 124  # the exit code of dat-lab
LAB = ROOT / "tests/lab/dat-lab"
SOURCES = {"hand-written verbs": "pingpong/raw_link.hpp", "dat": "pingpong/dat_link.hpp", "libfabric": "peers/fabric_link.hpp"}


def code_lines(text: str) -> int:
    """Lines that are neither blank nor a comment."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def lines_table() -> str:
    """The lines of our two programs for the same work."""
    rows = [f"| {name} | {code_lines((HERE.parent / file).read_text(encoding='utf-8'))} |" for name, file in SOURCES.items()]
    return "\n".join(["| program | lines |", "|---|--:|", *rows])


def peers_of(text: str) -> list[str]:
    """The type of --peers."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in programs.PEERS + programs.OURS]:
        raise argparse.ArgumentTypeError(f"no peer {', '.join(repr(name) for name in unknown)}; there are {', '.join(programs.PEERS + programs.OURS)}")
    return names


def boot(mode: str, options: argparse.Namespace, folder: pathlib.Path) -> str:
    """The output of one boot."""
    plan = {"build": str(options.build.resolve()), "folder": str(folder / "turns"), "mode": mode, "count": options.count, "rounds": options.rounds,
            "costs": mode == "waiting" and not options.short, "peers": options.peers}  # fmt: skip
    file = folder / f"{mode}.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    command = [LAB, *(["--counted"] if mode == "waiting" else []), "--timeout", options.seconds, "--", sys.executable, HERE / "guest.py", file]
    lines = folder / f"{mode}.jsonl"
    before = load_of_host()
    with open(lines, "wb") as out:
        done = subprocess.run([str(word) for word in command], stdout=out, check=False)
    text = lines.read_text(encoding="utf-8", errors="replace")
    if done.returncode == TIME_LIMIT:
        print(f"peers: {mode}: the time limit has passed; rows have the turns that were complete")
    elif done.returncode:
        raise RuntimeError(f"{mode}: exit code {done.returncode}\n{text[-1000:]}")
    facts = {"fact": "load of the host", "before": before, "after": load_of_host(), "date": datetime.date.today().isoformat()}
    text = text[: text.rfind("\n") + 1] + json.dumps(facts) + "\n"  # without a line that the time limit has cut off
    lines.write_text(text, encoding="utf-8")
    return text


def version(package: str) -> str:
    """Debian's version of a package."""
    if not shutil.which("dpkg-query"):
        return "unknown"
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return done.stdout or "not installed"


def facts_of(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Machine, kernel, versions, date: those of the boots."""
    boots = [line for line in lines if "kernel" in line]
    loads = [f"{line['before']:.1f} before, {line['after']:.1f} after" for line in lines if line.get("fact") == "load of the host"]
    dat = re.search(r"version: *(?:run_command.*|'([^']+)')", (ROOT / "meson.build").read_text(encoding="utf-8"))
    return {
        "machine": "virtual machine of dat-lab (qemu), Soft-RoCE; one emulated processor that counts, two for polling",
        "kernel": ", ".join(dict.fromkeys(str(line["kernel"]) for line in boots)),
        "load of the host": "; ".join(loads) + " (two processors)",
        "versions": ", ".join([f"dat {dat[1]}" if dat and dat[1] else "dat", *(f"{peer}: {package} {version(package)}" for peer, package in programs.PACKAGES.items())]),
        "turns": "; ".join(f"{line['mode']}: {line['rounds']} of {line['count']} operations" for line in boots),
        "date": ", ".join(dict.fromkeys(str(line["date"]) for line in lines if "date" in line)),
    }


def load_of_host() -> float:
    """The load average of the last minute."""
    return float(pathlib.Path("/proc/loadavg").read_text(encoding="ascii").split()[0])


def main() -> int:
    """Runs, writes, judges."""
    parser = argparse.ArgumentParser(prog="./dev bench peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR", help="an optimised build directory")
    parser.add_argument("--rounds", type=whole(1, 100), default=3, metavar="N", help="turns of each peer (3)")
    parser.add_argument("--count", type=whole(10, 100000), default=600, metavar="N", help="operations of a turn, a tenth of them with 64 KiB (600)")
    parser.add_argument("--seconds", type=whole(10, 3600), default=1800, metavar="N", help="the time limit of each boot (1800)")
    parser.add_argument("--peers", type=peers_of, default=programs.PEERS + programs.OURS, metavar="NAME,...", help="only these")
    parser.add_argument("--short", action="store_true", help="no polled turns, no counting of calls and instructions, no question for reasons")
    parser.add_argument("--only", choices=["waiting", "polled"], help="one of the two boots")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/performance.md", metavar="FILE", help="the page (docs/performance.md)")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="DIR", help="write the page from the results of an earlier run")
    options = parser.parse_args()

    folder = options.build.resolve() / "bench/peers"
    if not options.source and not (folder / "own").exists():
        print(f"peers: {folder / 'own'} is not there: configure with -Dbench=enabled, and build")
        return 2
    if options.source:
        text = "".join(file.read_text(encoding="utf-8") for name in ("waiting", "polled") if (file := options.source / f"{name}.jsonl").exists())
    else:
        text = "".join(boot(mode, options, folder) for mode in ([options.only] if options.only else ["waiting"] if options.short else ["waiting", "polled"]))
    lines = results.lines_of(text)
    rows = results.rows_of(lines)
    if not rows:
        print("peers: the measurement is not complete")
        return 1
    reasons = {str(key): str(value) for key, value in tomllib.loads((HERE / "reasons.toml").read_text(encoding="utf-8")).items()}
    print(page.table(rows))
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page.page(rows, reasons, facts_of(lines), lines_table()), encoding="utf-8")
    page.draw(rows, options.page.parent / "peers.svg")
    if options.short:
        return 0
    missing = verdicts.missing_reasons({row.name: row.judged()[0] for row in rows}, reasons)
    for name in missing:
        print(f"peers: dat is behind in '{name}', and reasons.toml has no reason; not behind it: {', '.join(next(row for row in rows if row.name == name).judged()[1])}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
