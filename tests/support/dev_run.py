# What the commands of ./dev share: their folders and limits, the steps that they print, and commands with a log.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import resource
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

# The other modules of ./dev import from these folders, after this one.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
sys.path.insert(2, str(pathlib.Path(__file__).resolve().parents[1] / "worlds"))

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
RESULTS = BUILD / "results"
LOGS = BUILD / "logs"
LAB = ROOT / "tests/lab/dat-lab"
JOBS = os.cpu_count() or 1

# Per command of this run: the name of its log, the elapsed seconds, and the processor seconds with those of its child processes.
COSTS: list[tuple[str, float, float]] = []

# Seconds after which a test program counts as hanging. The limit must not depend on the speed of the machine, so it is
# much longer than any program needs.
HANGS = 1500
# Debian's packages of Python modules work with Debian's Python only.
DEBIAN_PYTHON = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
NOT_HERE = 77  # the exit code of an example for which this host lacks a feature


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


class step:
    """Announces a step, and prints its duration at the end."""

    def __init__(self, what: str, estimate: str):
        self.what, self.estimate = what, estimate

    def __enter__(self) -> None:
        self.start = time.monotonic()
        say(f"==> {self.what} ({self.estimate})")

    def __exit__(self, *_: object) -> None:
        say(f"    {self.what.partition(':')[0]}: {time.monotonic() - self.start:.0f} s")


def tail(log: pathlib.Path, lines: int = 60) -> str:
    """The part of a log to show: from the first failed compile or sanitizer's report, otherwise its end."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    report = re.compile(r"^FAILED: |==\d+==ERROR: |WARNING: ThreadSanitizer|: runtime error: ")
    first = next((number for number, line in enumerate(text) if report.search(line)), None)
    shown = text[-lines:] if first is None else text[first : first + lines // 2]
    return "\n".join(f"    | {line[:300]}" for line in shown)


def wait_and_measure(process: subprocess.Popen[bytes], limit: float) -> tuple[int, float]:
    """The exit code of a process, and the processor time of it and its children, in seconds."""
    descriptor = os.pidfd_open(process.pid)
    try:
        if not select.select([descriptor], [], [], limit)[0]:
            raise subprocess.TimeoutExpired(process.args, limit)
    finally:
        os.close(descriptor)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def costs(most: int = 20) -> list[str]:
    """The commands of this run that took most processor time, as lines of a table."""
    everything = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = everything.ru_utime + everything.ru_stime
    rows = sorted(COSTS, key=lambda row: row[2], reverse=True)[:most]
    lines = [f"{cpu:7.0f} s of {seconds:5.0f} s  {log.removesuffix('.log')}" for log, seconds, cpu in rows]
    return [f"{total:7.0f} s of processor time in all; the commands that took most:", *lines]


def run(command: Sequence[str | pathlib.Path], log: str, limit: float, show: bool = False, **env: str) -> int:
    """Run a command from the root with its output in build/logs (and shown); 124 when it took longer than `limit` s."""
    LOGS.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    with open(LOGS / log, "wb") as out:
        out.write(f"$ {shlex.join(words)}\n".encode())
        out.flush()
        try:
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if show else out,
                stderr=subprocess.STDOUT,
            )
        except OSError as e:
            out.write(f"{e}\n".encode())
            return 127
        start = time.monotonic()
        try:
            if show:
                assert process.stdout
                for line in process.stdout:
                    out.write(line)
                    sys.stdout.buffer.write(b"    " + line)
                    sys.stdout.flush()
            code, cpu = wait_and_measure(process, limit)
            COSTS.append((log, time.monotonic() - start, cpu))
            return code
        except subprocess.TimeoutExpired:
            out.write(f"\ntook longer than {limit:.0f} s\n".encode())
            return 124
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                if process.poll() is None:
                    process.kill()
                    process.wait()
