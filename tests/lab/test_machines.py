#!/usr/bin/env python3
# Tests of dat-lab: the machine: its links with loss and delay, its clocks, kernels and devices.
# SPDX-License-Identifier: BSL-1.0

import os
import platform
import re
import shutil
import sys
import tempfile

import lab_main
from lab_testing import RPING, Case, Run, module, pcap_frames, roce, run, slow


@slow
class Networks(Case):
    def test_loss_and_delay_are_made_on_the_wire(self):
        job = "busybox ping -c 40 -i 0.05 -W 1 -I 10.78.1.1 10.78.2.1; tc -s qdisc show"
        r = run("--machine", "--timeout", "300", "--loss", "30%", "--delay", "20ms", "--", "sh", "-c", job)
        self.assertEqual(r.rc, 0, r.err)
        text = r.out.decode()
        self.assertEqual(len(re.findall(r"netem .*delay 20ms loss 30%", text)), 2, text)
        self.assertTrue(any(int(n) > 0 for n in re.findall(r"dropped (\d+)", text)), text)
        fastest = float(re.search(r"min/avg/max = ([\d.]+)/", text)[1])
        self.assertGreaterEqual(fastest, 40)  # there and back

    def test_a_clock_that_counts_instructions_skips_waiting(self):
        r = run("--machine", "--counted", "--timeout", "300", "--", "sh", "-c", "nproc; sleep 1000; rdma link")
        self.assertEqual(r.rc, 0, r.err)
        self.assertEqual(r.out.split(b"\n")[0], b"1", r.out)
        self.assertIn(b"rx2/1 state ACTIVE", r.out)

    def test_one_link_and_an_odd_number_of_links(self):
        show = "rdma link; grep -h . /sys/class/infiniband/*/ports/1/gids/1; cat /sys/class/net/v1/mtu; ibv_devinfo 2>/dev/null | grep active_mtu"
        one, three = Run("--links", "1", "--mtu", "9000", "--", "sh", "-c", show), Run("--links", "3", "--cpus", "1", "--", "sh", "-c", show)
        one.wait(), three.wait()
        self.assertEqual(re.findall(r"link (rx\d)/1 state ACTIVE .* netdev (v\d)", one.out.decode()), [("rx1", "v1")], one.err)
        self.assertIn(b"\n9000\n", one.out)
        if shutil.which("ibv_devinfo"):
            self.assertIn(b"4096", one.out)
        self.assertEqual(re.findall(r"link (rx\d)/1 state ACTIVE", three.out.decode()), ["rx1", "rx2", "rx3"], three.err)
        self.assertIn(b"ffff:0a4e:0301", three.out)


class Clocks(Case):
    def test_the_time_stamp_counter_is_measured_alike_each_time(self):
        if platform.machine() != "x86_64":
            self.skipTest("there is none")
        measured = [module("qemu").tsc_khz() for _ in range(5)]
        self.assertGreater(min(measured), 100000)
        self.assertLess(max(measured) / min(measured), 1.005)  # the kernel corrects a difference of 1 %


@slow
class Kernels(Case):
    """Boots the newest kernel that is installed or available."""

    def test_the_newest_kernel_has_rxe_and_another_start_has_the_default_again(self):
        with tempfile.TemporaryDirectory() as d:
            job = os.path.join(d, "job")
            with open(job, "w") as f:
                f.write("uname -r\n" + RPING.format(client="10.78.1.1", server="10.78.2.1"))
            newest = run("--kernel", "newest", "--timeout", "300", "--share", d, "--", "sh", job)
            if b"cannot download" in newest.err:
                self.skipTest(newest.err.decode())
            self.assertEqual(newest.rc, 0, (newest.out, newest.err))
            listed = run("--list-kernels").out.decode().splitlines()
            plain = [line.split()[0] for line in listed if "-cloud-" not in line and "-rt-" not in line]
            self.assertEqual(newest.out.decode().split("\n")[0], plain[0])
            default = next(line.split()[0] for line in listed if "default" in line)
            usual = run("--machine", "--", "uname", "-r")
            self.assertEqual(usual.out.decode().strip(), default, usual.err)


@slow
class Devices(Case):
    """Builds siw unless it is in the cache; skipped where it cannot be built."""

    def run_or_skip(self, *args, **more):
        r = run(*args, **more)
        if b"dat-lab: siw: " in r.err:
            self.skipTest(r.err.decode())
        return r

    def test_rping_runs_over_siw(self):
        with tempfile.TemporaryDirectory() as d:
            job, wire = os.path.join(d, "job"), os.path.join(d, "wire")
            with open(job, "w") as f:
                f.write("ibv_devinfo\n" + RPING.format(client="10.78.1.1", server="10.78.2.1"))
            r = self.run_or_skip("--device", "siw", "--timeout", "300", "--pcap", wire, "--", "sh", job)
            self.assertEqual(r.rc, 0, (r.out, r.err))
            for word in (b"siw1", b"siw2", b"iWARP (1)", b"rdma-ping-2"):
                self.assertIn(word, r.out)
            frames = [frame for _, frame in pcap_frames(wire)]
            self.assertTrue(any(b"rdma-ping-1" in f and f[23] == 6 for f in frames))  # in TCP, readable
            self.assertFalse(any(roce(f) for f in frames))

    def test_commands_use_the_libraries_of_another_rdma_core(self):
        r = run("--rdma-core", "trixie", "--", "sh", "-c", "LD_DEBUG=libs ibv_devices 2>&1; echo $DAT_LAB_RDMA_CORE")
        if b"dat-lab: rdma-core: " in r.err:
            self.skipTest(r.err.decode())
        folder = r.out.decode().split("\n")[-2]
        for name in ("libibverbs.so.1", "libibverbs/librxe-"):
            self.assertRegex(r.out.decode(), f"calling init: {re.escape(folder)}/lib/{name}")
        self.assertRegex(r.out.decode(), r"(?m)^ +rx1\s")

    def test_links_have_devices_of_different_kinds(self):
        r = self.run_or_skip("--links", "4", "--device", "siw", "--device", "v3=rxe", "--device", "v4=rxe", "--timeout", "300", "--", "rdma", "link")
        self.assertEqual(re.findall(r"link (\w+)/1 state ACTIVE .* netdev (v\d)", r.out.decode()), [("siw1", "v1"), ("siw2", "v2"), ("rx3", "v3"), ("rx4", "v4")], r.err)


if __name__ == "__main__":
    sys.exit(lab_main.main())
