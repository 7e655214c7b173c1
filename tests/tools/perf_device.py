# Tests of dat-perf on real RDMA devices: every operation and mode, results, limits.
# SPDX-License-Identifier: BSL-1.0
"""test_tools.py runs perf_short in its lab, test_perf.py everything. Nothing here depends on how fast a device is: limits are far beyond what can be measured, on either side."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import unittest
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERF = pathlib.Path(os.environ.get("DAT_TOOLS", ROOT / "build/gcc/examples/tools")) / "dat-perf"
SERVER = "10.78.2.1"
LIMIT = 120.0  # seconds; nothing here takes that long unless it hangs


def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs dat-perf to its end."""
    return subprocess.run([str(PERF), *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)


class server:
    """A server of dat-perf, ready for clients."""

    def __init__(self, *options: str):
        self.process = subprocess.Popen([str(PERF), "--address", SERVER, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert self.process.stdout
        self.first_line = self.process.stdout.readline()

    def stop(self, by: int | None = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and what it has written as errors."""
        if by is not None and self.process.poll() is None:
            self.process.send_signal(by)
        _, errors = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, errors


class with_server(unittest.TestCase):
    """One server for all tests of a class."""

    server: server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = server()

    @classmethod
    def tearDownClass(cls) -> None:
        code, errors = cls.server.stop()
        assert (code, errors) == (0, "") or cls.refuses, errors

    refuses = False  # whether the server reports unsupported requests

    def run_json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = perf(SERVER, *arguments, "--json", "-")
        self.assertEqual(done.returncode, code, done.stderr)
        told: dict[str, Any] = json.loads(done.stdout)
        return told


class perf_short(with_server):
    """The little that each run of the tests has time for."""

    def test_latency_with_limits_kept_and_missed(self) -> None:
        self.assertRegex(self.server.first_line, r"^dat-perf: serving on rx2 at 10\.78\.2\.1, port 7480\n$")
        run = ("latency", "--iterations", "20", "--mode", "waiting", "--fail-above", "p99=1h")
        (result,) = self.run_json(*run)["results"]
        self.assertEqual((result["operations"], result["operations_of_endpoints"]), (20, [120]))
        missed = self.run_json(*run, "--fail-below", "max=1h", code=3)["missed"]
        self.assertEqual([text.split(" is ")[0] for text in missed], ["max of 8 bytes"])

    def test_coroutines_in_both_directions(self) -> None:
        (result,) = self.run_json("rate", "--iterations", "30", "--mode", "coroutine", "--bidirectional", "--depth", "4")["results"]
        self.assertEqual([d["operations"] for d in result["directions"]], [30, 30])


class perf_runs(with_server):
    refuses = True

    def test_latency_of_every_operation(self) -> None:
        for operation in ("send", "write", "write-immediate", "read", "fetch-add", "compare-swap", "datagram"):
            with self.subTest(operation=operation):
                told = self.run_json("latency", "--operation", operation, "--mode", "waiting", "--iterations", "20", "--warm-up", "3")
                self.assertTrue(told["ok"])
                self.assertEqual((told["test"], told["parameters"]["operation"], told["parameters"]["mode"]), ("latency", operation, "waiting"))
                self.assertEqual((told["client"]["adapter"], told["server"]["adapter"]), ("rx1", "rx2"))
                (result,) = told["results"]
                # A datagram can be lost; each try counts.
                lost = result["lost"]["lost"] if operation == "datagram" else 0
                self.assertTrue(20 - lost <= result["operations"] <= 20, result)
                self.assertEqual(result["operations_of_endpoints"], [23])
                times = [result["microseconds"][name] for name in ("min", "p50", "p90", "p99", "p99.9", "max")]
                self.assertEqual(times, sorted(times))
                self.assertGreater(times[0], 0)
                self.assertEqual(sum(count for _, count in result["histogram"]["bins"]), result["operations"])

    def test_streams_of_every_operation(self) -> None:
        for operation in ("send", "write", "write-immediate", "read", "fetch-add", "compare-swap"):
            with self.subTest(operation=operation):
                told = self.run_json("rate", "--operation", operation, "--mode", "waiting", "--iterations", "40", "--depth", "8", "--endpoints", "2")
                (result,) = told["results"]
                self.assertEqual((result["operations"], result["operations_of_endpoints"]), (80, [40, 40]))
                self.assertAlmostEqual(result["per_second"], 80 / result["seconds"], delta=1e-6 * result["per_second"])
                self.assertAlmostEqual(result["bits_per_second"], 64 * result["per_second"], delta=1e-6 * result["bits_per_second"])

    def test_modes_shared_queues_and_both_directions(self) -> None:
        cases = [
            ("latency", "--mode", "polled"),
            ("latency", "--mode", "coroutine"),
            ("latency", "--mode", "coroutine", "--operation", "read"),
            ("bandwidth", "--mode", "polled", "--size", "4KiB", "--bidirectional"),
            ("bandwidth", "--mode", "coroutine", "--bidirectional", "--endpoints", "2"),
            ("rate", "--mode", "coroutine", "--depth", "1", "--operation", "fetch-add"),
            ("rate", "--mode", "coroutine", "--depth", "1", "--operation", "write-immediate"),
            ("rate", "--mode", "polled", "--shared-queue", "--endpoints", "3"),
            ("rate", "--mode", "waiting", "--shared-queue", "--bidirectional", "--operation", "write-immediate"),
            ("latency", "--mode", "waiting", "--shared-queue", "--endpoints", "2"),
        ]
        for case in cases:
            with self.subTest(" ".join(case)):
                told = self.run_json(*case, "--iterations", "20", *(["--warm-up", "0"] if case[0] == "latency" else []))
                (result,) = told["results"]
                endpoints, directions = told["parameters"]["endpoints"], 2 if "--bidirectional" in case else 1
                self.assertEqual(result["operations"], 20 * endpoints * directions)
                if directions == 2:
                    self.assertEqual([d["operations"] for d in result["directions"]], [20 * endpoints] * 2)

    def test_datagrams_are_counted_at_both_ends(self) -> None:
        told = self.run_json("rate", "--operation", "datagram", "--mode", "waiting", "--iterations", "50", "--bidirectional")
        (result,) = told["results"]
        self.assertEqual(result["lost"]["sent"], 100)
        self.assertEqual(result["operations"] + result["lost"]["lost"], 100)

    def test_connections(self) -> None:
        for mode in ("polled", "waiting"):
            told = self.run_json("connections", "--iterations", "3", "--endpoints", "2", "--mode", mode)
            (result,) = told["results"]
            self.assertEqual((result["operations"], result["operations_of_endpoints"]), (6, [3, 3]))
            self.assertGreater(result["microseconds"]["min"], 0)

    def test_sizes_as_table_and_csv_and_progress(self) -> None:
        done = perf(SERVER, "bandwidth", "--size", "8..32,100", "--duration", "250ms", "--mode", "waiting", "--csv", "-", "--progress")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([row["bytes"] for row in rows], ["8", "16", "32", "100"])
        for row in rows:
            self.assertEqual((row["test"], row["operation"], row["mode"], row["depth"], row["min_us"]), ("bandwidth", "send", "waiting", "64", ""))
            self.assertEqual(row["operations"], row["sent"])
        self.assertRegex(done.stderr, r"(?m)^100 bytes: 0 s of 0\.2 s, \d+ done, .*/s, .*b/s$|^100 bytes: 0 s of 0\.3 s, ")
        words = perf(SERVER, "latency", "--size", "8,64", "--iterations", "5", "--mode", "waiting")
        self.assertEqual((words.returncode, words.stderr), (0, ""))
        lines = words.stdout.splitlines()
        self.assertEqual(lines[0], "latency of send, 10.78.1.1 (rx1) to 10.78.2.1 (rx2), waiting, 1 endpoint")
        self.assertEqual(lines[1].split(), ["bytes", "operations", "min", "mean", "p50", "p90", "p99", "p99.9", "max"])
        self.assertEqual([line.split()[:2] for line in lines[2:4]], [["8", "5"], ["64", "5"]])
        self.assertEqual(lines[4], "times in microseconds, half of the time there and back; percentiles within 1 %")

    def test_limits_set_the_exit_code(self) -> None:
        run = ("latency", "--iterations", "5", "--mode", "waiting")
        kept = ("--fail-above", "p99=1h", "--fail-below", "min=1ns")
        self.assertEqual(self.run_json(*run, *kept)["missed"], [])
        missed = perf(SERVER, *run, *kept, "--fail-above", "p50=1ns", "--fail-below", "max=1h")
        self.assertEqual(missed.returncode, 3)
        self.assertRegex(missed.stderr, r"^dat-perf: p50 of 8 bytes is [\d.]+ .?s: --fail-above p50=1ns\ndat-perf: max of 8 bytes is [\d.]+ .?s: --fail-below max=1h\n$")
        run = ("rate", "--iterations", "5", "--mode", "waiting")
        self.assertEqual(perf(SERVER, *run, "--fail-below", "rate=0.001", "--fail-above", "bandwidth=1000Tb/s").returncode, 0)
        told = self.run_json(*run, "--fail-above", "rate=0.001", "--fail-below", "bandwidth=1000Tb/s", code=3)
        self.assertFalse(told["ok"])
        self.assertEqual([text.split(" is ")[0] for text in told["missed"]], ["rate of 8 bytes", "bandwidth of 8 bytes"])

    def test_what_the_adapter_cannot_do(self) -> None:
        for arguments, said in (
            (("rate", "--operation", "datagram", "--size", "64KiB"), "--size: a datagram of the adapter rx1 has at most 1024 bytes"),
            (("bandwidth", "--size", "1GiB"), "--size: an operation of the adapter rx1 has at most 8388608 bytes"),
            (("bandwidth", "--depth", "8192", "--operation", "datagram", "--size", "8"), "--depth: 8192 operations under way need "),
            (("latency", "--inline", "65536"), "pz.create_ep|ep.create|.*create"),
        ):
            with self.subTest(said):
                done = perf(SERVER, *arguments)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, f"^dat-perf: set up: (the peer reports: )?{said}")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


class perf_peers(unittest.TestCase):
    """Servers that are stopped, busy, or not there."""

    def test_one_client_or_the_end_of_the_input(self) -> None:
        once = server("--once", "--port", "7481")
        self.assertEqual(perf(SERVER, "latency", "--iterations", "3", "--mode", "waiting", "--port", "7481").returncode, 0)
        self.assertEqual(once.stop(None), (0, ""))
        until_end = server("--end-with-input", "--port", "7481")
        self.assertEqual(until_end.stop(None), (0, ""))  # communicate closes the input

    def test_nobody_listens(self) -> None:
        done = perf(SERVER, "latency", "--port", "7499", "--json", "-")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^dat-perf: connect: .*The connection was refused: no program listens there, ")
        told = json.loads(done.stdout)
        self.assertFalse(told["ok"])
        self.assertEqual(f"dat-perf: {told['problem']}\n", done.stderr)

    def test_a_busy_server_and_one_that_is_stopped(self) -> None:
        busy = server("--port", "7482")
        client = subprocess.Popen([str(PERF), SERVER, "rate", "--duration", "1h", "--progress", "--mode", "waiting", "--port", "7482"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert client.stderr
        self.assertIn("done", client.stderr.readline())  # the test runs
        second = perf(SERVER, "latency", "--port", "7482")
        self.assertEqual(second.returncode, 1)
        self.assertRegex(second.stderr, "^dat-perf: connect: the server is busy with another client: ")
        code, errors = busy.stop()
        self.assertEqual(code, 0)
        self.assertRegex(errors, r"^dat-perf: client 10\.78\.1\.1: the server was stopped\n$")
        _, said = client.communicate(timeout=LIMIT)
        self.assertEqual(client.returncode, 1)
        self.assertRegex(said.splitlines()[-1], "^dat-perf: rate of 8 bytes: the peer reports: the server was stopped$")

    def test_a_client_that_dies(self) -> None:
        alone = server("--port", "7483")
        client = subprocess.Popen([str(PERF), SERVER, "rate", "--duration", "1h", "--progress", "--mode", "waiting", "--port", "7483"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert client.stderr
        self.assertIn("done", client.stderr.readline())
        client.kill()
        client.communicate(timeout=LIMIT)
        assert alone.process.stderr
        self.assertRegex(alone.process.stderr.readline(), r"^dat-perf: client 10\.78\.1\.1: ")
        self.assertEqual(perf(SERVER, "latency", "--iterations", "3", "--mode", "waiting", "--port", "7483").returncode, 0)  # the next one
        self.assertEqual(alone.stop(), (0, ""))
