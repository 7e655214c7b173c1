#!/usr/bin/env python3
# Tests of dat-lab: they boot machines, so they need qemu and the kernel package (docs/lab.md).
# SPDX-License-Identifier: BSL-1.0
"""test_dat_lab.py [--quick] [--results FILE] [unittest arguments]

--quick leaves out the slower half; --results writes JUnit XML. DAT_LAB_PROGRAM names another dat-lab to test."""

import importlib.machinery
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import uuid
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.realpath(__file__))
DAT_LAB = os.environ.get("DAT_LAB_PROGRAM") or os.path.join(HERE, "dat-lab")
HARD_LIMIT = 450  # seconds after which a test kills dat-lab; each run passes a smaller --timeout
QUICK = False


def slow(test):
    """A test that --quick leaves out."""
    test.slow = True
    return test


class Run:
    """One dat-lab process with its own TMPDIR, marked by an environment variable to find its children."""

    def __init__(self, *args, env=None, cwd=None, wrap=(), stdout=None):
        self.mark = uuid.uuid4().hex
        self.tmp = tempfile.mkdtemp(prefix="dat-lab-test-")
        os.chmod(self.tmp, 0o777)
        self.files = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        full = {**os.environ, "TMPDIR": self.tmp, "DAT_LAB_TEST_MARK": self.mark, **(env or {})}
        self.proc = subprocess.Popen(
            [*wrap, DAT_LAB, *args],
            stdin=subprocess.DEVNULL,
            stdout=stdout or self.files[0],
            stderr=self.files[1],
            env=full,
            cwd=cwd,
        )

    def text(self, which):
        return os.pread(self.files[which].fileno(), 1 << 26, 0)

    def wait(self):
        try:
            self.rc = self.proc.wait(HARD_LIMIT)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError(f"dat-lab did not end within {HARD_LIMIT} s: {self.text(1)!r}")
        self.out, self.err = self.text(0), self.text(1)
        self.leftovers = os.listdir(self.tmp)
        shutil.rmtree(self.tmp)
        return self

    def wait_for(self, what, which=0):
        """Blocks until an output holds the bytes."""
        end = time.monotonic() + HARD_LIMIT
        while what not in self.text(which):
            if self.proc.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{what!r} not seen; stdout {self.text(0)!r}, stderr {self.text(1)!r}")
            time.sleep(0.02)

    def processes(self):
        """Living processes that this run started."""
        found = []
        for pid in os.listdir("/proc"):
            if pid.isdigit() and int(pid) != self.proc.pid:
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        if f"DAT_LAB_TEST_MARK={self.mark}".encode() in f.read():
                            found.append(int(pid))
                except OSError:
                    pass
        return found


def program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def module():
    """dat-lab as a module, for tests of its parts."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("dat_lab", DAT_LAB)
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader("dat_lab", loader))
    loader.exec_module(found)
    return found


def run(*args, **more):
    return Run(*args, **more).wait()


class Case(unittest.TestCase):
    maxDiff = 2000

    def assert_clean(self, r):
        """Checks that no process and no file of a run is left."""
        end = time.monotonic() + 60
        while r.processes() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(r.processes(), [])
        self.assertEqual(r.leftovers, [])
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dat-lab")
        self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])


class OneCommand(Case):
    """One boot, in which the command reports its environment."""

    ARGS = [b"plain", b"", b"two words", b"it's", b'"double"', b"$HOME `id` $(id)", b"back\\slash", b"*", b"-n", b"--", b"new\nline\n", b"\xff\xfe\x81\x88"]
    SHOW = 'printf "%s\\0" "$@"; pwd; printf "%s\\n" "$DAT_ONE" "$NOT_PASSED" "$GIVEN" "$DAT_LAB"; seq 1 100000; seq 100001 200000 >&2; exit 7'

    @classmethod
    def setUpClass(cls):
        cls.cwd = tempfile.mkdtemp(prefix="dat lab cwd ")
        env = {"DAT_ONE": "a 'b' \"c\" \udcff", "NOT_PASSED": "x"}
        cls.r = run("--env", "GIVEN=by option", "--machine", "--", "sh", "-c", cls.SHOW, "sh", *cls.ARGS, env=env, cwd=cls.cwd)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cwd)

    def setUp(self):
        self.args, self.rest = self.r.out.split(b"\0")[:-1], self.r.out.split(b"\0")[-1].split(b"\n")

    def test_the_exit_code_is_that_of_the_command(self):
        self.assertEqual(self.r.rc, 7, self.r.err[-2000:])

    def test_arguments_arrive_byte_for_byte(self):
        self.assertEqual(self.args, self.ARGS)

    def test_the_working_directory_is_the_same(self):
        self.assertEqual(os.fsdecode(self.rest[0]), os.path.realpath(self.cwd))

    def test_chosen_variables_are_passed_on_and_others_are_not(self):
        self.assertEqual(self.rest[1:5], [b"a 'b' \"c\" \xff", b"", b"by option", b"machine"])

    def test_standard_output_and_error_come_apart_and_complete(self):
        self.assertEqual(self.rest[5:], [b"%d" % n for n in range(1, 100001)] + [b""])
        self.assertEqual(self.r.err, b"".join(b"%d\n" % n for n in range(100001, 200001)))

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


RPING = """before=$(cat /sys/class/net/v2/statistics/rx_packets)
rping -s -a {server} -C 3 >server.txt 2>&1 & s=$!
# A client whose connect siw refuses does not end.
until rdma resource show cm_id | grep -q LISTEN; do l=$((l + 1)); [ $l -lt 600 ] || exit 4; sleep 0.1; done
until rping -c -a {server} -I {client} -C 3 -v 2>client.txt; do
  n=$((n + 1)); [ $n -lt ${{TRIES:-300}} ] || {{ cat client.txt; kill $s; wait $s; exit 1; }}; sleep 0.1
done
wait $s || exit 2
crossed=$(($(cat /sys/class/net/v2/statistics/rx_packets) - before))
[ $crossed -ge 12 ] || {{ echo "only $crossed packets crossed the wire"; exit 3; }}
"""


class OneScript(Case):
    """One boot with several commands, each checked by one test."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        cls.out = os.path.join(cls.dir, "out, it's")
        cls.shared = os.path.join(cls.dir, "shared")
        cls.untouched = os.path.join(cls.dir, "untouched")
        cls.binary = os.path.join(cls.dir, "tsan")
        cls.compiler = shutil.which("g++")
        if cls.compiler:
            source = "#include <thread>\nint n; int main() { std::thread t([] { n++; }); t.join(); return n - 1; }\n"
            subprocess.run([cls.compiler, "-fsanitize=thread", "-xc++", "-", "-o", cls.binary], input=source.encode(), check=True)
        for name, (client, server) in {"rping4": ("10.78.1.1", "10.78.2.1"), "rping6": ("fd00:78:1::1", "fd00:78:2::1")}.items():
            with open(os.path.join(cls.dir, name), "w") as f:
                f.write(RPING.format(client=client, server=server))
        for n in range(12):  # programs that the machine has to fetch: during the fetch, a process has no command line
            shutil.copy("/bin/sleep", os.path.join(cls.dir, f"sleep{n}"))
        script = os.path.join(cls.dir, "script")
        new = "".join(f"leaves-a-new-one-{n}: {cls.dir}/sleep{n} 1000 &\n" for n in range(12))
        nested = f"nested: {DAT_LAB} -- sh -c 'echo $DAT_LAB; exit 5'\nnative-limit: {DAT_LAB} --native --timeout 1 -- sleep 1000"
        with open(script, "w") as f:
            f.write(f"""# a comment, then an empty line

rping4: sh {cls.dir}/rping4
rping6: sh {cls.dir}/rping6
gids: cat /sys/class/infiniband/rx[12]/ports/1/gids/[12] /sys/class/infiniband/rx[12]/ports/1/state
out: echo written > "$DAT_LAB_OUT/file" && echo written > {cls.shared}/file && echo x > {cls.untouched} && cat {cls.untouched}
limits: ulimit -l; [ -w /dev/infiniband/rdma_cm ] && [ -w /dev/infiniband/uverbs1 ] && [ -w /dev/shm ] && echo devices
steering: cat /sys/class/net/v[12]/queues/rx-0/rps_cpus
modprobe: modprobe dummy && ip link add d0 type dummy && ip link del d0
tsan: {cls.binary}
clock: cut -d " " -f 1 /proc/uptime; sleep 3; cut -d " " -f 1 /proc/uptime
leaves-a-process: sleep 1000 & echo left
{new}its-twin: sleep 1000 & until ls -l /proc/$!/exe 2>/dev/null | grep -q sleep; do :; done; ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c sleep
segv: kill -SEGV $$
after: ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c sleep
link-down: ip link set v1 down && ! TRIES=2 sh {cls.dir}/rping4 >/dev/null && ip link set v1 up && sh $DAT_LAB_NET restore && sh {cls.dir}/rping4 && sh {cls.dir}/rping6
{"" if QUICK else nested}
false
""")
        cls.r = run("--machine", "--timeout", "300", "--out", cls.out, "--share", cls.shared, "--script", script, cwd=cls.dir)
        cls.output, name = {}, None
        for line in cls.r.out.decode().splitlines():
            m = re.match(r"dat-lab: \[\d+/\d+\] (.*)", line)
            if m and name is None:
                name = m[1]
                cls.output[name] = []
            elif m:
                cls.output[name].append(m[1])
                name = None
            elif name is not None:
                cls.output[name].append(line)
        try:
            with open(os.path.join(cls.out, "results.jsonl")) as f:
                cls.results = [json.loads(line) for line in f]
        except OSError:
            cls.results = []
        cls.codes = {x["name"]: x["rc"] for x in cls.results}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def check(self, name, *lines):
        self.assertEqual(self.codes.get(name), 0, (self.output.get(name), self.r.err[-1000:]))
        self.assertEqual(self.output[name][:-1], list(lines))

    def test_rping_over_ipv4_crosses_the_wire(self):
        self.assertEqual(self.codes.get("rping4"), 0, self.output.get("rping4"))
        self.assertEqual(sum("rdma-ping-" in l for l in self.output["rping4"]), 3)

    def test_rping_over_ipv6_crosses_the_wire(self):
        self.assertEqual(self.codes.get("rping6"), 0, self.output.get("rping6"))
        self.assertEqual(sum("rdma-ping-" in l for l in self.output["rping6"]), 3)

    def test_ports_are_active_and_gids_are_there_at_the_first_command(self):
        self.check(
            "gids",
            "0000:0000:0000:0000:0000:ffff:0a4e:0101",
            "fd00:0078:0001:0000:0000:0000:0000:0001",
            "0000:0000:0000:0000:0000:ffff:0a4e:0201",
            "fd00:0078:0002:0000:0000:0000:0000:0001",
            "4: ACTIVE",
            "4: ACTIVE",
        )

    def test_shared_directories_are_written_and_nothing_else_of_the_host(self):
        self.check("out", "x")
        for d in (self.out, self.shared):
            with open(os.path.join(d, "file")) as f:
                self.assertEqual(f.read(), "written\n")
        self.assertFalse(os.path.exists(self.untouched))

    def test_locked_memory_is_not_limited_and_devices_are_usable(self):
        self.check("limits", "unlimited", "devices")

    def test_one_of_the_processors_receives_all_frames_of_a_connection(self):
        self.check("steering", "3", "3")

    def test_the_machines_clock_is_not_faster_than_the_hosts(self):
        began, ended = map(float, self.output["clock"][:2])
        took = next(x["seconds"] for x in self.results if x["name"] == "clock")
        self.assertGreaterEqual(ended - began, 3)
        self.assertGreaterEqual(took, 0.99 * (ended - began - 0.02))  # uptime has hundredths

    def test_modprobe_finds_other_modules(self):
        self.check("modprobe")

    def test_thread_sanitizer_runs(self):
        if not self.compiler:
            self.skipTest("no g++")
        self.check("tsan")

    def test_processes_left_behind_by_a_command_are_ended(self):
        self.check("leaves-a-process", "left")
        self.assertEqual((self.output["its-twin"][0], self.output["after"][0]), ("1", "0"))

    def test_a_signal_gives_128_and_its_number_and_no_word_of_ours(self):
        self.assertEqual(self.codes["segv"], 139)
        self.assertNotIn(b"Segmentation", self.r.err)

    def test_traffic_flows_again_after_link_down_up_and_restore(self):
        self.assertEqual(self.codes["link-down"], 0, (self.output["link-down"], self.r.err[-1000:]))

    @slow
    def test_native_is_chosen_where_the_host_has_a_device(self):
        self.assertEqual(self.codes["nested"], 5)
        self.assertIn("native", self.output["nested"])
        self.assertIn(b"using the host's RDMA devices rx1 rx2", self.r.err)

    @slow
    def test_the_time_limit_holds_on_native_devices(self):
        self.assertEqual(self.codes["native-limit"], 124)
        self.assertIn(b"time limit of 1 s reached", self.r.err)

    def test_the_exit_code_is_the_first_failure(self):
        self.assertEqual(self.r.rc, 139)
        self.assertEqual(self.codes["false"], 1)

    def test_results_hold_name_code_and_seconds_in_order(self):
        self.assertEqual(len(self.results), 27 if QUICK else 29)
        self.assertEqual([x["name"] for x in self.results][:3], ["rping4", "rping6", "gids"])
        self.assertTrue(all(set(x) == {"name", "rc", "seconds"} for x in self.results))
        self.assertIn("FAIL rc 139", self.output["segv"][-1])

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


