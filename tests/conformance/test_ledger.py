#!/usr/bin/env python3
"""All tests of the ledger: tables, result formats, what makes a run fail, and the catalogue itself."""
# SPDX-License-Identifier: BSL-1.0

import unittest

from test_ledger_lists import Evidence, Lists  # noqa: F401
from test_ledger_records import Recorded, Worlds  # noqa: F401
from test_ledger_results import NotTested, Results, Tables  # noqa: F401

if __name__ == "__main__":
    unittest.main()
