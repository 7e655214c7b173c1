#!/usr/bin/env python3
# The demo: copies real files over RDMA with datcp, both ways, and compares them.
# SPDX-License-Identifier: BSL-1.0
"""demo.py [--size MIB]: in the lab, or natively where the machine has an RDMA device. DATCP names the program."""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATCP = os.environ.get("DATCP", str(ROOT / "build/release/examples/datcp/datcp"))
LAB = os.environ.get("DAT_LAB_PROGRAM", str(ROOT / "tests/lab/dat-lab"))


def say(text: str) -> None:
    """Prints a line for the user."""
    print(text, flush=True)


def mib(count: float) -> str:
    """Bytes in MiB."""
    return f"{count / 2**20:.1f} MiB"


def gather(top: pathlib.Path, limit: int) -> int:
    """Collects real files: shared libraries of this machine, up to `limit` bytes. Returns their size in bytes."""
    top.mkdir()
    total = 0
    for folder in sorted(pathlib.Path("/usr/lib").glob("*-linux-gnu")):
        with os.scandir(folder) as entries:
            files = sorted(e.path for e in entries if ".so" in e.name and e.is_file(follow_symlinks=False))
        for file in files:
            if total < limit and 0 < os.stat(file).st_size <= 8 * 2**20:
                total += pathlib.Path(shutil.copy2(file, top)).stat().st_size
    return total


def same(a: pathlib.Path, b: pathlib.Path) -> int:
    """Compares two trees byte by byte; returns the number of files in each."""
    names = [sorted(str(p.relative_to(top)) for p in top.rglob("*")) for top in (a, b)]
    if names[0] != names[1] or filecmp.cmpfiles(a, b, names[0], shallow=False)[1]:
        sys.exit(f"demo: {a} and {b} differ")
    return len(names[0])


def copy(what: str, port: str, *arguments: str) -> dict[str, object]:
    """Runs datcp as a user would; returns its result."""
    command = [DATCP, "-r", "--json", "--port", port, *arguments]
    say(f"    $ datcp -r {' '.join(arguments)}")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"demo: {what}: datcp ended with exit code {done.returncode}")
    told: dict[str, object] = json.loads(done.stdout)
    say(f"      {what}: {told['files']} files, {mib(told['bytes'])} in {told['seconds']:.1f} s, {mib(told['bytes_per_second'])}/s")
    return told


def inside(size: int) -> int:
    """On the machine with the devices: runs a server in one process and clients in others."""
    port = "7471"
    with tempfile.TemporaryDirectory(prefix="datcp-demo-") as name:
        root = pathlib.Path(name)
        served = root / "served"
        files = served / "files"
        served.mkdir()
        half = size * 2**20 // 2
        real = gather(files, half)
        with open(files / "random", "wb") as out, open("/dev/urandom", "rb") as random:
            for _ in range((half + 2**20 - 1) // 2**20):
                out.write(random.read(2**20))
        say(f"==> Files: {mib(real)} of shared libraries of this machine, {mib(half)} of random bytes")

        # In the lab, clients on rx1 reach the server on rx2 over a wire; elsewhere there may be one adapter only.
        address = ["--address", "10.78.2.1"] if os.environ.get("DAT_LAB") == "machine" else []
        server = subprocess.Popen(
            [DATCP, "serve", str(served), "--port", port, *address], cwd=root, stderr=subprocess.PIPE, text=True
        )
        try:
            assert server.stderr
            first = server.stderr.readline()
            found = re.search(r" at (.*):\d+$", first.rstrip())
            if not found:
                sys.exit(f"demo: the server did not start: {first.strip()}")
            where = found.group(1)
            say(f"==> A server at {where}; two copies over RDMA")
            there = copy("from the server", port, f"{where}:files", f"{root}/here")
            back = copy("back to the server", port, f"{root}/here", f"{where}:back")
        finally:
            server.terminate()
            server.communicate(timeout=10)
        if server.returncode:
            sys.exit(f"demo: the server ended with exit code {server.returncode}")

        say("==> Comparing: datcp's checksums of both ways; all bytes of originals and copies")
        both = [{pathlib.PurePath(f["path"]).name: f["checksum"] for f in told["copied"]} for told in (there, back)]  # type: ignore
        if both[0] != both[1]:
            sys.exit("demo: the checksums of the two ways differ")
        if same(files, root / "here") != len(both[0]) or same(files, served / "back") != len(both[0]):
            sys.exit("demo: there are files that datcp did not tell of")
        bytes_moved = int(there["bytes"]) + int(back["bytes"])  # type: ignore[call-overload]
        seconds = float(there["seconds"]) + float(back["seconds"])  # type: ignore[arg-type]
        say(
            f"\nMoved {mib(there['bytes'])} there and {mib(back['bytes'])} back ({there['files']} files each way) over RDMA, "
            f"{mib(bytes_moved / seconds)}/s.\n"
            f"Checksums agree: for each file sender and receiver have the same XXH3, both ways (random: {both[0]['random']});\n"
            "and all bytes of originals and copies are the same."
        )
    return 0


def main() -> int:
    """On the host: starts the demo in the lab."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="Copies real files over RDMA, both ways, and compares.")
    parser.add_argument("--size", type=int, default=64, help="MiB to be copied each way (default 64)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options.size)
    if not os.access(DATCP, os.X_OK):
        sys.exit(f"demo: {DATCP} is not built (./dev demo builds it)")
    say("==> Starting the lab: a small machine with two Soft-RoCE devices (10 s), or using this machine's RDMA device")
    memory = str(1536 + 4 * options.size)  # all files are in the machine's memory
    command = [LAB, "--memory", memory, "--timeout", "600", "--env", "DATCP", "--"]
    command += [sys.executable, str(HERE / "demo.py"), "--inside", "--size", str(options.size)]
    environment = {k: v for k, v in os.environ.items() if k != "DAT_LAB"} | {"DATCP": DATCP, "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(LAB, command, environment)


if __name__ == "__main__":
    sys.exit(main())
