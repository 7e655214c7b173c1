#!/usr/bin/env python3
# All tests of datcp on real RDMA devices: copies both ways, resuming, and everything that can go wrong.
# SPDX-License-Identifier: BSL-1.0
"""test_datcp.py [unittest options]: runs itself in the lab, or natively where the host has an RDMA device.
DATCP and ODD_PEER name the programs; by default those of build/gcc. Each of the files with the tests of one subject runs
alike."""

from __future__ import annotations

from datcp_testing import main
from test_copies import Copies  # noqa: F401
from test_failures import GoesWrong  # noqa: F401
from test_resumes import Resumes  # noqa: F401
from test_strangers import Strangers  # noqa: F401

if __name__ == "__main__":
    main(__file__)
