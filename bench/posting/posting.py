#!/usr/bin/env python3
# Instructions of a post by ibv_post_send and by ibv_wr_*, in the provider library of a real device.
# SPDX-License-Identifier: BSL-1.0
"""posting.py --build DIR [--check] [--lab OPTION]...

Counts with callgrind what a post costs in user space: the caller and the provider library, without the completion and
the kernel. The device is the first one of this machine, or Soft-RoCE in the lab. "From a link" fills an ibv_send_wr
first, as dat does. With --check it fails when a ratio is not the one of Soft-RoCE that is recorded here. --lab gives
dat-lab an option, as in --lab=--cpus=1."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/overhead"))
import gauge  # noqa: E402

LAB = ROOT / "tests/lab/dat-lab"
COUNTED = "*::counted_*(posting::link&)"
# Soft-RoCE of rdma-core 44: ibv_wr_* divided by ibv_post_send. bench/README.md has the consequence for dat.
RECORDED = {
    "send": 0.82,
    "send, from a link": 0.98,
    "RDMA write": 0.82,
    "RDMA write, from a link": 0.99,
    "RDMA write, inline": 0.84,
    "RDMA write, inline, from a link": 0.98,
    "RDMA read": 0.82,
    "RDMA read, from a link": 1.00,
    "each of 16 sends": 0.76,
    "each of 16 sends, from a link": 0.93,
}
MAY_DIFFER = 0.05


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Instructions of a post by ibv_post_send and by ibv_wr_* of a real provider.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build directory, with optimisation")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is not the recorded one of Soft-RoCE")
    parser.add_argument("--lab", action="append", default=[], metavar="OPTION", help="an option of dat-lab")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    program = (options.build / "bench/posting/posting").resolve()
    if options.inside:
        gauge.COUNTED = COUNTED
        print(json.dumps(gauge.instructions(program)))
        return 0
    command = [LAB, *options.lab, "--timeout", "500", "--", sys.executable, "-B", __file__, "--inside", "--build", options.build.resolve()]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != 1:
        print(done.stdout)
        print(f"posting.py: the lab ended with {done.returncode}")
        return 2
    counts = {job: (posted, extended, extended / posted) for job, (posted, extended) in json.loads(lines[0]).items()}
    print(f"{'user-space instructions of a post':<34} {'ibv_post_send':>13} {'ibv_wr_*':>8} {'ratio':>6}")
    for job, (posted, extended, ratio) in counts.items():
        print(f"{job:<34} {posted:>13.1f} {extended:>8.1f} {ratio:>6.2f}")
    changed = [job for job in RECORDED if job not in counts or abs(counts[job][2] - RECORDED[job]) > MAY_DIFFER]
    if options.check and changed:
        print(f"not as recorded: {'; '.join(changed)}")
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
