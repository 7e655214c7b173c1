# The state of an emulated machine whose kernel has booted, kept in the cache: later machines of the same kind start from it.
# SPDX-License-Identifier: BSL-1.0
"""An emulated processor boots a kernel in two to three seconds, and loads the state of the booted machine in a fraction of that. The state
is that of the moment before the machine gets its configuration. It belongs to one qemu, kernel, initial file system and set of devices."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
import time

from .cache import cache_dir, write_atomically
from .qemu import boot_id

MOST = 12  # states in the cache; each takes about 100 MB
FREE = 2 << 30  # bytes; with less in the file system, no state is saved
PREFIX, UNFINISHED = "booted-", "booting-"
LIMIT = 60  # seconds for an answer of qemu; measured 0.3


def can_be_saved(arch, accel):
    """With KVM a boot takes less than a second. A clock that counts instructions counts those of the boot, too."""
    return accel == "tcg" and arch.name == "x86_64" and os.environ.get("DAT_LAB_SAVED") != "0"


class SavedState:
    """The state of machines with one command line of qemu. Where the cache has it, the machine begins with it; otherwise the machine boots,
    and its state is saved."""

    def __init__(self, words, kernel, initrd):
        # After a boot of the host, its time stamp counter may have another frequency.
        parts = [boot_id()]
        for path in (words[0], kernel.image, initrd):
            info = os.stat(path)
            parts.append(f"{path} {info.st_size} {info.st_mtime_ns}")
        # No part of a state: numbers of descriptors, the host's folders and files, and the frequency as it was measured this time.
        parts += [re.sub(r"fd=\d+|path=[^,]*|tsc_early_khz=\d+", "", word) for word in words]
        self.cache = cache_dir()
        self.path = os.path.join(self.cache, PREFIX + hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:16])
        self.source = self.monitor = self.port = None
        try:
            with open(self.path, "rb") as f:
                os.utime(f.fileno())  # the time of its last use
                if os.fstat(f.fileno()).st_size:  # see refuse()
                    self.source = os.dup(f.fileno())
        except FileNotFoundError:
            if shutil.disk_usage(self.cache).free >= FREE:
                self.monitor, self.port = socket.socketpair()

    @property
    def resumes(self):
        return self.source is not None

    def words(self):
        """More words for the command line."""
        if self.resumes:
            return ["-incoming", f"fd:{self.source}"]
        if self.port:
            return ["-chardev", f"socket,id=monitor,fd={self.port.fileno()}", "-mon", "chardev=monitor,mode=control"]
        return []

    def descriptors(self):
        """Those that qemu inherits."""
        return [self.source] if self.resumes else [self.port.fileno()] if self.port else []

    def inherited(self):
        """Closes them here."""
        if self.resumes:
            os.close(self.source)
        if self.port:
            self.port.close()

    def refuse(self):
        """A machine did not come up from the state: an empty file in its place lets later ones boot."""
        write_atomically(self.path, b"")

    def save(self):
        """Saves the state. The machine is stopped during this time."""
        fd, path = tempfile.mkstemp(prefix=UNFINISHED, dir=self.cache)
        try:
            Monitor(self.monitor).write_state(fd)
            os.rename(path, self.path)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        make_room(self.cache)


def make_room(cache):
    """Removes the states that were not used for the longest time, and what a killed dat-lab has left."""
    states, old = [], []
    for name in os.listdir(cache):
        path = os.path.join(cache, name)
        with contextlib.suppress(FileNotFoundError):  # another dat-lab removes them, too
            if name.startswith(PREFIX):
                states.append((os.stat(path).st_mtime, path))
            elif name.startswith(UNFINISHED) and time.time() - os.stat(path).st_mtime > 3600:
                old.append(path)
    for path in old + [path for _, path in sorted(states)[:-MOST]]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class Monitor:
    """The monitor port of a qemu, which speaks QMP."""

    def __init__(self, port):
        self.port, self.received = port, b""
        port.settimeout(LIMIT)
        self.message()  # the greeting
        self.ask("qmp_capabilities")

    def message(self):
        while b"\n" not in self.received:
            data = self.port.recv(65536)
            if not data:
                raise OSError("qemu has closed its monitor port")
            self.received += data
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def ask(self, command, arguments=None, descriptors=()):
        socket.send_fds(self.port, [json.dumps({"execute": command, "arguments": arguments or {}}).encode()], descriptors)
        while True:
            answer = self.message()
            if "error" in answer:
                raise OSError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def write_state(self, descriptor):
        """Writes the state of the machine, which stops during the last part of the write and then continues."""
        # Without these limits qemu writes slowly, and repeats what changes meanwhile. A machine that begins with the state of a stopped one would stop.
        self.ask("migrate-set-parameters", {"max-bandwidth": 1 << 40, "downtime-limit": LIMIT * 1000})
        self.ask("getfd", {"fdname": "state"}, [descriptor])
        self.ask("migrate", {"uri": "fd:state"})
        end = time.monotonic() + LIMIT
        while (status := self.ask("query-migrate")["status"]) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > end:
                raise OSError(f"the state was not written: {status}")
            time.sleep(0.01)
        self.ask("cont")
