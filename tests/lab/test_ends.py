#!/usr/bin/env python3
# Tests of dat-lab: how runs end: time limits, signals, a panic of the kernel, no memory, another user.
# SPDX-License-Identifier: BSL-1.0

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import lab_main
import lab_testing
from lab_testing import HARD_LIMIT, HERE, Case, Run, program, run, slow


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
        if not lab_testing.QUICK:
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
            saved, lab_testing.DAT_LAB = lab_testing.DAT_LAB, os.path.join(program, "dat-lab")
            try:
                r = run("--machine", "--out", os.path.join(home, "out"), "--", "sh", "-c", job, env=env, cwd=home, wrap=wrap)
            finally:
                lab_testing.DAT_LAB = saved
            self.assertEqual((r.rc, r.out), (4, b"0\n2\n"), r.err)
            self.assertEqual(os.stat(os.path.join(home, "out", "f")).st_uid, 1000)
            self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])
        finally:
            shutil.rmtree(home)


if __name__ == "__main__":
    sys.exit(lab_main.main())
