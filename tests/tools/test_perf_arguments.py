#!/usr/bin/env python3
# Tests of the arguments of dat-perf: the message for each wrong argument. They need no RDMA device.
# SPDX-License-Identifier: BSL-1.0
"""DAT_TOOLS names the directory of the built tools. The default is that of build/gcc."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERF = pathlib.Path(os.environ.get("DAT_TOOLS", ROOT / "build/gcc/examples/tools")) / "dat-perf"
# A host that no name server knows: valid lines fail at this host, and not as wrong use.
NOWHERE = "no-such-host.invalid"

OPERATIONS = "send, write, write-immediate, read, fetch-add, compare-swap, datagram"
TIMES = "min, mean, p50, p90, p99, p99.9, max"
WRONG = [
    ("", f'{NOWHERE}', "TEST: missing; it is one of latency, bandwidth, rate, connections"),
    ("", f'{NOWHERE} speed', 'TEST: "speed" is none of latency, bandwidth, rate, connections'),
    ("latency", "--operation push", f'--operation: "push" is none of {OPERATIONS}'),
    ("latency", "--mode busy", '--mode: "busy" is none of polled, waiting, coroutine'),
    ("latency", "--size 0", '--size: "0" is no size: 1 to 1073741824 bytes'),
    ("latency", "--size 2GiB", '--size: "2GiB" is no size: 1 to 1073741824 bytes'),
    ("latency", "--size 8,,9", '--size: "" is no size'),
    ("latency", "--size 1.5", '--size: "1.5" is no size'),
    ("latency", "--size 8kb", '--size: "8kb" is no size'),
    ("latency", "--size 64..8", '--size: the range "64..8" is empty: the first size exceeds the last'),
    ("rate", "--depth 0", '--depth: "0" is no whole number from 1 to 8192'),
    ("rate", "--depth 8193", '--depth: "8193" is no whole number from 1 to 8192'),
    ("rate", "--endpoints 1025", '--endpoints: "1025" is no whole number from 1 to 1024'),
    ("rate", "--endpoints -1", '--endpoints: "-1" is no whole number from 1 to 1024'),
    ("rate", "--iterations 0", '--iterations: "0" is no whole number from 1 to 1000000000000'),
    ("rate", "--iterations 1e3", '--iterations: "1e3" is no whole number'),
    ("rate", "--duration 5", '--duration: "5" is no time from 1.00 ms to 86400.00 s; its unit is ns, us, ms, s, min or h'),
    ("rate", "--duration 25h", '--duration: "25h" is no time from 1.00 ms to 86400.00 s'),
    ("rate", "--duration infs", '--duration: "infs" is no time'),
    ("rate", "--duration 1s --iterations 5", "--duration excludes --iterations"),
    ("rate", "--limit 0s", '--limit: "0s" is no time from 1.00 ms to 3600.00 s'),
    ("latency", "--warm-up 1000001", '--warm-up: "1000001" is no whole number from 0 to 1000000'),
    ("latency", "--inline 65537", '--inline: "65537" is no whole number from 0 to 65536'),
    ("latency", "--port 0", '--port: "0" is no whole number from 1 to 65535'),
    # Combinations that do not exist.
    ("latency", "--depth 4", "--depth: a latency test has no such option; bandwidth and rate have it"),
    ("latency", "--bidirectional", "--bidirectional: a latency test has no such option; bandwidth and rate have it"),
    ("rate", "--warm-up 5", "--warm-up: only a latency test has it"),
    ("rate", "--operation fetch-add --size 16", "--size: fetch-add works on 8 bytes"),
    ("rate", "--operation write --shared-queue", "--shared-queue: only the operations send and write-immediate take receives from a shared queue"),
    ("rate", "--mode coroutine --shared-queue", "--shared-queue: the coroutines post the receives of endpoints; use --mode polled or waiting"),
    ("rate", "--mode coroutine --operation datagram", "--mode: datagrams have the modes polled and waiting"),
    ("connections", "--size 8", "--size: a connections test moves no data"),
    ("connections", "--operation read", "--operation: a connections test has no operation"),
    ("connections", "--mode coroutine", "--mode: a connections test has the modes polled and waiting"),
    ("latency", "--json - --csv -", "--csv: --json has the standard output already"),
    ("latency", "--plot out.gif", '--plot: "out.gif" does not end with .png, .svg or .pdf'),
    ("latency", "--once", "--once: only the server has it"),
    ("latency", "--end-with-input", "--end-with-input: only the server has it"),
    ("", "--depth 5", "--depth: it goes with HOST TEST: the server takes what its clients ask for"),
    ("", "--json -", "--json: it goes with HOST TEST: the server takes what its clients ask for"),
    # All pairs. The file is read if all other arguments are valid.
    ("", "--launch srun", "--launch requires --all"),
    ("", "--all hosts.txt somewhere latency", "--all: only a TEST goes with it, and no HOST"),
    ("", "--all hosts.txt speed", 'TEST: "speed" is none of latency, bandwidth, rate, connections'),
    ("", "--all hosts.txt latency --size 8,16", "--size: all pairs are tested with one size"),
    ("", "--all hosts.txt latency --figure rate", f'--figure: "rate" is none of {TIMES}'),
    ("", "--all hosts.txt latency --slow 1", '--slow: "1" is no number above 1 up to 1000000'),
    ("", "--all hosts.txt latency --parallel 0", '--parallel: "0" is no whole number from 1 to 1024'),
    ("", "--all hosts.txt latency --fail-above p99=1ms", "--fail-above: the matrix has p50; --figure p99 gives p99"),
    # Limits for results.
    ("latency", "--fail-above p98=1us", f'--fail-above: "p98=1us" is no FIGURE=LIMIT; figures of latency are {TIMES}'),
    ("latency", "--fail-below bandwidth=1Gb/s", f'--fail-below: "bandwidth=1Gb/s" is no FIGURE=LIMIT; figures of latency are {TIMES}'),
    ("latency", "--fail-above p99", '--fail-above: "p99" is no FIGURE=LIMIT'),
    ("latency", "--fail-above p99=20", '--fail-above: "20" is no time: a number and ns, us, ms, s, min or h, as 20us'),
    ("latency", "--fail-above p99=us", '--fail-above: "us" is no time'),
    ("latency", "--fail-above p99=-1us", '--fail-above: "-1us" is no time'),
    ("rate", "--fail-below p99=1us", '--fail-below: "p99=1us" is no FIGURE=LIMIT; figures of rate are rate, bandwidth'),
    ("rate", "--fail-below bandwidth=10Gbit", '--fail-below: "10Gbit" is no bandwidth: a number and b/s, kb/s, Mb/s, Gb/s, '),
    ("rate", "--fail-below bandwidth=10", '--fail-below: "10" is no bandwidth'),
    ("rate", "--fail-below rate=1m", '--fail-below: "1m" is no rate: a number of operations per second, as 500k or 1M'),
    ("rate", "--operation datagram --fail-above lost=1Gb", '--fail-above: "1Gb" is no part of the datagrams in per cent, as 0.1%'),
]  # fmt: skip
RIGHT = [
    "latency --size 1,8..64KiB,1GiB --mode coroutine --warm-up 0 --inline 0 --fail-above p99.9=1.5ms --fail-below min=1ns",
    "bandwidth --depth 8192 --endpoints 1024 --duration 1ms --bidirectional --fail-below bandwidth=1.5GiB/s --fail-above rate=3G/s",
    "rate --operation write-immediate --shared-queue --iterations 1000000000000 --fail-below rate=800 --fail-below rate=1M/s",
    "rate --operation datagram --fail-above lost=0.1% --duration 24h",
    "rate --operation compare-swap --size 8",
    "connections --endpoints 4 --mode waiting --fail-above p99=10ms --fail-below rate=1k",
]


def run(line: str, where: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PERF), *line.split()], capture_output=True, text=True, timeout=60, check=False, env=os.environ | more, cwd=where)


class arguments(unittest.TestCase):
    def test_what_is_wrong_is_named_with_what_is_allowed(self) -> None:
        for test, rest, said in WRONG:
            with self.subTest(test=test, arguments=rest):
                done = run(f"{NOWHERE} {test} {rest}" if test else rest)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertTrue(done.stderr.startswith(said), done.stderr)

    def test_what_is_right_is_taken(self) -> None:
        for line in RIGHT:
            with self.subTest(arguments=line):
                done = run(f"{NOWHERE} {line}")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, "^dat-perf: open: ")

    def test_a_plot_without_gnuplot_fails_before_the_test(self) -> None:
        done = run(f"{NOWHERE} latency --plot out.png", PATH="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^dat-perf: --plot: the program gnuplot is not in the PATH: install it \(Debian: gnuplot-nox\)")

    def test_wrong_lists_of_hosts(self) -> None:
        for text, said in (
            ("a 10.0.0.1\nb ten\n", 'line 2: "ten" is no IP address; a line is NAME [ADDRESS]'),
            ("a 10.0.0.1 c\n", 'line 1: "c" is too much'),
            ("# all\n\na\nb\na\n", "line 5: a is there twice"),
            ("-a\n", 'line 1: "-a" is no name of a host'),
            ("a # alone\n", "hosts.txt has 1 hosts; a test needs two"),
        ):
            with self.subTest(text=text), tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "hosts.txt").write_text(text, encoding="utf-8")
                done = run("--all hosts.txt latency --launch env", folder)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, f"^dat-perf: --all: .*{re.escape(said)}")
        done = run("--all /nowhere/hosts.txt latency")
        self.assertEqual((done.returncode, done.stderr), (1, "dat-perf: --all: cannot read /nowhere/hosts.txt\n"))

    def test_a_launcher_that_is_not_there(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "hosts.txt").write_text("a\nb\n", encoding="utf-8")
            for launch, program in (("ssh", "ssh"), ("srun", "srun"), ("mpi", "mpiexec"), ("/no/such-program", "/no/such-program")):
                done = run(f"--all hosts.txt latency --launch {launch}", folder, PATH=folder)
                self.assertEqual(done.returncode, 1)
                self.assertTrue(done.stderr.startswith(f"dat-perf: --launch: the program {program} is not there: "), done.stderr)

    def test_launchers_get_the_command_of_each_host(self) -> None:
        """Launchers that only write down what they get, and fail: so does every pair, with the reason."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "hosts.txt").write_text("a\nb 10.0.0.2 # its adapter\n", encoding="utf-8")
            for program in ("ssh", "srun", "mpiexec", "mine"):
                (folder / program).write_text(f'#!/bin/sh\nline=$(printf "%s|" {program} "$@")\necho "$line" >> {folder}/said\necho "no way to it" >&2\nexit 9\n')
                (folder / program).chmod(0o755)
            serve_a, serve_b = (f"dat-perf|--end-with-input|{more}--port|7480|--limit|10000000us|" for more in ("", "--address|10.0.0.2|"))
            for launch, before_a, before_b in (
                ("srun", "srun|--overlap|--nodes=1|--ntasks=1|--nodelist=a|", "srun|--overlap|--nodes=1|--ntasks=1|--nodelist=b|"),
                ("mpi", "mpiexec|-n|1|-host|a|", "mpiexec|-n|1|-host|b|"),
                ("mine", "mine|a|", "mine|b|"),
                ("mine{host}x -h={host}", None, None),
            ):
                (folder / "said").unlink(missing_ok=True)
                words = ["--all", "hosts.txt", "latency", "--json", "-", "--launch", launch]
                environment = os.environ | {"PATH": f"{name}:/usr/bin:/bin"}
                done = subprocess.run([str(PERF), *words], capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=name)
                self.assertEqual(done.returncode, 1)
                if before_a is None:
                    self.assertIn("the program minehostx is not there", done.stderr)
                    continue
                lines = set((folder / "said").read_text(encoding="utf-8").splitlines())
                self.assertEqual(lines, {before_a + serve_a, before_b + serve_b})
                told = json.loads(done.stdout)
                self.assertEqual([p["problem"] for p in told["pairs"]], ["no server: no way to it"] * 2)
                self.assertEqual(told["failed_hosts"], ["a", "b"])
            # The shell of ssh's host gets one text, in which each word is quoted.
            (folder / "said").unlink(missing_ok=True)
            words = ["--all", "hosts.txt", "latency", "--program", "/opt/it's/dat-perf"]
            subprocess.run([str(PERF), *words], capture_output=True, timeout=60, check=False, env=environment, cwd=name)
            lines = (folder / "said").read_text(encoding="utf-8").splitlines()
            self.assertTrue(any(line.startswith("ssh|-o|BatchMode=yes|-o|ConnectTimeout=20|a|'/opt/it'\\''s/dat-perf' '--end-with-input' '--port' ") for line in lines), lines)

    def test_help_names_every_choice(self) -> None:
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in (OPERATIONS, "latency, bandwidth, rate, connections", "polled, waiting, coroutine", "3 a result beyond --fail-above"):
            self.assertIn(text, re.sub(r"\s+", " ", done.stdout))


