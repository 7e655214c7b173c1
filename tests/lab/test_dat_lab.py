#!/usr/bin/env python3
# Tests of dat-lab: they boot machines, so they need qemu and the kernel package (see docs/lab.md).
# SPDX-License-Identifier: BSL-1.0
"""test_dat_lab.py [--quick] [--results FILE] [unittest arguments]

--quick leaves out the slower half; --results writes JUnit XML. DAT_LAB_PROGRAM names another dat-lab to test."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.realpath(__file__))
DAT_LAB = os.environ.get("DAT_LAB_PROGRAM") or os.path.join(HERE, "dat-lab")
HARD_LIMIT = 150  # seconds after which a run is given up; every run has a smaller --timeout of its own
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


def run(*args, **more):
    return Run(*args, **more).wait()


class Case(unittest.TestCase):
    maxDiff = 2000

    def assert_clean(self, r):
        """No process and no file is left of a run."""
        end = time.monotonic() + 5
        while r.processes() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(r.processes(), [])
        self.assertEqual(r.leftovers, [])
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dat-lab")
        self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])


class OneCommand(Case):
    """One boot; the command shows what it was given."""

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
until rping -c -a {server} -I {client} -C 3 -v 2>client.txt; do
  n=$((n + 1)); [ $n -lt ${{TRIES:-50}} ] || {{ cat client.txt; kill $s; exit 1; }}; sleep 0.1
done
wait $s || exit 2
crossed=$(($(cat /sys/class/net/v2/statistics/rx_packets) - before))
[ $crossed -ge 12 ] || {{ echo "only $crossed packets crossed the wire"; exit 3; }}
"""


class OneScript(Case):
    """One boot; several commands, each looked at by one test."""

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
        for n in range(12):  # programs that the machine has to fetch: while it does, a process has no command line
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
modprobe: modprobe dummy && ip link add d0 type dummy && ip link del d0
tsan: {cls.binary}
leaves-a-process: sleep 1000 & echo left
{new}its-twin: sleep 1000 & ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c sleep
segv: kill -SEGV $$
after: ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c sleep
link-down: ip link set v1 down && ! TRIES=2 sh {cls.dir}/rping4 >/dev/null && ip link set v1 up && sh $DAT_LAB_NET restore && sh {cls.dir}/rping4 && sh {cls.dir}/rping6
{"" if QUICK else nested}
false
""")
        cls.r = run("--machine", "--timeout", "100", "--out", cls.out, "--share", cls.shared, "--script", script, cwd=cls.dir)
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
        self.assertEqual(len(self.results), 25 if QUICK else 27)
        self.assertEqual([x["name"] for x in self.results][:3], ["rping4", "rping6", "gids"])
        self.assertTrue(all(set(x) == {"name", "rc", "seconds"} for x in self.results))
        self.assertIn("FAIL rc 139", self.output["segv"][-1])

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


class SeveralAtOnce(Case):
    """Three machines at the same time: commands with a limit each, a time limit for all, a kernel panic."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        script = os.path.join(cls.dir, "script")
        hang = "trap '' TERM INT; echo up; while :; do sleep 1; done"
        with open(script, "w") as f:
            f.write(f"hangs: {hang}\nafter: echo still alive\nends: echo c > /proc/sysrq-trigger; sleep 100\nnever: echo never\n")
        runs = [
            Run("--machine", "--timeout", "100", "--each", "3", "--out", cls.dir, "--script", script),
            Run("--machine", "--timeout", "8", "--", "sh", "-c", hang),
            Run("--machine", "--timeout", "100", "--", "sh", "-c", "echo before; echo c > /proc/sysrq-trigger; sleep 100"),
        ]
        cls.each, cls.hang, cls.panic = (r.wait() for r in runs)
        with open(os.path.join(cls.dir, "results.jsonl")) as f:
            cls.codes = {x["name"]: x["rc"] for x in map(json.loads, f)}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_each_limits_one_command_and_the_next_one_runs(self):
        self.assertEqual((self.codes["hangs"], self.codes["after"], self.each.rc), (124, 0, 124), self.each.err)
        self.assertIn(b"still alive\n", self.each.out)
        self.assertIn(b"time limit of 3 s reached in hangs", self.each.err)

    def test_commands_after_the_end_of_the_machine_are_recorded_as_not_run(self):
        self.assertEqual((self.codes["ends"], self.codes["never"]), (125, 125), self.each.err)
        self.assertIn(b"1 of the script's commands were not run", self.each.err)

    def test_a_hanging_command_ends_with_124(self):
        self.assertEqual(self.hang.rc, 124, self.hang.err)
        self.assertIn(b"time limit of 8 s", self.hang.err)

    def test_a_kernel_panic_ends_with_125_and_its_cause(self):
        self.assertEqual(self.panic.rc, 125, self.panic.err)
        self.assertEqual(self.panic.out, b"before\n")
        self.assertIn(b"the machine died: kernel panic: sysrq triggered crash", self.panic.err)
        self.assertIn(b"  | ", self.panic.err)

    def test_all_leave_nothing(self):
        for r in (self.each, self.hang, self.panic):
            self.assert_clean(r)


