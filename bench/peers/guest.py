#!/usr/bin/env python3
# Runs the turns of the peers' table on the devices at hand, and prints a line of JSON for each.
# SPDX-License-Identifier: BSL-1.0
"""guest.py PLAN.json: runs inside dat-lab. Started by run.py."""

from __future__ import annotations

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import parsing  # noqa: E402
import programs  # noqa: E402

# Seconds of a turn. The clock of the counted machine leaps from timer to timer while it waits for a file of the host, so its limit ends
# only what hangs, and then at once.
LIMITS = {"waiting": 900, "polled": 60}
TRACING = pathlib.Path("/sys/kernel/tracing/events/raw_syscalls/sys_enter")
TRIES = 2  # attempts at a turn: a leap of the clock can exceed the time limits of the programs


# What the programs load at run time.
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LOADED = [f"{LIBRARIES}/libibverbs/*.so*", "/etc/libibverbs.d/*", f"{LIBRARIES}/libdaplofa.so*", f"{LIBRARIES}/ucx/*.so*", f"{LIBRARIES}/libfabric/*",
          "/usr/libexec/coreutils/*", "/usr/libexec/valgrind/callgrind-amd64-linux", "/usr/libexec/valgrind/vgpreload_core-amd64-linux.so", 
          "/usr/bin/valgrind*", "/usr/libexec/valgrind/default.supp"]  # fmt: skip


def listens(port: int) -> bool:
    """Whether a TCP socket listens there."""
    text = "".join(pathlib.Path(name).read_text(encoding="ascii") for name in ("/proc/net/tcp", "/proc/net/tcp6"))
    return re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", text) is not None


def wait_ready(how: str, server: subprocess.Popen[bytes], log: pathlib.Path, limit: float) -> None:
    """Waits until the server takes clients."""
    kind, _, what = how.partition(" ")
    end = time.monotonic() + limit
    while not (listens(int(what)) if kind == "tcp" else what in log.read_text(errors="replace")):
        if server.poll() is not None:
            raise ValueError("server: " + parsing.problem(log.read_text(errors="replace")))
        if time.monotonic() > end:
            raise ValueError("server: not ready; " + parsing.problem(log.read_text(errors="replace")))
        time.sleep(0.005)  # between two looks


def run(turn: programs.turn, before: list[str], folder: pathlib.Path, limit: float) -> str:
    """The output of the client of a turn, which runs behind the words `before`."""
    log = folder / "server.log"
    with open(log, "wb") as out:
        server = subprocess.Popen(turn.server, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=os.environ | turn.env)
    try:
        wait_ready(turn.ready, server, log, limit)
        done = subprocess.run([*before, *turn.client], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | (turn.client_env or turn.env), timeout=limit, check=False)  # fmt: skip
        text = done.stdout.decode(errors="replace")
        if done.returncode:
            raise ValueError(f"exit code {done.returncode}: {parsing.problem(text)}")
        return text
    except subprocess.TimeoutExpired:
        raise ValueError(f"no end within {limit:.0f} s") from None
    finally:
        if turn.ends:
            try:
                server.wait(3)
            except subprocess.TimeoutExpired:
                pass
        server.kill()
        server.wait()


