#!/usr/bin/env python3
# All tests of dat-lab: they boot machines, so they need qemu and the kernel package (docs/lab.md).
# SPDX-License-Identifier: BSL-1.0
"""test_dat_lab.py [--quick] [--results FILE] [unittest arguments]

--quick leaves out the slower half; --results writes JUnit XML. DAT_LAB_PROGRAM names another dat-lab to test. Each of the
files with the tests of one subject takes the same arguments."""

import sys

import lab_main
from test_architectures import Boots, CommandLines, Distributions, OtherArchitecture  # noqa: F401
from test_captures import CaptureFiles, Captures  # noqa: F401
from test_commands import OneCommand, OneScript  # noqa: F401
from test_ends import Hardships, SeveralAtOnce, Signals  # noqa: F401
from test_faults import StatesAfterFaults, TimeLines  # noqa: F401
from test_machines import Clocks, Devices, Kernels, Networks  # noqa: F401
from test_messages import Messages  # noqa: F401
from test_saved_states import SavedStates, StatesInTheCache  # noqa: F401
from test_several_hosts import HostsThatEnd, Switches, ThreeHosts  # noqa: F401

if __name__ == "__main__":
    sys.exit(lab_main.main())