class SeveralAtOnce(Case):
    """Machines at the same time: commands with a limit each, and, unless --quick, a time limit for all and a kernel panic."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        script = os.path.join(cls.dir, "script")
        hang = "trap '' TERM INT; echo up; while :; do sleep 1; done"
        with open(script, "w") as f:
            f.write(f"hangs: {hang}\nafter: echo still alive\nends: echo c > /proc/sysrq-trigger; sleep 100\nnever: echo never\n")
        runs = [Run("--machine", "--timeout", "300", "--each", "8", "--out", cls.dir, "--script", script)]
        if not QUICK:
            runs += [
                Run("--machine", "--timeout", "8", "--", "sh", "-c", hang),
                Run("--machine", "--timeout", "300", "--", "sh", "-c", "echo before; echo c > /proc/sysrq-trigger; sleep 100"),
            ]
        cls.all = [r.wait() for r in runs]
        cls.each = cls.all[0]
        with open(os.path.join(cls.dir, "results.jsonl")) as f:
            cls.codes = {x["name"]: x["rc"] for x in map(json.loads, f)}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_each_limits_one_command_and_the_next_one_runs(self):
        self.assertEqual((self.codes["hangs"], self.codes["after"], self.each.rc), (124, 0, 124), self.each.err)
        self.assertIn(b"still alive\n", self.each.out)
        self.assertIn(b"time limit of 8 s reached in hangs", self.each.err)

    def test_commands_after_the_end_of_the_machine_are_recorded_as_not_run(self):
        self.assertEqual((self.codes["ends"], self.codes["never"]), (125, 125), self.each.err)
        self.assertIn(b"1 of the script's commands were not run", self.each.err)

    def test_the_cause_of_the_end_of_the_machine_is_said(self):
        self.assertIn(b"the machine died: kernel panic: sysrq triggered crash", self.each.err)

    @slow
    def test_a_hanging_command_ends_with_124(self):
        hang = self.all[1]
        self.assertEqual(hang.rc, 124, hang.err)
        self.assertIn(b"time limit of 8 s", hang.err)

    @slow
    def test_a_kernel_panic_ends_with_125_and_its_cause(self):
        panic = self.all[2]
        self.assertEqual(panic.rc, 125, panic.err)
        self.assertEqual(panic.out, b"before\n")
        self.assertIn(b"the machine died: kernel panic: sysrq triggered crash", panic.err)
        self.assertIn(b"  | ", panic.err)

    def test_all_leave_nothing(self):
        for r in self.all:
            self.assert_clean(r)


class Signals(Case):
    def test_int_and_term_reach_the_command(self):
        job = 'trap "echo int" INT; trap "echo term; exit 9" TERM; echo up; while :; do sleep 0.1; done'
        r = Run("--machine", "--timeout", "200", "--", "sh", "-c", job)
        r.wait_for(b"up\n")
        r.proc.send_signal(signal.SIGINT)
        r.wait_for(b"int\n")
        r.proc.send_signal(signal.SIGTERM)
        r.wait()
        self.assertEqual((r.rc, r.out), (9, b"up\nint\nterm\n"), r.err)
        self.assert_clean(r)

    def test_a_signal_while_the_machine_starts_ends_it(self):
        r = Run("--machine", "--", "echo", "never")
        end = time.monotonic() + HARD_LIMIT
        while not any("qemu" in program(p) for p in r.processes()) and time.monotonic() < end:
            time.sleep(0.01)
        r.proc.send_signal(signal.SIGTERM)
        r.wait()
        self.assertEqual((r.rc, r.out), (143, b""), r.err)
        self.assert_clean(r)

    @slow
    def test_term_without_a_handler_gives_143_and_a_killed_dat_lab_takes_its_machine_along(self):
        r = Run("--machine", "--timeout", "200", "--", "sh", "-c", "echo up; exec sleep 1000")
        k = Run("--machine", "--timeout", "200", "--", "sh", "-c", "echo up; exec sleep 1000")
        r.wait_for(b"up\n")
        r.proc.send_signal(signal.SIGTERM)
        k.wait_for(b"up\n")
        k.proc.kill()
        r.wait()
        k.wait()
        self.assertEqual((r.rc, k.rc), (143, -9), r.err)
        self.assert_clean(r)
        self.assert_clean(k)

    @slow
    def test_a_command_that_is_not_there_gives_127(self):
        r = run("--machine", "--", "no such command", "x")
        self.assertEqual((r.rc, r.out, r.err), (127, b"", b"dat-lab: no such command: command not found\n"))

    @slow
    def test_a_reader_that_goes_away_ends_the_machine(self):
        read, write = os.pipe()
        r = Run("--machine", "--timeout", "200", "--", "yes", stdout=write)
        os.close(write)
        self.assertEqual(os.read(read, 4), b"y\ny\n")
        os.close(read)
        r.wait()
        self.assertEqual(r.rc, 141, r.err)
        self.assert_clean(r)


PINGPONG = """ibv_rc_pingpong -d rx2 -g 1 -n 20 >/dev/null & s=$!
until ibv_rc_pingpong -d rx1 -g 1 -n 20 10.78.2.1; do
  n=$((n + 1)); [ $n -lt 300 ] || { kill $s; exit 1; }; sleep 0.1
done
wait $s
"""


def pcap_frames(path):
    """[(time, frame)] of a pcap file; raises when its structure is wrong."""
    with open(path, "rb") as f:
        data = f.read()
    magic, major, minor, zone, accuracy, longest, network = struct.unpack_from("<IHHiIII", data)
    if (magic, major, minor, zone, accuracy, network) != (0xA1B23C4D, 2, 4, 0, 0, 1):
        raise ValueError(f"wrong head {data[:24]!r}")
    frames, at = [], 24
    while at < len(data):
        second, nano, kept, length = struct.unpack_from("<IIII", data, at)
        if kept != length or kept > longest or nano >= 1000000000 or at + 16 + kept > len(data):
            raise ValueError(f"wrong frame at {at}")
        frames.append((second + nano / 1e9, data[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return frames


def roce(frame):
    """(source address, BTH opcode) of a RoCE v2 frame over IPv4, else None."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[36:38] != b"\x12\xb7":
        return None
    return ".".join(map(str, frame[26:30])), frame[42]


