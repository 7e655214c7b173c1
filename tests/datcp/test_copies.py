#!/usr/bin/env python3
# Tests of datcp: copies both ways, their targets, their progress and their summary.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import subprocess

from datcp_testing import BLOCK, LIMIT, SERVER, case, content, datcp, main, run


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


if __name__ == "__main__":
    main(__file__)
