#!/usr/bin/env python3
"""Tests of growth.py: reading a dump of callgrind, exponents, and what grows too fast."""
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import growth  # noqa: E402

DUMP = """desc: Trigger: Client Request: a curve|dat|16
fn=(1) dat::v0::detail::post()
10 70
cfn=(2) fake::impl::poll(ibv_cq*)
calls=3 0
11 900
12 5
fn=(2)
+1 300
fn=(3) growth::take(long)
* 25
cfn=(1)
calls=1 0
* 75
"""


class Growth(unittest.TestCase):
    def test_a_dump_gives_all_costs_once_and_the_own_ones_apart(self) -> None:
        self.assertEqual(growth.parse(DUMP), ("a curve|dat|16", 400.0, 100.0))

    def test_a_dump_without_a_label_is_refused(self) -> None:
        with self.assertRaises(growth.Failed):
            growth.parse("fn=(1) f\n1 2\n")

    def test_exponents(self) -> None:
        sizes = (1, 4, 16, 64, 256)
        self.assertAlmostEqual(growth.exponent({n: 90.0 * n for n in sizes}), 1)
        self.assertAlmostEqual(growth.exponent({n: 3.0 * n * n for n in sizes}), 2)
        self.assertAlmostEqual(growth.exponent({n: 120.0 for n in sizes}), 0)

    def test_a_constant_part_at_small_sizes_does_not_hide_fast_growth(self) -> None:
        self.assertGreater(growth.exponent({n: 1000 + n * n for n in (1, 4, 16, 64, 256, 1024)}), 1.5)

    def test_what_grows_faster_than_linearly_is_refused_unless_raw_does_so_too(self) -> None:
        curve = growth.Curve("a curve", "things", "work", 1)
        square = {n: 2.0 * n * n for n in (1, 4, 16, 64)}
        self.assertTrue(growth.within(curve, {"dat": {n: 500.0 * n for n in (1, 4, 16, 64)}}))
        self.assertFalse(growth.within(curve, {"dat": square}))
        self.assertTrue(growth.within(curve, {"dat": square, "raw": square}))

    def test_a_cost_that_shall_be_constant_may_not_grow(self) -> None:
        curve = growth.Curve("a curve", "things", "work", 0, 16)
        self.assertTrue(growth.within(curve, {"dat": {1: 300.0, 10: 301.0, 100: 300.0, 1000: 302.0}}))
        self.assertFalse(growth.within(curve, {"dat": {1: 300.0, 10: 400.0, 100: 600.0, 1000: 900.0}}))

    def test_a_table_has_the_cost_of_one_and_the_ratio(self) -> None:
        curve = growth.Curve("a curve", "things", "work", 1)
        lines = growth.table(curve, {"raw": {1: 100.0, 4: 400.0}, "dat": {1: 150.0, 4: 500.0}})
        self.assertEqual(lines[0], "| things | 1 | 4 | exponent |")
        self.assertEqual(lines[2], "| raw | 100 | 100 | 1.00 |")
        self.assertEqual(lines[3], "| dat | 150 | 125 | 0.87 |")
        self.assertEqual(lines[4], "| ratio | 1.50 | 1.25 | |")


if __name__ == "__main__":
    unittest.main()
