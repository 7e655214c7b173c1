# --check: what is installed and what is missing.
# SPDX-License-Identifier: BSL-1.0

import os
import platform

from .cache import cache_dir
from .initramfs import guest_dir
from .kernel import by_default, cached_kernels, installed_kernels
from .kernel_packages import kernel_package
from .native import native_devices
from .outcome import Failure
from .qemu import check_memory
from .siw import built_from, siw_missing
from .tools import APT, busybox, find_tool


def check():
    good, missing = True, []

    def line(ok, what, remedy=None, package=None):
        nonlocal good
        print(f"{'ok     ' if ok else 'MISSING'} {what}" + (f": {remedy}" if remedy and not ok else ""))
        if not ok:
            good = False
            if package:
                missing.append(package)

    line(platform.machine() == "x86_64", f"x86_64 host ({platform.machine()})", "other architectures are not supported")
    for name, why in (("qemu-system-x86_64", "runs the machine"), ("modprobe", "finds modules"), ("depmod", "indexes modules"), ("ip", "sets links up"), ("rdma", "makes RDMA devices"), ("tc", "makes loss and delay")):
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
        cache = cache_dir()
        line(True, f"cache folder ({cache})")
    except Failure as e:
        line(False, "cache folder", str(e))
    cached = [k.version for k in filter(by_default, cached_kernels(cache))] if cache else []
    installed = installed_kernels()
    try:
        text = f"installed {installed[0]}" if installed else f"cached {cached[0]}" if cached else f"package {kernel_package()}, gets downloaded at the first run"
        line(True, f"kernel ({text})")
    except Failure as e:
        line(False, "kernel", str(e))
    cloud = [v for v in installed if "-cloud-" in v]
    print(f"{'warning' if cloud else 'info   '} cloud kernels have no rxe" + (f", so {' '.join(cloud)} cannot be the machine's" if cloud else " (packages with -cloud- in their names)"))
    if installed or cached:
        image = f"/boot/vmlinuz-{installed[0]}" if installed else os.path.join(cache, f"kernel-{cached[0]}", "vmlinux")
        kernel = (installed or cached)[0]
        built = [f for f in (os.listdir(cache) if cache else []) if f.startswith(f"siw-{kernel}-")]
        lacks = siw_missing((not installed and built_from(image)[1]) or "gcc")
        print(f"info    siw: {'built for ' + kernel if built else 'not built, ' + ('gets built at the first --device siw' if not lacks else 'and what builds it is not complete:')}")
        for text in lacks if not built else []:
            print("        " + text)
    provider = "/usr/lib/x86_64-linux-gnu/libibverbs"
    line(any("rxe" in f for f in (os.listdir(provider) if os.path.isdir(provider) else [])), "libibverbs' provider for rxe", "package ibverbs-providers", "ibverbs-providers")
    try:
        check_memory(1536)
        line(True, "memory for a machine of 1536 MiB")
    except Failure as e:
        line(False, "memory", str(e))
    devices = native_devices()
    print(f"info    RDMA devices of the host: {' '.join(devices) or 'none'}")
    print(f"info    /dev/kvm: {'usable by permission, tried at the first run' if os.access('/dev/kvm', os.R_OK | os.W_OK) else 'not usable, emulation (TCG) is used'}")
    if missing:
        print("sudo apt-get install " + " ".join(sorted(set(missing))))
    return 0 if good else 1
