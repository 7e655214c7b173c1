# What the programs of the peers print: the value of a turn.
# SPDX-License-Identifier: BSL-1.0
"""Each function takes the output of a client, and gives microseconds one way or operations per second. A text without the value
raises ValueError with the last line that the program has printed."""

from __future__ import annotations

import re
from collections.abc import Callable


def found(pattern: str, text: str) -> float:
    """The first group of the last match, as a number above 0."""
    matches = re.findall(pattern, text, re.M)
    if not matches or not float(matches[-1]) > 0:
        raise ValueError(problem(text))
    return float(matches[-1])


def problem(text: str) -> str:
    """The line of an output that says best why there is no result."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -+|\t")]
    if fatal := [line for line in lines if "Fatal:" in line]:  # UCX, with a trace of its stack behind it
        return fatal[0][fatal[0].index("Fatal:") :][:160]
    marked = [line for line in lines if re.search(r"error|fail|unable|cannot|couldn't|not support|not available|invalid", line, re.I)]
    return (marked[:1] or lines or ["no output"])[-1][:160]


def own(text: str) -> float:
    """bench/peers/own."""
    return found(r"^result ([\d.]+)$", text)


def perftest_latency(text: str) -> float:
    """The typical time: the median."""
    return found(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s", text)


def perftest_rate(text: str) -> float:
    """Millions of messages per second, as operations per second."""
    return found(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s*$", text) * 1e6


def rc_pingpong(text: str) -> float:
    """An iteration is a message there and back."""
    return found(r"= ([\d.]+) usec/iter", text) / 2


def dtest(text: str) -> float:
    """The ping-pong of OFA's dtest."""
    return found(r"Message PingPong: .* latency ([\d.]+) us", text)


def dapltest(text: str) -> float:
    """Operations per second of dapltest's performance test."""
    return found(r"Operation Throughput\s*: ([\d.]+) ops/sec", text)


def fi_pingpong(text: str) -> float:
    """Microseconds of a transfer: one way."""
    return found(r"^\S+\s+\S+\s+=\S+\s+\S+\s+[\d.]+s\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", text)


def ucx_latency(text: str) -> float:
    """The median of ucx_perftest's latency."""
    return found(r"^Final:\s+\d+\s+([\d.]+)\s", text)


def ucx_rate(text: str) -> float:
    """Messages per second over all iterations."""
    return found(r"^Final:.*\s([\d.]+)\s*$", text)


def dat_perf_latency(text: str) -> float:
    """The median of dat-perf."""
    return figure(text, "p50_us")


def dat_perf_rate(text: str) -> float:
    """Operations per second of dat-perf."""
    return figure(text, "per_second")


def figure(text: str, column: str) -> float:
    """A column of the only row of dat-perf --csv."""
    lines = text.splitlines()
    head = next((number for number, line in enumerate(lines) if column in line.split(",")), None)
    if head is None or head + 1 >= len(lines):
        raise ValueError(problem(text))
    return float(dict(zip(lines[head].split(","), lines[head + 1].split(",")))[column])


def system_calls(text: str, above: int) -> float:
    """The calls of the threads with higher numbers, from the kernel's histogram of common_pid."""
    if (dropped := re.search(r"^\s*Dropped: (\d+)", text, re.M)) is None or int(dropped[1]):
        raise ValueError("the histogram is not complete")
    return float(sum(int(hits) for pid, hits in re.findall(r"common_pid:\s*(\d+) \} hitcount:\s*(\d+)", text) if int(pid) > above))


def instructions(text: str) -> float:
    """The instructions that callgrind has counted in user space."""
    return found(r"^==\d+== Collected : (\d+)", text)


PARSERS: dict[str, Callable[[str], float]] = {
    each.__name__: each
    for each in (own, perftest_latency, perftest_rate, rc_pingpong, dtest, dapltest, fi_pingpong, ucx_latency, ucx_rate, dat_perf_latency, dat_perf_rate, instructions)
}