class Captures(Case):
    """One boot with a capture of both ends of the wire."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        cls.files = [os.path.join(cls.dir, f) for f in ("one, two", "v2.pcap")]
        script = os.path.join(cls.dir, "script")
        with open(os.path.join(cls.dir, "pingpong"), "w") as f:
            f.write(PINGPONG)
        with open(script, "w") as f:
            f.write(f"sh {cls.dir}/pingpong\nls -l /proc/[0-9]*/exe 2>/dev/null | grep -c python\nip link set v1 down\n")
        args = [a for path, link in zip(cls.files, ("", "v2=")) for a in ("--pcap", link + path)]
        cls.began = time.time()
        cls.r = run(*args, "--timeout", "300", "--script", script, cwd=cls.dir)
        cls.ended = time.time()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_both_ends_of_the_wire_have_all_frames_of_a_ping_pong(self):
        self.assertEqual(self.r.rc, 0, (self.r.out, self.r.err))
        for path in self.files:
            seen = [roce(frame) for _, frame in pcap_frames(path)]
            for source in ("10.78.1.1", "10.78.2.1"):
                sends = [x for x in seen if x and x[0] == source and x[1] in (0, 1, 2, 4)]  # first, middle, last, only
                acks = [x for x in seen if x and x[0] == source and x[1] == 17]
                self.assertGreaterEqual(len(sends), 20 * 4)  # 4096 bytes with an RDMA MTU of 1024
                self.assertGreaterEqual(len(acks), 20)

    def test_times_are_those_of_the_run_in_order(self):
        times = [t for t, _ in pcap_frames(self.files[0])]
        self.assertEqual(times, sorted(times))
        self.assertTrue(self.began - 2 <= times[0] and times[-1] <= self.ended + 2, (self.began, times[0], times[-1], self.ended))

    def test_the_end_says_how_many_frames_each_file_holds(self):
        for path, link in zip(self.files, ("v1", "v2")):
            self.assertIn(f"dat-lab: {path}: {len(pcap_frames(path))} frames of {link}\n".encode(), self.r.err)

    def test_a_capture_lives_on_from_command_to_command(self):
        self.assertIn(b"\n1\n", self.r.out)

    def test_tcpdump_and_tshark_read_the_file(self):
        readers = {"tcpdump": ["-n", "-r", self.files[0], "udp port 4791"], "tshark": ["-r", self.files[0], "-Y", "infiniband"]}
        found = {shutil.which(name): args for name, args in readers.items() if shutil.which(name)}
        if not found:
            self.skipTest("neither tcpdump nor tshark")
        for name, args in found.items():
            lines = subprocess.run([name, *args], capture_output=True, check=True).stdout.splitlines()
            self.assertEqual(len(lines), sum(1 for _, frame in pcap_frames(self.files[0]) if roce(frame)))

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


class CaptureFiles(Case):
    """Captures that are made here; nothing is booted."""

    HEAD = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)

    def sorted(self, data):
        with tempfile.NamedTemporaryFile() as f:
            f.write(data)
            f.flush()
            module().sort_capture(f.name)
            f.seek(0)
            return f.read()

    def test_frames_are_sorted_by_time_and_frames_of_one_time_keep_their_order(self):
        frames = [((7, 5), b"a"), ((7, 9), b"bb"), ((7, 2), b"late"), ((6, 999999999), b""), ((7, 9), b"c" * 300), ((8, 0), b"d"), ((7, 9), b"e")]
        whole = [(t, struct.pack("<IIII", *t, len(x), len(x)) + x) for t, x in frames]
        wanted = b"".join(x for _, x in sorted(whole, key=lambda f: f[0]))
        self.assertNotEqual(wanted, b"".join(x for _, x in whole))
        self.assertEqual(self.sorted(self.HEAD + b"".join(x for _, x in whole)), self.HEAD + wanted)

    def test_what_follows_the_last_whole_frame_stays(self):
        later, earlier = (struct.pack("<IIII", second, 0, 4, 4) + b"data" for second in (2, 1))
        for rest in (b"", b"\1\0\0", struct.pack("<IIII", 0, 0, 9, 9) + b"cut"):
            with self.subTest(rest=rest):
                self.assertEqual(self.sorted(self.HEAD + later + earlier + rest), self.HEAD + earlier + later + rest)

    def test_files_without_frames_stay(self):
        for data in (b"", b"x", self.HEAD):
            with self.subTest(data=data):
                self.assertEqual(self.sorted(data), data)
        module().sort_capture("/dev/null")


FAULTS = """# seconds: action
0: loss 1%
0.2: delay 20ms v1          # reorder needs it
0.3: reorder 20-30% v1
0.4: duplicate 10 v1
0.5: down v1 v2
0.7: up v2
0.8: up v1
0.9: remove 10.78.2.1 v2
1.0: add 10.78.2.7/32 v2
0.1-0.6: loss 0 v2
1.2: add fd00:78:2::7 v2
1000: clear
"""


class TimeLines(Case):
    """One boot with a time line of faults: the first command sees the last state. The second one has the same time line."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        script, faults = (os.path.join(cls.dir, f) for f in ("script", "faults"))
        with open(faults, "w") as f:
            f.write(FAULTS)
        show = "tc qdisc show dev v1; echo; tc qdisc show dev v2; echo; ip -br addr show v2; echo; cat /sys/class/net/v[12]/operstate; echo; ip route show table 101; echo; echo $DAT_SEED"
        with open(script, "w") as f:
            f.write(f"""until ip addr show v2 | grep -q fd00:78:2::7; do sleep 0.1; done; cat /sys/class/net/v1/carrier_down_count; {show}
exit 4
""")
        cls.r = run("--faults", faults, "--seed", "7", "--timeout", "300", "--script", script, cwd=cls.dir)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_the_command_sees_the_faults(self):
        self.assertEqual(self.r.rc, 4, (self.r.out, self.r.err))
        v1, v2, addresses, state, routes, seed = self.r.out.decode().split("\ndat-lab: [1/2] ok")[0].split("\n\n")
        self.assertRegex(v1, r"netem .*delay 20ms loss 1% duplicate 10% reorder 2[\d.]+%")
        self.assertNotIn("netem", v2)
        self.assertIn("10.78.2.7/32", addresses)
        self.assertIn("fd00:78:2::7/128", addresses)
        self.assertNotIn("10.78.2.1/32", addresses)
        self.assertEqual(state, "up\nup")
        self.assertGreaterEqual(int(v1.split("\n")[1]), 1)  # carrier_down_count
        self.assertIn("10.78.2.1 dev v1", routes)
        self.assertEqual(seed, "7")

    def test_the_log_says_when_each_fault_was_applied(self):
        log = re.findall(r"^dat-lab: fault at ([\d.]+) s: (.*)$", self.r.err.decode(), re.M)
        again = [n for n, (_, x) in enumerate(log) if x == "loss 1% v1 v2"]
        self.assertEqual(again, [0, 11], self.r.err)  # the line is printed once for each command
        self.assertEqual((log[0][0], log[11][0]), ("0.00", "0.00"))
        planned = [0, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9, 1, 1.2]
        applied = [float(t) for t, x in log[:11] if x != "loss 0% v2" and not x.startswith("loss 0.00")]
        self.assertEqual(len(applied), len(planned), log)
        self.assertTrue(all(a >= p for a, p in zip(applied, planned)), log)
        self.assertIn(b"the command ended before 1 of 12 faults", self.r.err)

    def test_the_seed_is_printed(self):
        self.assertIn(b"dat-lab: seed 7 (--seed 7 repeats it)\n", self.r.err)

    def test_nothing_is_left(self):
        self.assert_clean(self.r)

    @slow
    def test_a_fault_that_cannot_be_applied_fails_the_command_and_what_it_changed_is_undone(self):
        faults, script = os.path.join(self.dir, "more"), os.path.join(self.dir, "script2")
        with open(faults, "w") as f:
            f.write("0: down v1\n0: remove 10.78.1.1 v1\n0: loss 50%\n0: remove 10.9.9.9 v1\n1000: up v1\n")
        with open(script, "w") as f:
            f.write("fails: ip addr add 10.9.9.9/32 dev v1\nworks: true\nsaid: exit 3\n")  # only the second command has that address
        r = run("--faults", faults, "--timeout", "300", "--out", self.dir, "--script", script, cwd=self.dir)
        self.assertEqual(re.findall(r"fault at ([\d.]+) s: (.*) FAILED: .*assign", r.err.decode()), [("0.00", "remove 10.9.9.9/32 v1")] * 2)
        with open(os.path.join(self.dir, "results.jsonl")) as f:
            self.assertEqual([json.loads(line)["rc"] for line in f], [125, 0, 3], r.err)


