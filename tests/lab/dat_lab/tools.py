# Programs of the host, and the packages that have them.
# SPDX-License-Identifier: BSL-1.0

import os
import shutil

from .architecture import ARCHITECTURES
from .outcome import Failure

APT = {
    **{a.qemu: a.package for a in ARCHITECTURES.values()},
    "busybox": "busybox-static",
    "depmod": "kmod",
    "modprobe": "kmod",
    "ip": "iproute2",
    "rdma": "iproute2",
    "tc": "iproute2",
    "rping": "rdmacm-utils",
}


FEDORA = {  # its names of packages, where they differ
    "qemu-system-x86": "qemu-system-x86-core",
    "qemu-system-arm": "qemu-system-aarch64-core",
    "qemu-system-misc": "qemu-system-s390x-core",
    "busybox-static": "busybox",
    "iproute2": "iproute",
    "rdmacm-utils": "librdmacm-utils",
    "ibverbs-providers": "libibverbs",
}


def get_packages(*packages):
    """The command that installs packages, which have their names of Debian here."""
    if find_tool("apt-get") or not find_tool("dnf"):
        return "sudo apt-get install " + " ".join(packages)
    return "sudo dnf install " + " ".join(FEDORA.get(p, p) for p in packages)


def find_tool(name):
    path = os.environ.get("DAT_LAB_TOOLS") or os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
    return shutil.which(name, path=path)


def tool(name, why):
    found = find_tool(name)
    if not found:
        raise Failure(f"{name} is missing ({why}): {get_packages(APT.get(name, name))}")
    return found


def is_static(program):
    """Whether an ELF file has no interpreter (PT_INTERP)."""
    with open(program, "rb") as f:
        head = f.read(64)
        if head[:5] != b"\x7fELF\x02":
            return False
        offset = int.from_bytes(head[32:40], "little")
        size, count = int.from_bytes(head[54:56], "little"), int.from_bytes(head[56:58], "little")
        f.seek(offset)
        table = f.read(size * count)
    return all(int.from_bytes(table[i * size : i * size + 4], "little") != 3 for i in range(count))


def busybox():
    for name in ("busybox", "busybox-static"):
        found = find_tool(name)
        if found and is_static(found):
            return found
    raise Failure("a static busybox is missing (the machine's first programs): " + get_packages("busybox-static"))
