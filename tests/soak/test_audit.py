#!/usr/bin/env python3
# Tests of the audit: it finds each kind of loss, and accepts permitted results. Also the messages of the soak about
# wrong use.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import array
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import audit  # noqa: E402

SEND, RECEIVE = 0, 1
PLACES = 8


class board(unittest.TestCase):
    """A board with one life, both of whose sides have ended well: two messages to the server."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.words = array.array("Q", [0] * (audit.HEADER + PLACES * audit.LIFE))
        self.words[0:3] = array.array("Q", [audit.LIFE, PLACES, 1])
        self.words[audit.HEADER + audit.LIFE] = 1
        for side, pid in ((0, 10), (1, 20)):
            self.set(side, 0, pid)
            self.set(side, 1, audit.DRAINED)
        self.count(0, "accepted", SEND, 2)
        self.count(0, "done", SEND, 2)
        self.count(1, "accepted", RECEIVE, 3)
        self.count(1, "done", RECEIVE, 2)
        self.count(1, "failed", RECEIVE, 1)
        self.last(0, "numbered", 2)
        self.last(0, "acknowledged", 2)
        self.last(1, "arrived", 2)

    def set(self, side: int, word: int, value: int) -> None:
        self.words[audit.HEADER + audit.LIFE + 2 + side * audit.SIDE + word] = value

    def count(self, side: int, what: str, kind: int, value: int) -> None:
        self.set(side, 2 + ("accepted", "done", "failed", "dropped").index(what) * audit.N + kind, value)

    def last(self, side: int, what: str, value: int) -> None:
        words = ("bytes", "numbered", "acknowledged", "unanswered", "repeated", "arrived")
        self.set(side, 2 + 4 * audit.N + words.index(what), value)

    def found(self, dead: set[int] = frozenset()) -> str:
        path = pathlib.Path(self.folder.name) / "board"
        path.write_bytes(self.words.tobytes())
        return "\n".join(audit.audit(str(path)).check(set(dead)))

    def test_a_life_that_ended_well_is_accepted_and_its_place_is_freed(self):
        self.assertEqual(self.found(), "")
        path = pathlib.Path(self.folder.name) / "board"
        left = array.array("Q")
        left.frombytes(path.read_bytes())
        self.assertFalse(any(left[audit.HEADER :]))

    def test_an_operation_without_a_completion_is_found(self):
        self.count(1, "failed", RECEIVE, 0)
        self.assertIn("1 of 3 operations 'receive' of the server are not accounted for", self.found())

    def test_a_completion_too_many_is_found(self):
        self.count(0, "done", SEND, 3)
        self.assertIn("operations 'send' of the client are not accounted for", self.found())

    def test_an_acknowledged_message_that_never_arrived_is_found(self):
        self.last(1, "arrived", 1)
        self.assertIn("2 messages of the client were acknowledged, and 1 have arrived", self.found())

    def test_a_message_that_was_never_sent_is_found(self):
        self.last(1, "arrived", 3)
        self.assertIn("3 messages of the client have arrived, of 2", self.found())

    def test_a_side_that_never_ended_is_found_unless_its_process_was_killed(self):
        self.set(1, 1, audit.OPEN)
        self.assertIn("the server never ended", self.found())
        self.words[2] = 1
        self.assertEqual(self.found({20}), "")

    def test_a_send_that_is_dropped_on_a_drained_side_is_found(self):
        self.count(0, "done", SEND, 1)
        self.count(0, "dropped", SEND, 1)
        self.assertIn("1 operations 'send' of the client never completed", self.found())
        self.set(0, 1, audit.LEFT)
        self.assertEqual(self.found(), "")

    def test_a_board_of_another_layout_is_refused(self):
        self.words[0] = audit.LIFE + 1
        with self.assertRaises(SystemExit):
            self.found()


class wrong_use(unittest.TestCase):
    def test_values_out_of_range_are_refused_with_the_range(self) -> None:
        soak = pathlib.Path(__file__).resolve().parent / "soak.py"
        for option, values, said in (
            ("--minutes", ("0", "-1", "10081", "nan"), "--minutes must be above 0, and at most 10080"),
            ("--seed", ("-1", "2147483648"), "--seed must be from 0 to 2147483647"),
            ("--faults", ("fire",), "no fault fire; there are .*hole"),
        ):
            for value in values:
                with self.subTest(option=option, value=value):
                    done = subprocess.run([sys.executable, soak, "--program", "none", f"{option}={value}"], capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 2)
                    self.assertRegex(done.stderr, said)


if __name__ == "__main__":
    unittest.main()
