# The files of --pcap.
# SPDX-License-Identifier: BSL-1.0

import bisect
import mmap
import os
import struct

from .outcome import Failure


def capture_file(path):
    """The absolute path of a file of --pcap, which exists and is empty from now on."""
    try:
        with open(path, "wb"):
            return os.path.realpath(path)
    except OSError as e:
        raise Failure(f"--pcap {path}: {e.strerror}")


def sort_capture(path):
    """Sorts the frames of a pcap file by time. The kernel takes a frame's time before it queues the frame for the capture, so that
    frames of two processors may change places. What follows the last whole frame stays where it is."""
    if not os.path.isfile(path) or os.path.getsize(path) <= 24:
        return
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as data:
        times, starts, at = [], [], 24  # of the frames so far, sorted
        while at + 16 <= len(data):
            second, nano, kept = struct.unpack_from("<III", data, at)
            end = at + 16 + kept
            if end > len(data):
                break
            now = (second, nano)
            place = bisect.bisect_right(times, now)
            if place < len(times):  # a late frame: the frames that it belongs before move behind it
                late, start = data[at:end], starts[place]
                data.move(start + len(late), start, at - start)
                data[start : start + len(late)] = late
                starts[place:] = [start, *(s + len(late) for s in starts[place:])]
            else:
                starts.append(at)
            times.insert(place, now)
            at = end
