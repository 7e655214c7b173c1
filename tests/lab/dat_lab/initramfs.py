# The initial file system of the machine: the modules to load and the files of the guest.
# SPDX-License-Identifier: BSL-1.0

import hashlib
import os
import re
import shutil
import time

from .cache import Lock, cache_dir, write_atomically
from .guest_root import root_of
from .kernel import module_bytes
from .kernel_choice import choose_kernel
from .outcome import Failure
from .siw import siw_files
from .tools import busybox, tool

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # the folder that holds the package
GUEST_FILES = ("init", "agent", "net.sh", "capture.py", "faults.sh", "control")

# The modules that the initial file system loads, with their dependencies. The kernel loads others on demand from its own tree.
# crc32_generic: without a crc32 provider `rdma link add` fails.
BOOT_MODULES = "virtio_console 9p 9pnet_virtio overlay crc32_generic rdma_ucm ib_uverbs veth".split()
BUS_MODULES = {"pci": ["virtio_pci"], "ccw": []}  # s390x kernels have the ccw driver built in
# The modules of each kind of device. siw.ko is built, and asks for crc32c by name, so its dependencies do not list the module.
DEVICE_MODULES = {"rxe": ["rdma_rxe"], "siw": ["crc32c_generic", "iw_cm"]}
HOSTS_MODULES = ["virtio_net"]  # with --hosts


def guest_dir():
    for d in (os.environ.get("DAT_LAB_GUEST"), os.path.join(HERE, "guest")):
        if d and all(os.path.isfile(os.path.join(d, f)) for f in GUEST_FILES):
            return d
    raise Failure(f"its own files {', '.join(GUEST_FILES)} are not beside it ({HERE}/guest): install dat again")


def cpio(entries):
    """A newc archive of (name, mode, bytes)."""
    out = bytearray()
    for number, (name, mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")], 1):
        name = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08X" % f for f in fields) + name
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def prepare(arch, wish, kinds, hosts):
    """(kernel, initial file system) from the cache, made when they are not there."""
    modprobe, guest, cache = tool("modprobe", "finds the kernel's modules"), guest_dir(), cache_dir(arch)
    box = None if arch.foreign else busybox()
    with Lock(cache):
        for stale in os.listdir(cache):  # files of a dat-lab that was killed: no other process writes while this one holds the lock
            if stale.startswith("tmp-"):
                path = os.path.join(cache, stale)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        modules = BUS_MODULES[arch.bus] + BOOT_MODULES + (HOSTS_MODULES if hosts else []) + [m for kind in sorted(kinds) for m in DEVICE_MODULES[kind]]
        kernel, files = choose_kernel(cache, modprobe, wish, modules, arch)
        if arch.foreign:
            kernel.files = root_of(cache, arch)
            box = os.path.join(kernel.files, "bin/busybox")
        if "siw" in kinds:
            files = list(dict.fromkeys(files + siw_files(cache, kernel, modprobe)))
        own = [open(os.path.join(guest, f), "rb").read() for f in GUEST_FILES]
        stamp = [f"{p} {os.stat(p).st_size} {os.stat(p).st_mtime_ns}" for p in [box, *files]]
        key = hashlib.sha256(b"\0".join(own + ["\n".join([kernel.version, *stamp]).encode()])).hexdigest()[:16]
        initrd = os.path.join(cache, f"initrd-{kernel.version}-{key}")
        if not os.path.exists(initrd):
            entries = [(d, 0o40755, b"") for d in ("bin", "dev", "proc", "sys", "lib", "lib/modules")]
            entries.append(("bin/busybox", 0o100755, open(box, "rb").read()))
            names = []
            for path in files:
                name = "siw.ko" if os.path.dirname(path) == cache else re.sub(r"\.(xz|gz|zst)$", "", os.path.basename(path))
                entries.append(("lib/modules/" + name, 0o100644, module_bytes(path)))
                names.append(name)
            entries.append(("lib/modules/order", 0o100644, "".join(n + "\n" for n in names).encode()))
            entries += [(f, 0o100755, data) for f, data in zip(GUEST_FILES, own)]
            for old in os.listdir(cache):  # one per kernel is enough; a machine that is starting from an old one has it open
                path = os.path.join(cache, old)
                if old.startswith(f"initrd-{kernel.version}-") and time.time() - os.stat(path).st_mtime > 86400:
                    os.unlink(path)
            write_atomically(initrd, cpio(entries))
    return kernel, initrd
