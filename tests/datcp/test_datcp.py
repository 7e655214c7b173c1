#!/usr/bin/env python3
# Tests of datcp on real RDMA devices: copies both ways, resuming, and everything that can go wrong.
# SPDX-License-Identifier: BSL-1.0
"""test_datcp.py [unittest options]: runs itself in the lab, or natively where the host has an RDMA device.
DATCP and ODD_PEER name the programs; by default those of build/gcc."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import random
import pty
import re
import select
import shutil
import signal
import socket
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
RINGS = {"--block-size": "64KiB", "--blocks": "4"}  # unless a test says otherwise: the lab needs a second to make larger ones


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
    """Bytes without a pattern."""
    return random.Random(seed).randbytes(size)


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


class Copies(case):
    """Requested files arrive."""

    def test_files_of_all_sizes_around_a_block_arrive_whole_both_ways(self) -> None:
        sizes = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 16 * BLOCK, 16 * BLOCK + 1, 5 * 1024 * 1024 + 17]
        for size in sizes:
            (self.there / f"{size}").write_bytes(content(size))
        names = [f"{SERVER}:{size}" for size in sizes]
        with self.serving() as s:
            self.good(run(*s.name, "--block-size", str(BLOCK), *names, self.here))
            self.same(self.there, self.here)
            (self.there / "back").mkdir()
            self.good(run(*s.name, "--block-size", str(BLOCK), *[self.here / str(n) for n in sizes], f"{SERVER}:back"))
            self.same(self.here, self.there / "back")

    def test_a_tree_with_odd_names_arrives_both_ways(self) -> None:
        tree = self.there / "tree"
        names = ["plain", "with space", "-r", "--help", "ünï ☃", "new\nline", "colon:", "*", "x" * 255, ".hidden", "'\"\\"]
        (tree / "sub dir" / "-deep").mkdir(parents=True)
        for number, name in enumerate(names):
            (tree / name).write_bytes(content(1000 * number, number))
            (tree / "sub dir" / "-deep" / name).write_bytes(b"")
        (tree / os.fsdecode(b"not utf-8 \xff")).write_bytes(b"x")
        (tree / "empty").mkdir()
        (tree / "link").symlink_to("plain")
        (tree / "dangling").symlink_to("/no/such/thing")
        (tree / "plain").chmod(0o640)
        os.utime(tree / "plain", ns=(1, 1_234_567_890_123_456_789))
        os.utime(tree / "-r", ns=(1, -1_500_000_000))
        (tree / "sub dir").chmod(0o500)  # may not be written: its rights must come last
        os.utime(tree / "sub dir", ns=(1, 1_000_000_000_000_000_001))
        with self.serving() as s:
            self.good(run(*s.name, "-r", f"{SERVER}:tree", self.here / "named"))
            self.same(tree, self.here / "named")
            self.assertEqual(tree.stat().st_mtime_ns, (self.here / "named").stat().st_mtime_ns)
            self.good(run(*s.name, "-r", f"{SERVER}:tree/", self.here))
            self.same(tree, self.here / "tree")
            self.good(run(*s.name, "-r", self.here / "tree", f"{SERVER}:back"))
            self.same(tree, self.there / "back")
            self.good(run(*s.name, "-r", f"{SERVER}:.", self.here / "all"))
            self.same(self.there, self.here / "all")
            self.good(run(*s.name, "--", self.here / "tree" / "-r", f"{SERVER}:-r"))
            self.assertEqual((self.there / "-r").read_bytes(), (tree / "-r").read_bytes())

    def test_the_target_is_chosen_as_cp_does(self) -> None:
        (self.there / "dir").mkdir()
        (self.there / "a").write_bytes(b"a")
        (self.here / "old").write_bytes(b"old")
        with self.serving() as s:
            self.good(run(*s.name, f"{SERVER}:a", self.here / "old"))  # replaces a file
            self.assertEqual((self.here / "old").read_bytes(), b"a")
            self.good(run(*s.name, self.here / "old", f"{SERVER}:dir"))  # goes into a directory
            self.good(run(*s.name, self.here / "old", f"{SERVER}:"))  # the server's DIR itself
            self.assertEqual((self.there / "dir/old").read_bytes() + (self.there / "old").read_bytes(), b"aa")
            self.bad(run(*s.name, f"{SERVER}:a", f"{SERVER}:old", self.here / "none"), "none: no such directory")
            self.bad(run(*s.name, f"{SERVER}:a", str(self.here / "none") + "/"), "none/: no such directory")
            self.bad(run(*s.name, self.here / "old", f"{SERVER}:a/"), "a/: (?i:not a directory)")
            (self.here / "a").mkdir()
            self.bad(run(*s.name, f"{SERVER}:a", self.here), "a: cannot be stored: is a directory")

    def test_sizes_and_checksums_are_in_the_json_summary(self) -> None:
        (self.there / "one").write_bytes(content(100_000))
        with self.serving() as s:
            done = run(*s.name, "--json", f"{SERVER}:one", f"{SERVER}:none", self.here)
        self.bad(done, "none: cannot be read: No such file or directory")
        told = json.loads(done.stdout)
        self.assertEqual((told["ok"], told["files"], told["bytes"]), (False, 1, 100_000))
        self.assertEqual(told["problems"], [{"path": f"{SERVER}:none", "reason": "cannot be read: No such file or directory"}])
        self.assertEqual(told["copied"][0]["bytes"], 100_000)
        if xxhsum := shutil.which("xxhsum"):
            want = subprocess.run([xxhsum, "-H2", self.there / "one"], capture_output=True, text=True, check=True).stdout.split()[0]
            self.assertEqual(told["copied"][0]["checksum"], want)
        self.assertRegex(told["copied"][0]["checksum"], "^[0-9a-f]{32}$")

    def test_the_json_summary_of_a_copy_that_never_began_is_json(self) -> None:
        done = run("--port", "7499", "--json", f"{SERVER}:x", self.here)
        self.bad(done, "no datcp server answers")
        told = json.loads(done.stdout)
        self.assertFalse(told["ok"])
        self.assertIn("no datcp server answers", told["error"])

    def test_small_rings_and_large_rings_meet(self) -> None:
        (self.there / "file").write_bytes(content(100_003))
        with self.serving("--block-size", "8192", "--blocks", "3") as s:
            for options in (["--blocks", "1"], ["--block-size", "512", "--blocks", "7"], ["--block-size", "4MiB", "--blocks", "2"]):
                self.good(run(*s.name, *options, f"{SERVER}:file", self.here))
                self.good(run(*s.name, *options, self.here / "file", f"{SERVER}:back"))
                self.same(self.here / "file", self.there / "back")
                self.same(self.there / "file", self.here / "file")
                (self.here / "file").unlink()

    def test_a_limit_slows_both_directions_down(self) -> None:
        (self.there / "file").write_bytes(content(500_000))
        with self.serving() as s:
            for arguments in ([f"{SERVER}:file", self.here], [self.here / "file", f"{SERVER}:back"]):
                done = run(*s.name, "--json", "--limit", "500KB", "--block-size", "16KiB", *arguments)
                self.good(done)
                self.assertLessEqual(json.loads(done.stdout)["bytes_per_second"], 500 * 1024)
        self.same(self.there / "file", self.there / "back")

    def test_several_clients_are_served_at_once(self) -> None:
        for i in range(4):
            (self.there / f"get{i}").write_bytes(content(2_000_000, i))
            (self.here / f"put{i}").write_bytes(content(2_000_000, 10 + i))
        with self.serving() as s:
            clients = [self.copies(*s.name, f"{SERVER}:get{i}", self.here) for i in range(4)]
            clients += [self.copies(*s.name, self.here / f"put{i}", f"{SERVER}:") for i in range(4)]
            for client in clients:
                self.good(self.ended(client))
        self.same(self.there, self.here)

    def test_the_progress_is_shown_on_a_terminal_and_nowhere_else(self) -> None:
        (self.there / "file").write_bytes(content(4_000_000))
        with self.serving() as s:
            mine, its = pty.openpty()
            process = subprocess.Popen(
                datcp(*s.name, "--limit", "2MB", "--block-size", "64KiB", f"{SERVER}:file", self.here), stderr=its, stdout=subprocess.DEVNULL
            )
            os.close(its)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: no process has the other end
                while select.select([mine], [], [], LIMIT)[0] and (data := os.read(mine, 4096)):
                    shown += data
            os.close(mine)
            self.assertEqual(process.wait(LIMIT), 0)
            self.assertRegex(shown, rb"\d+% \[#*-*\] [\d.]+ \w+ of 3.8 MiB, [\d.]+ \w+/s, \d+:\d\d left")
            self.good(run(*s.name, f"{SERVER}:file", self.here))  # success: the standard error is empty


class Resumes(case):
    """An interrupted copy continues."""

    SIZE = 6_000_000

    def broken_off(self, s: server, *arguments: str | os.PathLike[str], receiver: pathlib.Path) -> None:
        """Kills a client in the middle of a copy."""
        client = self.copies(*s.name, *SLOW, *arguments)
        self.half_done(receiver, self.SIZE)
        client.kill()
        client.wait(LIMIT)

    def test_a_download_goes_on_after_the_client_was_killed(self) -> None:
        (self.there / "file").write_bytes(content(self.SIZE))
        with self.serving() as s:
            self.broken_off(s, f"{SERVER}:file", self.here, receiver=self.here)
            self.assertFalse((self.here / "file").exists())
            done = run(*s.name, "--json", "--resume", f"{SERVER}:file", self.here)
        self.good(done)
        told = json.loads(done.stdout)
        self.assertGreater(told["resumed_bytes"], 100_000)
        self.assertEqual(told["resumed_bytes"] + told["bytes"], self.SIZE)
        self.same(self.there / "file", self.here / "file")
        self.assertEqual(parts(self.here), [])

    def test_an_upload_goes_on_after_the_client_was_killed(self) -> None:
        (self.here / "file").write_bytes(content(self.SIZE))
        with self.serving() as s:
            self.broken_off(s, self.here / "file", f"{SERVER}:", receiver=self.there)
            eventually(lambda: "the peer ended the connection" in s.log(), "the server notices")
            self.assertFalse((self.there / "file").exists())
            done = run(*s.name, "--json", "--resume", self.here / "file", f"{SERVER}:")
        self.good(done)
        self.assertGreater(json.loads(done.stdout)["resumed_bytes"], 100_000)
        self.same(self.here / "file", self.there / "file")

    def test_a_part_that_is_wrong_is_not_continued(self) -> None:
        (self.there / "file").write_bytes(content(500_000))
        with self.serving() as s:
            for wrong in (content(300_000, 5), content(600_000), b"\0" + content(499_999)):
                (self.here / ".file.datcp-part").write_bytes(wrong)
                done = run(*s.name, "--json", "--resume", f"{SERVER}:file", self.here)
                self.good(done)
                self.assertEqual(json.loads(done.stdout)["resumed_bytes"], 0)
                self.same(self.there / "file", self.here / "file")
                (self.here / "file").unlink()
            # The counterpart: a correct part is continued.
            (self.here / ".file.datcp-part").write_bytes(content(300_000))
            done = run(*s.name, "--json", "--resume", f"{SERVER}:file", self.here)
            self.assertEqual(json.loads(done.stdout)["resumed_bytes"], 300_000)
            self.same(self.there / "file", self.here / "file")

    def test_without_resume_a_part_is_overwritten(self) -> None:
        (self.there / "file").write_bytes(content(500_000))
        (self.here / ".file.datcp-part").write_bytes(content(300_000))
        with self.serving() as s:
            done = run(*s.name, "--json", f"{SERVER}:file", self.here)
        self.assertEqual(json.loads(done.stdout)["bytes"], 500_000)
        self.same(self.there / "file", self.here / "file")

    def test_complete_files_are_left_alone_and_changed_ones_are_not(self) -> None:
        for name in ("a", "b", "c"):
            (self.there / name).write_bytes(content(1000))
        with self.serving() as s:
            self.good(run(*s.name, "-r", f"{SERVER}:.", self.here))
            (self.there / "b").write_bytes(content(1001))
            os.utime(self.there / "c", ns=(5, 5))
            done = run(*s.name, "--json", "--resume", "-r", f"{SERVER}:.", self.here)
        self.good(done)
        told = json.loads(done.stdout)
        self.assertEqual((told["skipped"], told["files"]), (1, 2))
        self.same(self.there, self.here)

    def test_parts_are_not_copied_themselves(self) -> None:
        (self.there / ".file.datcp-part").write_bytes(b"half")
        with self.serving() as s:
            self.good(run(*s.name, "-r", f"{SERVER}:.", self.here))
        self.assertEqual(list(self.here.iterdir()), [])


class GoesWrong(case):
    """Each failure gives one clear line and an exit code, no incomplete file under the final name, and a running server."""

    def test_a_server_that_is_not_there(self) -> None:
        self.bad(run("--port", "7499", f"{SERVER}:x", self.here), f"{SERVER}: no datcp server answers on port 7499")
        self.bad(run("10.99.0.1:x", self.here), "10.99.0.1: .*ENETUNREACH")
        self.bad(run("no.such.host.invalid:x", self.here), "no.such.host.invalid: ")

    def test_a_command_that_makes_no_sense(self) -> None:
        for arguments in (["a", "b"], [f"{SERVER}:a", f"{SERVER}:b"], ["rx1:a", "rx2:b", "."], ["a"], [], ["--blocks", "0", "a:b", "."]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertNotEqual(done.stderr, "")
        self.assertEqual(run("--help").returncode, 0)
        self.assertEqual(run("serve", "--help").returncode, 0)

    def test_a_server_that_cannot_start(self) -> None:
        self.bad(run("serve", self.root / "none"), "none: No such file or directory")
        self.bad(run("serve", self.here, "--address", "10.99.0.1"), "address")
        with self.serving() as s:
            self.bad(run("serve", self.here, "--address", SERVER, "--port", s.port), "in use")

    def test_files_that_cannot_be_read(self) -> None:
        (self.there / "secret").write_bytes(b"x")
        (self.there / "secret").chmod(0)
        os.mkfifo(self.there / "pipe")
        (self.there / "dir").mkdir()
        no_override = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        with self.serving(prefix=no_override) as s:
            self.bad(run(*s.name, f"{SERVER}:none", self.here), "none: cannot be read: No such file or directory")
            self.bad(run(*s.name, f"{SERVER}:secret", self.here), "secret: cannot be read: Permission denied")
            self.bad(run(*s.name, f"{SERVER}:pipe", self.here), "pipe: cannot be read: neither a file nor a directory")
            self.bad(run(*s.name, f"{SERVER}:dir", self.here), "dir: cannot be read: is a directory")
            self.bad(run(*s.name, self.here / "none", f"{SERVER}:"), "none: cannot be read: No such file or directory")
            self.assertEqual(list(self.here.iterdir()), [])
            # In a tree, the other files are still copied.
            done = run(*s.name, "-r", f"{SERVER}:.", self.here / "all")
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 2), done.stderr)
            self.assertTrue((self.here / "all/dir").is_dir())

    def test_places_that_cannot_be_written(self) -> None:
        (self.here / "file").write_bytes(b"new")
        (self.there / "locked").mkdir()
        (self.there / "locked").chmod(0o555)
        (self.there / "protected").write_bytes(b"old")
        (self.there / "protected").chmod(0o444)
        no_override = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        with self.serving(prefix=no_override) as s:
            self.bad(run(*s.name, self.here / "file", f"{SERVER}:locked"), "file: cannot be stored: Permission denied")
            self.bad(run(*s.name, self.here / "file", f"{SERVER}:protected"), "file: cannot be stored: Permission denied")
            self.bad(run(*s.name, self.here / "file", f"{SERVER}:none/file"), "none/file: No such file or directory")
            self.bad(run(*s.name, "-r", self.here, f"{SERVER}:locked"), "cannot be stored: Permission denied")
        self.assertEqual((self.there / "protected").read_bytes(), b"old")
        self.assertEqual(parts(self.there), [])
        with self.serving("--read-only") as s:
            self.bad(run(*s.name, self.here / "file", f"{SERVER}:new"), "the server does not take files")

    def test_a_full_disk(self) -> None:
        (self.here / "big").write_bytes(content(3_000_000))
        (self.here / "small").write_bytes(b"small")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", self.there], check=True)
        self.addCleanup(subprocess.run, ["umount", self.there], check=True)
        with self.serving() as s:
            done = run(*s.name, self.here / "big", self.here / "small", f"{SERVER}:")
            self.bad(done, "big: cannot be stored: No space left on device")
            self.assertEqual((self.there / "small").read_bytes(), b"small")  # the next file is copied nevertheless
            self.assertFalse((self.there / "big").exists())
            self.assertEqual(parts(self.there), [])

    def test_a_disk_that_fails_in_the_middle_of_a_file(self) -> None:
        # A limit on the size of files is detected by the write that exceeds it, and not before.
        (self.there / "big").write_bytes(content(5_000_000))
        (self.there / "small").write_bytes(b"small")
        with self.serving() as s:
            limited = ["prlimit", "--fsize=1000000"]
            done = run(*s.name, f"{SERVER}:big", f"{SERVER}:small", self.here, prefix=limited)
            self.bad(done, "big: cannot be stored: File too large")
            self.assertEqual((self.here / "small").read_bytes(), b"small")
            self.assertFalse((self.here / "big").exists())
            self.assertEqual(parts(self.here), [])
            done = run(*s.name, "--resume", f"{SERVER}:big", self.here, prefix=limited)
            self.bad(done, "big: cannot be stored: File too large")
            self.assertEqual([p.stat().st_size for p in parts(self.here)], [1_000_000])  # kept, as asked
            done = run(*s.name, "--json", "--resume", f"{SERVER}:big", self.here)
            self.assertEqual(json.loads(done.stdout)["resumed_bytes"], 1_000_000)

    def test_nothing_leads_out_of_the_served_directory(self) -> None:
        (self.root / "secret").write_bytes(b"secret")
        (self.there / "sub").mkdir()
        (self.there / "out").symlink_to(self.root)
        (self.there / "up").symlink_to("../secret")
        (self.there / "fine").symlink_to("sub/inside")
        (self.there / "sub/inside").write_bytes(b"inside")
        out = ["../secret", "sub/../../secret", f"{self.root}/secret", "out/secret", "up", "/etc/passwd", "..", "/"]
        (self.here / "evil").write_bytes(b"evil")
        with self.serving() as s:
            for path in out:
                self.bad(run(*s.name, "-r", f"{SERVER}:{path}", self.here / "got"), "cannot be read: leads out of the directory")
            for path in ("../evil", f"{self.root}/evil", "out/evil", "sub/../../evil", "..", "out"):
                self.bad(run(*s.name, self.here / "evil", f"{SERVER}:{path}"), "leads out of the directory")
            # The counterparts: inside the tree the same spellings work.
            self.good(run(*s.name, f"{SERVER}:sub/../sub/inside", self.here / "got"))
            self.good(run(*s.name, f"{SERVER}:fine", self.here / "got"))
            self.good(run(*s.name, self.here / "evil", f"{SERVER}:sub/../evil"))
        self.assertEqual((self.here / "got").read_bytes(), b"inside")
        self.assertFalse((self.root / "evil").exists())
        self.assertEqual((self.root / "secret").read_bytes(), b"secret")

    def test_a_server_that_is_killed(self) -> None:
        (self.there / "file").write_bytes(content(6_000_000))
        (self.here / "mine").write_bytes(content(6_000_000))
        s = server(self.there)
        get = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
        put = self.copies(*s.name, *SLOW, self.here / "mine", f"{SERVER}:")
        self.half_done(self.here, 6_000_000)
        self.half_done(self.there, 6_000_000)
        s.stop(signal.SIGKILL)
        self.bad(self.ended(get), f"{SERVER}: the (peer ended the )?connection")
        self.bad(self.ended(put), f"{SERVER}: the (peer ended the )?connection")
        self.assertFalse((self.here / "file").exists())
        self.assertFalse((self.there / "mine").exists())

    def test_a_client_that_is_killed(self) -> None:
        (self.there / "file").write_bytes(content(6_000_000))
        with self.serving() as s:
            get = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
            self.half_done(self.here, 6_000_000)
            get.kill()
            eventually(lambda: "the peer ended the connection" in s.log(), "the server notices")
            self.assertFalse((self.here / "file").exists())

    @unittest.skipUnless(os.environ.get("DAT_LAB") == "machine", "needs a wire that can be cut")
    def test_a_receiver_notices_that_the_other_host_is_gone(self) -> None:
        # The server stops, so the sender's retries cannot detect it; then the wire is silent. Only the probe can detect
        # that.
        (self.there / "file").write_bytes(content(6_000_000))
        s = server(self.there)
        get = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
        self.half_done(self.here, 6_000_000)
        s.process.send_signal(signal.SIGSTOP)
        cut = ["dev", "v1", "root", "netem", "loss", "100%"]
        subprocess.run(["tc", "qdisc", "add", *cut], check=True)
        try:
            self.bad(self.ended(get), "the connection broke")
        finally:
            subprocess.run(["tc", "qdisc", "del", *cut], check=True)
            s.process.send_signal(signal.SIGCONT)
            s.stop()
        self.assertFalse((self.here / "file").exists())

    def test_ctrl_c_ends_a_client_in_order(self) -> None:
        (self.there / "file").write_bytes(content(6_000_000))
        with self.serving() as s:
            get = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
            self.half_done(self.here, 6_000_000)
            get.send_signal(signal.SIGINT)
            self.bad(self.ended(get), "interrupted", 130)
            self.assertFalse((self.here / "file").exists())

    def test_sigterm_ends_a_server_in_order(self) -> None:
        (self.there / "file").write_bytes(content(6_000_000))
        for sign in (signal.SIGTERM, signal.SIGINT):
            s = server(self.there)
            get = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
            self.half_done(self.here, 6_000_000)
            self.assertEqual(s.stop(sign), 0)
            self.bad(self.ended(get), "the peer ended the connection")
            for part in parts(self.here):
                part.unlink()

    def test_more_clients_than_allowed(self) -> None:
        (self.there / "file").write_bytes(content(6_000_000))
        with self.serving("--clients", "1") as s:
            first = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
            self.half_done(self.here, 6_000_000)
            with self.stopped(first):
                self.bad(run(*s.name, f"{SERVER}:file", self.here / "second"), "the server says: too many clients")
            first.kill()
            first.wait(LIMIT)
            eventually(lambda: "the peer ended" in s.log(), "the server notices")
            eventually(lambda: run(*s.name, f"{SERVER}:file", self.here / "second").returncode == 0, "there is room again")

    def test_two_copies_to_one_name(self) -> None:
        (self.there / "file").write_bytes(content(1_500_000))
        with self.serving() as s:
            first = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
            self.half_done(self.here, 1_500_000)
            with self.stopped(first):
                self.bad(run(*s.name, f"{SERVER}:file", self.here), "another copy to this name is in progress")
            self.good(self.ended(first))
        self.same(self.there / "file", self.here / "file")

    def test_a_file_that_shrinks_while_it_is_copied(self) -> None:
        (self.there / "file").write_bytes(content(6_000_000))
        with self.serving() as s:
            get = self.copies(*s.name, *SLOW, f"{SERVER}:file", self.here)
            self.half_done(self.here, 6_000_000)
            with self.stopped(get):
                os.truncate(self.there / "file", 10)
            self.bad(self.ended(get), "file: cannot be stored: became shorter while it was copied")
        self.assertEqual(list(self.here.iterdir()), [])


class Strangers(case):
    """Peers that use another protocol, or violate datcp's."""

    def odd(self, *arguments: str) -> str:
        """The output of an odd peer after its attempt."""
        done = subprocess.run([ODD_PEER, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
        return done.stdout.strip()

    @contextlib.contextmanager
    def odd_server(self, *arguments: str) -> Iterator[list[str]]:
        """Starts an odd peer that listens."""
        server.next_port += 1
        port = str(server.next_port)
        process = subprocess.Popen([ODD_PEER, *arguments, SERVER, port], stdout=subprocess.PIPE, text=True)
        assert process.stdout
        try:
            self.assertEqual(process.stdout.readline(), "listening\n")
            yield ["--port", port]
        finally:
            process.kill()
            process.wait(LIMIT)
            process.stdout.close()

    @unittest.skipUnless(shutil.which("rping"), "rping is not installed (rdmacm-utils)")
    def test_rping_is_refused(self) -> None:
        with self.serving() as s:
            rping = ["rping", "-c", "-a", SERVER, "-p", s.port, "-C", "1"]
            done = subprocess.run(rping, capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertNotEqual(done.returncode, 0)
            eventually(lambda: "does not speak datcp's protocol" in s.log(), "the server says so")

    @unittest.skipUnless(shutil.which("rping"), "rping is not installed (rdmacm-utils)")
    def test_a_client_notices_that_it_speaks_to_rping(self) -> None:
        server.next_port += 1
        port = str(server.next_port)
        with subprocess.Popen(["rping", "-s", "-a", SERVER, "-p", port], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as rping:
            try:
                done = run("--port", port, f"{SERVER}:x", self.here)
                while "no datcp server answers" in done.stderr:  # not listening yet
                    done = run("--port", port, f"{SERVER}:x", self.here)
            finally:
                rping.kill()
        self.bad(done, "it does not speak datcp's protocol")

    def test_a_stream_of_bytes_does_not_disturb(self) -> None:
        with self.serving() as s, contextlib.suppress(OSError):
            with socket.create_connection((SERVER, int(s.port)), 1) as tcp:
                tcp.sendall(b"GET / HTTP/1.0\r\n\r\n")

    def test_greetings_that_make_no_sense_are_refused(self) -> None:
        with self.serving() as s:
            self.assertEqual(self.odd("connect", "well", SERVER, s.port), "accepted")
            for which in ("no-greeting", "other-magic", "other-version", "no-blocks", "huge-blocks", "small-ring", "no-ring"):
                self.assertEqual(self.odd("connect", which, SERVER, s.port), "refused: version 1 wanted", which)
            self.assertIn("it speaks version 77 of datcp's protocol, this is version 1", s.log())

    def test_a_client_checks_the_servers_greeting(self) -> None:
        for which, why in (
            ("no-greeting", "it does not speak datcp's protocol"),
            ("other-magic", "it does not speak datcp's protocol"),
            ("other-version", "it speaks version 77 of datcp's protocol, this is version 1"),
            ("small-ring", "its greeting makes no sense"),
            ("reject", "refused by a program that does not speak datcp's protocol"),
        ):
            with self.odd_server("accept", which) as port:
                self.bad(run(*port, f"{SERVER}:x", self.here), why)

    def test_a_client_that_breaks_the_rules_is_hung_up_on(self) -> None:
        with self.serving() as s:
            cases = {
                "wrong-turn": "hung up",
                "block-first": "hung up",
                "dotdot": "hung up",
                "zero-byte": "hung up",
                "unknown-kind": "hung up",
                "credit": "hung up",
                "middle": "hung up",
                "too-much": "stored: the sender sent more than it had promised",
                "too-little": "stored: ended too early",
                "wrong-sum": "stored: the checksums of the two sides differ",
            }
            for which, end in cases.items():
                self.assertEqual(self.odd("speak", which, SERVER, s.port), end, which)
                self.assertFalse((self.there / "odd").exists())
            self.assertRegex(s.log(), "that was not its turn")
        self.assertEqual([p.name for p in self.there.iterdir() if not p.name.endswith("datcp-part")], [])

    def test_a_server_cannot_make_a_client_write_elsewhere(self) -> None:
        inside = self.here / "inside"
        inside.mkdir()
        for which, why in (
            ("serve-dotdot", "a path is not in order"),
            ("serve-absolute", "a path is not in order"),
            ("serve-link", "cannot be stored: leads out of the directory"),
        ):
            with self.odd_server("serve", which) as port:
                self.bad(run(*port, "-r", f"{SERVER}:x", inside), why)
        self.assertEqual([p.name for p in self.here.rglob("*evil*")], [])


def main() -> None:
    """In the lab: runs the tests. Elsewhere: starts the lab."""
    if "DAT_LAB" not in os.environ:
        for program in (DATCP, ODD_PEER):
            if not os.access(program, os.X_OK):
                sys.exit(f"test_datcp: {program} is not built (./dev build gcc)")
        lab = [str(LAB), "--timeout", "1200", "--env", "DATCP", "--env", "ODD_PEER", "--", sys.executable, __file__, *sys.argv[1:]]
        os.execve(str(LAB), lab, os.environ | {"DATCP": DATCP, "ODD_PEER": ODD_PEER, "PYTHONDONTWRITEBYTECODE": "1"})
    unittest.main()


if __name__ == "__main__":
    main()
