#!/usr/bin/env python3
# Tests of dat-perf --all: matrices of hosts of their own, one with a lossy link and one whose link is down.
# SPDX-License-Identifier: BSL-1.0
"""Each test boots hosts (`dat-lab --hosts`) with two links: v1 for the launcher, v2 for RDMA. On each host, this script runs as the
agent, which runs commands for the other hosts. With `launch`, this script is the launcher, which passes a command to an agent."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from perf_device import PERF, ROOT  # noqa: E402

LAB = ROOT / "tests/lab/dat-lab"
PORT = 7000
LIMIT = 900  # seconds; nothing here takes that long unless it hangs
# Frames to host 1, or to all hosts, are lost. The network scheduler of the sender drops them.
LOSSY_TO_1 = """tc qdisc add dev v2 root handle 1: prio bands 4 && tc qdisc add dev v2 parent 1:4 netem loss 20% &&
tc filter add dev v2 parent 1: protocol ip u32 match ip dst 10.78.2.1 flowid 1:4"""
LOSSY = "tc qdisc add dev v2 root netem loss 20%"
DOWN = "ip link set v2 down"


def serve(connection: socket.socket) -> None:
    """Runs the command of one line. The connection is its input and output."""
    with connection, connection.makefile("rb", buffering=0) as lines:
        words = json.loads(lines.readline())
        subprocess.run(words, stdin=connection, stdout=connection, stderr=subprocess.DEVNULL, check=False)


def agent(host: str, hosts: int, fault: str, command: str) -> int:
    """In a host: makes its fault, then serves. The first host runs the command when all are ready."""
    if fault:
        subprocess.run(["sh", "-ec", fault], check=True)
    listener = socket.create_server(("", PORT))

    def loop() -> None:
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    subprocess.run(["dat-lab", "signal", f"ready{host}"], check=True)
    if host != "1":
        return subprocess.run(["dat-lab", "wait", "over"], check=False).returncode
    for other in range(2, hosts + 1):
        subprocess.run(["dat-lab", "wait", f"ready{other}"], check=True)
    code = subprocess.run(["sh", "-c", command], check=False).returncode
    subprocess.run(["dat-lab", "signal", "over"], check=True)
    return code


def launch(host: str, words: list[str]) -> None:
    """The launcher: runs a command on a host, as ssh does."""
    with socket.create_connection((f"10.78.1.{host.removeprefix('host')}", PORT), timeout=10) as connection:
        connection.settimeout(None)
        connection.sendall(json.dumps(words).encode() + b"\n")

        def end_of_input() -> None:
            while os.read(0, 4096):
                pass
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=end_of_input, daemon=True).start()
        while data := connection.recv(65536):
            os.write(1, data)


class pairs(unittest.TestCase):
    def all_pairs(self, hosts: int, faults: dict[int, str], arguments: str) -> tuple[int, pathlib.Path, str]:
        """Runs dat-perf --all with these faults; its exit code, the directory of its output, and what it has written."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        out = pathlib.Path(folder.name)
        (out / "hosts.txt").write_text("# the hosts of the lab\n" + "".join(f"host{k} 10.78.2.{k}\n" for k in range(1, hosts + 1)), encoding="utf-8")
        here = shlex.join([sys.executable, __file__])
        command = f"cd {out} && {PERF} --all hosts.txt {arguments} --launch '{here} launch {{host}}' --program {PERF} >text.txt 2>errors.txt; echo $? >code.txt"
        lab = [str(LAB), "--hosts", str(hosts), "--links", "2", "--memory", "420", "--timeout", str(LIMIT), "--out", str(out)]
        for k in range(1, hosts + 1):
            lab += ["--on", str(k), "--", sys.executable, __file__, "agent", str(k), str(hosts), faults.get(k, ""), command]
        env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(lab, capture_output=True, text=True, timeout=LIMIT + 60, check=False, env=env)
        self.assertTrue((out / "code.txt").exists(), done.stdout + done.stderr)
        return int((out / "code.txt").read_text(encoding="utf-8")), out, (out / "errors.txt").read_text(encoding="utf-8")

    def faulty(self, hosts: int, lossy: str, arguments: str = "") -> tuple[dict[str, Any], pathlib.Path]:
        """A matrix in which host 2 loses frames and the link of the last host is down."""
        run = "latency --operation write --mode waiting --iterations 150 --warm-up 0 --figure p90 --json out.json " + arguments
        code, out, errors = self.all_pairs(hosts, {2: lossy, hosts: DOWN}, run)
        self.assertEqual((code, errors), (1, ""))
        told = json.loads((out / "out.json").read_text(encoding="utf-8"))
        dead = f"host{hosts}"
        every = set(itertools.permutations([f"host{k}" for k in range(1, hosts + 1)], 2))
        self.assertEqual({(p["from"], p["to"]) for p in told["pairs"]}, every)
        failed = {(p["from"], p["to"]) for p in told["failed"]}
        self.assertTrue({pair for pair in every if dead in pair} <= failed, told)
        self.assertTrue(all(dead in pair or "host2" in pair for pair in failed), told)  # a lossy pair is slow, or fails
        self.assertIn(dead, told["failed_hosts"])
        self.assertTrue(all(p["problem"] for p in told["pairs"] if dead in (p["from"], p["to"])))
        slow = {(p["from"], p["to"]) for p in told["slow"]}
        self.assertTrue({("host1", "host2"), ("host2", "host1")} <= slow | failed, told)
        return told, out

    def test_four_hosts_of_which_one_is_lossy_and_one_down(self) -> None:
        told, out = self.faulty(4, LOSSY_TO_1, "--plot out.svg")
        self.assertEqual((told["figure"], told["unit"], told["slow_factor"]), ("p90", "microseconds", 2.0))
        text = (out / "text.txt").read_text(encoding="utf-8")
        lines = text.splitlines()
        self.assertEqual(lines[0], "latency of write, 8 bytes: p90; a row sends to the columns")
        self.assertEqual(lines[1].split(), ["host1", "host2", "host3", "host4"])
        self.assertRegex(text, r"(?m)^host1 +- .*(\*|failed).*failed *$")
        self.assertRegex(text, r"(?m)^(slow: host1 to host2: [\d.]+ .?s|failed: host1 to host2: \w.*)$")
        self.assertRegex(text, r"(?m)^failed: host1 to host4: \w")
        self.assertIn("every pair with host4 has failed: run dat-info on it\n", text)
        picture = (out / "out.svg").read_text(encoding="utf-8")
        for word in ("host4", "failed", "</svg>"):
            self.assertIn(word, picture)

    def test_eight_hosts_of_which_one_is_lossy_and_one_down(self) -> None:
        told, _ = self.faulty(8, LOSSY, "--parallel 2")
        self.assertIn("host2", told["slow_hosts"] + told["failed_hosts"])

    def test_healthy_hosts_and_limits(self) -> None:
        run = "rate --mode waiting --iterations 30 --slow 1000000"
        code, out, errors = self.all_pairs(3, {}, f"{run} --csv out.csv --progress --fail-above rate=1000G")
        self.assertEqual(code, 0, errors)
        self.assertEqual([line.split(":")[0] for line in errors.splitlines()], [f"pair {n} of 6" for n in range(1, 7)])
        rows = list(csv.DictReader((out / "out.csv").read_text(encoding="utf-8").splitlines()))
        self.assertEqual([(row["slow"], row["problem"]) for row in rows], [("0", "")] * 6)
        self.assertTrue(all(float(row["rate_per_second"]) > 0 for row in rows))
        code, _, errors = self.all_pairs(2, {}, f"{run} --fail-below rate=1000G")
        self.assertEqual(code, 3, errors)
        self.assertEqual(len(errors.splitlines()), 2)
        self.assertRegex(errors, r"(?m)^dat-perf: rate from host1 to host2 is .*/s: --fail-below rate=1000G$")


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        sys.exit(agent(sys.argv[2], int(sys.argv[3]), *sys.argv[4:6]))
    elif sys.argv[1:2] == ["launch"]:
        launch(sys.argv[2], sys.argv[3:])
    else:
        unittest.main()
