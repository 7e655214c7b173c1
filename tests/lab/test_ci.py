#!/usr/bin/env python3
# The action and the job that run dat-lab in other projects' continuous integration, with programs that are not dat's.
# SPDX-License-Identifier: BSL-1.0
"""Runs the steps of the GitHub action and of the GitLab job as those services do. A program that is not installed is skipped."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

HERE = pathlib.Path(__file__).resolve().parent / "ci"
ROOT = HERE.parents[2]
# Seconds; far more than a run takes.
LIMIT = 600

RPING = "rping -s -a 10.78.2.1 -C 3 & until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done; rping -c -a 10.78.2.1 -C 3 -v; wait $!"
# ib_send_bw waits for its peer on a TCP port.
PERFTEST = (
    "ib_send_bw -d rx2 -R -n 100 & "
    "until ib_send_bw -d rx1 -R -n 100 10.78.2.1; do n=$((n + 1)); [ $n -lt 100 ] || exit 1; sleep 0.2; done; wait $!"
)


@unittest.skipUnless(yaml, "PyYAML is not installed")
class Action(unittest.TestCase):
    """The steps of action.yml."""

    def run_action(self, command: str, options: str = "") -> subprocess.CompletedProcess:
        """Runs the steps with bash, with inputs in place of the expressions, as a runner does."""
        action = yaml.safe_load((HERE / "action.yml").read_text(encoding="utf-8"))
        self.assertEqual(action["runs"]["using"], "composite")
        inputs = {"run": command, "options": options}
        self.assertEqual(set(action["inputs"]), set(inputs))
        self.assertTrue(action["inputs"]["run"]["required"])

        def value(text: str) -> str:
            return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[m.group(1)], text)

        for step in action["runs"]["steps"]:
            env = {name: value(text) for name, text in step.get("env", {}).items()}
            done = subprocess.run(
                [step["shell"], "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                env=os.environ | {"GITHUB_ACTION_PATH": str(HERE)} | env,
                capture_output=True, text=True, timeout=LIMIT, check=False,
            )  # fmt: skip
            if done.returncode:
                break
        return done

    @unittest.skipUnless(shutil.which("rping"), "rping is not installed (rdmacm-utils)")
    def test_rping(self) -> None:
        done = self.run_action(RPING, "--links 2 --cpus 1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("ping data: rdma-ping-"), 3)

    def test_a_command_that_fails_fails_the_step(self) -> None:
        done = self.run_action("false; echo more", "--links 1 --cpus 1")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)

    @unittest.skipUnless(shutil.which("ib_send_bw"), "ib_send_bw is not installed (perftest)")
    def test_perftest(self) -> None:
        done = self.run_action(PERFTEST)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(shutil.which("ucx_perftest") and shutil.which("ucx_info"), "UCX is not installed (ucx-utils)")
    def test_ucx(self) -> None:
        done = self.run_action("ucx_info -d | grep 'Device: rx1:1'", "--cpus 1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


@unittest.skipUnless(yaml, "PyYAML is not installed")
class Job(unittest.TestCase):
    """The job of dat-lab.gitlab-ci.yml, whose lines run in one shell. The clone is of this tree, and to a folder of the test."""

    def test_it_puts_dat_lab_into_the_path(self) -> None:
        job = yaml.safe_load((HERE / "dat-lab.gitlab-ci.yml").read_text(encoding="utf-8"))[".dat-lab"]
        install, *lines = job["before_script"]
        self.assertRegex(install, r"apt-get install .*\bgit\b")
        with tempfile.TemporaryDirectory() as folder:
            self.assertTrue(any("/opt/dat" in line and "git clone" in line for line in lines))
            lines = [line.replace("/opt/dat", f"{folder}/dat") for line in lines if "git clone" not in line]
            os.symlink(ROOT, f"{folder}/dat")
            script = "\n".join([*lines, "dat-lab --links 1 --cpus 1 -- rdma link"])
            done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("link rx1/1 state ACTIVE", done.stdout)


if __name__ == "__main__":
    unittest.main()
