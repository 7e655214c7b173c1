# Kernels that are installed or in the cache, with their images and modules.
# SPDX-License-Identifier: BSL-1.0

import lzma
import os
import re
import subprocess
import zlib

from .cache import write_atomically
from .outcome import Failure
from .tools import find_tool, tool


class Kernel:
    """A kernel with its modules: image is bootable by qemu, root/lib/modules/version holds the modules, files is the machine's root."""

    def __init__(self, version, image, root):
        self.version, self.image, self.root, self.files = version, image, root, "/"

    @property
    def modules(self):
        return os.path.realpath(os.path.join(self.root, "lib/modules", self.version))


def version_key(text):
    return [int(p) if p.isdigit() else -1 for p in re.split(r"(\d+)", text)]


def installed_image(version):
    """The image of an installed kernel, which Fedora has beside its modules, too; None where an ordinary user cannot read it."""
    return next((f for f in (f"/boot/vmlinuz-{version}", f"/lib/modules/{version}/vmlinuz") if os.access(f, os.R_OK)), None)


def installed_kernels():
    """Versions installed on the host whose image and modules an ordinary user can read, newest first."""
    try:
        versions = os.listdir("/lib/modules")
    except OSError:
        return []
    return [
        v
        for v in sorted(versions, key=version_key, reverse=True)
        if installed_image(v) and os.access(f"/lib/modules/{v}/modules.dep", os.R_OK)
    ]


def cached_kernels(cache):
    """Unpacked kernels, newest first."""
    found = []
    for name in os.listdir(cache):
        if name.startswith("kernel-"):
            d = os.path.join(cache, name)
            version = name[len("kernel-") :]
            if os.path.exists(os.path.join(d, "vmlinux")):
                found.append(Kernel(version, os.path.join(d, "vmlinux"), d))
    return sorted(found, key=lambda k: version_key(k.version), reverse=True)


def by_default(kernel):
    """Whether a cached kernel is the distribution's, not one that --kernel has asked for."""
    return not os.path.exists(os.path.join(kernel.root, "chosen"))


def boot_files(root, version, modprobe, modules, package="linux-image-amd64"):
    """Paths of the modules to load at boot, in order; raises Failure naming the module that the kernel lacks."""
    files = []
    for m in modules:
        r = subprocess.run(
            [modprobe, "-d", root, "-S", version, "--show-depends", m], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if r.returncode:
            raise Failure(f"kernel {version} has no module {m}: use a kernel with it (Debian: {package})")
        files += [line.split()[1] for line in r.stdout.splitlines() if line.startswith("insmod ")]
    return list(dict.fromkeys(files))


def uncompressed_kernel(bzimage):
    """The ELF vmlinux inside a bzImage, or None. qemu boots it directly, which saves the unpacking under emulation."""
    data = open(bzimage, "rb").read()
    if data[0x202:0x206] != b"HdrS":
        return None
    offset, length = (int.from_bytes(data[a : a + 4], "little") for a in (0x248, 0x24C))
    start = (data[0x1F1] + 1) * 512 + offset
    payload = data[start : start + length]
    try:
        if payload[:6] == b"\xfd7zXZ\0":
            elf = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
        elif payload[:2] == b"\x1f\x8b":
            elf = zlib.decompressobj(31).decompress(payload)
        elif payload[:4] == b"\x28\xb5\x2f\xfd" and find_tool("zstd"):
            elf = subprocess.run([find_tool("zstd"), "-dcq"], input=payload, capture_output=True).stdout
        else:
            return None
    except (lzma.LZMAError, zlib.error, OSError):
        return None
    return elf if elf[:4] == b"\x7fELF" and b"Xen\0" in elf else None  # the PVH entry is a note of the owner Xen


def image_of_installed(version, cache):
    """The uncompressed image of an installed kernel, kept in the cache."""
    source = installed_image(version)
    st = os.stat(source)
    image = os.path.join(cache, f"vmlinux-{version}-{st.st_size:x}-{st.st_mtime_ns:x}")
    if not os.path.exists(image):
        elf = uncompressed_kernel(source)
        if not elf:
            return source
        write_atomically(image, elf)
    return image


def module_bytes(path):
    data = open(path, "rb").read()
    if path.endswith(".xz"):
        return lzma.decompress(data)
    if path.endswith(".gz"):
        return zlib.decompress(data, 31)
    if path.endswith(".zst"):
        return subprocess.run([tool("zstd", "unpacks kernel modules"), "-dcq"], input=data, capture_output=True, check=True).stdout
    return data
