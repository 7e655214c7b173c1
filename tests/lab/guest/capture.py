#!/usr/bin/env python3
# Writes the frames of links of the dat-lab machine to ports of the host, in the format of pcap files.
# SPDX-License-Identifier: BSL-1.0
"""capture.py REPORT BUFFER LINK PORT [LINK PORT]...

The kernel keeps up to BUFFER bytes of frames of each link that wait for this program. SIGUSR1 asks for a report: the program writes all
frames that the links have had so far to their ports, then a line `FRAMES MISSING` for each link to the file REPORT. It writes the first
report when it is ready."""

import os
import select
import signal
import socket
import struct
import sys
import time

ETH_P_ALL, SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 3, 263, 6, 33, 35
SNAPLEN = 262144
BATCH = 32768  # bytes; the console driver passes at most this many on at once


class Link:
    def __init__(self, name, port, room):
        self.out = os.open(port, os.O_WRONLY)
        self.frames = self.missing = 0
        # Little-endian, nanoseconds, Ethernet.
        self.pending = bytearray(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAPLEN, 1))
        while not os.path.exists("/sys/class/net/" + name):  # meanwhile the network is set up
            time.sleep(0.02)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, room // 2)  # the kernel doubles it
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind((name, ETH_P_ALL))
        self.socket.setblocking(False)

    def write(self):
        view = memoryview(self.pending)
        while view:
            view = view[os.write(self.out, view) :]
        view.release()
        self.pending.clear()

    def move(self):
        """Writes all frames that wait."""
        while True:
            try:
                data, more, _, _ = self.socket.recvmsg(SNAPLEN, 64)
            except BlockingIOError:
                break
            except OSError:  # the link is down or was removed; it may return
                continue
            # Without the kernel's time, the frame keeps time 0.
            second, nano = next((struct.unpack("qq", v) for _, kind, v in more if kind == SO_TIMESTAMPNS), (0, 0))
            self.pending += struct.pack("<IIII", second & 0xFFFFFFFF, nano, len(data), len(data)) + data
            self.frames += 1
            if len(self.pending) >= BATCH:
                self.write()
        self.write()

    def report(self):
        self.missing += struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        return f"{self.frames} {self.missing}\n"


def main(report, room, *names):
    asked, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    links = [Link(name, port, int(room) // (len(names) // 2)) for name, port in zip(names[::2], names[1::2])]
    poll = select.poll()
    for fd in [asked, *(link.socket for link in links)]:
        poll.register(fd, select.POLLIN)
    want_report = True
    while True:
        for link in links:
            link.move()
        if want_report:
            with open(report + ".new", "w") as f:
                f.write("".join(link.report() for link in links))
            os.rename(report + ".new", report)
        want_report = any(fd == asked for fd, _ in poll.poll())
        if want_report:
            os.read(asked, 4096)


if __name__ == "__main__":
    main(*sys.argv[1:])