class StatesAfterFaults(Case):
    """One boot whose time line does not come to its faults. The first command makes them, so that the second one has no fault of its own
    but that of time 0, however long it takes."""

    FAULTS = """0: loss 1%
1000: delay 5ms v1
1000: down v1 v2
1000: remove 10.78.2.1 v2
1000: add 10.78.2.7/32 v2
1000: add fd00:78:2::7 v2
"""
    MADE = """tc qdisc replace dev v1 root netem delay 5ms
ip link set v1 down
ip link set v2 down
ip addr del 10.78.2.1/32 dev v2
ip addr add 10.78.2.7/32 dev v2
ip addr add fd00:78:2::7/128 dev v2 nodad
"""
    LOOK = """tc qdisc show dev v1
ip -br addr show v2
cat /sys/class/net/v[12]/operstate
ip route show table 101
ip -6 route show table 101
cat /sys/class/infiniband/rx[12]/ports/1/state
"""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        texts = {"faults": cls.FAULTS, "made": "set -e\n" + cls.MADE, "look": "set -e\n" + cls.LOOK, "script": ""}
        files = {name: os.path.join(cls.dir, name) for name in texts}
        texts["script"] = "sh {made} && sh {look}\nsh {look}\n".format(**files)
        for name, path in files.items():
            with open(path, "w") as f:
                f.write(texts[name])
        cls.r = run("--faults", files["faults"], "--timeout", "300", "--script", files["script"], cwd=cls.dir)
        cls.seen = re.findall(r"^dat-lab: \[\d/2\] sh .*\n([\s\S]*?)^dat-lab: \[\d/2\] ok ", cls.r.out.decode(), re.M)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_the_next_command_finds_the_first_state_again(self):
        self.assertEqual((self.r.rc, len(self.seen)), (0, 2), (self.r.out, self.r.err))
        before, after = self.seen
        self.assertIn(" delay 5ms", before)
        self.assertIn("\ndown\ndown\n", before)
        for text in ("10.78.2.7/32", "fd00:78:2::7/128"):
            self.assertIn(text, before)
            self.assertNotIn(text, after)
        for text in (" 10.78.2.1/32 ", "10.78.2.1 dev v1 "):
            self.assertNotIn(text, before)
            self.assertIn(text, after)
        self.assertRegex(after, r"^qdisc netem \S+ root refcnt \d+ limit 100000 loss 1%\n")  # the fault of time 0
        self.assertIn(" fd00:78:2::1/128 ", after)
        self.assertIn("\nup\nup\n", after)
        self.assertIn("\nfd00:78:2::1 dev v1 ", after)
        self.assertIn("\n4: ACTIVE\n4: ACTIVE\n", after)

    def test_no_fault_of_the_time_line_was_applied_but_that_of_time_0(self):
        log = re.findall(r"^dat-lab: fault at ([\d.]+) s: (.*)$", self.r.err.decode(), re.M)
        self.assertEqual(log, [("0.00", "loss 1% v1 v2")] * 2)

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


@slow
class Networks(Case):
    def test_loss_and_delay_are_made_on_the_wire(self):
        job = "busybox ping -c 40 -i 0.05 -W 1 -I 10.78.1.1 10.78.2.1; tc -s qdisc show"
        r = run("--machine", "--timeout", "300", "--loss", "30%", "--delay", "20ms", "--", "sh", "-c", job)
        self.assertEqual(r.rc, 0, r.err)
        text = r.out.decode()
        self.assertEqual(len(re.findall(r"netem .*delay 20ms loss 30%", text)), 2, text)
        self.assertTrue(any(int(n) > 0 for n in re.findall(r"dropped (\d+)", text)), text)
        fastest = float(re.search(r"min/avg/max = ([\d.]+)/", text)[1])
        self.assertGreaterEqual(fastest, 40)  # there and back

    def test_a_clock_that_counts_instructions_skips_waiting(self):
        r = run("--machine", "--counted", "--timeout", "300", "--", "sh", "-c", "nproc; sleep 1000; rdma link")
        self.assertEqual(r.rc, 0, r.err)
        self.assertEqual(r.out.split(b"\n")[0], b"1", r.out)
        self.assertIn(b"rx2/1 state ACTIVE", r.out)

    def test_one_link_and_an_odd_number_of_links(self):
        show = "rdma link; grep -h . /sys/class/infiniband/*/ports/1/gids/1; cat /sys/class/net/v1/mtu; ibv_devinfo 2>/dev/null | grep active_mtu"
        one, three = Run("--links", "1", "--mtu", "9000", "--", "sh", "-c", show), Run("--links", "3", "--cpus", "1", "--", "sh", "-c", show)
        one.wait(), three.wait()
        self.assertEqual(re.findall(r"link (rx\d)/1 state ACTIVE .* netdev (v\d)", one.out.decode()), [("rx1", "v1")], one.err)
        self.assertIn(b"\n9000\n", one.out)
        if shutil.which("ibv_devinfo"):
            self.assertIn(b"4096", one.out)
        self.assertEqual(re.findall(r"link (rx\d)/1 state ACTIVE", three.out.decode()), ["rx1", "rx2", "rx3"], three.err)
        self.assertIn(b"ffff:0a4e:0301", three.out)


HOST1 = r"""
import json, os, socket, subprocess, sys
seen = {"refused": {}}
def lab(*words):
    done = subprocess.run(["dat-lab", *words], capture_output=True, text=True)
    return [done.returncode, (done.stdout + done.stderr).strip()]
def answer(limit=60):
    link.settimeout(limit)
    try:
        return link.recv(100).decode()
    except socket.timeout:
        return "silence"
def ask(limit=60):
    link.sendall(b"?")
    return answer(limit)
def rping(server, client):
    # rping gives an address and a route two seconds each, and a busy machine may need more.
    for _ in range(30):
        done = subprocess.run(["rping", "-c", "-a", server, "-I", client, "-C", "5"], capture_output=True, text=True)
        if done.returncode == 0:
            return 0
    return done.stderr[-500:]
seen["boot"] = open("/proc/sys/kernel/random/boot_id").read()
seen["host"] = [os.environ["DAT_LAB_HOST"], os.environ["DAT_LAB_HOSTS"], socket.gethostname()]
open("/tmp/of-host1", "w").close()
seen["signal"] = lab("signal", "written", "a  value")
seen["signal again"] = lab("signal", "written")
seen["wait"] = lab("wait", "echo")
link = socket.create_connection(("host2", 7000))
seen["first"], seen["clock"], seen["second"] = ask(), lab("clock", "2", "+3600"), ask()
seen["own clock"] = os.popen("date +%s").read()

seen["freeze"], seen["frozen"], seen["freeze again"] = lab("freeze", "2"), ask(1), lab("freeze", "2")
seen["clock of a frozen host"] = lab("clock", "2", "+1")
seen["thaw"], seen["thawed"], seen["thaw again"] = lab("thaw", "2"), answer(), lab("thaw", "2")
seen["cut"], seen["cut off"], seen["join"], seen["joined"] = lab("cut", "2", "v1"), ask(1), lab("join", "2"), answer()

seen["rping"] = [lab("wait", "rping4")[0], rping("10.78.1.3", "10.78.1.1"), lab("wait", "rping6")[0], rping("fd00:78:1::3", "fd00:78:1::1")]
seen["kill"], seen["killed"], seen["kill again"] = lab("kill", "2"), ask(1), lab("kill", "2")
for words in ("kill 4", "kill 0", "kill x", "kill", "cut 3 v2", "clock 3 3600", "clock 3 +soon", "wait a b", "explode 3", "signal " + 2000 * "x", "signal a\nb"):
    seen["refused"][words[:20]] = lab(*words.split(" "))
json.dump(seen, open(os.environ["DAT_LAB_OUT"] + "/seen.json", "w"))
sys.exit(3)
"""

HOST2 = r"""
import os, socket, subprocess
value = subprocess.run(["dat-lab", "wait", "written"], capture_output=True, text=True).stdout.strip()
found = os.path.exists("/tmp/of-host1")
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
with socket.create_server(("10.78.1.2", 7000)) as server:
    subprocess.run(["dat-lab", "signal", "echo"])
    link = server.accept()[0]
    while link.recv(1):
        now = os.popen("date +%s").read().strip()  # by a process that has just started
        link.sendall(f"{now} {boot} {found} {value}".encode())
"""

HOST3 = """echo out of the third; echo error of the third >&2; printf 'no end of line'
listens() { rdma resource show cm_id | grep LISTEN | grep -q "$1"; }
serve() {
  rping -s -a "$1" -C 5 >/dev/null & s=$!
  until listens "$1"; do sleep 0.1; done
  dat-lab signal "$2"
  wait $s
}
serve 10.78.1.3 rping4 || exit 5
serve fd00:78:1::3 rping6 || exit 6
dat-lab wait never
echo $? >"$DAT_LAB_OUT/wait"
echo c >/proc/sysrq-trigger
"""


