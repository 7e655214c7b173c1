#!/usr/bin/env python3
# Tests of datcp: copies that were interrupted and are continued.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
import os
import pathlib

from datcp_testing import LIMIT, SERVER, SLOW, case, content, eventually, main, parts, run, server


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


if __name__ == "__main__":
    main(__file__)
