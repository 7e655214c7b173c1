#!/usr/bin/env python3
# Checks a trace file against the rules of Chrome's trace format. It shares no code with the recorder.
# SPDX-License-Identifier: BSL-1.0
"""chrome_trace.py PROGRAM: the program `trace` writes the file that a case of recorder.cpp describes, and each rule of the format that the
viewers rely on is held against it. Each rule is held against a file that breaks it, too.

The rules are those of "Trace Event Format" (Google, 2016), and the limits of Perfetto's reader, which keeps 32 bits of a pid and a tid."""

from __future__ import annotations

import collections
import decimal
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
MOST = 2**32 - 1


def is_number(value: object) -> bool:
    """Whether a value is a number of JSON that is not below 0."""
    return isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool) and value >= 0


class checker:
    """The faults of a trace."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.faults: list[str] = []
        self.slices: dict[tuple[int, int], list[tuple[decimal.Decimal, decimal.Decimal, str]]] = collections.defaultdict(list)
        self.operations: dict[tuple[str, object], list[dict[str, Any]]] = collections.defaultdict(list)
        self.names: dict[tuple[int, int], str] = {}
        for event in trace["traceEvents"]:
            self.event(event)
        self.nesting()
        self.pairs()

    def fault(self, event: object, text: str) -> None:
        """Notes a fault."""
        self.faults.append(f"{text}: {event}")

    def event(self, e: dict[str, Any]) -> None:
        """The members of an event."""
        if not isinstance(e.get("name"), str) or not e["name"]:
            self.fault(e, "no name")
        for member in ("pid", "tid"):
            if not isinstance(e.get(member), int) or not 0 <= e[member] <= MOST:
                self.fault(e, f"{member} is no number of 32 bits")
                return
        if not isinstance(e.get("args", {}), dict):
            self.fault(e, "args is no object")
        phase, at = e.get("ph"), (e["pid"], e["tid"])
        if phase != "M" and not is_number(e.get("ts")):
            self.fault(e, "no time")
        elif phase == "M":
            self.metadata(e, at)
        elif phase == "X":
            if is_number(e.get("dur")):
                self.slices[at].append((e["ts"], e["ts"] + e["dur"], e["name"]))
            else:
                self.fault(e, "no duration")
        elif phase == "i":
            if e.get("s") not in {"g", "p", "t"}:
                self.fault(e, "no scope")
        elif phase in {"b", "e"}:
            if not isinstance(e.get("cat"), str) or not isinstance(e.get("id"), (int, str)):
                self.fault(e, "no category or id")
            else:
                self.operations[e["cat"], e["id"]].append(e)
        else:
            self.fault(e, "an unknown phase")

    def metadata(self, e: dict[str, Any], at: tuple[int, int]) -> None:
        """The name of a process or a row."""
        if e["name"] not in {"process_name", "thread_name"} or not isinstance(e.get("args", {}).get("name"), str):
            self.fault(e, "metadata without a name")
        elif e["name"] == "thread_name":
            if at in self.names:
                self.fault(e, f"the row is named {self.names[at]}, too")
            self.names[at] = e["args"]["name"]

    def nesting(self) -> None:
        """Slices of a row are one behind the other, or one inside the other."""
        for row in self.slices.values():
            open_until: list[decimal.Decimal] = []
            for begin, end, name in sorted(row, key=lambda s: (s[0], -s[1])):
                while open_until and open_until[-1] <= begin:
                    open_until.pop()
                if open_until and open_until[-1] < end:
                    self.fault(name, f"the slice from {begin} to {end} overlaps another one in part")
                open_until.append(end)

    def pairs(self) -> None:
        """Each operation begins once and ends at most once, not before its begin, with the same name and in the same row."""
        for of, events in self.operations.items():
            phases = sorted(e["ph"] for e in events)
            if phases not in (["b"], ["b", "e"]):
                self.fault(of, f"the phases of an operation are {phases}")
            elif len(events) == 2:
                begin, end = sorted(events, key=lambda e: e["ph"])
                if [begin[m] for m in ("name", "pid", "tid")] != [end[m] for m in ("name", "pid", "tid")]:
                    self.fault(of, "begin and end differ")
                if end["ts"] < begin["ts"]:
                    self.fault(of, "the end is before the begin")


def read(path: pathlib.Path) -> dict[str, Any]:
    """A trace with exact times."""
    return json.loads(path.read_text(encoding="utf-8"), parse_float=decimal.Decimal)


def faults(*events: dict[str, Any]) -> list[str]:
    """The faults of a trace with these events."""
    return checker({"traceEvents": [{"name": "x", "ph": "i", "s": "t", "pid": 1, "tid": 1, "ts": 0, **e} for e in events]}).faults


class the_rules(unittest.TestCase):
    """Each rule finds what breaks it."""

    def test_members(self) -> None:
        self.assertEqual(faults({}), [])
        for wrong, text in (({"name": ""}, "no name"), ({"pid": "1"}, "pid is no number"), ({"tid": 2**32}, "tid is no number"), ({"ts": -1}, "no time"),
                            ({"s": "x"}, "no scope"), ({"ph": "?"}, "an unknown phase"), ({"ph": "X"}, "no duration"), ({"args": []}, "args is no object"),
                            ({"ph": "b"}, "no category"), ({"ph": "M", "name": "thread_name"}, "without a name")):  # fmt: skip
            found = faults(wrong)
            self.assertTrue(len(found) == 1 and text in found[0], (wrong, found))

    def test_nesting(self) -> None:
        def slice_of(begin: int, end: int, tid: int = 1) -> dict[str, Any]:
            return {"ph": "X", "ts": begin, "dur": end - begin, "tid": tid}

        self.assertEqual(faults(slice_of(0, 10), slice_of(2, 4), slice_of(4, 10), slice_of(10, 11), slice_of(5, 20, 2)), [])
        self.assertIn("overlaps", faults(slice_of(0, 10), slice_of(5, 11))[0])

    def test_pairs(self) -> None:
        begin, end = {"ph": "b", "cat": "c", "id": 1}, {"ph": "e", "cat": "c", "id": 1, "ts": 1}
        self.assertEqual(faults(end, begin, {**begin, "id": 2}), [])
        for events, text in (((end,), "['e']"), ((begin, begin), "['b', 'b']"), ((begin, {**end, "name": "y"}), "differ"),
                             (({**begin, "ts": 2}, end), "before the begin")):  # fmt: skip
            self.assertIn(text, faults(*events)[0])

    def test_rows(self) -> None:
        row = {"ph": "M", "name": "thread_name", "args": {"name": "a"}}
        self.assertEqual(faults(row, {**row, "tid": 2}), [])
        self.assertIn("is named a, too", faults(row, row)[0])


@unittest.skipUnless(PROGRAM, "no program was named")
class the_recorder(unittest.TestCase):
    """The file that the recorder has written."""

    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            subprocess.run([PROGRAM, "endpoints and a shared queue used by several threads are in one file"], check=True,
                           stdout=subprocess.DEVNULL, env={**os.environ, "DAT_TEST_TRACE": str(path)})  # fmt: skip
            cls.trace = read(path)
        cls.read = checker(cls.trace)

    def test_the_file_keeps_the_rules(self) -> None:
        self.assertEqual(self.read.faults, [])
        self.assertIn(self.trace["displayTimeUnit"], {"ms", "ns"})
        self.assertEqual(self.trace["otherData"]["dropped"], 0)

    def test_the_file_has_what_the_program_did(self) -> None:
        kinds = collections.Counter(name.split()[0] for name in self.read.names.values())
        self.assertEqual(kinds, {"ep": 4, "srq": 1})
        # Four messages to the endpoint with its own queue, four to the endpoint with the shared queue, and one that
        # broke the connection.
        ended = collections.Counter(e["name"].split()[-1] for of in self.read.operations.values() for e in of if e["ph"] == "e")
        self.assertEqual(ended, {"send": 8, "recv": 8, "rdma_write": 1})
        left = [of for of in self.read.operations.values() if len(of) == 1]
        self.assertEqual(len(left), 1, left)  # a buffer of the shared queue that no message took
        states = {name for row in self.read.slices.values() for _, _, name in row}
        self.assertLessEqual({"active connection pending", "connected", "disconnected"}, states)


if __name__ == "__main__":
    unittest.main()
