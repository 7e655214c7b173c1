# What the tests of dat-lab share: one process of dat-lab, the base of their cases, and the frames of a capture.
# SPDX-License-Identifier: BSL-1.0
"""The tests boot machines, so they need qemu and the kernel package (docs/lab.md). DAT_LAB_PROGRAM names another dat-lab to test."""

import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

HERE = os.path.dirname(os.path.realpath(__file__))
DAT_LAB = os.environ.get("DAT_LAB_PROGRAM") or os.path.join(HERE, "dat-lab")
HARD_LIMIT = 450  # seconds after which a test kills dat-lab; each run passes a smaller --timeout
QUICK = False


def slow(test):
    """A test that --quick leaves out."""
    test.slow = True
    return test


class Run:
    """One dat-lab process with its own TMPDIR, marked by an environment variable to find its children. With --quick, a machine has one
    processor, whose emulation takes half of the time, unless `usual` asks for the usual number."""

    def __init__(self, *args, env=None, cwd=None, wrap=(), stdout=None, usual=False):
        if QUICK and not usual and "--cpus" not in args and {"--machine", "--faults", "--pcap"} & set(args) and "--hosts" not in args:
            args = ("--cpus", "1", *args)
        self.mark = uuid.uuid4().hex
        self.tmp = tempfile.mkdtemp(prefix="dat-lab-test-")
        os.chmod(self.tmp, 0o777)
        self.files = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        full = {**os.environ, "TMPDIR": self.tmp, "DAT_LAB_TEST_MARK": self.mark, **(env or {})}
        self.proc = subprocess.Popen(
            [*wrap, DAT_LAB, *args],
            stdin=subprocess.DEVNULL,
            stdout=stdout or self.files[0],
            stderr=self.files[1],
            env=full,
            cwd=cwd,
        )

    def text(self, which):
        return os.pread(self.files[which].fileno(), 1 << 26, 0)

    def wait(self):
        try:
            self.rc = self.proc.wait(HARD_LIMIT)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError(f"dat-lab did not end within {HARD_LIMIT} s: {self.text(1)!r}")
        self.out, self.err = self.text(0), self.text(1)
        self.leftovers = os.listdir(self.tmp)
        shutil.rmtree(self.tmp)
        return self

    def wait_for(self, what, which=0):
        """Blocks until an output holds the bytes."""
        end = time.monotonic() + HARD_LIMIT
        while what not in self.text(which):
            if self.proc.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{what!r} not seen; stdout {self.text(0)!r}, stderr {self.text(1)!r}")
            time.sleep(0.02)

    def processes(self):
        """Living processes that this run started."""
        found = []
        for pid in os.listdir("/proc"):
            if pid.isdigit() and int(pid) != self.proc.pid:
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        if f"DAT_LAB_TEST_MARK={self.mark}".encode() in f.read():
                            found.append(int(pid))
                except OSError:
                    pass
        return found


def program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def module(name):
    """A module of the package of dat-lab, for tests of its parts."""
    loader = importlib.machinery.SourceFileLoader("dat_lab_program", DAT_LAB)
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader("dat_lab_program", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(found)
    sys.path.insert(0, found.package_folder())
    try:
        return importlib.import_module("dat_lab." + name)
    finally:
        sys.path.pop(0)


def run(*args, **more):
    return Run(*args, **more).wait()


class Case(unittest.TestCase):
    maxDiff = 2000

    def assert_clean(self, r):
        """Checks that no process and no file of a run is left."""
        end = time.monotonic() + 60
        while r.processes() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(r.processes(), [])
        self.assertEqual(r.leftovers, [])
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dat-lab")
        self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])


RPING = """before=$(cat /sys/class/net/v2/statistics/rx_packets)
rping -s -a {server} -C 3 >server.txt 2>&1 & s=$!
# A client whose connect siw refuses does not end.
until rdma resource show cm_id | grep -q LISTEN; do l=$((l + 1)); [ $l -lt 600 ] || exit 4; sleep 0.1; done
until rping -c -a {server} -I {client} -C 3 -v 2>client.txt; do
  n=$((n + 1)); [ $n -lt ${{TRIES:-300}} ] || {{ cat client.txt; kill $s; wait $s; exit 1; }}; sleep 0.1
done
wait $s || exit 2
crossed=$(($(cat /sys/class/net/v2/statistics/rx_packets) - before))
[ $crossed -ge 12 ] || {{ echo "only $crossed packets crossed the wire"; exit 3; }}
"""


def pcap_frames(path):
    """[(time, frame)] of a pcap file; raises when its structure is wrong."""
    with open(path, "rb") as f:
        data = f.read()
    magic, major, minor, zone, accuracy, longest, network = struct.unpack_from("<IHHiIII", data)
    if (magic, major, minor, zone, accuracy, network) != (0xA1B23C4D, 2, 4, 0, 0, 1):
        raise ValueError(f"wrong head {data[:24]!r}")
    frames, at = [], 24
    while at < len(data):
        second, nano, kept, length = struct.unpack_from("<IIII", data, at)
        if kept != length or kept > longest or nano >= 1000000000 or at + 16 + kept > len(data):
            raise ValueError(f"wrong frame at {at}")
        frames.append((second + nano / 1e9, data[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return frames


def roce(frame):
    """(source address, BTH opcode) of a RoCE v2 frame over IPv4, else None."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[36:38] != b"\x12\xb7":
        return None
    return ".".join(map(str, frame[26:30])), frame[42]
