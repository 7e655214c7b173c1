# The compile commands of a build directory of Meson.
# SPDX-License-Identifier: BSL-1.0
from __future__ import annotations

import shlex


def without_output(command: str) -> list[str]:
    """The words of a compile command, without those that name what it writes and what kind."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in {"-o", "-MF", "-MQ"}:
            next(words)
        elif word not in {"-MD", "-c"}:
            kept.append(word)
    return kept