class session:
    """The turns of one boot."""

    def __init__(self, plan: dict[str, object], folder: pathlib.Path):
        self.plan, self.folder, self.port = plan, folder, 21000
        self.build = pathlib.Path(str(plan["build"]))
        self.broken: dict[tuple[str, str, str], str] = {}

    def say(self, **values: object) -> None:
        """A line of the result."""
        print(json.dumps(values), flush=True)

    def measure(self, w: programs.work, count: int, before: list[str] | None = None, parser: str = "") -> float:
        """The value of a turn; ValueError with the reason where there is none."""
        for last in range(TRIES - 1, -1, -1):
            self.port += 1
            turn = programs.turn_of(w, count, self.port, self.build)
            if isinstance(turn, str):
                raise ValueError(turn)
            try:
                text = run(turn, before or [], self.folder, LIMITS[w.mode])
                self.say(turn=" ".join([*(before or []), *turn.client]), output=text)
                return parsing.PARSERS[parser or turn.parser](text)
            except FileNotFoundError as e:
                raise ValueError(f"{e.filename}: {e.strerror}") from None
            except ValueError as e:
                self.say(turn=" ".join(turn.client), failed=str(e))
                if not last:
                    raise
        raise AssertionError("no try")

    def row(self, what: str, size: int, mode: str, path: str, count: int) -> None:
        """A row: by the host's time each peer stands between two turns of hand-written verbs; the counted machine needs one for all."""

        def of(peer: str) -> programs.work:
            return programs.work(peer, what, size, mode, path)

        try:
            before = self.measure(of(programs.BY_HAND), count)
        except ValueError as e:
            self.say(work=what, bytes=size, mode=mode, path=path, peer=programs.BY_HAND, error=str(e))
            return
        for peer in self.plan["peers"]:  # type: ignore[attr-defined]
            values = {"work": what, "bytes": size, "mode": mode, "path": path, "peer": peer}
            if why := self.broken.get((peer, what, mode)):
                self.say(**values, error=why)
                continue
            try:
                here = self.measure(of(peer), count)
                after = self.measure(of(programs.BY_HAND), count) if mode == "polled" else before
                self.say(**values, value=here, before=before, after=after)
                before = after
            except ValueError as e:
                self.broken[peer, what, mode] = str(e)
                self.say(**values, error=str(e))

    def costs(self, kind: str) -> None:
        """A cost of all."""
        for peer in [programs.BY_HAND, *self.plan["peers"]]:  # type: ignore[misc]
            self.cost(peer, kind)

    def cost(self, peer: str, kind: str) -> None:
        """System calls of a message, or instructions of a message there and back: the difference of two counts."""
        w = programs.work(peer, "latency", 8, "waiting", "wire")
        few = 200
        if peer in programs.FIXED:
            self.say(cost=kind, peer=peer, error=programs.FIXED[peer])
            return
        try:
            if kind == "calls":
                totals = [self.calls(w, count) for count in (few, 3 * few)]
            else:
                before = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
                totals = [self.measure(w, count, before, "instructions") for count in (few, 3 * few)]
            each = (totals[1] - totals[0]) / (2 * few)
            self.say(cost=kind, peer=peer, value=each / 2 if kind == "calls" else each)  # both sides, and a message each way
        except ValueError as e:
            self.say(cost=kind, peer=peer, error=str(e))

    def calls(self, w: programs.work, count: int) -> float:
        """The system calls of both sides of a turn, as the kernel counts them. Under strace a program would be so slow that it never sleeps."""
        if not TRACING.exists():
            subprocess.run(["mount", "-t", "tracefs", "none", "/sys/kernel/tracing"], check=False)
        trigger = "hist:keys=common_pid:size=2048"
        try:
            (TRACING / "trigger").write_text(trigger, encoding="ascii")
            try:
                self.measure(w, count)
                return parsing.system_calls((TRACING / "hist").read_text(encoding="ascii"), os.getpid())
            finally:
                (TRACING / "trigger").write_text("!" + trigger, encoding="ascii")
        except OSError as e:
            raise ValueError(f"the kernel does not count system calls: {e}") from None

    def load(self) -> None:
        """Reads the files of all programs, so that the counted machine does not wait for them during a turn."""
        names = {str(self.build / "bench/peers" / name) for name in ("own", "joins")} | {"dtest", "valgrind"}
        for peer in self.plan["peers"]:  # type: ignore[attr-defined]
            for what, size in [*programs.WORKS, *programs.JOINS]:
                turn = programs.turn_of(programs.work(peer, what, size, str(self.plan["mode"]), "wire"), 10, 1, self.build)
                if not isinstance(turn, str):
                    names |= {turn.server[0], turn.client[0]}
        for name in [path for name in names if (path := shutil.which(name))]:
            done = subprocess.run(["ldd", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            for file in [name, *re.findall(r"(/\S+) \(0x", done.stdout), *(each for pattern in LOADED for each in glob.glob(pattern))]:
                try:
                    pathlib.Path(file).read_bytes()
                except OSError:
                    continue  # a link to a file that is not there

    def all(self) -> None:
        """The whole plan. The first turn of a machine is slower than all others."""
        self.say(kernel=os.uname().release, mode=self.plan["mode"], rounds=self.plan["rounds"], count=self.plan["count"])
        self.load()
        self.measure(programs.work(programs.BY_HAND, "latency", 8, str(self.plan["mode"]), "wire"), 10)
        mode, count = str(self.plan["mode"]), int(str(self.plan["count"]))
        for number in range(int(str(self.plan["rounds"]))):
            for path in programs.PATHS:
                joins = programs.JOINS if mode == "waiting" and path == "wire" else []
                for what, size in [*programs.WORKS, *joins]:
                    self.row(what, size, mode, path, programs.count_of(what, size, count))
                if self.plan["costs"] and number == 0 and path == "wire":
                    self.costs("calls")
        if self.plan["costs"]:
            self.costs("instructions")


def main() -> int:
    """Runs a plan."""
    plan = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = pathlib.Path(plan["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    for device, text in programs.DAT_CONFS.items():
        (pathlib.Path(plan["build"]) / f"bench/peers/{device}.conf").write_text(text, encoding="utf-8")
    session(plan, folder).all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
