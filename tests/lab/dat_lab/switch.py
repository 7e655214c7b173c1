# The private network of several machines (--hosts).
# SPDX-License-Identifier: BSL-1.0
"""The network is a switch in this process: each machine's Ethernet device is a socket pair, so nothing can leave the host."""

import select
import socket
import struct
import threading
import time

BROADCAST = 1  # in the first byte of a destination: all stations or a group of them


def mac(link, host):
    return bytes((2, 0, 0, 0, link, host))


class Port:
    """The switch's end of one machine's socket. A frame on it has its length in front, four bytes, as qemu sends it."""

    def __init__(self, link, host, sock):
        self.link, self.host, self.socket = link, host, sock
        self.cut = self.writing = self.gone = False
        self.came, self.waiting = b"", bytearray()


class Network(threading.Thread):
    """Passes frames on between the ports of the same link, until stop()."""

    # The most bytes that are kept for a machine that does not take them; further bytes are dropped. The limit exceeds
    # the answers to two reads of 8 MiB.
    ROOM = 32 << 20

    def __init__(self, captures):
        """Writes the frames of a link to the file of captures, {link: path}."""
        super().__init__(daemon=True)
        self.ports, self.frames = {}, dict.fromkeys(captures, 0)
        self.files = {link: open(path, "wb") for link, path in captures.items()}
        for f in self.files.values():  # pcap of nanoseconds, Ethernet
            f.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
            f.flush()
        self.poll = select.poll()
        self.ending, self.end = socket.socketpair()
        self.poll.register(self.ending, select.POLLIN)

    def add(self, link, host):
        """The machine's end of a new port."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.ports[ours.fileno()] = Port(link, host, ours)
        self.poll.register(ours, select.POLLIN)
        return theirs

    def of(self, host):
        return [port for port in self.ports.values() if port.host == host]

    def run(self):
        while True:
            for fd, what in self.poll.poll():
                if fd == self.ending.fileno():
                    return
                port = self.ports[fd]
                if what & select.POLLOUT:
                    self.flush(port)
                if what & ~select.POLLOUT:
                    self.receive(port)

    def receive(self, port):
        try:
            data = port.socket.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the machine has ended
            self.poll.unregister(port.socket)
            port.gone = True
            return
        data, at, touched = port.came + data, 0, set()
        while at + 4 <= len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            if not port.cut:
                touched |= self.forward(port, data[at:end])
            at = end
        port.came = data[at:]
        for target in touched:
            self.flush(target)
        if port.link in self.files and touched:
            self.files[port.link].flush()

    def forward(self, port, frame):
        """Queues a frame, with its length in front, for whom it is for; the ports that got it."""
        if port.link in self.files:
            second, nano = divmod(time.time_ns(), 10**9)
            size = len(frame) - 4
            self.files[port.link].write(struct.pack("<IIII", second, nano, size, size) + frame[4:])
            self.frames[port.link] += 1
        to_all, got = frame[4] & BROADCAST, set()
        for other in self.ports.values():
            if other.link == port.link and other is not port and not (other.cut or other.gone) and (to_all or frame[4:10] == mac(other.link, other.host)):
                if len(other.waiting) + len(frame) <= self.ROOM:
                    other.waiting += frame
                    got.add(other)
        return got

    def flush(self, port):
        try:
            while port.waiting and not port.gone:
                del port.waiting[: port.socket.send(port.waiting[:262144])]
        except BlockingIOError:
            pass
        except OSError:  # the machine has ended, which receive() will detect
            port.waiting.clear()
        if bool(port.waiting) != port.writing and not port.gone:
            port.writing = bool(port.waiting)
            self.poll.modify(port.socket, select.POLLIN | select.POLLOUT * port.writing)

    def stop(self):
        self.end.close()
        if self.is_alive():
            self.join()
        self.ending.close()
        for port in self.ports.values():
            port.socket.close()
        for f in self.files.values():
            f.close()
