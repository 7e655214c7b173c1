#!/usr/bin/env python3
# Tests of dat-lab: time lines of faults (--faults).
# SPDX-License-Identifier: BSL-1.0

import json
import os
import re
import shutil
import sys
import tempfile

import lab_main
from lab_testing import Case, run, slow

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


@slow
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


if __name__ == "__main__":
    sys.exit(lab_main.main())
