# The root of a machine of another architecture: Debian packages of that architecture, unpacked in the cache.
# SPDX-License-Identifier: BSL-1.0

import hashlib
import os
import shutil
import tempfile

from .apt import of_architecture
from .kernel_packages import unpack
from .outcome import Failure
from .output import say
from .tools import tool

# What commands need, and the machine itself: busybox, ip, rdma, tc, modprobe, a shell, and python3 for captures.
PACKAGES = (
    "busybox-static coreutils dash findutils grep ibverbs-providers ibverbs-utils iproute2 kmod libc6 libgcc-s1 libibverbs1 librdmacm1 "
    "libstdc++6 mawk procps python3-minimal rdma-core rdmacm-utils sed util-linux"
).split()

# The host's directories that the machine has, too, are all but these, which are those of its own system.
SYSTEM = "bin boot dev etc lib lib32 lib64 libx32 lost+found proc run sbin sys usr var".split()

FILES = {  # which the scripts of packages would write
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}


def host_directories():
    """The directories of the host's root that a machine of another architecture has under the same paths."""
    return sorted(d.path for d in os.scandir("/") if d.name not in SYSTEM and not d.is_symlink() and d.is_dir())


def check_directory(path, shares):
    """Raises Failure when a machine of another architecture does not have a directory of the host."""
    if not any(path == d or path.startswith(d.rstrip("/") + "/") for d in [*host_directories(), *shares]):
        raise Failure(f"the working directory {path} is not in a machine of another architecture, which has {' '.join(host_directories())} of the host: use --share {path}")


def root_of(cache, arch):
    """The folder with the root, made when it is not there; the caller holds the lock of the cache."""
    final = os.path.join(cache, "root-" + hashlib.sha256(" ".join([*PACKAGES, *FILES.values()]).encode()).hexdigest()[:16])
    if os.path.exists(final):
        return final
    for name in ("apt-get", "dpkg-deb", "tar"):
        tool(name, "gets the programs of the machine")
    apt = of_architecture(cache, arch.debian)
    say(f"getting {len(PACKAGES)} packages for {arch.name} and what they depend on (40 MB, once; they are unpacked into {cache}, not installed)")
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=cache) as tmp:
        root, archives = os.path.join(tmp, "root"), os.path.join(tmp, "archives")
        os.makedirs(os.path.join(archives, "partial"))
        r = apt.run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", "--download-only", "-o", f"Dir::Cache::archives={archives}", *PACKAGES)
        debs = sorted(f for f in os.listdir(archives) if f.endswith(".deb"))
        if r.returncode or not debs:
            reason = next((l for l in r.stderr.splitlines() if l.startswith("E:")), "no reason given")
            raise Failure(f"cannot download the programs of the machine ({reason}): check the network")
        for name in ("bin", "lib", "sbin"):
            os.makedirs(os.path.join(root, "usr", name))
            os.symlink("usr/" + name, os.path.join(root, name))
        for deb in debs:
            unpack(os.path.join(archives, deb), root, [])
        for unused in ("usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/perl"):
            shutil.rmtree(os.path.join(root, unused), ignore_errors=True)
        for d in ["proc", "sys", "dev", "run", "tmp", "root", "var/tmp", "etc", *(d[1:] for d in host_directories())]:
            os.makedirs(os.path.join(root, d), exist_ok=True)
        for name, text in FILES.items():
            with open(os.path.join(root, name), "w") as f:
                f.write(text)
        if not os.path.lexists(os.path.join(root, "usr/bin/awk")):  # a choice of the host's alternatives
            os.symlink("mawk", os.path.join(root, "usr/bin/awk"))
        os.chmod(root, 0o755)
        os.rename(root, final)
    return final