class Signals(Case):
    def test_int_and_term_reach_the_command(self):
        job = 'trap "echo int" INT; trap "echo term; exit 9" TERM; echo up; while :; do sleep 0.1; done'
        r = Run("--machine", "--timeout", "60", "--", "sh", "-c", job)
        r.wait_for(b"up\n")
        r.proc.send_signal(signal.SIGINT)
        r.wait_for(b"int\n")
        r.proc.send_signal(signal.SIGTERM)
        r.wait()
        self.assertEqual((r.rc, r.out), (9, b"up\nint\nterm\n"), r.err)
        self.assert_clean(r)

    def test_a_signal_while_the_machine_starts_ends_it(self):
        r = Run("--machine", "--", "echo", "never")
        end = time.monotonic() + 30
        while not any("qemu" in program(p) for p in r.processes()) and time.monotonic() < end:
            time.sleep(0.01)
        r.proc.send_signal(signal.SIGTERM)
        r.wait()
        self.assertEqual((r.rc, r.out), (143, b""), r.err)
        self.assert_clean(r)

    @slow
    def test_term_without_a_handler_gives_143_and_a_killed_dat_lab_takes_its_machine_along(self):
        r = Run("--machine", "--timeout", "60", "--", "sh", "-c", "echo up; exec sleep 1000")
        k = Run("--machine", "--timeout", "60", "--", "sh", "-c", "echo up; exec sleep 1000")
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
        r = Run("--machine", "--timeout", "60", "--", "yes", stdout=write)
        os.close(write)
        self.assertEqual(os.read(read, 4), b"y\ny\n")
        os.close(read)
        r.wait()
        self.assertEqual(r.rc, 141, r.err)
        self.assert_clean(r)


@slow
class Networks(Case):
    def test_loss_and_delay_are_made_on_the_wire(self):
        job = "busybox ping -c 40 -i 0.05 -W 1 -I 10.78.1.1 10.78.2.1; tc -s qdisc show"
        r = run("--machine", "--timeout", "90", "--loss", "30%", "--delay", "20ms", "--", "sh", "-c", job)
        self.assertEqual(r.rc, 0, r.err)
        text = r.out.decode()
        self.assertEqual(len(re.findall(r"netem .*delay 20ms loss 30%", text)), 2, text)
        self.assertTrue(any(int(n) > 0 for n in re.findall(r"dropped (\d+)", text)), text)
        fastest = float(re.search(r"min/avg/max = ([\d.]+)/", text)[1])
        self.assertGreaterEqual(fastest, 40)  # there and back

    def test_a_clock_that_counts_instructions_skips_waiting(self):
        r = run("--machine", "--counted", "--timeout", "120", "--", "sh", "-c", "nproc; sleep 1000; rdma link")
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


@slow
class Hardships(Case):
    def test_out_of_memory_and_a_fork_bomb_end(self):
        oom = Run("--machine", "--memory", "256", "--timeout", "60", "--", "tail", "/dev/zero")
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
            # The kernel that is there already, as hard links: the test must not depend on the network.
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
    """Every reason not to run is one line with its remedy; nothing is booted."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.bin = os.path.join(self.dir, "bin")
        os.mkdir(self.bin)

    def tools(self, *without, **fakes):
        """A search path with all tools but some, and with fakes: name=shell script."""
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        for name in "qemu-system-x86_64 busybox depmod modprobe ip rdma tc apt-get apt-cache dpkg-deb tar".split():
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
        """Neither a cached kernel nor, for this process, an installed one."""
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

    def test_script_that_is_not_there(self):
        self.expect(r"^dat-lab: cannot read the script /nonexistent: No such file", "--machine", "--script", "/nonexistent")

    def test_wrong_use_ends_with_2(self):
        for args in (
            [],
            ["--loss", "101", "--", "true"],
            ["--loss", "x", "--", "true"],
            ["--delay", "5 parsecs", "--", "true"],
            ["--links", "0", "--", "true"],
            ["--links", "1", "--loss", "1", "--", "true"],
            ["--timeout", "-1", "--", "true"],
            ["--mtu", "100", "--", "true"],
            ["--unknown", "--", "true"],
            ["--native", "--machine", "--", "true"],
            ["--script", "x", "--", "true"],
        ):
            with self.subTest(args=args):
                self.expect(r"usage: dat-lab", *(args or ["--cpus", "1"]), rc=2)

    def test_check_names_what_is_missing(self):
        r = run("--check", env=self.tools("qemu-system-x86_64", "rdma"))
        self.assertEqual(r.rc, 1, r.err)
        self.assertIn(b"sudo apt-get install iproute2 qemu-system-x86\n", r.out)
        self.assertEqual(r.out.count(b"MISSING"), 2, r.out)

    def test_check_is_content_here(self):
        r = run("--check")
        self.assertEqual((r.rc, r.out.count(b"MISSING")), (0, 0), r.out)


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
    # The kernel is got and KVM is tried before anything is measured or compared.
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
