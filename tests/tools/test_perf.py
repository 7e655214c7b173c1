#!/usr/bin/env python3
# Tests of dat-perf on real RDMA devices, in the lab.
# SPDX-License-Identifier: BSL-1.0
"""test_perf.py [unittest options]: runs itself in the lab. DAT_TOOLS names the directory of the programs; by default that of
build/gcc."""

from __future__ import annotations

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from perf_device import PERF, ROOT, perf_peers, perf_runs, perf_short  # noqa: E402, F401

LAB = ROOT / "tests/lab/dat-lab"


def main() -> None:
    """In the lab: runs the tests. Elsewhere: starts the lab."""
    if "DAT_LAB" not in os.environ:
        if not os.access(PERF, os.X_OK):
            sys.exit("test_perf: dat-perf is not built (./dev build gcc)")
        lab = [str(LAB), "--timeout", "1200", "--env", "DAT_TOOLS", "--", sys.executable, __file__, *sys.argv[1:]]
        os.execve(str(LAB), lab, os.environ | {"DAT_TOOLS": str(PERF.parent), "PYTHONDONTWRITEBYTECODE": "1"})
    unittest.main()


if __name__ == "__main__":
    main()
