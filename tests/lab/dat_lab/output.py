# Output: the messages of dat-lab, and the streams of a command.
# SPDX-License-Identifier: BSL-1.0

import os
import select
import sys
import time

from .outcome import OutputClosed, TimeUp


def say(text):
    sys.stderr.flush()
    data = ("dat-lab: " + text + "\n").encode(errors="surrogateescape")
    try:
        os.write(2, data)
    except OSError:
        pass


def put(fd, data, deadline):
    """Writes all without blocking beyond the deadline."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    view = memoryview(data)
    while view:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(min(left, 3600) * 1000):
            if deadline - time.monotonic() <= 0:
                raise TimeUp
            continue
        try:
            view = view[os.write(fd, view[:4096]) :]  # poll() promises room for PIPE_BUF bytes, no more
        except BlockingIOError:
            time.sleep(0.005)
        except BrokenPipeError:
            raise OutputClosed


class Stream:
    """One output stream of the command: passes bytes on until its end mark."""

    def __init__(self, sock, fd):
        self.sock, self.fd, self.mark, self.held, self.ended = sock, fd, b"", b"", True

    def begin(self, mark):
        self.mark, self.held, self.ended = mark, b"", False

    def feed(self, data, deadline):
        if self.ended:
            return
        data = self.held + data
        at = data.find(self.mark)
        if at >= 0:
            self.ended, self.held, data = True, b"", data[:at]
        else:
            keep = next((n for n in range(min(len(self.mark) - 1, len(data)), 0, -1) if data.endswith(self.mark[:n])), 0)
            self.held, data = data[len(data) - keep :], data[: len(data) - keep]
        if data:
            self.write(data, deadline)

    def write(self, data, deadline):
        put(self.fd, data, deadline)

    def flush(self, deadline):
        if self.held:
            self.write(self.held, deadline)
            self.held = b""
