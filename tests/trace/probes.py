#!/usr/bin/env python3
# The probes of USDT in a program with trace points: all of them exist, with their arguments.
# SPDX-License-Identifier: BSL-1.0
"""probes.py PROGRAM: read the notes of the program that SystemTap, perf and bpftrace read."""

import pathlib
import re
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
ARGUMENTS = {
    "post": 4, "refused": 3, "completion": 5, "state": 3, "connection": 3, "request": 2, "arm": 2, "sleep": 1, "wake": 2, "notify": 1,
}  # fmt: skip
HAVE_SDT = any(pathlib.Path(folder, "sys/sdt.h").exists() for folder in ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu"))


class Probes(unittest.TestCase):
    """The notes of the program."""

    def test_each_trace_point_is_a_probe_with_its_arguments(self):
        notes = subprocess.run(["readelf", "--notes", "--wide", PROGRAM], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"Provider: dat\n\s+Name: (\w+)\n.*\n\s+Arguments: (.*)", notes)
        if not HAVE_SDT:
            self.assertEqual(found, [])
            self.skipTest("sys/sdt.h is missing: apt-get install systemtap-sdt-dev")
        self.assertEqual({name for name, _ in found}, set(ARGUMENTS))
        for name, arguments in found:
            self.assertEqual(len(arguments.split()), ARGUMENTS[name], (name, arguments))


if __name__ == "__main__":
    unittest.main()
