#!/usr/bin/env python3
# The files for GitHub and GitLab: each push runs all tests, a schedule the others, and both forges have the same templates.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import os
import pathlib
import re
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import dev_tiers  # noqa: E402

# The commands that the jobs use, and the tiers that have no job: `unit` is part of other tiers, and `mutate` is a command, too.
COMMANDS = {"test", "soak", "mutate", "package"}
INNER_LOOP = {"unit", "mutate"}


def read(name: str) -> dict:
    """A file of YAML; `on` is a key, not a truth value."""
    text = re.sub(r"^on:", '"on":', (ROOT / name).read_text(encoding="utf-8"), flags=re.M)
    return yaml.safe_load(text)


class the_files(unittest.TestCase):
    def test_each_push_runs_the_test_command(self) -> None:
        self.assertTrue(os.access(ROOT / ".ci/run", os.X_OK))
        github = read(".github/workflows/ci.yml")
        self.assertEqual(github["on"], ["push", "pull_request"])
        self.assertIn({"run": ".ci/run"}, github["jobs"]["test"]["steps"])
        self.assertEqual(read(".gitlab-ci.yml")["test"]["script"], [".ci/run"])

    def commands(self) -> dict[str, list[str]]:
        """The commands of the jobs that take longer, by forge; both put in a number of their own."""
        github = read(".github/workflows/more.yml")
        self.assertEqual(set(github["on"]), {"schedule", "workflow_dispatch"})
        job = github["jobs"]["more"]
        self.assertIn({"run": "${{ matrix.command }}"}, job["steps"])
        gitlab = read(".gitlab-ci.yml")["more"]
        self.assertEqual(gitlab["script"], ["$COMMAND"])
        (matrix,) = gitlab["parallel"]["matrix"]
        return {"github": [re.sub(r"\$\{\{ github.run_number \}\}", "N", one) for one in job["strategy"]["matrix"]["command"]],
                "gitlab": [one.replace("$CI_PIPELINE_ID", "N") for one in matrix["COMMAND"]]}  # fmt: skip

    def test_the_forges_run_the_same(self) -> None:
        found = self.commands()
        self.assertEqual(found["github"], found["gitlab"])

    def test_they_run_every_tier_that_a_push_does_not(self) -> None:
        tiers: set[str] = set()
        for command in self.commands()["github"]:
            words = command.split()
            self.assertEqual(words[0], "./dev")
            self.assertIn(words[1], COMMANDS)
            if words[1] == "test":
                tiers |= set(words[words.index("--only") + 1].split(","))
        self.assertEqual(tiers, set(dev_tiers.ON_DEMAND) - INNER_LOOP)

    def test_the_templates_are_the_same(self) -> None:
        for name in ("defect", "wish"):
            github = (ROOT / f".github/ISSUE_TEMPLATE/{name}.md").read_text(encoding="utf-8")
            header, body = github.split("---\n", 2)[1:]
            self.assertEqual(set(yaml.safe_load(header)), {"name", "about"})
            self.assertEqual((ROOT / f".gitlab/issue_templates/{name}.md").read_text(encoding="utf-8"), body)
        self.assertEqual((ROOT / ".gitlab/merge_request_templates/default.md").read_bytes(), (ROOT / ".github/PULL_REQUEST_TEMPLATE.md").read_bytes())


if __name__ == "__main__":
    unittest.main()
