#!/usr/bin/env python3
# Soak and chaos: runs two processes of the program soak in the lab, disturbs them by seed, and judges their results.
# SPDX-License-Identifier: BSL-1.0
"""On the host, soak.py boots the lab and runs itself inside (--inside). A run is a row of rounds:

    work     faults one after the other, chosen by the seed, while all services run
    recover  no faults: every client must complete a life
    rest     no lives: every operation is accounted for, nothing has leaked, and no thread spins

The last line is `lost 0` or the number of violations, and the exit code follows it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import audit
import faults

HERE = pathlib.Path(__file__).resolve().parent
LAB = HERE.parent / "lab/dat-lab"
PATIENCE = 300.0  # seconds after which something counts as never; it must not depend on the speed of the machine
SPINNING = 120  # ticks in two seconds, of 200: with a sanitizer in an emulated machine, a process at rest uses up to 60
MOST_MINUTES = 7 * 24 * 60
ADAPTERS = {"a": ("rx1", "10.78.2.1"), "b": ("rx2", "10.78.1.1")}


def say(text: str) -> None:
    """Print a line at once."""
    print(f"{time.monotonic() - START:7.1f}  {text}", flush=True)


START = time.monotonic()


class peer:
    """One process of the program: its orders, its reports, and what it had at its first rest."""

    def __init__(self, name: str, run: soak):
        self.name, self.run = name, run
        self.reports: queue.Queue[dict] = queue.Queue()
        self.first: dict | None = None
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        """Start the process, or another one in the place of one that was killed."""
        adapter, other = ADAPTERS[self.name]
        words = [self.run.program, "--adapter", adapter, "--peer", other, "--name", self.name, "--board", self.run.board]
        words += ["--seed", str(self.run.seed), "--box", str(int(self.name == "b"))]
        if self.run.services:
            words += ["--services", self.run.services]
        self.first = None
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process: subprocess.Popen[str]) -> None:
        """Sort the reports of a process: violations and notes at once, the others for wait()."""
        assert process.stdout
        for line in process.stdout:
            try:
                report = json.loads(line)
            except ValueError:
                report = {"violation": f"no JSON: {line.strip()[:300]}"}
            if "violation" in report:
                self.run.violation(f"{self.name}, {report.get('lane', '')}, life {report.get('life', 0)}: {report['violation']}")
            elif "note" in report:
                say(f"{self.name}, {report['lane']}: {report['note']}")
            elif process is self.process:
                self.reports.put(report)

    def order(self, word: str) -> None:
        """Send an order."""
        assert self.process.stdin
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # wait() reports it

    def wait(self, key: str, limit: float = PATIENCE) -> dict | None:
        """The next report with this key. Others before it have lost their meaning."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            try:
                report = self.reports.get(timeout=0.5)
            except queue.Empty:
                if self.process.poll() is not None and self.reports.empty():
                    self.run.violation(f"{self.name} has ended by itself with code {self.process.returncode}")
                    raise SystemExit(self.run.table())
                continue
            if key in report:
                return report
        self.run.violation(f"{self.name} did not report '{key}'")
        return None

    def kill(self) -> None:
        """End the process without a chance to clean up. Its lives stay open on the board."""
        self.run.dead.add(self.process.pid)
        self.process.kill()
        self.process.wait()

    def ticks(self) -> int:
        """CPU time of the process so far, in hundredths of a second."""
        words = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(words[11]) + int(words[12])


