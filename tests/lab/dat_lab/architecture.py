# What differs between the architectures that the machine can have: qemu, its devices, and the names of packages.
# SPDX-License-Identifier: BSL-1.0

import dataclasses
import platform

from .outcome import Failure


@dataclasses.dataclass(frozen=True)
class Architecture:
    name: str  # that of uname and of qemu
    debian: str  # Debian's and Ubuntu's
    gnu: str  # of the folders of libraries
    package: str  # Debian's package of the emulator
    machine: str  # qemu's type of machine
    cpu: str  # an emulated processor
    bus: str  # pci or ccw: how virtio devices are attached
    console: str  # the kernel's name of the first serial port
    append: str  # words of the kernel's command line

    @property
    def qemu(self):
        return "qemu-system-" + self.name

    @property
    def foreign(self):
        """Whether the programs of the host do not run on the machine."""
        return self.name != platform.machine()

    @property
    def kernels(self):
        """The ends of the names of its kernels: Debian's, Ubuntu's, Fedora's."""
        return (f"-{self.debian}", "-generic", f".{self.name}")

    def device(self, name, *settings):
        """The words of qemu's command line for a virtio device."""
        return ["-device", ",".join([f"virtio-{name}-{self.bus}", *settings])]


ARCHITECTURES = {
    a.name: a
    for a in (
        Architecture(
            name="x86_64", debian="amd64", gnu="x86_64-linux-gnu", package="qemu-system-x86", machine="pc", cpu="Nehalem", bus="pci", console="ttyS0",
            append="mitigations=off tsc=reliable no_timer_check random.trust_cpu=on cryptomgr.notests",
        ),
        # The processor `max` by itself would compute the signatures of pointers by a slow cipher. The interrupt controller that
        # qemu chooses by itself is for 8 processors.
        Architecture(
            name="aarch64", debian="arm64", gnu="aarch64-linux-gnu", package="qemu-system-arm", machine="virt,gic-version=max", cpu="max,pauth-impdef=on", bus="pci",
            console="ttyAMA0", append="mitigations=off random.trust_cpu=on cryptomgr.notests",
        ),
        Architecture(
            name="s390x", debian="s390x", gnu="s390x-linux-gnu", package="qemu-system-misc", machine="s390-ccw-virtio", cpu="max", bus="ccw",
            console="ttysclp0", append="mitigations=off random.trust_cpu=on cryptomgr.notests",
        ),
    )
}  # fmt: skip


def architecture(name=None):
    """That of --arch, or else of the host; raises Failure."""
    name = name or platform.machine()
    if name not in ARCHITECTURES:
        raise Failure(f"the machine cannot have the architecture of this host ({name}): use --arch {', --arch '.join(ARCHITECTURES)}, or --native on a host with RDMA devices")
    return ARCHITECTURES[name]
