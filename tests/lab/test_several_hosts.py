#!/usr/bin/env python3
# Tests of dat-lab: several hosts and the network between them (--hosts).
# SPDX-License-Identifier: BSL-1.0

import json
import os
import shutil
import struct
import sys
import tempfile

import lab_main
from lab_testing import Case, Run, module, pcap_frames, roce, run, slow

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


class Switches(Case):
    """The network of hosts, without a machine."""

    def setUp(self):
        self.network = module("switch").Network({})
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


if __name__ == "__main__":
    sys.exit(lab_main.main())
