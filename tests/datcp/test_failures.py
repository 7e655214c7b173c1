#!/usr/bin/env python3
# Tests of datcp: everything that can go wrong with commands, files, disks, connections and other copies.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import json
import os
import signal
import subprocess
import unittest

from datcp_testing import LIMIT, SERVER, SLOW, case, content, eventually, main, parts, run, server


class GoesWrong(case):
    """Each failure prints one clear line, sets an exit code, leaves no incomplete file under the final name, and leaves the server running."""

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
        # The server stops, so the sender's retries cannot detect it; then the wire carries no traffic. Only the probe can detect
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


if __name__ == "__main__":
    main(__file__)
