# Kernels that are packages: finds them and unpacks them into the cache.
# SPDX-License-Identifier: BSL-1.0

import os
import re
import shutil
import subprocess
import tempfile

from .apt import Apt, backports, of_architecture
from .dnf import Dnf
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


def kernel_package(arch, apt=None):
    """The name of the package behind the distribution's kernel metapackage: Debian's linux-image-amd64, Ubuntu's linux-image-generic."""
    apt = apt or packages_of_host()
    if not apt:
        raise Failure("no usable kernel is installed and there is no apt to get one: install a kernel with rdma_rxe and a readable image")
    if isinstance(apt, Dnf):
        return apt.newest(arch)
    for name in (f"linux-image-{arch.debian}", "linux-image-generic"):
        shown = apt.run("apt-cache", "show", "--no-all-versions", name).stdout
        names = re.findall(r"linux-image-[0-9][\w.+-]*", "".join(re.findall(r"^Depends:.*", shown, re.M)))
        if names:
            return names[0]
    raise Failure(f"apt knows no kernel package linux-image-{arch.debian}: sudo apt-get update")


def packages_of_host():
    """The host's Apt or Dnf, or None."""
    return Apt() if find_tool("apt-cache") else Dnf() if find_tool("dnf") else None


def kernel_packages(cache, arch):
    """{kernel version: (package, Apt or Dnf)} of all kernel packages that the host's package manager knows, those of the backports included."""
    found, host = {}, packages_of_host()
    if arch.foreign:
        sources = [of_architecture(cache, arch.debian)]
    elif isinstance(host, Dnf):
        return {name.removeprefix(Dnf.IMAGE): (name, host) for name in host.kernels(arch)}
    else:
        sources = [host, backports(cache)] if host else []
    for apt in filter(None, sources):
        for name in apt.names(rf"^linux-image-[0-9].*-({arch.debian}|generic)$"):
            version = name[len("linux-image-") :]
            if not re.match(r"\d+\.\d+-", version):  # a metapackage
                found.setdefault(version, (name, apt))
    return found


def parts_of(package, version, apt):
    """The packages that a kernel consists of. Ubuntu's have the modules in others."""
    if isinstance(apt, Dnf):
        return apt.parts(version)
    more = apt.names(f"^linux-modules(-extra)?-{re.escape(version)}$")
    return [package, *(n for n in more if re.fullmatch(r"linux-modules(-extra)?-" + re.escape(version), n))]


def unpack(file, root, skip):
    """Unpacks the file of a package; raises Failure."""
    with tempfile.TemporaryFile() as errors:
        if file.endswith(".rpm"):
            first, second = [tool("rpm2cpio", "unpacks packages"), file], [tool("cpio", "unpacks packages"), "-idm", "--quiet", "--no-absolute-filenames"]
            second += ["-f", *(f"*lib/modules/*/kernel/{d}/*" for d in skip)] if skip else []
        else:
            first = [find_tool("dpkg-deb"), "--fsys-tarfile", file]
            second = [find_tool("tar"), "-x", "--no-same-owner", "--keep-directory-symlink", "--exclude=./dev/*"]
            second += [f"--exclude=*/lib/modules/*/kernel/{d}" for d in skip] + ["--exclude=./usr/share"] * bool(skip)
        begun = subprocess.Popen(first, stdout=subprocess.PIPE, stderr=errors)
        done = subprocess.run(second, stdin=begun.stdout, stderr=errors, cwd=root)
        begun.stdout.close()
        if begun.wait() or done.returncode:
            errors.seek(0)
            reason = errors.read(300).decode(errors="replace").strip().split("\n")[0]
            raise Failure(f"cannot unpack {os.path.basename(file)} ({reason}): is the disk of {root} full?")


def unpack_kernel_package(cache, package, apt, chosen=False):
    for name in ("dnf",) if isinstance(apt, Dnf) else ("apt-get", "dpkg-deb", "tar"):
        tool(name, "gets the kernel package")
    depmod = tool("depmod", "indexes the kernel's modules")
    version = package.removeprefix("linux-image-").removeprefix(Dnf.IMAGE)
    final = os.path.join(cache, "kernel-" + version)
    if os.path.exists(os.path.join(final, "chosen")):  # --kernel asked for it before it became the distribution's
        os.unlink(os.path.join(final, "chosen"))
        return Kernel(version, os.path.join(final, "vmlinux"), final)
    say(f"getting {package} (30 to 110 MB, once; it is unpacked into {cache}, not installed)")
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=cache) as tmp:
        files, root = os.path.join(tmp, "files"), os.path.join(tmp, "root")
        os.makedirs(files)
        os.makedirs(root)
        for part in parts_of(package, version, apt):
            unpack(apt.download(part, files), root, NOT_UNPACKED)
        # Packages have the modules in lib or in usr/lib, and so has modprobe: make the one a name of the other.
        os.makedirs(os.path.join(root, "usr"), exist_ok=True)
        if not os.path.exists(os.path.join(root, "usr/lib")):
            os.rename(os.path.join(root, "lib"), os.path.join(root, "usr/lib"))
        elif os.path.isdir(os.path.join(root, "lib")):  # the modules of one package are in lib, those of another in usr/lib
            shutil.copytree(os.path.join(root, "lib"), os.path.join(root, "usr/lib"), symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(os.path.join(root, "lib"))
        os.symlink("usr/lib", os.path.join(root, "lib"))
        image = next((f for f in (os.path.join(root, "boot", "vmlinuz-" + version), os.path.join(root, "lib/modules", version, "vmlinuz")) if os.path.exists(f)), None)
        if not image:
            raise Failure(f"{package} has no image of a kernel: use another --kernel (dat-lab --list-kernels)")
        elf = uncompressed_kernel(image)
        if elf:
            with open(os.path.join(root, "vmlinux"), "wb") as f:
                f.write(elf)
        else:
            os.rename(image, os.path.join(root, "vmlinux"))
        shutil.rmtree(os.path.join(root, "boot"), ignore_errors=True)
        r = subprocess.run([depmod, "-b", root, version], capture_output=True, text=True)
        if r.returncode:
            raise Failure(f"depmod fails for {version} ({' '.join(r.stderr.split())[-200:]}): is the disk of {cache} full?")
        if chosen:
            open(os.path.join(root, "chosen"), "w").close()
        shutil.rmtree(final, ignore_errors=True)
        os.chmod(root, 0o755)
        os.rename(root, final)
    return Kernel(version, os.path.join(final, "vmlinux"), final)
