# Chooses the kernel of the machine, and lists those that --kernel can have.
# SPDX-License-Identifier: BSL-1.0

import re

from .apt import of_architecture
from .cache import Lock, cache_dir
from .kernel import Kernel, boot_files, by_default, cached_kernels, image_of_installed, installed_kernels, version_key
from .kernel_packages import kernel_package, kernel_packages, packages_of_host, unpack_kernel_package
from .outcome import Failure

FLAVOUR = re.compile(r"-(cloud|rt)-(amd64|arm64|s390x)$")


def matching(versions, wish):
    """The newest version that a wish of --kernel names (a version, its beginning, a package), or None."""
    wish = wish.removeprefix("linux-image-").removeprefix("kernel-core-")
    if wish in versions:
        return wish
    plain = [v for v in versions if wish == "newest" or (v.startswith(wish) and not v[len(wish)].isalnum())]
    return max((v for v in plain if not FLAVOUR.search(v)), key=version_key, default=None)


def installed_of(arch):
    """The versions installed on the host that a machine of the architecture can have."""
    return [] if arch.foreign else installed_kernels()


def chosen_kernel(cache, wish, arch):
    """The kernel of --kernel: installed, cached, or of a package when neither exists or the newest is requested."""
    here = {k.version: k for k in cached_kernels(cache)}
    for v in installed_of(arch):
        here[v] = Kernel(v, None, "/")
    found = None if wish == "newest" else matching(here, wish)
    if not found:
        packages = kernel_packages(cache, arch)
        found = matching([*packages, *here], wish)
        if not found:
            raise Failure(f"no kernel {wish} is installed, cached or known to apt: see dat-lab --list-kernels, or sudo apt-get update")
        if "-cloud-" in found:
            raise Failure(f"kernel {found} is a cloud kernel, which has no rdma_rxe: use one without -cloud- (dat-lab --list-kernels)")
        if found not in here:
            return unpack_kernel_package(cache, *packages[found], chosen=True)
    kernel = here[found]
    if kernel.root == "/":
        kernel.image = image_of_installed(found, cache)
    return kernel


def list_kernels(arch):
    cache = cache_dir(arch)
    with Lock(cache):
        packages = kernel_packages(cache, arch)
    cached, installed = {k.version: k for k in cached_kernels(cache)}, installed_of(arch)
    default = installed[:1] or [v for v in cached if by_default(cached[v])][:1]
    for v in sorted(sorted({*packages, *cached, *installed}), key=version_key, reverse=True):
        state = ["installed"] * (v in installed) + ["cached"] * (v in cached) + ["default"] * (v in default)
        state += ["no rxe: cloud kernel"] * ("-cloud-" in v) + ["real time"] * ("-rt-" in v)
        print(f"{v:36} {', '.join(state)}".rstrip())
    return 0


def choose_kernel(cache, modprobe, wish, modules, arch):
    """(kernel, module files): that of --kernel; else an installed one when complete, else a cached one, else the distribution's package."""
    package = f"linux-image-{arch.debian}"
    if wish:
        kernel = chosen_kernel(cache, wish, arch)
        return kernel, boot_files(kernel.root, kernel.version, modprobe, modules, package)
    problem = None
    for version in installed_of(arch):
        try:
            files = boot_files("/", version, modprobe, modules, package)
            return Kernel(version, image_of_installed(version, cache), "/"), files
        except Failure as e:
            problem = e
    for kernel in filter(by_default, cached_kernels(cache)):
        try:
            return kernel, boot_files(kernel.root, kernel.version, modprobe, modules, package)
        except Failure as e:
            problem = e
    try:
        apt = of_architecture(cache, arch.debian) if arch.foreign else packages_of_host()
        kernel = unpack_kernel_package(cache, kernel_package(arch, apt), apt)
    except Failure:
        if problem and not packages_of_host():
            raise problem
        raise
    return kernel, boot_files(kernel.root, kernel.version, modprobe, modules, package)
