#!/usr/bin/env python3
# The judgement: OFA's own programs, unmodified, on dat's provider and on OFA's, in the lab.
# SPDX-License-Identifier: BSL-1.0
"""Runs the programs of the Debian package dapl2-utils in every column, and writes the table docs/conformance/PROGRAMS.md.

A column names the provider of the server and that of the client. A result is `pass`, `fail` (an exit code, or what the
program prints), or `hang`: no process of the test used any time of a processor or printed anything for as long as --idle, or
the test took longer than --limit."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from programs import PROGRAMS, TESTS, adapters, program, test

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = ROOT / "tests/lab/dat-lab"
TABLE = ROOT / "docs/conformance/PROGRAMS.md"
RESULTS = ROOT / "build/programs.jsonl"  # the results of all runs; the last one of a test counts
PARTS = re.compile(r"dapltest -T [LF] ")  # tests of clients that run alone, whose parts are rows of the table
# The names of the lab's two devices; OFA's provider needs the name of the network interface.
SERVER, CLIENT = 2, 1
ADDRESS = "10.78.2.1"


@dataclasses.dataclass(frozen=True)
class column:
    """Who serves, who asks, and whose libdat2 loads the providers."""

    server: str
    client: str
    registry: str = "ofa"

    @property
    def name(self) -> str:
        """The title of the column."""
        return f"{self.server}-{self.client}" + ("-registry" if self.registry == "dat" else "")


COLUMNS = {c.name: c for c in (column("ofa", "ofa"), column("dat", "ofa"), column("ofa", "dat"), column("dat", "dat"), column("dat", "dat", "dat"))}
TITLES = {
    "ofa-ofa": "OFA",
    "dat-ofa": "dat serves OFA",
    "ofa-dat": "OFA serves dat",
    "dat-dat": "dat",
    "dat-dat-registry": "dat, its libdat2",
}


# ---- in the lab -----------------------------------------------------------------------------------------------------


class running:
    """One process of a test, with its output in a file."""

    def __init__(self, command: str, log: pathlib.Path, env: dict[str, str]):
        self.log = log
        with open(log, "wb") as out:
            # Prints lines at once, because the test reads them while the program runs.
            self.process = subprocess.Popen(["stdbuf", "-oL", "-eL", *command.split()], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True)

    def text(self) -> str:
        """The output of the program."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def life(self) -> tuple[int, int, bool]:
        """Time of processors, bytes of output, and whether a thread wants to run now."""
        used, wants = 0, False
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                used += int(fields[11]) + int(fields[12])
                wants |= fields[0] in "RD"
        return used, self.log.stat().st_size, wants

    def end(self) -> None:
        """Kill it, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclasses.dataclass(frozen=True)
class limits:
    """When a test hangs, in seconds: without a sign of life, and in all."""

    idle: float
    all: float


def watch(processes: list[running], until, deadline: float, idle: float) -> bool:
    """Wait until `until()` holds; False when nothing has shown life for `idle` seconds, or the time is over."""
    seen, since = None, time.monotonic()
    while not until():
        now = time.monotonic()
        lives = [p.life() for p in processes]
        if (state := [life[:2] for life in lives]) != seen or any(life[2] for life in lives):
            seen, since = state, now
        if now - since > idle or now > deadline:
            return False
        time.sleep(0.1)
    return True


def outcome(how: program, what: running, ended: bool) -> tuple[str, str]:
    """The result of one process, and why it is no pass."""
    lines = [line.strip() for line in what.text().splitlines() if line.strip()]
    if not ended:
        return "hang", f"after: {lines[-1] if lines else 'no output'}"
    code = what.process.returncode
    if code < 0:
        return "fail", f"signal {-code} ({signal.Signals(-code).name})"
    text = "\n".join(lines)
    wrong = next((line for line in lines if re.search(r"\b(error|fails?|failed|failure)\b", line, re.I)), lines[-1] if lines else "no output")
    if code or (how.failed and re.search(how.failed, text)) or (how.passed and not re.search(how.passed, text)):
        return "fail", (f"exit code {code}: " if code else "") + wrong
    return "pass", ""


def parts(how: program, what: running, result: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """The results of the parts of an output. A part without an end has the result of the process."""
    text, found = what.text(), {}
    marks = list(re.finditer(how.parts, text))
    for mark, following in zip(marks, [*marks[1:], None]):
        section = text[mark.end() : following.start() if following else len(text)]
        name = " case ".join(mark.groups())
        lines = [line.strip() for line in section.splitlines() if line.strip()]
        if re.search(how.part_failed, section, re.M):
            wrong = [line for line in lines if re.search(r"fail|error|Unexpected", line, re.I)]
            found[name] = ("fail", wrong[0] if wrong else "it prints FAIL")
        elif not re.search(how.part_end, section, re.M):
            found[name] = result if result[0] != "pass" else ("fail", "no result")
        else:
            numbers = [line.split(": ", 1)[1] for line in lines if how.parts.startswith("Limitation") and re.match(r"LimitTest: [^#]+: \d+$", line)]
            unsupported = "UNSUPP" in section
            found[name] = ("pass", "the program skips it" if unsupported else ", ".join(numbers[:1]))
    return found


def judge(what: test, where: column, number: int, out: pathlib.Path, env: dict[str, str], until: limits) -> list[dict]:
    """Run one test in one column. The rows of the table."""
    how = PROGRAMS[what.kind]
    words = {
        "address": ADDRESS,
        "port": str(20000 + 64 * number),
        "other": f"{where.client}-{CLIENT}",
    }
    options = what.options.format(device=words["other"], **words)
    stem = re.sub(r"\W+", "-", f"{where.name} {what.name.format(device='', address='', port='')}")[:100]
    deadline = time.monotonic() + until.all
    begin = time.monotonic()
    processes: list[running] = []
    try:
        server = None
        if how.server:
            server = running(how.server.format(device=f"{where.server}-{SERVER}", options=options, **words), out / f"{stem}.server", env)
            processes.append(server)
            if not watch(processes, lambda: server.process.poll() is not None or re.search(how.ready, server.text()), deadline, until.idle):
                return [row(what.name, where, "hang", "the server never serves", begin)]
            if server.process.poll() is not None:
                return [row(what.name, where, "fail", f"server: {outcome(how, server, True)[1]}", begin)]
        device = f"{where.client}-{CLIENT}"
        client = running(how.client.format(device=device, options=options, **words), out / f"{stem}.client", env)
        processes.append(client)
        ended = watch(processes, lambda: client.process.poll() is not None, deadline, until.idle)
        mine = outcome(how, client, ended)
        if mine[0] == "pass" and not re.search(what.prints, client.text()):
            mine = ("fail", f"it leaves out {what.prints}")
        if not ended:
            client.end()
        if how.parts:
            found = parts(how, client, mine)
            title = re.sub(r" limit_\w+$", "", what.name)
            rows = [row(f"{title} {name}", where, *result, begin) for name, result in found.items()]
            return rows or [row(what.name, where, *mine, begin)]
        theirs = ("pass", "")
        if server:
            if how.quit and ended:
                quitter = running(how.quit.format(**words), out / f"{stem}.quit", env)
                processes.append(quitter)
                watch([quitter], lambda: quitter.process.poll() is not None, time.monotonic() + 60, until.idle)
            over = watch([server], lambda: server.process.poll() is not None, time.monotonic() + (until.all if mine[0] == "pass" else until.idle), until.idle)
            theirs = outcome(how, server, over)
        both = [f"{who}: {why}" for who, (result, why) in (("client", mine), ("server", theirs)) if result != "pass"]
        result = mine[0] if mine[0] != "pass" else theirs[0]
        return [row(what.name, where, result, "; ".join(both), begin)]
    finally:
        for process in processes:
            process.end()


def row(name: str, where: column, result: str, why: str, begin: float) -> dict:
    """A result, as it is kept."""
    return {"test": shown(name), "column": where.name, "result": result, "why": clean(why), "seconds": round(time.monotonic() - begin, 1)}


def shown(name: str) -> str:
    """The name of a test as the table has it."""
    return " ".join(name.format(device="", address="", port="").split()).replace(" -s -D -n", "")


def clean(why: str) -> str:
    """Text of a program without what differs from run to run: process ids, addresses of memory."""
    why = re.sub(r"0x[0-9a-f]{5,}", "0x...", re.sub(r"^(\w+: )(exit code \d+: )?\d+:? ", r"\1\2", why))
    return re.sub(r"\s+", " ", why).strip()[:160]


def inside(options: argparse.Namespace) -> int:
    """The part that runs in the lab."""
    out = pathlib.Path(options.out)
    conf = out / "dat.conf"
    conf.write_text(adapters(options.provider), encoding="utf-8")
    os.environ["DAT_OVERRIDE"] = str(conf)
    bad = 0
    with open(out / "results.jsonl", "a", encoding="utf-8") as results:
        for number, what in enumerate(chosen(options)):
            for where in (COLUMNS[name] for name in options.columns.split(",")):
                if not PROGRAMS[what.kind].server and where.server != where.client:
                    continue  # the client runs alone: the table has the result of the other column with this client
                env = os.environ | ({"LD_LIBRARY_PATH": options.registry} if where.registry == "dat" else {})
                for found in judge(what, where, number, out, env, limits(options.idle, options.limit)):
                    results.write(json.dumps(found) + "\n")
                    results.flush()
                    print(f"{found['result']:<5} {found['column']:<17} {found['test']} ({found['seconds']} s) {found['why']}", flush=True)
                    bad += found["result"] != "pass"
    return bad > 0


# ---- outside --------------------------------------------------------------------------------------------------------


def chosen(options: argparse.Namespace) -> list[test]:
    """The tests that the options name."""
    return [t for t in TESTS if (not options.short or t.short) and re.search(options.tests, t.name)]


def read(path: pathlib.Path) -> dict[str, dict[str, dict]]:
    """Results by test and column; the last run of each counts."""
    found: dict[str, dict[str, dict]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            found.setdefault(entry["test"], {})[entry["column"]] = entry
    return found


def recorded() -> dict[str, dict[str, dict]]:
    """The results that the page has, by test and column."""
    page = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    names = {title: name for name, title in TITLES.items()}
    found: dict[str, dict[str, dict]] = {}
    columns: list[str] = []
    tests, _, reasons = page.partition("## What did not pass")
    for line in tests.splitlines():
        cells = [cell.strip().strip("`*") for cell in line.strip("|").split("|")]
        if cells[0] == "test":
            columns = [names[title] for title in cells[1:]]
        elif columns and line.startswith("| `"):
            found[cells[0]] = {name: {"result": cell, "why": ""} for name, cell in zip(columns, cells[1:]) if cell}
    for name, title, why in re.findall(r"^\| `(.+)` \| (.+?) \| \w+ \| (.*) \|$", reasons, re.M):
        found[name][names[title]]["why"] = re.sub(r"\\([|<])", r"\1", why)
    return found


def with_recorded(found: dict[str, dict[str, dict]]) -> dict[str, dict[str, dict]]:
    """Results, and those of the page for what was not run. Tests that are no more are left out."""
    now = dict.fromkeys(shown(what.name) for what in TESTS if not PROGRAMS[what.kind].parts)
    kept = {name: row for name, row in recorded().items() if name in now or PARTS.match(name)}
    return {name: kept.get(name, {}) | found.get(name, {}) for name in now | kept | found}


def check(found: dict[str, dict[str, dict]]) -> int:
    """Compare results with those of the page: nothing that has passed fails. Prints `N passed, N failed`."""
    before = recorded()
    worse = [
        f"{name}, {TITLES[where]}: {entry['result']}, {entry['why']}"
        for name, row in found.items()
        for where, entry in row.items()
        if entry["result"] != "pass" and before.get(name, {}).get(where, {"result": "pass"})["result"] == "pass"
    ]
    for line in worse:
        print(line)
    total = sum(len(row) for row in found.values())
    print(f"{total - len(worse)} passed, {len(worse) if total else 1} failed")
    return not total or bool(worse)


# Notes that are needed to read the results. The programs have no line numbers: they are the binaries of the package.
REMARKS = {
    "dtest": "Posts writes of 4 MiB with suppressed completions, many at once; so does `-b 1048576`. With both providers a write often ends as "
    "flushed, because the connection breaks on Soft-RoCE, and the program waits for the cookie of a later one. With smaller buffers it passes, so "
    "its options are tested with 4,096 bytes.",
    "dtest -b 65536 -W -a -i 16384": "Makes 1,000 round trips of every size around each power of two. A hang is here the time limit (--limit): both sides "
    "print sizes until it ends them.",
    "dtest -b 4096 -W -a": "Makes the same round trips up to 4,096 bytes, for 2 to 8 min: run with --limit 1100.",
    "dtest -b 4096 -c -W": "In one of four runs of dat with OFA's server, that server died by SIGSEGV during the round trips. It passed in the last three.",
    "dtestsrq": "With OFA's provider no message arrives. With dat's all do; then the program waits, after each disconnect, for an asynchronous event "
    "of just that endpoint. OFA makes one of verbs' IBV_EVENT_QP_LAST_WQE_REACHED; uDAPL has none. The events that dat reports are those of the "
    "soft high watermark 0, which the program has set by clearing its attributes.",
    "dtestsrq -c 4": "Disconnects its endpoints one by one, and frees the one that the next event names. Where that is another one, because the "
    "peer disconnects as well, the program later passes the null that it has put in its place (the call at 0x3f37, the null of 0x40cc).",
    "dtestsrq -u": "Wants datagram endpoints on a shared receive queue, which dat does not have.",
    "dapltest -T F -f queryinfo Queryinfo case 13": "Passes the handle of its ia to dat_cno_query (the call at 0xacf0, in DT_queryinfo_basic) and wants "
    "DAT_INVALID_HANDLE. For OFA's libdat2 (2.0.0) the handle of an ia is a small number, and its dat_cno_query checks for null alone: it reads the "
    "provider from address 1 (the load at 0x2f35). The program dies by SIGSEGV with either provider, before cases 14 to 17. dat's libdat2 "
    "returns the error.",
    "dtestcm -c 10 -u": "OFA's provider for rdma_cm has no datagrams.",
}


def alone_in_all(row: dict[str, dict]) -> dict[str, dict]:
    """The results of a client that runs alone: two columns have those of the column with the same client."""
    return row | {c: row[f"{where.client}-{where.client}"] for c, where in COLUMNS.items() if where.server != where.client and f"{where.client}-{where.client}" in row}


def table(found: dict[str, dict[str, dict]]) -> str:
    """The page."""
    columns = [c for c in COLUMNS if any(c in row for row in found.values())]
    found = {name: alone_in_all(row) if PARTS.match(name) else row for name, row in found.items()}
    lines = [
        "<!-- Generated by tests/provider/judge.py --table; do not edit. SPDX-License-Identifier: BSL-1.0 -->",
        "# OFA's programs on dat",
        "",
        "The test programs of OFA's DAPL (Debian package dapl2-utils 2.1.10), unmodified, on two Soft-RoCE devices in the lab. A column",
        "names the provider of the server and that of the client; OFA with OFA is the yardstick. `./dev test --only provider` runs the",
        "short form, `tests/provider/judge.py` all. An empty cell was not run. `dapltest -T L` and `-T F` have no server: two columns repeat those",
        "of the same client.",
        "",
        "| result | " + " | ".join(TITLES[c] for c in columns) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for result in ("pass", "fail", "hang"):
        counts = [sum(row.get(c, {}).get("result") == result for row in found.values()) for c in columns]
        lines.append(f"| {result} | " + " | ".join(map(str, counts)) + " |")
    lines += ["", "## Tests", "", "| test | " + " | ".join(TITLES[c] for c in columns) + " |", "|---|" + "---|" * len(columns)]
    for name, row in found.items():
        cells = [row.get(c, {}).get("result", "") for c in columns]
        lines.append(f"| `{name}` | " + " | ".join(cell if cell in {"pass", ""} else f"**{cell}**" for cell in cells) + " |")
    lines += ["", "## What did not pass", "", "| test | column | result | what the program reports |", "|---|---|---|---|"]
    for name, row in found.items():
        for c in columns:
            if c in row and row[c]["result"] != "pass":
                why = row[c]["why"].replace("|", "\\|").replace("<", "\\<")
                lines.append(f"| `{name}` | {TITLES[c]} | {row[c]['result']} | {why} |")
    lines += ["", "## Remarks", ""]
    lines += [f"- `{name}`: {text}" for name, text in REMARKS.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the programs in the lab; with --table, writes the page of the results so far."""
    parser = argparse.ArgumentParser(description="Judge dat's provider by OFA's programs.")
    parser.add_argument("--short", action="store_true", help="the short form")
    parser.add_argument("--tests", default="", metavar="PATTERN", help="only tests whose name has this pattern")
    parser.add_argument("--columns", default="ofa-ofa,dat-ofa,ofa-dat,dat-dat,dat-dat-registry", help="%(default)s")
    parser.add_argument("--build", default=str(ROOT / "build/gcc"), help="the build directory with provider and registry")
    parser.add_argument("--idle", type=float, default=30, metavar="SECONDS", help="a test hangs after this time without a sign of life (%(default)s)")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="a test hangs after this time in all (%(default)s)")
    parser.add_argument("--check", action="store_true", help="fail only for what has passed according to the page")
    parser.add_argument("--table", action="store_true", help=f"write {TABLE.relative_to(ROOT)} of the results so far, with those that it has of other tests; run nothing")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="", help=argparse.SUPPRESS)
    parser.add_argument("--provider", default="", help=argparse.SUPPRESS)
    parser.add_argument("--registry", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [c for c in options.columns.split(",") if c not in COLUMNS]:
        parser.error(f"no column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    if options.table:
        TABLE.write_text(table(with_recorded(read(RESULTS))), encoding="utf-8")
        return 0
    if options.inside:
        return inside(options)
    build = pathlib.Path(options.build).resolve()
    out = build / "programs"
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.jsonl").unlink(missing_ok=True)
    cpus = "1" if options.short else "2"
    command = [LAB, "--cpus", cpus, "--memory", "4096", "--mtu", "4200", "--timeout", str(6 * 3600), "--out", out, "--", sys.executable, __file__, "--inside", "--out", out]
    command += ["--provider", build / "examples/provider/libdatprovider.so", "--registry", build / "examples/provider/registry"]
    command += ["--tests", options.tests, "--columns", options.columns, "--idle", options.idle, "--limit", options.limit, *(["--short"] if options.short else [])]
    code = subprocess.run([str(word) for word in command], check=False).returncode
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    if (out / "results.jsonl").exists():
        with open(RESULTS, "a", encoding="utf-8") as kept:
            kept.write((out / "results.jsonl").read_text(encoding="utf-8"))
    return check(read(out / "results.jsonl")) if options.check else code


if __name__ == "__main__":
    sys.exit(main())
