# The audit of the board: the counts of both sides of every life must agree.
# SPDX-License-Identifier: BSL-1.0
"""The layout is that of tests/soak/board.hpp: 64-bit words."""

from __future__ import annotations

import mmap
import os

OPERATIONS = ("send", "receive", "write", "read", "atomic", "bind", "datagram", "event")
N = len(OPERATIONS)
ABSENT, OPEN, DRAINED, LEFT = range(4)
HEADER = 4 + 2 * (4 + 2 * 14)
SIDE = 2 + 4 * N + 6
LIFE = 2 + 2 * SIDE


class side:
    """The words of one side of a life."""

    def __init__(self, words: memoryview):
        self.pid, self.state = words[0], words[1]
        self.accepted, self.done, self.failed, self.dropped = (list(words[2 + i * N : 2 + (i + 1) * N]) for i in range(4))
        self.bytes, self.numbered, self.acknowledged, self.unanswered, self.repeated, self.arrived = words[2 + 4 * N : SIDE]


class audit:
    """Checks and frees the lives that have ended, and sums them up."""

    def __init__(self, path: str):
        fd = os.open(path, os.O_RDWR)
        self.words = memoryview(mmap.mmap(fd, os.fstat(fd).st_size)).cast("Q")
        os.close(fd)
        if self.words[0] != LIFE:
            raise SystemExit(f"audit.py expects lives of {LIFE} words, and the board has {self.words[0]}")
        self.places = self.words[1]
        self.seen = 0
        self.lives: dict[int, int] = {}
        self.ends = dict.fromkeys(("drained", "left", "killed", "absent"), 0)
        self.sums = {what: [0] * N for what in ("accepted", "done", "failed", "dropped")}
        self.bytes = self.unaccounted = self.unanswered = self.repeated = 0

    def check(self, dead: set[int]) -> list[str]:
        """All lives since the last call. No life is under way. `dead`: the processes that were killed."""
        found: list[str] = []
        for number in range(self.seen + 1, self.words[2] + 1):
            at = HEADER + (number % self.places) * LIFE
            if self.words[at] != number:
                continue  # its place was taken, so the number was not given to a life
            one = self.words[at : at + LIFE]
            sides = [side(one[2 + i * SIDE : 2 + (i + 1) * SIDE]) for i in range(2)]
            found += [f"life {number} of service {one[1]}: {text}" for text in self.check_life(sides, dead)]
            self.lives[one[1]] = self.lives.get(one[1], 0) + 1
            for word in range(LIFE - 1, -1, -1):
                one[word] = 0
        self.seen = self.words[2]
        return found

    def check_life(self, sides: list[side], dead: set[int]) -> list[str]:
        """Checks both sides, and returns the violations."""
        found = []
        for index, (mine, other) in enumerate((sides, sides[::-1])):
            name = ("client", "server")[index]
            killed = mine.state == OPEN and mine.pid in dead
            if mine.state == OPEN and not killed:
                found.append(f"the {name} never ended")
            self.ends["killed" if killed else ("absent", "absent", "drained", "left")[mine.state]] += 1
            self.bytes += mine.bytes
            self.unanswered += mine.unanswered
            self.repeated += mine.repeated
            for kind, what in enumerate(OPERATIONS):
                counts = mine.accepted[kind], mine.done[kind], mine.failed[kind], mine.dropped[kind]
                for sums, count in zip(self.sums.values(), counts):
                    sums[kind] += count
                rest = counts[0] - sum(counts[1:])
                if killed:
                    self.unaccounted += rest
                elif rest:
                    found.append(f"{rest} of {counts[0]} operations '{what}' of the {name} are not accounted for")
                if mine.state == DRAINED and counts[3] and what != "receive":
                    found.append(f"{counts[3]} operations '{what}' of the {name} never completed")
            if other.arrived > mine.numbered:
                found.append(f"{other.arrived} messages of the {name} have arrived, of {mine.numbered} that it sent")
            if other.state == DRAINED and mine.acknowledged > other.arrived:
                found.append(f"{mine.acknowledged} messages of the {name} were acknowledged, and {other.arrived} have arrived")
        return found

    def table(self) -> str:
        """The sums."""
        lines = [f"{'operation':<11}{'accepted':>12}{'completed':>12}{'flushed':>12}{'closed':>12}"]
        for kind, what in enumerate(OPERATIONS):
            counts = [sums[kind] for sums in self.sums.values()]
            if any(counts):
                lines.append(f"{what:<11}" + "".join(f"{n:>12}" for n in counts))
        lines.append(f"{'all':<11}" + "".join(f"{sum(sums):>12}" for sums in self.sums.values()))
        lines.append(f"bytes       {self.bytes}")
        lines.append(f"lives       {sum(self.lives.values())}; ends: " + ", ".join(f"{n} {how}" for how, n in self.ends.items()))
        lines.append(f"unanswered  {self.unanswered} reads and atomics that rxe completed without their data (docs/lab.md)")
        lines.append(f"repeated    {self.repeated} messages that rxe sent a second time as new ones (docs/lab.md)")
        lines.append(f"killed      {self.unaccounted} operations of processes that were killed")
        return "\n".join(lines)