# A launcher that serves, and returns the results of clients: "HOST TARGET NUMBER" or "HOST TARGET" for a client that fails. On
# the host "slow" the server fails, and the launcher ends some time after it has closed its output.
CANNED = """#!/bin/sh
case "$*" in
  *--end-with-input*)
    if [ "$1" = slow ]; then exec >&-; sleep 2; echo "dat-perf: no adapter" >&2; exit 1; fi
    echo "dat-perf: serving on nothing"; cat >/dev/null; exit 0 ;;
esac
number=$(sed -n "s/^$1 $3 //p" results.txt)
if [ -z "$number" ]; then echo "dat-perf: connect: no way" >&2; exit 1; fi
echo '{"results": [{"microseconds": {"p50": '$number'}, "bits_per_second": '$number'}]}'
"""
PLOTTER = """#!/bin/sh
cat > script.txt
"""


class matrices(unittest.TestCase):
    """The findings of dat-perf in the results of pairs, with a launcher that returns results without any device."""

    def judge(self, results: dict[str, float | None], *arguments: str) -> tuple[int, dict[str, Any], str, str]:
        """Results of "FROM TO"; exit code, JSON, the script for gnuplot, and what was written."""
        names = sorted({name for pair in results for name in pair.split()})
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "hosts.txt").write_text("\n".join(names), encoding="utf-8")
            (folder / "results.txt").write_text("".join(f"{pair} {value}\n" for pair, value in results.items() if value is not None), encoding="utf-8")
            for program, text in (("launcher", CANNED), ("gnuplot", PLOTTER)):
                (folder / program).write_text(text, encoding="utf-8")
                (folder / program).chmod(0o755)
            words = ["--all", "hosts.txt", *arguments, "--launch", "launcher", "--json", "out.json", "--plot", "out.png"]
            environment = os.environ | {"PATH": f"{name}:/usr/bin:/bin"}
            done = subprocess.run([str(PERF), *words], capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=name)
            told = json.loads((folder / "out.json").read_text(encoding="utf-8"))
            return done.returncode, told, (folder / "script.txt").read_text(encoding="utf-8"), done.stdout + done.stderr

    def all_of(self, names: str, value: float) -> dict[str, float | None]:
        return {f"{a} {b}": value for a, b in itertools.permutations(names, 2)}

    def test_equal_pairs_are_fine(self) -> None:
        for parallel in ("1", "2", "9"):
            code, told, script, said = self.judge(self.all_of("abcde", 7.0), "latency", "--parallel", parallel)
            self.assertEqual((code, told["ok"], told["median"], told["slow"], told["failed"]), (0, True, 7.0, [], []), said)
            self.assertEqual({(p["from"], p["to"]) for p in told["pairs"]}, set(itertools.permutations("abcde", 2)))
            self.assertEqual(script.count(" 0.5 0.5 7\n"), 20)

    def test_a_slow_pair_is_named(self) -> None:
        for test, usual, slow in (("latency", 5.0, 10.0), ("bandwidth", 8e9, 4e9)):
            code, told, _, said = self.judge(self.all_of("abcd", usual) | {"b c": slow}, test)
            self.assertEqual((code, told["slow"], told["slow_hosts"], told["failed"]), (3, [{"from": "b", "to": "c"}], [], []))
            self.assertRegex(said, "(?m)^slow: b to c: ")
            code, told, _, _ = self.judge(self.all_of("abcd", usual) | {"b c": slow}, test, "--slow", "2.01")
            self.assertEqual((code, told["slow"]), (0, []))

    def test_a_slow_host_and_a_failed_one_are_named(self) -> None:
        results = self.all_of("abcdef", 5.0)
        results |= {pair: 50.0 for pair in results if "b" in pair}
        results |= {pair: None for pair in results if "f" in pair}
        code, told, script, said = self.judge(results, "latency", "--fail-above", "p50=20us")
        self.assertEqual((code, told["slow_hosts"], told["failed_hosts"]), (1, ["b"], ["f"]))  # b and f have failed, and so say nothing of b
        self.assertEqual({p["problem"] for p in told["pairs"] if "f" in (p["from"], p["to"])}, {"connect: no way"})
        self.assertEqual((len(told["slow"]), len(told["failed"]), len(told["missed"])), (8, 10, 8))
        self.assertIn("every pair with f has failed: run dat-info on it\n", said)
        self.assertIn('set label "failed" at 5,0 center', script)
        del results["b f"], results["f b"]
        results = {pair: value for pair, value in results.items() if "f" not in pair}
        self.assertEqual(self.judge(results, "latency")[1]["slow_hosts"], ["b"])

    def test_a_launcher_that_ends_after_its_output_has_its_error_reported(self) -> None:
        code, told, _, said = self.judge({"a slow": None, "slow a": 5.0}, "latency")
        problems = {f"{p['from']} {p['to']}": p.get("problem") for p in told["pairs"]}
        self.assertEqual((code, problems), (1, {"a slow": "no server: no adapter", "slow a": None}), said)

    def test_no_pair_has_a_result(self) -> None:
        code, told, script, said = self.judge({"a b": None, "b a": None}, "bandwidth")
        self.assertEqual((code, told["failed_hosts"], len(told["failed"])), (1, ["a", "b"], 2))
        self.assertNotIn("median", said)
        self.assertTrue(script.endswith("plot NaN\n"), script)


if __name__ == "__main__":
    unittest.main()
