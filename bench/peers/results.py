# The lines of JSON that guest.py prints, as rows with ratios and verdicts.
# SPDX-License-Identifier: BSL-1.0
"""A row is named as in reasons.toml: `latency 8 waiting wire`, `system calls`."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import Any

import programs
import verdicts


LESS_IS_BETTER = {"latency": "us one way", "heap": "bytes", "resident": "bytes"}


@dataclasses.dataclass
class row:
    """One row: the median of hand-written verbs, ratios of the others, and why a peer has none."""

    name: str
    unit: str
    by_hand: float
    ratios: dict[str, verdicts.ratio]
    missing: dict[str, str]

    def judged(self) -> tuple[str, list[str]]:
        """The best of dat's ways without coroutines, beside all peers."""
        ours = [self.ratios[name] for name in ("dat lean", "dat merged", "dat manual") if name in self.ratios]
        if not ours:
            return "missing", []
        return verdicts.ahead_of(min(ours, key=lambda one: one.median), {name: one for name, one in self.ratios.items() if name in programs.PEERS})


def lines_of(text: str) -> list[dict[str, Any]]:
    """The objects among the lines of an output."""
    out = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                out.append(json.loads(line))
            except json.JSONDecodeError:
                raise ValueError(f"not a result: {line[:80]}") from None
    return out


def rows_of(lines: list[dict[str, Any]]) -> list[row]:
    """The rows of works, then those of costs."""
    turns: dict[tuple[str, int, str, str], dict[str, list[tuple[float, float, float]]]] = {}
    missing: dict[tuple[str, int, str, str], dict[str, str]] = {}
    for line in lines:
        if "work" in line:
            key = (line["work"], line["bytes"], line["mode"], line["path"])
            turns.setdefault(key, {})
            if "error" in line:
                missing.setdefault(key, {})[line["peer"]] = line["error"]
            else:
                turns[key].setdefault(line["peer"], []).append((line["value"], line["before"], line["after"]))
    rows = []
    for key, peers in turns.items():
        what, size, mode, path = key
        by_hand = [value for all_turns in peers.values() for _, *both in all_turns for value in both]
        if not by_hand:
            continue
        rate = what not in LESS_IS_BETTER
        ratios = {peer: verdicts.ratio_of(values, rate) for peer, values in peers.items()}
        if mode == "waiting":  # the counted machine does the same again but for FLOOR, so one turn is enough
            ratios = {peer: dataclasses.replace(one, turns=max(2, one.turns)) for peer, one in ratios.items()}
        if what == "connections":
            ratios = {peer: dataclasses.replace(one, noise=max(verdicts.FLOOR_OF_CONNECTIONS, one.noise)) for peer, one in ratios.items()}
        name = f"{what} {size} {mode} {path}" if size else what
        rows.append(row(name, LESS_IS_BETTER.get(what, "per second"), statistics.median(by_hand), ratios, missing.get(key, {})))
    for kind, name in (("calls", "system calls"), ("instructions", "instructions")):
        found = {line["peer"]: line for line in lines if line.get("cost") == kind}
        raw = found.pop(programs.BY_HAND, {}).get("value")
        if raw:
            # A count of an exact number: the same in each run but for what the schedule changes.
            ratios = {peer: verdicts.ratio(line["value"] / raw, verdicts.FLOOR, 2) for peer, line in found.items() if "value" in line}
            rows.append(row(name, "", raw, ratios, {peer: line["error"] for peer, line in found.items() if "error" in line}))
    return rows
