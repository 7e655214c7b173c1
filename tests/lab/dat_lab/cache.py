# The cache folder, which one process at a time changes.
# SPDX-License-Identifier: BSL-1.0

import fcntl
import os
import tempfile

from .outcome import Failure
from .output import say


def cache_dir(arch=None):
    """The folder, or the one in it for machines of another architecture."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    d = os.path.join(base, "dat-lab", *([arch.name] if arch and arch.foreign else []))
    try:
        os.makedirs(d, exist_ok=True)
        if not os.access(d, os.W_OK | os.X_OK):
            raise PermissionError(13, "no write permission")
    except OSError as e:
        raise Failure(f"cannot use the cache folder {d} ({e.strerror}): set XDG_CACHE_HOME to a folder of yours")
    return os.path.realpath(d)


class Lock:
    """One process at a time prepares the cache; the others wait."""

    def __init__(self, cache):
        self.path = os.path.join(cache, "lock")

    def __enter__(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another dat-lab that prepares the cache")
            fcntl.flock(self.fd, fcntl.LOCK_EX)

    def __exit__(self, *_):
        os.close(self.fd)


def write_atomically(path, data):
    fd, tmp = tempfile.mkstemp(prefix="tmp-", dir=os.path.dirname(path))
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        os.chmod(tmp, 0o644)
        os.rename(tmp, path)
    except BaseException:
        os.unlink(tmp)
        raise
