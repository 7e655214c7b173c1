# How ./dev test counts: what passed and what failed, by part of the run, and the table at the end.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import collections
import concurrent.futures
import pathlib
import re
import sys
from collections.abc import Callable, Sequence

from dev_run import LOGS, run, say, tail
from dev_build import FAILED_BUILDS
import catch_xml


class tally:
    """Counts what passed and what failed, by part of the run.

    Building keeps all cores busy; running tests seldom needs more than one. So tests run in a lane of their own, one part
    after the other, while the next part is built. When nothing is left to build, the thread that built takes parts, too.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, int]] = []
        self.faults: list[str] = []
        self.lane = concurrent.futures.ThreadPoolExecutor(1)
        self.under_way: collections.deque[tuple[str, Callable[[], None], concurrent.futures.Future[None]]] = collections.deque()

    def beside(self, name: str, what: Callable[[], None]) -> None:
        """Run it in the lane, after the parts that were put there before."""
        self.under_way.append((name, what, self.lane.submit(what)))

    def wait(self) -> None:
        """Run the parts that the lane has not begun, and wait for the one that it has."""
        begun = []
        while self.under_way:
            name, what, future = self.under_way.popleft()
            if future.cancel():
                self.guard(name, what)
            else:
                begun.append((name, future))
        for name, future in begun:
            self.guard(name, future.result)

    def guard(self, name: str, what: Callable[[], None]) -> None:
        """Run a part. A fault in one part must not hide the results of the others."""
        try:
            what()
        except Exception as e:
            self.check(name, False, f"{type(e).__name__}: {e}")

    def fault(self, text: str) -> None:
        """Show why something failed, now and again above the table at the end."""
        say(text)
        self.faults.append(text)

    def add(self, name: str, passed: int, failed: int, skipped: int = 0) -> None:
        """Add the counts of a part. A part in which nothing ran has failed."""
        if passed + failed + skipped == 0:
            self.fault(f"    {name}: nothing ran")
            failed = 1
        self.rows.append((name, passed, failed, skipped))

    def check(self, name: str, good: bool, why: str = "") -> None:
        """Adds a part with a single result."""
        if not good and why:
            self.fault(f"    {name}: {why}")
        self.add(name, int(good), int(not good))

    def counted(self, name: str, command: Sequence[str | pathlib.Path], limit: float, show: bool = False, **env: str) -> None:
        """A program that ends with `N passed, N failed`."""
        log = re.sub(r"\W+", "-", name) + ".log"
        code = run(command, log, limit, show, **env)
        lines = (LOGS / log).read_text(encoding="utf-8", errors="replace").splitlines()
        found = next((m for line in reversed(lines) if (m := re.fullmatch(r"(\d+) passed, (\d+) failed", line.strip()))), None)
        passed, failed = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
        if code and not failed:
            failed = 1
        if failed and not show:
            self.fault(tail(LOGS / log))
        self.add(name, passed, failed)

    def unittests(self, name: str, script: pathlib.Path, limit: float, *arguments: str, python: str = sys.executable, **env: str) -> None:
        """A Python script of unittest's."""
        log = re.sub(r"\W+", "-", name) + ".log"
        code = run([python, script, *arguments], log, limit, **env)
        text = (LOGS / log).read_text(encoding="utf-8", errors="replace")
        ran = re.search(r"^Ran (\d+) tests? in ", text, re.M)
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", text))
        skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", text))
        total = int(ran.group(1)) if ran else 0
        failed = max(bad, 1) if code else bad
        if failed:
            self.fault(tail(LOGS / log))
        self.add(name, max(0, total - bad - skipped), failed, skipped)

    def catch2(self, name: str, xml: pathlib.Path, code: int, log: pathlib.Path) -> int:
        """The report of a Catch2 program that ended with `code`. Returns the number of its cases."""
        report = catch_xml.read(xml)
        for text in report.failures:
            self.fault(text)
        failed = len(report.failures)
        cases = report.passed + failed + len(report.skipped)
        if code and not failed or not report.complete:
            self.fault(f"{tail(log)}\n    {name}: ended with exit code {code}" + ("" if report.complete else ", its report is cut off"))
            failed += 1
        self.add(name, report.passed, failed, len(report.skipped))
        return cases

    def finish(self) -> int:
        """Prints the failures, the table and the last line."""
        faults = [*FAILED_BUILDS.values(), *self.faults]
        if faults:
            say("\nWhat failed, once more:")
        for text in faults:
            say(text)
        say("")
        width = max((len(name) for name, *_ in self.rows), default=0)
        for name, passed, failed, skipped in self.rows:
            rest = f", {skipped} skipped" if skipped else ""
            say(f"{name:<{width}}  {passed} passed, {failed} failed{rest}")
        passed = sum(row[1] for row in self.rows)
        failed = sum(row[2] for row in self.rows)
        say(f"{passed} passed, {failed} failed")
        return 0 if passed and not failed else 1
