#!/usr/bin/env python3
# Tests of dat between hosts of their own: the peer's host loses power, freezes permanently, or freezes for a while.
# SPDX-License-Identifier: BSL-1.0
"""test_hosts.py [unittest options]: runs itself on the hosts of one lab. DAT_BUILD names the build directory; by default build/gcc."""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import unittest
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DAT_BUILD", ROOT / "build/gcc"))
PING = BUILD / "examples/tools/dat-ping"
WRITER = BUILD / "tests/hosts/writer"
LAB = ROOT / "tests/lab/dat-lab"
FEWEST, MOST = 300, 20000  # milliseconds until a broken connection is noticed: half a second to two seconds, more on a busy machine


def lab(*words: str) -> None:
    subprocess.run(["dat-lab", *words], check=True)


def serve(host: str) -> None:
    """On hosts 2 and 3: a dat-ping server."""
    command = [str(PING), "--serve", "--address", f"10.78.1.{host}", "--port", "7500"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
        assert server.stderr
        server.stderr.readline()
        lab("signal", f"serving{host}")
        server.wait()


class writer:
    """A writer under way."""

    def __init__(self, host: str, *options: str):
        self.process = subprocess.Popen([str(WRITER), f"10.78.1.{host}", *options], stdout=subprocess.PIPE)
        assert self.process.stdout
        self.pipe = self.process.stdout.fileno()
        self.text = b""
        while b"written" not in self.text:
            self.read()

    def read(self) -> None:
        data = os.read(self.pipe, 65536)
        if not data:
            raise SystemExit(f"the writer ended: {self.text!r}")
        self.text += data

    def what_is_there(self) -> int:
        """Reads what has been written so far; its size."""
        while select.select([self.pipe], [], [], 0)[0]:
            self.read()
        return len(self.text)

    def end(self) -> list[Any]:
        """[exit code, {event: milliseconds since the last success}]."""
        assert self.process.stdout
        lines = (self.text + self.process.stdout.read()).decode().splitlines()
        return [self.process.wait(), {line.rsplit(" ", 1)[0]: line.rsplit(" ", 1)[1] for line in lines if not line.startswith("written")}]


def client() -> None:
    """On host 1: writes to both servers while their hosts fail."""
    lab("wait", "serving2")
    lab("wait", "serving3")
    dead, frozen, patient = writer("2"), writer("3"), writer("3", "4000")
    lab("freeze", "3")
    told = {"frozen": frozen.end()}
    before = patient.what_is_there()  # of the time before the freeze
    lab("thaw", "3")
    while len(patient.text) == before:
        patient.read()
    told["patient"] = [patient.process.poll(), patient.text.decode().splitlines()[-1]]
    patient.process.kill()
    patient.process.wait()
    lab("kill", "2")
    told["dead"] = dead.end()
    lab("kill", "3")
    print(json.dumps(told))


class hosts(unittest.TestCase):
    told: dict[str, list[Any]]

    @classmethod
    def setUpClass(cls) -> None:
        command = [str(LAB), "--timeout", "300", "--env", "DAT_BUILD", "--hosts", "3"]
        for host in ("1", "2", "3"):
            command += ["--on", host, "--", sys.executable, __file__, "--on-host"]
        done = subprocess.run(command, env=os.environ | {"DAT_BUILD": str(BUILD), "PYTHONDONTWRITEBYTECODE": "1"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{done.returncode} {done.stdout} {done.stderr[-3000:]}")
        cls.told = json.loads(done.stdout.removeprefix("host1: "))

    def broken(self, which: str) -> None:
        """The operation failed, the connection broke within the stated time, and the endpoint could be reset."""
        code, events = self.told[which]
        self.assertEqual(code, 0, events)
        self.assertEqual(list(events), ["dto_failure", "connection_broken", "reset"])
        self.assertIn(int(events["connection_broken"]), range(FEWEST, MOST))

    def test_the_peers_host_loses_power(self) -> None:
        self.broken("dead")

    def test_the_peers_host_freezes(self) -> None:
        self.broken("frozen")

    def test_a_freeze_that_is_shorter_than_the_repetitions_breaks_nothing(self) -> None:
        code, last = self.told["patient"]
        self.assertIsNone(code)
        self.assertRegex(last, "^written ")


def main() -> None:
    if sys.argv[1:] == ["--on-host"]:
        host = os.environ["DAT_LAB_HOST"]
        return client() if host == "1" else serve(host)
    for program in (PING, WRITER):
        if not os.access(program, os.X_OK):
            sys.exit(f"test_hosts: {program.name} is not built (./dev build gcc)")
    unittest.main()
    return None


if __name__ == "__main__":
    main()
