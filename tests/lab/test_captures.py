#!/usr/bin/env python3
# Tests of dat-lab: captures of the frames on its links (--pcap).
# SPDX-License-Identifier: BSL-1.0

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import lab_main
from lab_testing import Case, module, pcap_frames, roce, run, slow

PINGPONG = """ibv_rc_pingpong -d rx2 -g 1 -n 20 >/dev/null & s=$!
until ibv_rc_pingpong -d rx1 -g 1 -n 20 10.78.2.1; do
  n=$((n + 1)); [ $n -lt 300 ] || { kill $s; exit 1; }; sleep 0.1
done
wait $s
"""


@slow
class Captures(Case):
    """One boot with a capture of both ends of the wire."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        cls.files = [os.path.join(cls.dir, f) for f in ("one, two", "v2.pcap")]
        script = os.path.join(cls.dir, "script")
        with open(os.path.join(cls.dir, "pingpong"), "w") as f:
            f.write(PINGPONG)
        with open(script, "w") as f:
            f.write(f"sh {cls.dir}/pingpong\nls -l /proc/[0-9]*/exe 2>/dev/null | grep -c python\nip link set v1 down\n")
        args = [a for path, link in zip(cls.files, ("", "v2=")) for a in ("--pcap", link + path)]
        cls.began = time.time()
        cls.r = run(*args, "--timeout", "300", "--script", script, cwd=cls.dir)
        cls.ended = time.time()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def test_both_ends_of_the_wire_have_all_frames_of_a_ping_pong(self):
        self.assertEqual(self.r.rc, 0, (self.r.out, self.r.err))
        for path in self.files:
            seen = [roce(frame) for _, frame in pcap_frames(path)]
            for source in ("10.78.1.1", "10.78.2.1"):
                sends = [x for x in seen if x and x[0] == source and x[1] in (0, 1, 2, 4)]  # first, middle, last, only
                acks = [x for x in seen if x and x[0] == source and x[1] == 17]
                self.assertGreaterEqual(len(sends), 20 * 4)  # 4096 bytes with an RDMA MTU of 1024
                self.assertGreaterEqual(len(acks), 20)

    def test_times_are_those_of_the_run_in_order(self):
        times = [t for t, _ in pcap_frames(self.files[0])]
        self.assertEqual(times, sorted(times))
        self.assertTrue(self.began - 2 <= times[0] and times[-1] <= self.ended + 2, (self.began, times[0], times[-1], self.ended))

    def test_the_end_says_how_many_frames_each_file_holds(self):
        for path, link in zip(self.files, ("v1", "v2")):
            self.assertIn(f"dat-lab: {path}: {len(pcap_frames(path))} frames of {link}\n".encode(), self.r.err)

    def test_a_capture_lives_on_from_command_to_command(self):
        self.assertIn(b"\n1\n", self.r.out)

    def test_tcpdump_and_tshark_read_the_file(self):
        readers = {"tcpdump": ["-n", "-r", self.files[0], "udp port 4791"], "tshark": ["-r", self.files[0], "-Y", "infiniband"]}
        found = {shutil.which(name): args for name, args in readers.items() if shutil.which(name)}
        if not found:
            self.skipTest("neither tcpdump nor tshark")
        for name, args in found.items():
            lines = subprocess.run([name, *args], capture_output=True, check=True).stdout.splitlines()
            self.assertEqual(len(lines), sum(1 for _, frame in pcap_frames(self.files[0]) if roce(frame)))

    def test_nothing_is_left(self):
        self.assert_clean(self.r)


class CaptureFiles(Case):
    """Captures that are made here; nothing is booted."""

    HEAD = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)

    def sorted(self, data):
        with tempfile.NamedTemporaryFile() as f:
            f.write(data)
            f.flush()
            module("captures").sort_capture(f.name)
            f.seek(0)
            return f.read()

    def test_frames_are_sorted_by_time_and_frames_of_one_time_keep_their_order(self):
        frames = [((7, 5), b"a"), ((7, 9), b"bb"), ((7, 2), b"late"), ((6, 999999999), b""), ((7, 9), b"c" * 300), ((8, 0), b"d"), ((7, 9), b"e")]
        whole = [(t, struct.pack("<IIII", *t, len(x), len(x)) + x) for t, x in frames]
        wanted = b"".join(x for _, x in sorted(whole, key=lambda f: f[0]))
        self.assertNotEqual(wanted, b"".join(x for _, x in whole))
        self.assertEqual(self.sorted(self.HEAD + b"".join(x for _, x in whole)), self.HEAD + wanted)

    def test_what_follows_the_last_whole_frame_stays(self):
        later, earlier = (struct.pack("<IIII", second, 0, 4, 4) + b"data" for second in (2, 1))
        for rest in (b"", b"\1\0\0", struct.pack("<IIII", 0, 0, 9, 9) + b"cut"):
            with self.subTest(rest=rest):
                self.assertEqual(self.sorted(self.HEAD + later + earlier + rest), self.HEAD + earlier + later + rest)

    def test_files_without_frames_stay(self):
        for data in (b"", b"x", self.HEAD):
            with self.subTest(data=data):
                self.assertEqual(self.sorted(data), data)
        module("captures").sort_capture("/dev/null")


if __name__ == "__main__":
    sys.exit(lab_main.main())
