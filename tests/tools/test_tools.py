#!/usr/bin/env python3
# Tests of dat-info, dat-ping, dat-perf and dat-conform on real RDMA devices: their output on success and on failure.
# SPDX-License-Identifier: BSL-1.0
"""test_tools.py [unittest options]: runs itself in the lab, once. DAT_TOOLS names the directory of the programs; by default
that of build/gcc."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from perf_device import perf_short  # noqa: E402, F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ.get("DAT_TOOLS", ROOT / "build/gcc/examples/tools"))
DEVICE_TESTS = TOOLS.parents[1] / "tests/device/device"
LAB = ROOT / "tests/lab/dat-lab"
SERVER = "10.78.2.1"
LIMIT = 120.0  # seconds; nothing here takes that long unless it hangs
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]


def run(tool: str, *arguments: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Runs one tool to its end."""
    command = [*prefix, str(TOOLS / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


class server:
    """A `dat-ping --serve`, ready for clients."""

    def __init__(self, port: int, *options: str):
        command = [str(TOOLS / "dat-ping"), "--serve", "--address", SERVER, "--port", str(port), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.first_line = self.process.stderr.readline()

    def __enter__(self) -> server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.code = self.process.wait(LIMIT)
        assert self.process.stderr
        self.log = self.process.stderr.read()
        self.process.stderr.close()


class info(unittest.TestCase):
    def test_json_tells_all_of_every_adapter(self) -> None:
        done = run("dat-info", "--json", "--to", SERVER)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        told = json.loads(done.stdout)
        # Interfaces are listed in the order of their numbers.
        chosen = min((1, 2), key=lambda n: int(pathlib.Path(f"/sys/class/net/v{n}/ifindex").read_text(encoding="utf-8")))
        self.assertEqual(told["chosen"], f"rx{chosen}")
        self.assertEqual(told["to"], {"remote": SERVER, "adapter": "rx1"})
        self.assertEqual(told["missing"], [])
        self.assertEqual([a["name"] for a in told["adapters"]], ["rx1", "rx2"])
        first, second = told["adapters"]
        self.assertEqual([a["chosen"] for a in told["adapters"]], [chosen == 1, chosen == 2])
        self.assertEqual((first["state"], first["link_layer"], first["interface"]), ("active", "Ethernet", "v1"))
        self.assertEqual(second["addresses"], [SERVER, "fd00:78:2::1"])
        self.assertIn({"index": 1, "gid": "::ffff:10.78.1.1", "type": "RoCE v2", "interface": "v1"}, first["gids"])
        self.assertGreater(first["limits"]["max_eps"], 0)
        self.assertTrue(first["extensions"]["infiniband"])
        self.assertTrue(first["extensions"]["atomics"])
        self.assertEqual(first["completion_interrupts"], [])  # a software device has no interrupts
        self.assertEqual((first["pci_address"], first["numa_node"]), (None, None))
        self.assertEqual(set(first["link"]), {"speed", "width"})
        self.assertGreater(first["link"]["speed"], 0)
        self.assertGreater(first["link"]["width"], 0)
        self.assertGreaterEqual(first["num_comp_vectors"], 1)

    def test_the_device_table_says_what_the_tests_expect_of_the_device(self) -> None:
        kernel = ".".join(os.uname().release.split(".")[:2])
        adapter = json.loads(run("dat-info", "--json").stdout)["adapters"][0]
        table = adapter["device_table"]
        self.assertEqual((table["device"], table["seen_on"], table["this_kernel"]), ("rxe", f"Linux {kernel}", True))
        known = table["differences"]
        self.assertEqual((known["immediate_data"]["value"], known["padded_private_data"]["value"]), (True, 56))
        # What the device itself reports is the same.
        self.assertEqual(known["longest_message"]["value"], adapter["limits"]["max_message_size"])
        words = run("dat-info").stdout
        self.assertIn(f"\n  differences of rxe, as the tests have seen it on Linux {kernel}\n", words)
        for difference in known.values():
            value = str({True: "yes", False: "no"}[difference["value"]] if isinstance(difference["value"], bool) else difference["value"])
            self.assertRegex(words, f"\n    {re.escape(difference['subject'])} +{value}\n")

    def test_words_tell_the_same(self) -> None:
        done = run("dat-info")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\nchosen: (rx\d) \((.*\n)*\1 \(chosen\): active, Ethernet, interface v\d\n")
        for line in ("  GID 1       ::ffff:10.78.1.1, RoCE v2",
                     "  addresses   10.78.2.1, fd00:78:2::1", "InfiniBand, immediate data, atomics"):  # fmt: skip
            self.assertIn(line, done.stdout)
        self.assertRegex(done.stdout, r"\n  link        [\d.]+ [MG]b/s, lanes \d+\n")
        self.assertRegex(done.stdout, r"\n  place       no PCI device; completion vectors \d+\n")

    def test_locked_memory_and_names_of_dat_conf(self) -> None:
        conf = pathlib.Path("/tmp/override.conf")
        entry = '{} u2.0 nonthreadsafe default lib.so dapl.2.0 "{} 1" ""\n'
        conf.write_text(entry.format("ofa-1", "rx2") + "bad line\n" + entry.format("ofa-2", "mlx4_0"))
        prefix = ["env", f"DAT_OVERRIDE={conf}", "prlimit", "--memlock=65536:65536"]
        try:
            done, every, words = (run("dat-info", *more, prefix=prefix) for more in (["--json"], ["--json", "--all"], []))
        finally:
            conf.unlink()
        told = json.loads(done.stdout)
        self.assertEqual(told["memlock_bytes"], 65536)
        here = {"name": "ofa-1", "file": str(conf), "line": 1, "adapter": "rx2"}
        self.assertEqual(told["dat_conf"][0], here)
        self.assertNotIn("ofa-2", done.stdout)
        self.assertGreater(told["dat_conf_hidden"], 0)
        self.assertEqual(json.loads(every.stdout)["dat_conf"][:2], [here, {"name": "ofa-2", "file": str(conf), "line": 3, "adapter": None}])
        self.assertEqual(json.loads(every.stdout)["dat_conf_hidden"], 0)
        self.assertIn("dat.conf: ofa-1 (rx2)\n", words.stdout)
        self.assertRegex(words.stdout, r"dat.conf: \d+ more, which lead to no adapter of this host: --all lists them\n")
        problems = [entry["problem"] for entry in told["dat_conf"] if "problem" in entry]  # the host may have a dat.conf, too
        self.assertEqual([f"{conf}:2" in problem for problem in problems], [True])

    def test_a_user_without_rights_to_the_devices_is_told_so(self) -> None:
        os.chmod("/dev/infiniband/rdma_cm", 0o600)
        try:
            done = run("dat-info", prefix=NOBODY)
        finally:
            os.chmod("/dev/infiniband/rdma_cm", 0o666)
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing: This user may not open /dev/infiniband/rdma_cm: check its owner and mode", done.stdout)
        self.assertIn("chosen: none (", done.stdout)

    def test_a_missing_module_is_named(self) -> None:
        there, away = "/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm.away"
        os.rename(there, away)  # the state before rdma_ucm has been loaded
        try:
            told, ping = run("dat-info", "--json"), run("dat-ping", SERVER, "--port", "7598")
        finally:
            os.rename(away, there)
        self.assertEqual(told.returncode, 1)
        self.assertIn(f"{there} is missing: load the kernel module by `modprobe rdma_ucm`", json.loads(told.stdout)["missing"][0])
        self.assertIsNone(json.loads(told.stdout)["chosen"])
        self.assertEqual(ping.returncode, 1)
        self.assertRegex(ping.stderr, "^dat-ping: open: .*rdma_cm.*modprobe rdma_ucm[^\n]*\n$")

    def test_adapters_near_a_processor(self) -> None:
        near = json.loads(run("dat-info", "--json", "--near", "0").stdout)["near"]
        self.assertEqual((near["processor"], [a["name"] for a in near["adapters"]]), (0, ["rx1", "rx2"]))
        self.assertEqual([a["distance"] for a in near["adapters"]], [None, None])  # software devices belong to no node
        done = run("dat-info", "--near", "0")
        self.assertIn("near processor 0: rx1 (distance unknown), rx2 (distance unknown)\n", done.stdout)
        self.assertIn("  vectors     no interrupts", done.stdout)
        none = run("dat-info", "--near", "4095")
        self.assertEqual(none.returncode, 1)
        self.assertRegex(none.stdout, "near processor 4095: ia.list_adapters_near .*`cpu` is the number of a processor")

    def test_no_way_to_a_host(self) -> None:
        done = run("dat-info", "--to", "no-such-host.invalid")
        self.assertEqual(done.returncode, 1)
        self.assertIn("to no-such-host.invalid: find_adapter_reaching", done.stdout)


class ping(unittest.TestCase):
    def failed(self, done: subprocess.CompletedProcess[str], pattern: str) -> None:
        """Checks that the tool ended with 1 and one line that names the reason."""
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "^dat-ping: .*" + pattern)

    def test_every_step_works(self) -> None:
        with server(7501) as s:
            self.assertIn("serving on rx2 at 10.78.2.1, port 7501", s.first_line)
            for size in ("1", "64", "1048576"):
                done = run("dat-ping", SERVER, "--port", "7501", "--size", size, "--json")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                told = json.loads(done.stdout)
                self.assertTrue(told["ok"])
                self.assertEqual(told["from"], "rx1 (10.78.1.1)")
                self.assertEqual([t["step"] for t in told["steps"]], ["connect", "send", "write", "read", "atomic", "acquaint", "datagram", "disconnect"])
                self.assertEqual([t["times"] for t in told["steps"]], [1, 3, 3, 3, 3, 1, 3, 1])
                self.assertTrue(all(0 < t["microseconds_least"] <= t["microseconds_mean"] for t in told["steps"]))
        self.assertEqual((s.code, s.log), (0, ""))

    def test_words_tell_the_same(self) -> None:
        with server(7502, "--once") as s:
            done = run("dat-ping", SERVER, "--port", "7502")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"^10\.78\.2\.1, port 7502, from rx1 \(10\.78\.1\.1\), 64 bytes\nconnect ")
            s.process.wait(LIMIT)  # by itself
        self.assertEqual((s.code, s.log), (0, ""))

    def test_clients_at_the_same_time(self) -> None:
        with server(7503):
            command = [str(TOOLS / "dat-ping"), SERVER, "--port", "7503", "--count", "50"]
            clients = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(4)]
            self.assertEqual([(c.communicate(timeout=LIMIT)[1], c.returncode) for c in clients], [(b"", 0)] * 4)

    def test_nobody_listens(self) -> None:
        cause = "connect: .*The connection was refused: no program listens there, "
        self.failed(run("dat-ping", SERVER, "--port", "7599"), cause)
        done = run("dat-ping", SERVER, "--port", "7599", "--json")
        told = json.loads(done.stdout)
        self.assertFalse(told["ok"])
        self.assertRegex(told["problem"], cause)

    def test_the_server_dies(self) -> None:
        with server(7504) as s:
            client = subprocess.Popen([str(TOOLS / "dat-ping"), SERVER, "--port", "7504", "--count", "1000000"],
                                      stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)  # fmt: skip
            # The client has connected when the server has a connected queue pair.
            while "RTS" not in subprocess.run(["rdma", "resource", "show", "qp"], capture_output=True, text=True, check=True).stdout:
                self.assertIsNone(client.poll())
            s.process.send_signal(signal.SIGKILL)
            _, said = client.communicate(timeout=LIMIT)
            self.assertEqual(client.returncode, 1)
            self.assertRegex(said, r"^dat-ping: (connect|send): .*\n$")

    def test_wrong_names_and_wrong_use(self) -> None:
        self.failed(run("dat-ping", "no-such-host.invalid"), "open: .*no-such-host|open: ia.open_by_route")
        for arguments in ([], ["--serve", SERVER], [SERVER, "--size", "0"], [SERVER, "--port", "70000"]):
            self.assertEqual(run("dat-ping", *arguments).returncode, 2, arguments)
        with server(7505):
            second = run("dat-ping", "--serve", "--address", SERVER, "--port", "7505")
        self.failed(second, "connection qualifier is in use")


class options(unittest.TestCase):
    """The message of a tool for a value that it cannot use: the option and its allowed values."""

    # The tool and its other arguments, the option, refused values, accepted values, and the message.
    RANGES = [
        ("dat-info", [], "--near", ["first", "-1", "8192", "99999999999"], ["0", "8191"], "--near: .*0 to 8191"),
        ("dat-ping", ["no-such-host.invalid"], "--port", ["0", "65536", "-1", "x"], ["1", "65535"], "--port: .*1 to 65535"),
        ("dat-ping", ["no-such-host.invalid"], "--size", ["0", "1048577", "x"], ["1", "1048576"], "--size: .*1 to 1048576"),
        ("dat-ping", ["no-such-host.invalid"], "--count", ["0", "1000001", "x"], ["1", "1000000"], "--count: .*1 to 1000000"),
        ("dat-ping", ["no-such-host.invalid"], "--limit", ["0", "3601", "x"], ["0.001", "3600"], "--limit: .*0.001000 to 3600"),
        ("datcp", ["no-such-host.invalid:a", "b"], "--port", ["0", "65536", "x"], ["1", "65535"], "--port: .*1 to 65535"),
        ("datcp", ["no-such-host.invalid:a", "b"], "--blocks", ["0", "100000", "x"], ["1"], r"--blocks: .*1 to \d+"),
        ("datcp", ["no-such-host.invalid:a", "b"], "--block-size", ["0", "511", "4194305"], ["64KiB"], "--block-size: .*512 to 4194304"),
        ("datcp", ["no-such-host.invalid:a", "b"], "--block-size", ["x", "1 mile"], ["4MiB"], "--block-size: .*unit not recognized. Allowed values"),
        ("datcp", ["no-such-host.invalid:a", "b"], "--limit", ["0"], ["1KB"], r"--limit: .*1 to \d+"),
        ("datcp", ["no-such-host.invalid:a", "b"], "--limit", ["x"], ["1MiB"], "--limit: .*unit not recognized. Allowed values"),
        ("datcp", ["serve", "/nowhere"], "--clients", ["0", "10001", "x"], ["1"], "--clients: .*1 to 10000"),
        ("datcp", ["serve", "/nowhere"], "--address", ["nowhere", "10.0.0"], [], r"--address: .*Write it as 10\.0\.0\.1"),
    ]

    def run_tool(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = TOOLS.parent / "datcp/datcp" if tool == "datcp" else TOOLS / tool
        return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)

    def test_values_out_of_range_are_refused_with_the_range(self) -> None:
        for tool, others, option, refused, taken, said in self.RANGES:
            for value in refused:
                with self.subTest(tool=tool, option=option, value=value):
                    done = self.run_tool(tool, *others, f"{option}={value}")
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertRegex(done.stderr, said)
            for value in taken:
                with self.subTest(tool=tool, option=option, value=value):
                    self.assertNotEqual(self.run_tool(tool, *others, f"{option}={value}").returncode, 2)

    def test_an_unknown_option_is_named(self) -> None:
        for tool in ("dat-info", "dat-ping", "dat-perf", "datcp"):
            done = self.run_tool(tool, "--no-such-option")
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "no-such-option|required|HOST")


