# Kernels of Fedora through dnf: the names of their packages, and their download.
# SPDX-License-Identifier: BSL-1.0

import os
import subprocess

from .outcome import Failure
from .tools import tool


class Dnf:
    """The packages of Fedora, which has a kernel in several: the image in kernel-core, the modules in the others."""

    IMAGE = "kernel-core-"

    def run(self, *args):
        return subprocess.run([tool("dnf", "gets packages"), *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})

    def kernels(self, arch):
        """The names of all packages with an image, with their versions, the newest last."""
        listed = self.run("repoquery", "--quiet", "--arch", arch.name, "--queryformat", "%{version}-%{release}.%{arch}\n", "kernel-core")
        return list(dict.fromkeys(self.IMAGE + line.strip() for line in listed.stdout.splitlines() if line.strip().endswith("." + arch.name)))

    def newest(self, arch):
        names = self.kernels(arch)
        if not names:
            raise Failure("dnf knows no kernel package kernel-core: sudo dnf makecache")
        return names[-1]

    def parts(self, version):
        """The packages of a kernel. rdma_rxe is in one of those of the modules, and which one differs between the releases."""
        parts = [f"{name}-{version}" for name in ("kernel-core", "kernel-modules-core", "kernel-modules", "kernel-modules-extra")]
        known = self.run("repoquery", "--quiet", "--queryformat", "%{name}-%{version}-%{release}.%{arch}\n", *parts).stdout.split()
        return [p for p in parts if p == parts[0] or p in known]

    def download(self, package, folder):
        """The path of the package's file, which it puts into the folder."""
        before = set(os.listdir(folder))
        r = self.run("download", "--quiet", "--destdir", folder, package)
        files = [f for f in os.listdir(folder) if f.endswith(".rpm") and f not in before]
        if r.returncode or len(files) != 1:
            reason = next((l for l in r.stderr.splitlines() if "rror" in l), "no reason given")
            raise Failure(f"cannot download {package} ({reason}): check the network, and that dnf has its command download (dnf-plugins-core)")
        return os.path.join(folder, files[0])
