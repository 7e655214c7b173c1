# The types of the benchmarks' arguments.
# SPDX-License-Identifier: BSL-1.0
"""Types for argparse that name the allowed values."""

import argparse
from collections.abc import Callable


def whole(low: int, high: int) -> Callable[[str], int]:
    """The type of a whole number from `low` to `high`."""

    def parsed(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {low} to {high}")
        return int(text)

    return parsed