class soak:
    """The whole run, inside the lab."""

    say = staticmethod(say)

    def __init__(self, options: argparse.Namespace):
        self.program, self.services, self.seed = options.program, options.services, options.seed
        self.minutes, self.only = options.minutes, options.faults
        self.random = random.Random(options.seed)
        self.violations: list[str] = []
        self.dead: set[int] = set()
        self.lives: dict[str, int] = {}
        self.rounds = 0
        self.idle_ticks: list[int] = []
        self.folder = tempfile.mkdtemp(prefix="soak-")
        self.board = f"{self.folder}/board"
        self.audit: audit.audit | None = None
        self.before = self.resources()
        self.peers = {name: peer(name, self) for name in ADAPTERS}
        self.faults = faults.chaos(self)
        for one in self.peers.values():
            one.wait("open")
        self.audit = audit.audit(self.board)

    def violation(self, what: str) -> None:
        """Note what must never happen."""
        self.violations.append(what)
        say(f"VIOLATION {what}")

    @staticmethod
    def resources() -> str:
        """The counters of the kernel for each device."""
        return subprocess.run(["rdma", "resource"], capture_output=True, text=True, check=True).stdout

    def objects(self, pid: int) -> dict[str, int]:
        """The kernel's objects of a process, by kind."""
        found = {}
        for kind in ("qp", "cq", "mr", "pd", "cm_id", "srq"):
            shown = subprocess.run(["rdma", "-j", "resource", "show", kind], capture_output=True, text=True, check=False).stdout
            listed = json.loads(shown or "[]")
            found[kind] = sum(1 for one in listed if one.get("pid") == pid)
        return found

    def progress(self) -> bool:
        """Without faults, every client completes another life."""
        before = {name: self.ask_lives(one) for name, one in self.peers.items()}
        until = time.monotonic() + PATIENCE
        late: list[str] = []
        while time.monotonic() < until:
            late = [f"{name}, {lane}" for name, one in self.peers.items() for lane, lives in self.ask_lives(one).items()
                    if lives[0] <= before[name].get(lane, [0])[0] and lane.endswith("client")]  # fmt: skip
            if not late:
                return True
            time.sleep(0.5)
        self.violation("no progress after the faults have ended: " + "; ".join(late))
        self.show_others()
        for one in self.peers.values():
            self.show_threads(one)
        return False

    @staticmethod
    def show_others() -> None:
        """Whether two new processes without dat can connect, and the state of the connection manager's queue pairs."""
        for _, address in ADAPTERS.values():
            with subprocess.Popen(["rping", "-s", "-a", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
                time.sleep(1)  # a client that comes too early is refused, and the answer is the same: it must not be silent
                try:
                    client = subprocess.run(["rping", "-c", "-a", address, "-C", "1"], capture_output=True, timeout=20, check=False)
                    say(f"rping to {address}: {'connects' if client.returncode == 0 else 'fails'}")
                except subprocess.TimeoutExpired:
                    say(f"rping to {address}: no answer within 20 s, so the kernel's connection manager does not work")
                server.kill()
        for command in ("rdma resource show qp type GSI", "dmesg | tail -5"):
            say(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout.strip())

    @staticmethod
    def show_threads(one: peer) -> None:
        """Where each thread of a process is: in the kernel, and, where gdb is installed, in the program."""
        tasks = pathlib.Path(f"/proc/{one.process.pid}/task")
        for task in sorted(tasks.iterdir()):
            with contextlib.suppress(OSError):  # the thread has ended
                state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                stack = " < ".join(line.split()[1].partition("+")[0] for line in (task / "stack").read_text(encoding="utf-8").splitlines())
                say(f"{one.name}, thread {task.name}: {state}, {stack}")
        if shutil.which("gdb"):
            gdb = ["gdb", "-batch", "-ex", "thread apply all backtrace 12", "-p", str(one.process.pid)]
            say(subprocess.run(gdb, capture_output=True, text=True, check=False).stdout)

    @staticmethod
    def ask_lives(one: peer) -> dict[str, list[int]]:
        """The lives of each lane of a process so far."""
        one.order("count")
        report = one.wait("lives")
        return report["lives"] if report else {}

    def rest(self) -> None:
        """Bring all lives to an end and check what is left."""
        for one in self.peers.values():
            one.order("rest")
        for one in self.peers.values():
            one.wait("quiet")
        for one in self.peers.values():
            one.order("settle")
        reports = {name: one.wait("rest") for name, one in self.peers.items()}
        assert self.audit
        for text in self.audit.check(self.dead):
            self.violation(text)
        for name, report in reports.items():
            if report:
                self.check_growth(name, report["rest"])
        self.check_idle()

    def check_growth(self, name: str, now: dict) -> None:
        """The resources of a process at rest must equal those of its first rest."""
        one = self.peers[name]
        now["objects"] = self.objects(one.process.pid)
        if one.first is None:
            one.first = now
            return
        first = one.first
        for key in ("fds", "threads", "objects"):
            if now[key] != first[key]:
                self.violation(f"{name} had {first[key]} {key} at its first rest, and has {now[key]}")
        # Queues do not shrink after they have grown, so the heap is compared with the heap after the first work.
        heap = first.setdefault("worked", now["heap"])
        if now["heap"] > heap + (512 << 10):
            self.violation(f"{name}: the heap has grown from {heap} to {now['heap']} bytes")
        if now["maps"] > first["maps"] + 40:
            self.violation(f"{name}: the number of mappings has grown from {first['maps']} to {now['maps']}")

    def check_idle(self) -> None:
        """A process at rest uses little CPU time: its lanes only check for orders. A thread that spins uses a processor, in every
        interval."""
        least = {}
        for _ in range(3):
            before = {name: one.ticks() for name, one in self.peers.items()}
            time.sleep(2)
            for name, one in self.peers.items():
                used = one.ticks() - before[name]
                least[name] = min(used, least.get(name, used))
            if all(used < SPINNING for used in least.values()):
                break
        for name, used in least.items():
            self.idle_ticks.append(used)
            if used >= SPINNING:
                self.violation(f"{name} uses {used / 2:.0f} % of a processor at rest")

    def main(self) -> int:
        """All rounds, and the end."""
        self.rest()
        until = time.monotonic() + self.minutes * 60
        while time.monotonic() < until and len(self.violations) < 20:
            self.rounds += 1
            for one in self.peers.values():
                one.order("work")
            end = min(until, time.monotonic() + 20)
            while time.monotonic() < end:
                self.faults.one()
                time.sleep(self.random.uniform(0.2, 1.5))
            self.faults.clear()
            say("no faults")
            if not self.progress():
                break
            self.rest()
            say(f"round {self.rounds} has ended: {len(self.violations)} violations")
        for one in self.peers.values():
            one.order("stop")
        for name, one in self.peers.items():
            try:
                code = one.process.wait(PATIENCE)
                if code:
                    self.violation(f"{name} has ended with code {code}")
            except subprocess.TimeoutExpired:
                self.violation(f"{name} does not end")
                one.process.kill()
        if (after := self.resources()) != self.before:
            self.violation(f"the kernel has objects left:\n{after}in place of\n{self.before}")
        return self.table()

    def table(self) -> int:
        """The result."""
        if self.audit:
            print("\n" + self.audit.table())
        print(f"faults      {', '.join(f'{n} {kind}' for kind, n in sorted(self.faults.count.items()))}")
        print(f"rounds      {self.rounds}, {time.monotonic() - START:.0f} s, seed {self.seed}")
        if self.idle_ticks:
            print(f"at rest     at most {max(self.idle_ticks) / 2:.0f} % of a processor for each process")
        for text in self.violations:
            print(f"VIOLATION {text}")
        print(f"lost {len(self.violations)}", flush=True)
        return 1 if self.violations else 0


def main() -> int:
    """On the host: boot the lab. Inside: run."""
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2, metavar="N", help="duration of the faults; 2 unless given")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="chooses faults, times, sizes and ends; printed")
    parser.add_argument("--services", default="", help="only these services, with commas between")
    parser.add_argument("--faults", default="", help="only these faults, with commas between: " + ", ".join(faults.KINDS))
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="processors of the lab's machine; 2 unless given")
    parser.add_argument("--program", required=True, help="the program soak")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.faults.split(",") if name and name not in faults.KINDS]:
        parser.error(f"no fault {', '.join(unknown)}; there are {', '.join(faults.KINDS)}")
    if not 0 < options.minutes <= MOST_MINUTES:
        parser.error(f"--minutes must be above 0, and at most {MOST_MINUTES}")
    if options.seed is not None and not 0 <= options.seed < 1 << 31:
        parser.error(f"--seed must be from 0 to {(1 << 31) - 1}")
    options.program = os.path.abspath(options.program)
    if options.inside:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        return soak(options).main()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    words = ["--minutes", options.minutes, "--seed", options.seed, "--services", options.services, "--faults", options.faults]
    command = [sys.executable, __file__, "--inside", "--program", options.program, *words]
    limit = options.minutes * 60 + 4 * PATIENCE
    lab = [LAB, "--cpus", options.cpus, "--memory", 2048, "--timeout", limit, "--", *command]
    print(f"seed {options.seed}", flush=True)
    return subprocess.run([str(word) for word in lab], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
