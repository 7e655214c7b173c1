# Ratios to hand-written verbs, their noise, and what they say.
# SPDX-License-Identifier: BSL-1.0
"""A turn of a peer stands between two turns of hand-written verbs, and is divided by their mean. The noise of the median ratio is half of the
range of all ratios, and at least FLOOR: two runs of the counted machine differ by as much."""

from __future__ import annotations

import dataclasses
import statistics

FLOOR = 0.01
FLOOR_OF_CONNECTIONS = 0.03  # their handshakes depend more on when each side runs


@dataclasses.dataclass(frozen=True)
class ratio:
    """The ratio of a peer to hand-written verbs in one row. Above 1, the peer is slower, whatever the unit."""

    median: float
    noise: float
    turns: int


def ratio_of(values: list[tuple[float, float, float]], more_is_better: bool) -> ratio:
    """From (turn, turn of verbs before, turn of verbs after)."""
    if not values:
        raise ValueError("no turn")
    each = [(before + after) / 2 / here if more_is_better else 2 * here / (before + after) for here, before, after in values]
    return ratio(statistics.median(each), max(FLOOR, (max(each) - min(each)) / 2), len(each))


def verdict(dat: ratio, peer: ratio) -> str:
    """The verdict of dat beside a peer: only differences beyond the noise of both, from more than one turn."""
    apart = peer.median - dat.median
    if min(dat.turns, peer.turns) < 2 or abs(apart) <= dat.noise + peer.noise:
        return "within noise"
    return "ahead" if apart > 0 else "behind"


def ahead_of(dat: ratio, peers: dict[str, ratio]) -> tuple[str, list[str]]:
    """The verdict of a row, and the peers that are not behind dat."""
    verdicts = {name: verdict(dat, peer) for name, peer in peers.items()}
    rest = [name for name, one in verdicts.items() if one != "ahead"]
    if not verdicts:
        return "alone", []
    if not rest:
        return "ahead", []
    return ("behind" if "behind" in verdicts.values() else "within noise"), rest


def missing_reasons(rows: dict[str, str], reasons: dict[str, str]) -> list[str]:
    """The rows in which dat is behind, and for which no reason is written down."""
    return [row for row, one in rows.items() if one == "behind" and not reasons.get(row, "").strip()]
