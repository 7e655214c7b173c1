#!/usr/bin/env python3
# Tests of dat-lab: what a command gets, and what a script of several commands returns.
# SPDX-License-Identifier: BSL-1.0

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import lab_main
import lab_testing
from lab_testing import DAT_LAB, RPING, Case, run, slow


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
{"" if lab_testing.QUICK else nested}
false
""")
        cls.r = run("--machine", "--timeout", "300", "--out", cls.out, "--share", cls.shared, "--script", script, cwd=cls.dir, usual=True)
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
        self.assertEqual(len(self.results), 27 if lab_testing.QUICK else 29)
        self.assertEqual([x["name"] for x in self.results][:3], ["rping4", "rping6", "gids"])
        self.assertTrue(all(set(x) == {"name", "rc", "seconds"} for x in self.results))
        self.assertIn("FAIL rc 139", self.output["segv"][-1])

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


if __name__ == "__main__":
    sys.exit(lab_main.main())