class ThreeHosts(Case):
    """One run of three hosts: the first one does all to the second one, and talks RDMA with the third one, which panics in the end."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        cls.pcap = os.path.join(cls.dir, "wire.pcap")
        command = ["--on", "1", "--", sys.executable, "-c", HOST1, "--on", "2", "--", sys.executable, "-c", HOST2, "--on", "3", "--", "sh", "-c", HOST3]
        cls.r = run("--timeout", "200", "--out", cls.dir, "--pcap", cls.pcap, "--hosts", "3", *command, env={"PYTHONDONTWRITEBYTECODE": "1"})
        try:
            with open(os.path.join(cls.dir, "seen.json")) as f:
                cls.seen = json.load(f)
        except OSError:
            raise AssertionError(f"{cls.r.rc} {cls.r.out!r} {cls.r.err[-3000:]!r}")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def assert_log(self, *texts):
        for text in texts:
            self.assertRegex(self.r.err, rb"(?m)^dat-lab: at \d+\.\d\d s, by host1: " + text.encode() + b"$")

    def test_each_host_has_its_kernel_its_files_and_its_name(self):
        boot, found = self.seen["first"].split()[1:3]
        self.assertRegex(boot, r"^[0-9a-f-]{36}$")
        self.assertNotEqual(boot, self.seen["boot"].strip())
        self.assertEqual(found, "False")
        self.assertEqual(self.seen["host"], ["1", "3", "host1"])

    def test_steps_wait_for_each_other_and_pass_a_value(self):
        self.assertEqual((self.seen["signal"], self.seen["wait"]), ([0, ""], [0, ""]))
        self.assertEqual(self.seen["signal again"], [1, "dat-lab: written was signalled before"])
        self.assertEqual(self.seen["first"].split(" ", 3)[3], "a value")

    def test_a_wait_that_nobody_can_end_fails(self):
        self.assertIn(b"host3: dat-lab: nobody can signal never: the commands of all other hosts have ended\n", self.r.err)
        with open(os.path.join(self.dir, "wait")) as f:
            self.assertEqual(f.read(), "1\n")

    def test_the_clock_of_one_host_is_set(self):
        first, second, own = (int(self.seen[k].split()[0]) for k in ("first", "second", "own clock"))
        self.assertEqual(self.seen["clock"], [0, ""])
        self.assertGreaterEqual(second - first, 3600)
        self.assertLess(abs(own - first), 1800)
        self.assertEqual(self.seen["clock of a frozen host"], [1, "dat-lab: host2 is frozen"])
        self.assert_log(r"clock host2 \+3600")

    def test_a_frozen_host_is_silent_and_answers_after_thaw(self):
        self.assertEqual((self.seen["freeze"], self.seen["frozen"]), ([0, ""], "silence"))
        self.assertEqual(self.seen["thaw"], [0, ""])
        self.assertIn(self.seen["first"].split()[1], self.seen["thawed"])
        self.assertEqual(self.seen["freeze again"], [1, "dat-lab: host2 is frozen"])
        self.assertEqual(self.seen["thaw again"], [1, "dat-lab: host2 is running"])
        self.assert_log("freeze host2", "thaw host2")

    def test_a_cut_host_is_silent_and_answers_after_join(self):
        self.assertEqual((self.seen["cut"], self.seen["cut off"]), ([0, ""], "silence"))
        self.assertEqual(self.seen["join"], [0, ""])
        self.assertIn(self.seen["first"].split()[1], self.seen["joined"])
        self.assert_log("cut host2 v1", "join host2")

    def test_a_killed_host_is_silent_for_good(self):
        self.assertEqual((self.seen["kill"], self.seen["killed"]), ([0, ""], "silence"))
        self.assertEqual(self.seen["kill again"], [1, "dat-lab: host2 is dead"])
        self.assert_log("kill host2")

    def test_rping_runs_from_host_to_host(self):
        self.assertEqual(self.seen["rping"], [0, 0, 0, 0])

    def test_the_capture_has_what_crossed_the_network(self):
        frames = pcap_frames(self.pcap)
        self.assertEqual([t for t, _ in frames], sorted(t for t, _ in frames))
        self.assertLessEqual({"10.78.1.1", "10.78.1.3"}, {r[0] for r in (roce(f) for _, f in frames) if r})
        self.assertIn(f"dat-lab: {self.pcap}: {len(frames)} frames of v1\n".encode(), self.r.err)

    def test_requests_that_make_no_sense_are_refused(self):
        for words in ("kill 4", "kill 0", "kill x", "kill", "cut 3 v2", "clock 3 3600", "clock 3 +soon", "wait a b", "explode 3", "signal " + 13 * "x", "signal a\nb"):
            with self.subTest(words=words):
                self.assertEqual(self.seen["refused"][words][0], 2)
                self.assertRegex(self.seen["refused"][words][1], "^dat-lab: |^usage")
        self.assertEqual(self.seen["refused"]["kill 4"][1], "dat-lab: 4 is no host: the hosts are 1 to 3")

    def test_each_line_of_output_has_its_host(self):
        self.assertIn(b"host3: out of the third\nhost3: no end of line", self.r.out)
        self.assertIn(b"host3: error of the third\n", self.r.err)

    def test_the_death_of_a_kernel_is_told(self):
        self.assertIn(b"dat-lab: host3 died: kernel panic: sysrq triggered crash\n", self.r.err)

    def test_the_exit_code_is_the_first_failure_and_a_killed_host_is_none(self):
        self.assertEqual(self.r.rc, 3, self.r.err[-2000:])

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


@slow
class HostsThatEnd(Case):
    def test_a_host_that_stays_frozen_or_kills_itself_ends_the_run(self):
        command = ["--on", "1", "--", "dat-lab", "freeze", "2", "--on", "2", "--", "sh", "-c", "dat-lab wait never"]
        r = run("--timeout", "200", "--hosts", "2", "--links", "2", "--mtu", "4200", "--loss", "1", *command)
        self.assertEqual((r.rc, r.out), (0, b""), r.err)
        self.assertIn(b"dat-lab: host2 is still frozen: its command has not ended\n", r.err)
        self.assert_clean(r)

    def test_the_time_limit_and_fail_fast_end_all_hosts(self):
        limit = Run("--timeout", "30", "--hosts", "2", "--on", "1", "--", "sleep", "1000", "--on", "2", "--", "dat-lab", "kill", "2")
        fast = run("--fail-fast", "--timeout", "200", "--hosts", "2", "--on", "1", "--", "sh", "-c", "exit 7", "--on", "2", "--", "sleep", "1000")
        self.assertEqual(fast.rc, 7, fast.err)
        self.assertEqual(limit.wait().rc, 124, limit.err)
        self.assert_clean(fast)
        self.assert_clean(limit)


class Clocks(Case):
    def test_the_time_stamp_counter_is_measured_alike_each_time(self):
        if platform.machine() != "x86_64":
            self.skipTest("there is none")
        measured = [module().tsc_khz() for _ in range(5)]
        self.assertGreater(min(measured), 100000)
        self.assertLess(max(measured) / min(measured), 1.005)  # the kernel corrects a difference of 1 %


class Switches(Case):
    """The network of hosts, without a machine."""

    def setUp(self):
        self.network = module().hosts_module().Network({})
        self.hosts = {n: self.network.add(1, n) for n in (1, 2, 3)}
        self.other = self.network.add(2, 1)
        self.network.start()

    def tearDown(self):
        self.network.stop()
        for s in [*self.hosts.values(), self.other]:
            s.close()

    def frame(self, to, text):
        """A frame of host 1 with its length in front; to 0: all hosts."""
        data = (bytes((2, 0, 0, 0, 1, to)) if to else b"\xff" * 6) + bytes((2, 0, 0, 0, 1, 1)) + text
        return struct.pack(">I", len(data)) + data

    def receive(self, host, size):
        self.hosts[host].settimeout(60)
        data = b""
        while len(data) < size:
            data += self.hosts[host].recv(size - len(data))
        return data

    def got(self, host, *frames):
        wanted = b"".join(frames)
        self.assertEqual(self.receive(host, len(wanted)), wanted)

    def got_no_more(self, host, last):
        """Nothing but the last frame, which everybody gets, is there."""
        self.hosts[1].sendall(last)
        self.got(host, last)

    def test_a_frame_reaches_its_host_alone_and_a_broadcast_reaches_all_of_the_link(self):
        a, b, c = self.frame(2, b"a"), self.frame(3, b"b"), self.frame(0, b"c")
        self.hosts[1].sendall(a + b)
        self.hosts[1].sendall(c[:7])  # the frame comes in pieces
        self.hosts[1].sendall(c[7:])
        self.got(2, a, c)
        self.got(3, b, c)
        for s in (self.other, self.hosts[1]):
            s.setblocking(False)
            self.assertRaises(BlockingIOError, s.recv, 1)

    def test_a_cut_port_neither_sends_nor_receives(self):
        self.network.of(2)[0].cut = True
        self.hosts[1].sendall(self.frame(2, b"lost") + self.frame(3, b"x"))
        self.got(3, self.frame(3, b"x"))
        self.network.of(2)[0].cut = False
        self.got_no_more(2, self.frame(0, b"y"))

    def test_a_host_that_takes_nothing_loses_frames_and_others_do_not(self):
        self.network.ROOM = 1 << 20
        big = b"".join(self.frame(2, b"%05d" % n + bytes(65000)) + self.frame(3, b"%05d" % n) for n in range(60))
        self.hosts[1].sendall(big)
        self.got(3, *(self.frame(3, b"%05d" % n) for n in range(60)))
        size = len(self.frame(2, bytes(65005)))
        for n in range(10):  # the buffer had room for these frames
            self.got(2, self.frame(2, b"%05d" % n + bytes(65000)))
        self.network.ROOM = 1 << 30
        self.hosts[1].sendall(self.frame(0, b"last" + bytes(65001)))  # as long as the others
        count = 10
        while b"last" not in self.receive(2, size)[16:20]:
            count += 1
        self.assertIn(count, range(10, 60))

    def test_a_host_that_has_ended_holds_nobody_up(self):
        self.hosts.pop(2).close()
        self.hosts[1].sendall(self.frame(2, bytes(60000)) + self.frame(0, b"x"))
        self.got(3, self.frame(0, b"x"))


@slow
class Kernels(Case):
    """Boots the newest kernel that is installed or available."""

    def test_the_newest_kernel_has_rxe_and_another_start_has_the_default_again(self):
        with tempfile.TemporaryDirectory() as d:
            job = os.path.join(d, "job")
            with open(job, "w") as f:
                f.write("uname -r\n" + RPING.format(client="10.78.1.1", server="10.78.2.1"))
            newest = run("--kernel", "newest", "--timeout", "300", "--share", d, "--", "sh", job)
            if b"cannot download" in newest.err:
                self.skipTest(newest.err.decode())
            self.assertEqual(newest.rc, 0, (newest.out, newest.err))
            listed = run("--list-kernels").out.decode().splitlines()
            plain = [line.split()[0] for line in listed if "-cloud-" not in line and "-rt-" not in line]
            self.assertEqual(newest.out.decode().split("\n")[0], plain[0])
            default = next(line.split()[0] for line in listed if "default" in line)
            usual = run("--machine", "--", "uname", "-r")
            self.assertEqual(usual.out.decode().strip(), default, usual.err)


@slow
class Devices(Case):
    """Builds siw unless it is in the cache; skipped where it cannot be built."""

    def run_or_skip(self, *args, **more):
        r = run(*args, **more)
        if b"dat-lab: siw: " in r.err:
            self.skipTest(r.err.decode())
        return r

    def test_rping_runs_over_siw(self):
        with tempfile.TemporaryDirectory() as d:
            job, wire = os.path.join(d, "job"), os.path.join(d, "wire")
            with open(job, "w") as f:
                f.write("ibv_devinfo\n" + RPING.format(client="10.78.1.1", server="10.78.2.1"))
            r = self.run_or_skip("--device", "siw", "--timeout", "300", "--pcap", wire, "--", "sh", job)
            self.assertEqual(r.rc, 0, (r.out, r.err))
            for word in (b"siw1", b"siw2", b"iWARP (1)", b"rdma-ping-2"):
                self.assertIn(word, r.out)
            frames = [frame for _, frame in pcap_frames(wire)]
            self.assertTrue(any(b"rdma-ping-1" in f and f[23] == 6 for f in frames))  # in TCP, readable
            self.assertFalse(any(roce(f) for f in frames))

    def test_links_have_devices_of_different_kinds(self):
        r = self.run_or_skip("--links", "4", "--device", "siw", "--device", "v3=rxe", "--device", "v4=rxe", "--timeout", "300", "--", "rdma", "link")
        self.assertEqual(re.findall(r"link (\w+)/1 state ACTIVE .* netdev (v\d)", r.out.decode()), [("siw1", "v1"), ("siw2", "v2"), ("rx3", "v3"), ("rx4", "v4")], r.err)


@slow
class Hardships(Case):
    def test_out_of_memory_and_a_fork_bomb_end(self):
        oom = Run("--machine", "--memory", "256", "--timeout", "200", "--", "tail", "/dev/zero")
        bomb = Run("--machine", "--memory", "256", "--timeout", "20", "--", "sh", "-c", "f() { f | f & f; }; f; sleep 1000")
        began = time.monotonic()
        oom.wait(), bomb.wait()
        self.assertEqual(oom.rc, 137, oom.err)
        self.assertIn(b"ran out of memory and killed tail: use more than --memory 256", oom.err)
        self.assertIn(bomb.rc, (124, 125), bomb.err)
        self.assert_clean(oom)
        self.assert_clean(bomb)

    def test_an_ordinary_user_runs_the_machine(self):
        if os.getuid() != 0:
            self.skipTest("the other tests were run by an ordinary user already")
        source = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dat-lab")
        home = tempfile.mkdtemp(prefix="dat-lab-home-")
        try:
            # The cached kernel as hard links, because the test must not depend on the network.
            cache = os.path.join(home, ".cache", "dat-lab")
            os.makedirs(cache)
            for d in os.listdir(source):
                if d.startswith("kernel-"):
                    subprocess.run(["cp", "-a", "--link", os.path.join(source, d), cache], check=True)
            for d in (home, os.path.join(home, ".cache"), cache):
                os.chown(d, 1000, 1000)
            program = os.path.join(home, "lab")
            shutil.copytree(HERE, program)
            env = {"HOME": home, "XDG_CACHE_HOME": "", "PATH": "/usr/bin:/bin", "DAT_LAB_GUEST": os.path.join(program, "guest")}
            wrap = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"]
            job = "id -u; echo out > $DAT_LAB_OUT/f; rdma link | grep -c ACTIVE; exit 4"
            global DAT_LAB
            saved, DAT_LAB = DAT_LAB, os.path.join(program, "dat-lab")
            try:
                r = run("--machine", "--out", os.path.join(home, "out"), "--", "sh", "-c", job, env=env, cwd=home, wrap=wrap)
            finally:
                DAT_LAB = saved
            self.assertEqual((r.rc, r.out), (4, b"0\n2\n"), r.err)
            self.assertEqual(os.stat(os.path.join(home, "out", "f")).st_uid, 1000)
            self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])
        finally:
            shutil.rmtree(home)


class Messages(Case):
    """Each reason to refuse a run is one line with its remedy, and nothing is booted."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.bin = os.path.join(self.dir, "bin")
        os.mkdir(self.bin)

    def tools(self, *without, **fakes):
        """A search path with all tools but some, and with fakes: name=shell script."""
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        for name in "qemu-system-x86_64 busybox depmod modprobe ip rdma tc apt-get apt-cache dpkg-deb tar".split():  # no apt-config: no backports
            target = shutil.which(name, path=path)
            if target and name not in without and name.replace("-", "_") not in fakes:
                os.symlink(target, os.path.join(self.bin, name))
        for name, text in fakes.items():
            fake = os.path.join(self.bin, name.replace("_", "-"))
            with open(fake, "w") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(fake, 0o755)
        return {"DAT_LAB_TOOLS": self.bin}

    def expect(self, pattern, *args, rc=125, env=None):
        r = run(*(args or ("--machine", "--", "true")), env=env)
        text = r.err.decode()
        self.assertEqual(r.rc, rc, text)
        self.assertRegex(text, pattern)
        self.assertNotIn("Traceback", text)
        if rc == 125:
            self.assertTrue(all(l.startswith("dat-lab: ") for l in text.splitlines()), text)
        self.assertEqual(r.out, b"")
        return text

    def test_missing_qemu(self):
        self.expect(r"^dat-lab: qemu-system-x86_64 is missing .*: sudo apt-get install qemu-system-x86\n$", env=self.tools("qemu-system-x86_64"))

    def test_missing_busybox(self):
        self.expect(r"^dat-lab: a static busybox is missing .*: sudo apt-get install busybox-static\n$", env=self.tools("busybox"))

    def test_busybox_that_is_not_static(self):
        self.expect(r"static busybox is missing", env=self.tools(busybox="exit 0\n"))

    def test_missing_kmod(self):
        self.expect(r"^dat-lab: modprobe is missing .*: sudo apt-get install kmod\n$", env=self.tools("modprobe"))

    def test_missing_iproute2(self):
        self.expect(r"^dat-lab: rdma is missing .*: sudo apt-get install iproute2\n$", env=self.tools("rdma"))

    def no_kernel(self, **fakes):
        """Hides the cached kernels, and from this process the installed ones."""
        if any(os.path.exists(f"/boot/vmlinuz-{v}") for v in (os.listdir("/lib/modules") if os.path.isdir("/lib/modules") else [])):
            self.skipTest("this host has a kernel installed, no package is needed")
        return {**self.tools(**fakes), "XDG_CACHE_HOME": os.path.join(self.dir, "cache")}

    def test_kernel_package_unknown_to_apt(self):
        env = self.no_kernel(apt_cache="exit 100\n")
        self.expect(r"^dat-lab: apt knows no kernel package .*: sudo apt-get update\n$", env=env)

    def test_kernel_package_not_downloadable(self):
        env = self.no_kernel(
            apt_cache="echo 'Depends: linux-image-6.1.0-1-amd64 (= 6.1)'\n", apt_get="echo 'E: Failed to fetch it' >&2; exit 100\n"
        )
        self.expect(r"cannot download linux-image-6\.1\.0-1-amd64 \(E: Failed to fetch it\): check the network, then sudo apt-get update\n$", env=env)
        self.assertEqual(os.listdir(os.path.join(self.dir, "cache", "dat-lab")), ["lock"])

    def test_kernel_package_that_cannot_be_unpacked(self):
        env = self.no_kernel(
            apt_cache="echo 'Depends: linux-image-6.1.0-1-amd64 (= 6.1)'\n", apt_get="echo no deb > linux-image-6.1.0-1-amd64_1_amd64.deb\n"
        )
        self.expect(r"cannot unpack linux-image-6\.1\.0-1-amd64_1_amd64\.deb", env=env)
        self.assertEqual(os.listdir(os.path.join(self.dir, "cache", "dat-lab")), ["lock"])

    KERNELS = """case "$1 $2" in
"search --names-only")
  case $APT_CONFIG in
  "") echo linux-image-6.1.0-9-amd64 - x; echo linux-image-6.1.0-10-amd64 - x; echo linux-image-6.1.0-10-cloud-amd64 - x; echo linux-image-6.1-amd64 - x ;;
  *) echo linux-image-6.12.3+deb12-amd64 - x ;;
  esac ;;
esac
"""
    # The private configuration must be below the cache; a list can be read (update) only with it.
    GET = """case "$1" in
indextargets) [ -z "$APT_CONFIG" ] && echo "Debian|http://mirror.invalid/debian/|bookworm|/nonexistent/debian.sources:1" ;;
update) case $APT_CONFIG in "$XDG_CACHE_HOME"/dat-lab/apt/apt.conf) exit %d ;; *) echo "wrong: $APT_CONFIG" >&2; exit 100 ;; esac ;;
*) echo "E: not today" >&2; exit 100 ;;
esac
"""

    def listed(self, env, rc=0):
        r = run("--list-kernels", env=env)
        self.assertEqual(r.rc, rc, r.err)
        return [re.sub(" +", " ", line) for line in r.out.decode().splitlines()], r.err.decode()

    def test_kernels_of_the_mirror_and_of_its_backports_are_listed_newest_first(self):
        env = self.no_kernel(apt_cache=self.KERNELS, apt_get=self.GET % 0, apt_config="exit 0\n")
        kernels, _ = self.listed(env)
        self.assertEqual(kernels, ["6.12.3+deb12-amd64", "6.1.0-10-amd64", "6.1.0-10-cloud-amd64 no rxe: cloud kernel", "6.1.0-9-amd64"])
        folder = os.path.join(self.dir, "cache", "dat-lab", "apt")
        with open(os.path.join(folder, "sources.d", "backports.sources")) as f:
            self.assertEqual(f.read(), "Types: deb\nURIs: http://mirror.invalid/debian/\nSuites: bookworm-backports\nComponents: main\n")
        with open(os.path.join(folder, "main")) as f:
            text = f.read()
        self.assertIn(f'Dir::Etc::sourceparts "{folder}/sources.d";', text)
        self.assertIn(f'Dir::State "{folder}/state";', text)
        self.assertIn(f'Dir::Cache "{folder}/cache";', text)
        self.assertEqual(self.listed(env)[1], "")  # the list is read once a day

    def test_backports_that_cannot_be_read_are_told(self):
        env = self.no_kernel(apt_cache=self.KERNELS, apt_get=self.GET % 100, apt_config="exit 0\n")
        self.assertRegex(self.listed(env)[1], r"dat-lab: bookworm-backports is not readable \(no reason given\)")

    def test_kernel_that_is_not_known(self):
        env = self.no_kernel(apt_cache=self.KERNELS)
        self.expect(r"^dat-lab: no kernel 5\.10 is installed, cached or known to apt: see dat-lab --list-kernels", "--kernel", "5.10", "--", "true", env=env)

    def test_cloud_kernel(self):
        env = self.no_kernel(apt_cache=self.KERNELS)
        self.expect(r"6\.1\.0-10-cloud-amd64 is a cloud kernel, which has no rdma_rxe", "--kernel", "6.1.0-10-cloud-amd64", "--", "true", env=env)

    def test_kernel_version_names_a_package(self):
        env = self.no_kernel(apt_cache=self.KERNELS, apt_get=self.GET % 0, apt_config="exit 0\n")
        for wish, package in (("newest", "6.12.3+deb12"), ("6.12", "6.12.3+deb12"), ("6.1", "6.1.0-10"), ("linux-image-6.1.0-9-amd64", "6.1.0-9")):
            with self.subTest(wish=wish):
                self.expect(rf"cannot download linux-image-{re.escape(package)}-amd64 \(E: not today\)", "--kernel", wish, "--", "true", env=env)

    def test_kernel_of_the_cache_is_taken_without_apt_and_never_by_default(self):
        cache = os.path.join(self.dir, "cache", "dat-lab")
        for version, chosen in (("6.1.0-9-amd64", False), ("6.12.3+deb12-amd64", True)):
            modules = os.path.join(cache, "kernel-" + version, "lib", "modules", version)
            os.makedirs(modules)
            for f in [os.path.join(modules, "modules.dep"), os.path.join(cache, "kernel-" + version, "vmlinux")] + [os.path.join(cache, "kernel-" + version, "chosen")] * chosen:
                open(f, "w").close()
        env = {**self.no_kernel(), "XDG_CACHE_HOME": os.path.join(self.dir, "cache")}
        for tool in ("apt-cache", "apt-get"):
            os.unlink(os.path.join(self.bin, tool))
        self.expect(r"kernel 6\.12\.3\+deb12-amd64 has no module", "--kernel", "6.12", "--", "true", env=env)
        self.expect(r"kernel 6\.1\.0-9-amd64 has no module", env=env)
        self.assertEqual(self.listed(env)[0], ["6.12.3+deb12-amd64 cached", "6.1.0-9-amd64 cached, default"])

    def debian_kernel(self, *without, **fakes):
        """A cached kernel 9.9.9 of the package 9.9.9-1, which needs no module, and programs that pretend to build siw for it."""
        cache = os.path.join(self.dir, "cache", "dat-lab")
        modules = os.path.join(cache, "kernel-9.9.9-amd64", "lib", "modules", "9.9.9-amd64")
        os.makedirs(modules)
        open(os.path.join(modules, "modules.dep"), "w").close()
        with open(os.path.join(cache, "kernel-9.9.9-amd64", "vmlinux"), "w") as f:
            f.write("x\0Linux version 9.9.9-amd64 (d@x) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld) #1 SMP Debian 9.9.9-1 (2026-01-01)\n\0")
        source = os.path.join(self.dir, "source.tar")
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w:xz") as t:
            for name in ("drivers/infiniband/core/x.c", "drivers/infiniband/sw/siw/siw.c", "drivers/infiniband/sw/siw/Makefile", "drivers/z.c"):
                t.addfile(tarfile.TarInfo("linux-source-9.9/" + name))
        with tarfile.open(source, "w") as t:
            member = tarfile.TarInfo("./usr/src/linux-source-9.9.tar.xz")
            member.size = len(inner.getvalue())
            t.addfile(member, io.BytesIO(inner.getvalue()))
        headers = "linux-headers-9.9.9-amd64"
        depends = "linux-headers-9.9.9-common (= 9.9.9-1), linux-kbuild-9.9 (>= 9.9.9-1), gcc-12"
        tools = {
            "modprobe": "exit 0\n",
            "apt_cache": f'[ "$1" = show ] && printf "Package: $2\\nVersion: 9.9.9-1\\nDepends: {depends}\\n"\n',
            "apt_get": '[ "$1" = download ] && touch "${2%=*}_1_amd64.deb"\n',
            "dpkg_deb": f'case $1 in -x) mkdir -p "$3/usr/src/{headers}" && echo include /usr/src/linux-headers-x >"$3/usr/src/{headers}/Makefile" ;; *) cat {source} ;; esac\n',
            "make": 'm=${3#M=}; [ -f "$m/siw.c" ] && [ -f "$m/Makefile" ] && [ ! -f "$m/x.c" ] && [ ! -f "$m/z.c" ] && grep -q "^include /.*/top/usr/src/linux-headers-x" "$2/Makefile" && echo module >"$m/siw.ko"\n',
            "gcc_12": "exit 0\n",
            "ld": "exit 0\n",
            "modinfo": '[ "$2" = depends ] || echo "9.9.9-amd64 SMP"\n',
        }
        for name in without:
            del tools[name]
        return {**self.no_kernel(**{**tools, **fakes}), "DAT_LAB_KVM": "0"}

    def test_each_program_that_the_build_of_siw_lacks_has_its_line(self):
        env = self.debian_kernel("make", "gcc_12", "ld")
        text = self.expect(r"^dat-lab: siw: make is missing .*: sudo apt-get install make\n", "--device", "siw", "--", "true", env=env)
        self.assertIn("dat-lab: siw: gcc-12 is missing (builds the module): sudo apt-get install gcc-12\n", text)
        self.assertIn("dat-lab: siw: ld is missing (builds the module): sudo apt-get install binutils\n", text)
        self.assertEqual(len(text.splitlines()), 3)

    def test_siw_needs_sources_of_exactly_the_kernels_version(self):
        env = self.debian_kernel(apt_cache='printf "Package: $2\\nVersion: 9.9.9-2\\n"\n')
        self.expect(r"^dat-lab: siw: apt has no linux-headers-9\.9\.9-amd64 of version 9\.9\.9-1, that of the kernel: ", "--device", "siw", "--", "true", env=env)

    def test_siw_is_built_from_its_folder_of_the_sources_and_kept(self):
        env = self.debian_kernel()
        r = run("--prepare", "--device", "siw", env=env)
        self.assertEqual(r.rc, 0, r.err)
        self.assertIn(b"building siw for 9.9.9-amd64", r.err)
        cache = os.path.join(self.dir, "cache", "dat-lab")
        self.assertIn("siw-9.9.9-amd64-9.9.9-1.ko", os.listdir(cache))
        self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])
        os.unlink(os.path.join(self.bin, "make"))
        r = run("--prepare", "--device", "siw", env=env)
        self.assertEqual((r.rc, r.err), (0, b""))

    def test_build_of_siw_that_fails_says_why_and_leaves_nothing(self):
        env = self.debian_kernel(make="echo siw.c:1: error: no such thing >&2; exit 2\n")
        self.expect(r"siw: the build for 9\.9\.9-amd64 fails \(siw\.c:1: error: no such thing\)\n", "--device", "siw", "--", "true", env=env)
        cache = os.path.join(self.dir, "cache", "dat-lab")
        self.assertEqual([f for f in os.listdir(cache) if f.startswith(("tmp-", "siw"))], [])

    def test_siw_module_of_another_version_is_refused(self):
        env = self.debian_kernel(modinfo='echo "9.9.8-amd64 SMP"\n')
        self.expect(r"siw: the module is for 9\.9\.8-amd64 SMP, not for 9\.9\.9-amd64\n", "--device", "siw", "--", "true", env=env)

    def test_missing_module(self):
        kernel = os.path.join(self.dir, "cache", "dat-lab", "kernel-9.9.9")
        modules = os.path.join(kernel, "lib", "modules", "9.9.9")
        os.makedirs(modules)
        for f in (os.path.join(kernel, "vmlinux"), os.path.join(modules, "modules.dep")):
            open(f, "w").close()
        env = {**self.no_kernel(), **{}}
        os.unlink(os.path.join(self.bin, "apt-cache"))
        self.expect(r"^dat-lab: kernel 9\.9\.9 has no module \w+: .*linux-image-amd64", env=env)

    def test_not_enough_memory(self):
        self.expect(r"^dat-lab: not enough memory: .*use --memory \d+ or less", "--machine", "--memory", "1000000", "--", "true")

    def test_cache_folder_that_is_not_usable(self):
        blocked = os.path.join(self.dir, "file")
        open(blocked, "w").close()
        self.expect(r"^dat-lab: cannot use the cache folder .*: set XDG_CACHE_HOME", env={"XDG_CACHE_HOME": blocked})

    def test_native_without_a_device(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this host has an RDMA device")
        self.expect(r"^dat-lab: --native: the host has no RDMA device", "--native", "--", "true")

    def test_out_that_is_no_directory(self):
        self.expect(r"^dat-lab: --out /dev/null: ", "--machine", "--out", "/dev/null", "--", "true")

    def test_pcap_file_that_cannot_be_written(self):
        self.expect(r"^dat-lab: --pcap /nonexistent/x: No such file", "--pcap", "v2=/nonexistent/x", "--", "true")

    def test_each_bad_line_of_a_time_line_is_named(self):
        path = os.path.join(self.dir, "faults")
        bad = {
            "loss 5%": "it has not the form SECONDS: ACTION",
            "x: loss 5%": "'x' is no time in seconds",
            "1: explode v1": "unknown action 'explode'",
            "1:": "unknown action ''",
            "1: loss": "'' is no percentage: loss P",
            "1: loss 101": "101 is no percentage",
            "1: loss 9-5%": "the first number is larger",
            "2-1: up v1": "the first number is larger",
            "1: delay 5 parsecs": "'parsecs' is no link",
            "1: delay fast": "'fast' is no time",
            "1: down": "down needs a link",
            "1: up v3": "'v3' is no link (v1 to v2)",
            "1: add 10.78.1.300 v1": "'10.78.1.300' is no IP address",
            "1: remove 10.78.1.1": "remove needs a link",
            "1: reorder 5% v1": "reorder needs a delay on v1",
            "1e9: loss 1": "'1e9' is no time",
            "100001: loss 1": "more than 100000 seconds",
        }
        with open(path, "w") as f:
            f.write("# good lines\n0: loss 5% v2\n" + "".join(line + "\n" for line in bad))
        text = self.expect(r"^dat-lab: ", "--faults", path, "--", "true")
        self.assertEqual(len(text.splitlines()), len(bad), text)
        for number, reason in enumerate(bad.values(), 3):
            self.assertIn(f"dat-lab: {path}:{number}: ", text)
            self.assertIn(reason, text)

    def test_the_same_seed_makes_the_same_time_line(self):
        path = os.path.join(self.dir, "faults")
        with open(path, "w") as f:
            f.write("1-2: loss 1-99%\n3-4: delay 5-9ms v1\n")
        lab = module()
        lines = [lab.TimeLine(open(path).read(), 2, None, None, seed).later for seed in (1, 1, 2)]
        self.assertEqual(lines[0], lines[1])
        self.assertNotEqual(lines[0], lines[2])

    def test_time_line_that_is_empty_or_not_there(self):
        self.expect(r"^dat-lab: /dev/null:1: the file holds no fault\n$", "--faults", "/dev/null", "--", "true")
        self.expect(r"^dat-lab: cannot read the faults /nonexistent: No such file", "--faults", "/nonexistent", "--", "true")

    def test_script_that_is_not_there(self):
        self.expect(r"^dat-lab: cannot read the script /nonexistent: No such file", "--machine", "--script", "/nonexistent")

    def test_values_out_of_range_are_refused_with_the_range(self):
        for option, values, said in (
            ("--timeout", ("0", "-1", "1000001", "x"), "no time in seconds, above 0 and at most 1000000"),
            ("--each", ("0", "x"), "no time in seconds, above 0 and at most 1000000"),
            ("--links", ("0", "17", "x"), "no number from 1 to 16"),
            ("--cpus", ("0", "65"), "no number from 1 to 64"),
            ("--memory", ("191", "1048577", "x"), "no number from 192 to 1048576"),
            ("--mtu", ("100", "65536"), "no number from 1280 to 65535"),
            ("--seed", ("-1", "4294967296", "x"), "no number from 0 to 4294967295"),
            ("--hosts", ("1", "17", "x"), "no number from 2 to 16"),
            ("--loss", ("101", "-1", "x"), r"no percentage \(0 to 100\)"),
            ("--delay", ("5 parsecs", "x"), r"no time \(as 500us, 5ms, 1s\)"),
        ):
            for value in values:
                self.expect(f"argument {option}: '{value}' is {said}", f"{option}={value}", "--", "true", rc=2)

    def test_wrong_use_ends_with_2(self):
        for args in (
            [],
            ["--links", "0", "--", "true"],
            ["--links", "1", "--loss", "1", "--", "true"],
            ["--timeout", "-1", "--", "true"],
            ["--unknown", "--", "true"],
            ["--native", "--machine", "--", "true"],
            ["--script", "x", "--", "true"],
            ["--device", "mlx5", "--", "true"],
            ["--device", "v3=siw", "--", "true"],
            ["--device", "siw", "--native", "--", "true"],
            ["--faults", "x", "--native", "--", "true"],
            ["--pcap", "v3=x", "--", "true"],
            ["--pcap", "x", "--pcap", "v2=x", "--", "true"],
            ["--pcap", "x", "--native", "--", "true"],
        ):
            with self.subTest(args=args):
                self.expect(r"usage: dat-lab", *(args or ["--cpus", "1"]), rc=2)

    def test_wrong_use_of_hosts_says_what_is_right(self):
        one = ["--on", "1", "--", "true"]
        for args, why in (
            (["--hosts", "2", "--", "true"], "--hosts needs the host of each command: --on 1 -- COMMAND"),
            (["--hosts", "2"], "--hosts needs the host of each command"),
            (["--hosts", "2", "--on", "1"], "--on 1 needs -- COMMAND directly behind it"),
            (["--hosts", "2", "--on", "1", "true"], "--on 1 needs -- COMMAND directly behind it"),
            (one, "--on 1 needs --hosts N"),
            (["--hosts", "2", "--on", "3", "--", "true"], "--on 3: the hosts are 1 to 2"),
            (["--hosts", "2", "--on", "0", "--", "true"], "--on 0: the hosts are 1 to 2"),
            (["--hosts", "2", "--on", "x", "--", "true"], "--on x: the hosts are 1 to 2"),
            (["--hosts", "2", *one, *one], "--on 1: a host has one command: use sh -c"),
            (["--hosts", "2", "--on", "1", "--", *one], "--on 1 --: the command is missing"),
            (["--hosts", "2", "--script", "x", *one], "--script does not work with --hosts: use --on 1 -- sh FILE"),
            (["--hosts", "2", "--faults", "x", *one], "--faults does not work with --hosts: use `dat-lab cut`"),
            (["--hosts", "2", "--counted", *one], "--counted does not work with --hosts"),
            (["--hosts", "2", "--native", *one], "--native does not work with --hosts"),
            (["--hosts", "2", "--pcap", "v2=x", *one], r"--pcap v2=\.\.\.: the links are v1 to v1"),
            (["kill", "2"], "`dat-lab kill` is for the commands of --hosts"),
        ):
            with self.subTest(args=args):
                self.expect("dat-lab: error: " + why, *args, rc=2)

    def test_each_host_needs_its_memory(self):
        self.expect(r"each of 2 hosts needs \d+ \+ 128 MiB, \d+ MiB are available: use --memory \d+ or less", "--memory", "999999", "--hosts", "2", "--on", "1", "--", "true")

    def test_check_names_what_is_missing(self):
        r = run("--check", env=self.tools("qemu-system-x86_64", "rdma"))
        self.assertEqual(r.rc, 1, r.err)
        self.assertIn(b"sudo apt-get install iproute2 qemu-system-x86\n", r.out)
        self.assertEqual(r.out.count(b"MISSING"), 2, r.out)

    def test_check_is_content_here(self):
        r = run("--check")
        self.assertEqual((r.rc, r.out.count(b"MISSING")), (0, 0), r.out)
        self.assertIn(b"cloud kernels have no rxe", r.out)
        self.assertRegex(r.out, rb"siw: (not )?built")


class Recorder(unittest.TextTestResult):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self.began, self.said = time.monotonic(), None

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.said = ("failure", self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.said = ("failure", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        entry = ("error", self._exc_info_to_string(err, test))
        if isinstance(test, unittest.TestCase):
            self.said = entry
        else:  # setUpClass
            self.cases.append((test.id(), 0.0, entry))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.said = ("skipped", reason)

    def stopTest(self, test):
        super().stopTest(test)
        self.cases.append((test.id(), time.monotonic() - self.began, self.said))

    def write(self, path):
        bad = [c[2][0] for c in self.cases if c[2]]
        suite = xml.Element("testsuite", name="dat-lab", tests=str(len(self.cases)), failures=str(bad.count("failure")))
        suite.set("errors", str(bad.count("error")))
        suite.set("skipped", str(bad.count("skipped")))
        for name, took, said in self.cases:
            group, _, method = name.removeprefix("__main__.").partition(".")
            case = xml.SubElement(suite, "testcase", classname="dat-lab." + group, name=method.replace("_", " "), time=f"{took:.3f}")
            if said:
                xml.SubElement(case, said[0], message=said[1].strip().splitlines()[-1][:200]).text = re.sub(r"[^\t\n -\ud7ff]", "?", said[1])
        xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


class Loader(unittest.TestLoader):
    def getTestCaseNames(self, case):
        names = super().getTestCaseNames(case)
        if QUICK:
            names = [n for n in names if not getattr(case, "slow", False) and not getattr(getattr(case, n), "slow", False)]
        return names


def main():
    global QUICK
    args, results = sys.argv[1:], None
    if "--quick" in args:
        args.remove("--quick")
        QUICK = True
    if "--results" in args:
        at = args.index("--results")
        results = args[at + 1]
        del args[at : at + 2]
    # The kernel is downloaded and KVM is tried before any measurement or comparison.
    ready = subprocess.run([DAT_LAB, "--prepare"], stdin=subprocess.DEVNULL)
    if ready.returncode:
        print("test_dat_lab: the machine cannot be prepared", file=sys.stderr)
        return 1
    runner = unittest.TextTestRunner(resultclass=Recorder, verbosity=1)
    program = unittest.main(argv=[sys.argv[0], *args], testLoader=Loader(), testRunner=runner, exit=False)
    if results:
        program.result.write(results)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
