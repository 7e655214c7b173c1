#!/usr/bin/env python3
# Tests of dat-lab: machines that start from the saved state of a booted one.
# SPDX-License-Identifier: BSL-1.0

import os
import random
import sys
import tempfile
import time
import unittest.mock

import lab_main
from lab_testing import Case, module, run, slow

SAVED = b", from its saved state, up after"


def states(cache):
    return {name for name in os.listdir(cache) if name.startswith("booted-")}


class SavedStates(Case):
    """Skipped where machines start with KVM, which saves no state."""

    def setUp(self):
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dat-lab")
        before = states(cache)
        # No other machine has this much memory.
        self.memory = str(random.randrange(400, 700))
        r = self.start()
        if b"kvm, up" in r.err:
            self.skipTest("KVM")
        self.assertNotIn(SAVED, r.err)
        (name,) = states(cache) - before
        self.state = os.path.join(cache, name)
        self.addCleanup(os.unlink, self.state)

    def start(self, command="true", **env):
        r = run("-v", "--machine", "--memory", self.memory, "--", "sh", "-c", command, env=env)
        self.assert_clean(r)
        return r

    def test_a_later_machine_has_its_own_links_clock_and_random_numbers(self):
        before = int(time.time())
        show = "date +%s; od -An -N16 -tx1 /dev/urandom; rdma link; ip -o addr show dev v1"
        first, second = self.start(show), self.start(show)
        lines = []
        for r in (first, second):
            self.assertEqual(r.rc, 0, r.err)
            self.assertIn(SAVED, r.err)
            self.assertIn(b"rx2/1 state ACTIVE", r.out)
            self.assertIn(b"10.78.1.1/32", r.out)
            lines.append(r.out.split(b"\n"))
        self.assertNotEqual(lines[0][1], lines[1][1])
        self.assertGreaterEqual(int(lines[0][0]), before)
        self.assertLessEqual(int(lines[1][0]), time.time())

    @slow
    def test_a_machine_boots_again_when_it_does_not_come_up_from_its_state(self):
        os.truncate(self.state, os.stat(self.state).st_size // 2)
        failed = self.start()
        self.assertEqual(failed.rc, 125)
        self.assertIn(b"the machine died: qemu ended with 1; its saved state is not used again: repeat the command", failed.err)
        for _ in range(2):
            again = self.start()
            self.assertEqual(again.rc, 0, again.err)
            self.assertNotIn(SAVED, again.err)
        self.assertEqual(os.stat(self.state).st_size, 0)

    @slow
    def test_a_machine_boots_where_the_user_wants_no_saved_state(self):
        r = self.start(DAT_LAB_SAVED="0")
        self.assertEqual(r.rc, 0, r.err)
        self.assertNotIn(SAVED, r.err)


class StatesInTheCache(unittest.TestCase):
    def test_the_states_that_were_used_last_stay(self):
        part = module("saved_state")
        with tempfile.TemporaryDirectory() as cache:
            names = [f"booted-{n}" for n in range(part.MOST + 3)] + ["booting-old", "booting-new", "initrd-1"]
            for n, name in enumerate(names):
                path = os.path.join(cache, name)
                open(path, "wb").close()
                os.utime(path, (n, n))
            os.utime(os.path.join(cache, "booting-new"))
            part.make_room(cache)
            self.assertEqual(sorted(os.listdir(cache)), sorted(names[3:-3] + ["booting-new", "initrd-1"]))

    def test_a_machine_saves_no_state_where_little_room_is_left(self):
        part = module("saved_state")
        with tempfile.TemporaryDirectory() as d, unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=d):
            for free, saves in ((part.FREE, True), (part.FREE - 1, False)):
                with unittest.mock.patch("shutil.disk_usage", return_value=unittest.mock.Mock(free=free)):
                    state = part.SavedState([sys.executable], unittest.mock.Mock(image=sys.executable), sys.executable)
                self.assertEqual(bool(state.monitor), saves)
                self.assertEqual(len(state.words()), 4 * saves)
                state.inherited()
                if saves:
                    state.monitor.close()

    def test_a_state_belongs_to_what_the_machine_consists_of(self):
        part = module("saved_state")
        with tempfile.TemporaryDirectory() as d, unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=d):
            image, initrd = os.path.join(d, "image"), os.path.join(d, "initrd")
            for path in (image, initrd):
                open(path, "wb").close()

            def path_of(*words):
                state = part.SavedState([sys.executable, *words], unittest.mock.Mock(image=image), initrd)
                state.inherited()
                state.monitor.close()
                return state.path

            usual = ["-m", "512", "socket,id=ctl,fd=7", "local,id=host,path=/,readonly=on", "quiet tsc_early_khz=2600001"]
            other_run = ["-m", "512", "socket,id=ctl,fd=9", "local,id=host,path=/home,readonly=on", "quiet tsc_early_khz=2600002"]
            self.assertEqual(path_of(*usual), path_of(*other_run))
            self.assertNotEqual(path_of(*usual), path_of(*usual, "-device", "virtio-9p-pci"))
            self.assertNotEqual(path_of(*usual), path_of("-m", "513", *usual[2:]))
            before = path_of(*usual)
            with open(initrd, "wb") as f:
                f.write(b"changed")
            self.assertNotEqual(path_of(*usual), before)


if __name__ == "__main__":
    sys.exit(lab_main.main())