class conform(unittest.TestCase):
    """dat-conform, on the lab's devices."""

    def conform(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "tests/conformance/dat-conform"), "--program", str(DEVICE_TESTS), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=4 * LIMIT, check=False)

    def test_the_device_at_hand_gets_the_table(self) -> None:
        done = self.conform("--json", "[memory]")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual([d.split()[0] for d in told["devices"]], ["rx1", "rx2"])
        self.assertGreater(told["tests"]["passed"], 5)
        self.assertEqual(len(told["functions"]), 93)
        register = next(f for f in told["functions"] if f["function"] == "dat_lmr_create")
        self.assertEqual((register["dat"].split(";")[0], register["failed_tests"]), ("pz::register_memory", []))
        self.assertGreater(register["shown"], 5)
        self.assertEqual(len(told["rules"]), 1908)
        self.assertEqual(told["rules"]["LMR-021"], "shown here")
        self.assertEqual(told["rules"]["CONN-003"], "not run")
        self.assertEqual(told["rules"]["REQ-145"], "deviates")
        self.assertGreater(told["objects"]["LMR"]["shown here"], 10)

    def test_what_is_not_there_is_named(self) -> None:
        for arguments, said in ((["--program", "/nowhere"], "dat-conform: /nowhere is not there"), (["--results", "/nowhere"], "dat-conform: /nowhere has no results")):
            done = self.conform(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(said, done.stderr)

    def test_words_tell_the_same(self) -> None:
        done = self.conform("--rules", "a zone cannot be closed while a region or an endpoint uses it")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], "^devices: rx1.*, rx2")
        self.assertEqual(len([line for line in lines if re.match(r"67 dat_pz_free +ok +\d+/", line)]), 1)
        self.assertEqual(len([line for line in lines if re.match("PZ-005 +shown here ", line)]), 1)
        self.assertEqual(lines[-1], "1 tests passed, 0 failed, 0 skipped on this device")


def main() -> None:
    """In the lab: runs the tests. Elsewhere: starts the lab."""
    if "DAT_LAB" not in os.environ:
        for program in (TOOLS / "dat-info", TOOLS / "dat-ping", TOOLS / "dat-perf", DEVICE_TESTS):
            if not os.access(program, os.X_OK):
                sys.exit(f"test_tools: {program.name} is not built (./dev build gcc)")
        lab = [str(LAB), "--cpus", "1", "--timeout", "1200", "--env", "DAT_TOOLS", "--", sys.executable, __file__, *sys.argv[1:]]
        os.execve(str(LAB), lab, os.environ | {"DAT_TOOLS": str(TOOLS), "PYTHONDONTWRITEBYTECODE": "1"})
    unittest.main()


if __name__ == "__main__":
    main()
