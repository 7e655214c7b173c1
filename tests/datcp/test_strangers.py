#!/usr/bin/env python3
# Tests of datcp: peers that use another protocol, or violate datcp's.
# SPDX-License-Identifier: BSL-1.0

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import unittest
from collections.abc import Iterator

from datcp_testing import LIMIT, ODD_PEER, SERVER, case, eventually, main, run, server


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


if __name__ == "__main__":
    main(__file__)
