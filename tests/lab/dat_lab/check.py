# --check: what is installed and what is missing.
# SPDX-License-Identifier: BSL-1.0

import os
import platform

from .apt import debian_mirror
from .architecture import ARCHITECTURES, architecture
from .cache import cache_dir
from .guest_root import PACKAGES
from .initramfs import guest_dir
from .kernel import by_default, cached_kernels, installed_image
from .kernel_choice import installed_of
from .kernel_packages import kernel_package
from .native import native_devices
from .outcome import Failure
from .qemu import check_memory
from .siw import built_from, siw_missing
from .tools import APT, busybox, find_tool, get_packages


def foreign(arch, line):
    """What a machine of another architecture needs in place of programs of the host."""
    for name in ("apt-get", "apt-cache", "apt-config", "dpkg-deb", "tar"):
        package = {"dpkg-deb": "dpkg", "tar": "tar"}.get(name, "apt")
        line(find_tool(name), f"{name} ({find_tool(name) or 'gets the kernel and the programs of the machine'})", f"package {package}", package)
    mirror = debian_mirror()
    line(mirror, f"Debian mirror ({mirror[0] if mirror else 'has the packages of ' + arch.debian})", "apt has no source of Debian's on this host")
    try:
        roots = [f for f in os.listdir(cache_dir(arch)) if f.startswith("root-")]
        print(f"info    programs of the machine: {'cached' if roots else f'{len(PACKAGES)} packages, which get downloaded at the first run'}")
    except Failure:
        pass  # the line of the cache folder has the reason


def check(name=None):
    """Prints what a machine of an architecture, or of the host's, needs; 0 if nothing is missing, else 1."""
    good, missing = True, []

    def line(ok, what, remedy=None, package=None):
        nonlocal good
        print(f"{'ok     ' if ok else 'MISSING'} {what}" + (f": {remedy}" if remedy and not ok else ""))
        if not ok:
            good = False
            if package:
                missing.append(package)

    try:
        arch = architecture(name)
        line(True, f"{platform.machine()} host" + f", machines of {arch.name} are emulated" * arch.foreign)
    except Failure as e:
        arch = ARCHITECTURES["x86_64"]
        line(False, f"{platform.machine()} host", str(e))
    for name, why in ((arch.qemu, f"runs the machine{', of ' + arch.name if arch.foreign else ''}"), ("modprobe", "finds modules"), ("depmod", "indexes modules")):
        line(find_tool(name), f"{name} ({find_tool(name) or why})", f"package {APT[name]}", APT[name])
    if arch.foreign:
        foreign(arch, line)
    else:
        for name, why in (("ip", "sets links up"), ("rdma", "makes RDMA devices"), ("tc", "makes loss and delay")):
            line(find_tool(name), f"{name} ({find_tool(name) or why})", f"package {APT[name]}", APT[name])
        try:
            line(True, f"static busybox ({busybox()})")
        except Failure:
            line(False, "static busybox", "package busybox-static", "busybox-static")
    try:
        line(True, f"guest files ({guest_dir()})")
    except Failure as e:
        line(False, "guest files", str(e))
    cache = None
    try:
        cache = cache_dir(arch)
        line(True, f"cache folder ({cache})")
    except Failure as e:
        line(False, "cache folder", str(e))
    cached = [k.version for k in filter(by_default, cached_kernels(cache))] if cache else []
    installed = installed_of(arch)
    try:
        package = f"linux-image-{arch.debian}" if arch.foreign else ""
        text = f"installed {installed[0]}" if installed else f"cached {cached[0]}" if cached else f"package {package or kernel_package(arch)}, gets downloaded at the first run"
        line(True, f"kernel ({text})")
    except Failure as e:
        line(False, "kernel", str(e))
    cloud = [v for v in installed if "-cloud-" in v]
    print(f"{'warning' if cloud else 'info   '} cloud kernels have no rxe" + (f", so {' '.join(cloud)} cannot be the machine's" if cloud else " (packages with -cloud- in their names)"))
    if (installed or cached) and not arch.foreign:
        image = installed_image(installed[0]) if installed else os.path.join(cache, f"kernel-{cached[0]}", "vmlinux")
        kernel = (installed or cached)[0]
        built = [f for f in (os.listdir(cache) if cache else []) if f.startswith(f"siw-{kernel}-")]
        lacks = siw_missing((not installed and built_from(image)[1]) or "gcc")
        print(f"info    siw: {'built for ' + kernel if built else 'not built, ' + ('gets built at the first --device siw' if not lacks else 'and what builds it is not complete:')}")
        for text in lacks if not built else []:
            print("        " + text)
    if not arch.foreign:
        providers = [d for d in (f"/usr/lib/{arch.gnu}/libibverbs", "/usr/lib64/libibverbs") if os.path.isdir(d)]
        line(any("rxe" in f for d in providers for f in os.listdir(d)), "libibverbs' provider for rxe", "package ibverbs-providers", "ibverbs-providers")
    try:
        check_memory(1536)
        line(True, "memory for a machine of 1536 MiB")
    except Failure as e:
        line(False, "memory", str(e))
    devices = native_devices()
    print(f"info    RDMA devices of the host: {' '.join(devices) or 'none'}")
    print(f"info    /dev/kvm: {'not for another architecture' if arch.foreign else 'usable by permission, tried at the first run' if os.access('/dev/kvm', os.R_OK | os.W_OK) else 'not usable, emulation (TCG) is used'}")
    if missing:
        print(get_packages(*sorted(set(missing))))
    return 0 if good else 1
