# What the tests of datcp share: programs, servers, the base of their cases, and the start in the lab.
# SPDX-License-Identifier: BSL-1.0
"""DATCP and ODD_PEER name the programs; by default those of build/gcc."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATCP = os.environ.get("DATCP", str(ROOT / "build/gcc/examples/datcp/datcp"))
ODD_PEER = os.environ.get("ODD_PEER", str(pathlib.Path(DATCP).with_name("odd_peer")))
LAB = ROOT / "tests/lab/dat-lab"
SERVER = "10.78.2.1"
BLOCK = 65536
LIMIT = 120.0  # seconds; nothing here takes that long unless it hangs
SLOW = ["--limit", "500KB", "--block-size", "16KiB"]  # long enough to be interrupted in the middle
RINGS = {"--block-size": "64KiB", "--blocks": "4"}  # unless a test sets others: the lab needs a second to make larger ones


def datcp(*arguments: str | os.PathLike[str]) -> list[str]:
    """The command of a datcp, with small rings where the arguments do not name the size."""
    words = list(map(os.fspath, arguments))
    rings = [word for option in RINGS.items() if option[0] not in words for word in option]
    place = 1 if words[:1] == ["serve"] else 0
    return [DATCP, *words[:place], *rings, *words[place:]]


def run(*arguments: str | os.PathLike[str], prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Runs one datcp to its end."""
    command = [*prefix, *datcp(*arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, errors="surrogateescape")


def eventually(what: Callable[[], object], why: str) -> None:
    """Waits for an event that must come."""
    end = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen: {why}")
        time.sleep(0.005)


class server:
    """A `datcp serve` on a port of its own. Its log is in a file."""

    next_port = 7500

    def __init__(self, directory: pathlib.Path, *options: str, prefix: Sequence[str] = ()):
        server.next_port += 1
        self.port = str(server.next_port)
        self.log_file = tempfile.TemporaryFile("w+", errors="surrogateescape")
        command = [*prefix, *datcp("serve", directory, "--address", SERVER, "--port", self.port, *options)]
        self.process = subprocess.Popen(command, stderr=self.log_file, stdout=subprocess.DEVNULL)
        eventually(lambda: "serving" in self.log() or self.process.poll() is not None, "the server starts")

    def log(self) -> str:
        """The log so far."""
        self.log_file.flush()
        return os.pread(self.log_file.fileno(), 1 << 20, 0).decode(errors="surrogateescape")

    def stop(self, sign: int = signal.SIGTERM) -> int:
        """Ends the server and waits for its end."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        code = self.process.wait(LIMIT)
        self.log_file.close()
        return code

    @property
    def name(self) -> list[str]:
        """The client's options for this server."""
        return ["--port", self.port]


def content(size: int, seed: int = 1) -> bytes:
    """Bytes that repeat after a prime number of bytes, so that no block equals the next one. Random bytes of this size would take a second."""
    few = random.Random(seed).randbytes(65521)
    return (few * (size // len(few) + 1))[:size]


def parts(directory: pathlib.Path) -> list[pathlib.Path]:
    """The incomplete files of a directory."""
    return sorted(directory.rglob(".*.datcp-part"))


class case(unittest.TestCase):
    """A fresh directory for the server and one for the client."""

    def setUp(self) -> None:
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="datcp-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.there = self.root / "there"
        self.here = self.root / "here"
        self.there.mkdir()
        self.here.mkdir()

    @contextlib.contextmanager
    def serving(self, *options: str, prefix: Sequence[str] = ()) -> Iterator[server]:
        """A server of self.there, which must be running and unaffected at the end."""
        s = server(self.there, *options, prefix=prefix)
        try:
            yield s
            self.assertIsNone(s.process.poll(), "the server has died:\n" + s.log())
            self.still_serves(s)
        finally:
            code = s.stop()
        self.assertEqual(code, 0)

    def still_serves(self, s: server) -> None:
        """After any failure the next client gets its file."""
        (self.there / "still").write_bytes(b"there")
        self.good(run(*s.name, f"{SERVER}:still", self.here / "still"))
        self.assertEqual((self.here / "still").read_bytes(), b"there")
        (self.here / "still").unlink()
        (self.there / "still").unlink()

    def good(self, done: subprocess.CompletedProcess[str]) -> None:
        """Checks that datcp succeeded and printed nothing on standard error."""
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def bad(self, done: subprocess.CompletedProcess[str], pattern: str, code: int = 1) -> None:
        """Checks that datcp failed with one line that names the reason."""
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, r"^datcp: .*" + pattern)

    def same(self, a: pathlib.Path, b: pathlib.Path) -> None:
        """Checks that names, kinds, contents, rights and times of all entries are equal."""
        if a.is_dir():
            self.assertEqual(self.listing(a), self.listing(b))
        else:
            self.assertTrue(a.read_bytes() == b.read_bytes(), f"{a} and {b} differ")
            self.assertEqual((a.stat().st_mode, a.stat().st_mtime_ns), (b.stat().st_mode, b.stat().st_mtime_ns))

    @staticmethod
    def listing(top: pathlib.Path) -> dict[str, object]:
        """The entries of a tree."""
        out: dict[str, object] = {}
        for path in top.rglob("*"):
            s = path.lstat()
            kind = os.readlink(path) if path.is_symlink() else "directory"
            if path.is_file() and not path.is_symlink():
                kind = hashlib.sha256(path.read_bytes()).hexdigest()  # short: a difference is to be shown
            out[str(path.relative_to(top))] = (kind,) if path.is_symlink() else (kind, s.st_mode, s.st_mtime_ns)
        return out

    def copies(self, *arguments: str | os.PathLike[str], **popen: object) -> subprocess.Popen[str]:
        """Starts a datcp in the background."""
        process = subprocess.Popen(
            datcp(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen  # type: ignore[call-overload]
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def half_done(self, directory: pathlib.Path, size: int) -> None:
        """Waits until an incomplete file has some bytes, and checks that it is incomplete."""
        eventually(lambda: any(p.stat().st_size > 100_000 for p in parts(directory)), "a part grows")
        self.assertLess(parts(directory)[0].stat().st_size, size)

    @contextlib.contextmanager
    def stopped(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Stops a background datcp, so that it does not end before the test has done its part."""
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.assertIsNone(process.poll(), "the copy ended too early")
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def ended(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        """Waits for the end of a background datcp."""
        out, err = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def main(script: str) -> None:
    """In the lab: runs the tests of a script. Elsewhere: starts the script in the lab."""
    if "DAT_LAB" not in os.environ:
        for program in (DATCP, ODD_PEER):
            if not os.access(program, os.X_OK):
                sys.exit(f"{pathlib.Path(script).stem}: {program} is not built (./dev build gcc)")
        lab = [str(LAB), "--cpus", "1", "--timeout", "1200", "--env", "DATCP", "--env", "ODD_PEER", "--", sys.executable, script, *sys.argv[1:]]
        os.execve(str(LAB), lab, os.environ | {"DATCP": DATCP, "ODD_PEER": ODD_PEER, "PYTHONDONTWRITEBYTECODE": "1"})
    unittest.main()
