# Builds the libraries of rdma-core of another release of Debian, from its sources, for this system.
# SPDX-License-Identifier: BSL-1.0

import os
import re
import shutil
import subprocess
import tarfile
import tempfile

from .apt import debian_mirror, private, read_lists, source
from .cache import Lock
from .outcome import Failure
from .output import say
from .tools import find_tool

# What is built: the libraries, and the providers of the devices that a machine can have.
LIBRARIES = ("ibverbs", "rdmacm")
PROVIDERS = ("rxe", "siw")


def missing():
    """A line for each program or library that is missing for the build."""
    needed = {"cmake": "cmake", "make": "make", "cc": "gcc", "pkg-config": "pkg-config", "apt-get": "apt"}
    lines = [f"rdma-core: {name} is missing (builds the libraries): sudo apt-get install {package}" for name, package in needed.items() if not find_tool(name)]
    if not lines:
        for name, package in (("libnl-3.0", "libnl-3-dev"), ("libnl-route-3.0", "libnl-route-3-dev")):
            if subprocess.run([find_tool("pkg-config"), "--exists", name], capture_output=True).returncode:
                lines.append(f"rdma-core: {name} is missing (builds the libraries): sudo apt-get install {package}")
    return lines


def get_sources(cache, release, folder):
    """Downloads the upstream sources of a release's package into a folder; the path of the file."""
    mirror = debian_mirror()
    if not mirror:
        raise Failure("rdma-core: its sources come from a Debian mirror, and apt has no source of Debian's on this host")
    lists = os.path.join(cache, f"apt-{release}-sources")
    text = source(mirror, release).replace("Types: deb\n", "Types: deb-src\n", 1)
    apt = private(lists, release, text)
    reason = read_lists(apt, lists, text, f"the sources of {release}")
    if not reason:
        r = apt.run("apt-get", "source", "--download-only", "--tar-only", "--only-source", "rdma-core", cwd=folder)
        files = [f for f in os.listdir(folder) if ".orig.tar." in f]
        if r.returncode == 0 and len(files) == 1:
            return os.path.join(folder, files[0])
        reason = next((line for line in r.stderr.splitlines() if line.startswith("E:")), "no reason given")
    raise Failure(f"rdma-core: cannot get the sources of {release} ({reason}): check the network and the name of the release")


def first_error(path):
    with open(path, errors="replace") as log:
        lines = [line.strip() for line in log if line.strip()]
    return next((line for line in lines if "rror" in line), (lines or ["no message"])[-1])[:200]


def build(cache, release, final):
    """Builds into the folder `final`, which the libraries name as their own."""
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=cache) as tmp:
        file = get_sources(cache, release, tmp)
        version = re.search(r"_([\d.]+)\.orig\.", os.path.basename(file)).group(1)
        try:
            with tarfile.open(file) as t:
                t.extractall(tmp)
        except (tarfile.TarError, EOFError, OSError) as e:
            raise Failure(f"rdma-core: cannot unpack {os.path.basename(file)} ({e}): is the disk full?")
        tree, work, log = os.path.join(tmp, f"rdma-core-{version}"), os.path.join(tmp, "build"), os.path.join(tmp, "log")
        lists = open(os.path.join(tree, "CMakeLists.txt")).read()
        interface = re.search(r'IBVERBS_PABI_VERSION "(\d+)"', lists).group(1)
        settings = {
            "CMAKE_BUILD_TYPE": "Release", "CMAKE_INSTALL_LIBDIR": "lib", "CMAKE_INSTALL_PREFIX": final, "CMAKE_INSTALL_SYSCONFDIR": "etc",
            "CMAKE_SKIP_RPATH": "ON", "NO_MAN_PAGES": "1", "NO_PYVERBS": "1",
        }  # fmt: skip
        targets = [*LIBRARIES, *(f"{p}-rdmav{interface}" for p in PROVIDERS)]
        for argv in (
            ["-S", tree, "-B", work, *(f"-D{k}={v}" for k, v in settings.items())],
            ["--build", work, "--parallel", "2", "--target", *targets],
        ):
            with open(log, "wb") as out:
                r = subprocess.run([find_tool("cmake"), *argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, "LC_ALL": "C"})
            if r.returncode:
                raise Failure(f"rdma-core: the build of {version} fails ({first_error(log)})")
        made = os.path.join(tmp, "made")
        for folder in ("lib/libibverbs", "etc/libibverbs.d", "include"):
            os.makedirs(os.path.join(made, folder))
        for name in os.listdir(os.path.join(work, "lib")):
            path = os.path.join(work, "lib", name)
            if re.match(r"lib(ibverbs|rdmacm)\.so", name):
                shutil.copy2(path, os.path.join(made, "lib", name), follow_symlinks=False)
        for p in PROVIDERS:
            shutil.copy2(os.path.join(work, "lib", f"lib{p}-rdmav{interface}.so"), os.path.join(made, "lib/libibverbs"))
            with open(os.path.join(made, f"etc/libibverbs.d/{p}.driver"), "w") as f:
                f.write(f"driver {p}\n")
        for folder in ("infiniband", "rdma"):
            shutil.copytree(os.path.join(work, "include", folder), os.path.join(made, "include", folder), ignore_dangling_symlinks=True)
        with open(os.path.join(made, "version"), "w") as f:
            f.write(version + "\n")
        os.chmod(made, 0o755)
        os.rename(made, final)


def rdma_core(cache, release):
    """The folder with lib, include and etc of rdma-core of a release of Debian, built when it is not there."""
    final = os.path.join(cache, f"rdma-core-{release}")
    with Lock(cache):
        if not os.path.exists(final):
            lines = missing()
            if lines:
                raise Failure(*lines)
            say(f"building rdma-core of {release} (downloads about 2 MB, once; it is kept in {cache})")
            build(cache, release, final)
    return final
