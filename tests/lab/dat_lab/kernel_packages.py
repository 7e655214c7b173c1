# Kernels that are packages: finds them and unpacks them into the cache.
# SPDX-License-Identifier: BSL-1.0

import os
import re
import shutil
import subprocess
import tempfile

from .apt import Apt, backports
from .kernel import Kernel, uncompressed_kernel
from .outcome import Failure
from .output import say
from .tools import find_tool, tool

# Not unpacked from the kernel package: nothing that a machine without such hardware could use (two thirds of its size).
NOT_UNPACKED = ["sound", "net/bluetooth", "net/mac80211", "net/wireless", "net/nfc", "net/can"] + [
    "drivers/" + d
    for d in (
        "accessibility ata auxdisplay bluetooth comedi edac extcon firewire gpio gpu hid hwmon i2c iio infiniband/hw input isdn "
        "leds media memstick mfd misc mmc mtd mux net/can net/dsa net/ethernet net/fddi net/hamradio net/ieee802154 net/phy "
        "net/usb net/wireless net/wwan nfc parport pcmcia platform power rtc scsi soundwire spi ssb staging thermal thunderbolt "
        "tty usb video w1 watchdog"
    ).split()
]


def kernel_package():
    """The name of the package behind the distribution's kernel metapackage."""
    apt = find_tool("apt-cache")
    if not apt:
        raise Failure("no usable kernel is installed and there is no apt to get one: install a kernel with rdma_rxe and a readable image")
    r = subprocess.run([apt, "show", "--no-all-versions", "linux-image-amd64"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    names = re.findall(r"linux-image-[0-9][\w.+-]*", "".join(re.findall(r"^Depends:.*", r.stdout, re.M)))
    if not names:
        raise Failure("apt knows no kernel package linux-image-amd64: sudo apt-get update")
    return names[0]


def kernel_packages(cache):
    """{kernel version: (package, Apt)} of all kernel packages that apt knows, those of the backports included."""
    found = {}
    if not find_tool("apt-cache"):
        return found
    for apt in (Apt(), backports(cache)):
        for name in apt.names(r"^linux-image-[0-9].*-amd64$") if apt else []:
            version = name[len("linux-image-") :]
            if not re.match(r"\d+\.\d+-", version):  # a metapackage
                found.setdefault(version, (name, apt))
    return found


def unpack_kernel_package(cache, package, apt, chosen=False):
    for name in ("apt-get", "dpkg-deb", "tar"):
        tool(name, "gets the kernel package")
    depmod = tool("depmod", "indexes the kernel's modules")
    final = os.path.join(cache, "kernel-" + package[len("linux-image-") :])
    if os.path.exists(os.path.join(final, "chosen")):  # --kernel asked for it before it became the distribution's
        os.unlink(os.path.join(final, "chosen"))
        return Kernel(package[len("linux-image-") :], os.path.join(final, "vmlinux"), final)
    say(f"getting {package} (70 to 110 MB, once; it is unpacked into {cache}, not installed)")
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=cache) as tmp:
        deb_dir, root = os.path.join(tmp, "deb"), os.path.join(tmp, "root")
        os.makedirs(deb_dir)
        os.makedirs(root)
        deb = apt.download(package, deb_dir)
        errors = tempfile.TemporaryFile(dir=tmp)
        unpack = subprocess.Popen(
            [find_tool("dpkg-deb"), "--fsys-tarfile", deb], stdout=subprocess.PIPE, stderr=errors
        )
        version = package[len("linux-image-") :]
        skip = [f"--exclude=*/lib/modules/*/kernel/{d}" for d in NOT_UNPACKED] + ["--exclude=./usr/share"]
        tar = subprocess.run(
            [find_tool("tar"), "-x", "--no-same-owner", "-C", root, *skip], stdin=unpack.stdout, stderr=errors
        )
        unpack.stdout.close()
        if unpack.wait() or tar.returncode:
            errors.seek(0)
            reason = errors.read(300).decode(errors="replace").strip().split("\n")[0]
            raise Failure(f"cannot unpack {os.path.basename(deb)} ({reason}): is the disk of {cache} full?")
        # Packages have the modules in lib or in usr/lib, and so has modprobe: make the one a name of the other.
        os.makedirs(os.path.join(root, "usr"), exist_ok=True)
        if not os.path.exists(os.path.join(root, "usr/lib")):
            os.rename(os.path.join(root, "lib"), os.path.join(root, "usr/lib"))
        os.symlink("usr/lib", os.path.join(root, "lib"))
        image = os.path.join(root, "boot", "vmlinuz-" + version)
        elf = uncompressed_kernel(image)
        if elf:
            with open(os.path.join(root, "vmlinux"), "wb") as f:
                f.write(elf)
        else:
            os.rename(image, os.path.join(root, "vmlinux"))
        shutil.rmtree(os.path.join(root, "boot"))
        r = subprocess.run([depmod, "-b", root, version], capture_output=True, text=True)
        if r.returncode:
            raise Failure(f"depmod fails for {version} ({' '.join(r.stderr.split())[-200:]}): is the disk of {cache} full?")
        if chosen:
            open(os.path.join(root, "chosen"), "w").close()
        shutil.rmtree(final, ignore_errors=True)
        os.chmod(root, 0o755)
        os.rename(root, final)
    return Kernel(version, os.path.join(final, "vmlinux"), final)
