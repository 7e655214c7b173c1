# Builds the kernel module of Soft-iWARP (siw), which Debian's kernels lack.
# SPDX-License-Identifier: BSL-1.0

import lzma
import os
import re
import shutil
import subprocess
import tarfile
import tempfile

from .apt import Apt, backports
from .cache import write_atomically
from .kernel import boot_files
from .outcome import Failure
from .output import say
from .tools import find_tool, tool


def built_from(image):
    """(version of Debian's package, its compiler) of a kernel image, by the kernel's own words."""
    data = open(image, "rb").read()
    m = re.search(rb"Linux version [^\0\n]*?gcc-(\d+)[^\0\n]* Debian (\S+) \(", data)
    return (m.group(2).decode(), "gcc-" + m.group(1).decode()) if m else (None, None)


def siw_sources(deb, folder):
    """Unpacks the folder of siw from the file of a package linux-source-*."""
    unpack = subprocess.Popen([find_tool("dpkg-deb"), "--fsys-tarfile", deb], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    count = 0
    try:
        with tarfile.open(fileobj=unpack.stdout, mode="r|") as outer:
            for member in outer:
                if re.search(r"/linux-source-[\d.]+\.tar\.(xz|gz)$", member.name):
                    with tarfile.open(fileobj=outer.extractfile(member), mode="r|*") as inner:
                        for m in inner:
                            if m.isfile() and "/drivers/infiniband/sw/siw/" in m.name:
                                with open(os.path.join(folder, os.path.basename(m.name)), "wb") as f:
                                    shutil.copyfileobj(inner.extractfile(m), f)
                                count += 1
                            elif count:  # the folder is complete
                                return count
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError) as e:
        raise Failure(f"siw: cannot unpack {os.path.basename(deb)} ({e}): is the disk full?")
    finally:
        unpack.kill()
        unpack.wait()
        unpack.stdout.close()
    return count


def siw_missing(compiler):
    """A line for each program that is missing for the build of siw."""
    needed = {"make": "make", compiler: compiler, "ld": "binutils", "apt-get": "apt", "dpkg": "dpkg", "dpkg-deb": "dpkg", "modinfo": "kmod"}
    return [f"siw: {name} is missing (builds the module): sudo apt-get install {package}" for name, package in needed.items() if not find_tool(name)]


def tool_packages(apt, depends, version):
    """{package: version} of what the headers of a kernel depend on. Debian publishes a new kernel some hours after the tools that build
    it, and then has the tools of the new one only. They serve the last kernel, too, and its headers ask for no exact version of them."""
    packages = {}
    for name, relation in re.findall(r"(linux-(?:headers|kbuild|compiler)-[\w.+-]+)(?: \((\S+) )?", depends):
        newest = next(iter(apt.versions(name)), version)  # apt lists it first
        later = subprocess.run([find_tool("dpkg"), "--compare-versions", newest, "gt", version]).returncode == 0
        exact = relation == "=" or version in apt.versions(name)
        packages[name] = newest if later and not exact else version
    return packages


def siw_module(cache, kernel):
    """The path of siw.ko for a kernel, built from Debian's sources and headers of exactly its version; kept in the cache."""
    release = kernel.version
    version, compiler = built_from(kernel.image)
    if not version:
        raise Failure(f"siw: {release} is no kernel of Debian, so there are no sources for it: use --kernel (dat-lab --list-kernels)")
    final = os.path.join(cache, f"siw-{release}-{version}.ko")
    if os.path.exists(final):
        return final
    if re.search(r"[\s:]", cache):
        raise Failure(f"siw: kernel modules cannot be built below a folder with a space or a colon in its name ({cache}): set XDG_CACHE_HOME")
    missing = siw_missing(compiler)
    if missing:
        raise Failure(*missing)
    headers, source = f"linux-headers-{release}", "linux-source-" + re.match(r"\d+\.\d+", release).group()
    for apt in filter(None, (Apt(), backports(cache))):
        fields = apt.versions(headers).get(version)
        if fields:
            break
    else:
        raise Failure(f"siw: apt has no {headers} of version {version}, that of the kernel: sudo apt-get update, or another --kernel")
    packages = {headers: version, **tool_packages(apt, fields.get("Depends", ""), version), source: version}
    missing = [p for p, v in packages.items() if v not in apt.versions(p)]
    if missing:
        raise Failure(*(f"siw: apt has no {p} of version {version}, that of the kernel: sudo apt-get update, or another --kernel" for p in missing))
    say(f"building siw for {release} (downloads about 150 MB, once; it is kept in {cache})")
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=cache) as tmp:
        build, top = os.path.join(tmp, "siw"), os.path.join(tmp, "top")
        os.mkdir(build)
        os.mkdir(top)
        for package, of in packages.items():
            deb = apt.download(f"{package}={of}", tmp)
            if package == source:
                if not siw_sources(deb, build):
                    raise Failure(f"siw: {package} has no drivers/infiniband/sw/siw: use another --kernel")
            elif subprocess.run([find_tool("dpkg-deb"), "-x", deb, top], capture_output=True).returncode:
                raise Failure(f"siw: cannot unpack {os.path.basename(deb)}: is the disk of {cache} full?")
            os.unlink(deb)
        where = os.path.join(top, "usr/src", headers)
        makefile = os.path.join(where, "Makefile")
        text = open(makefile).read().replace("/usr/src/linux-headers", f"{top}/usr/src/linux-headers")
        with open(makefile, "w") as f:
            f.write(text)
        with open(os.path.join(tmp, "log"), "wb") as log:
            # Neither signed nor with type information, which would need the kernel's.
            settings = ["CONFIG_RDMA_SIW=m", "CONFIG_MODULE_SIG_ALL=", "CONFIG_DEBUG_INFO_BTF_MODULES="]
            r = subprocess.run(
                [find_tool("make"), "-C", where, f"M={build}", *settings, "modules"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "LC_ALL": "C", "MAKEFLAGS": "", "MFLAGS": ""},
            )
        module = os.path.join(build, "siw.ko")
        if r.returncode or not os.path.exists(module):
            with open(os.path.join(tmp, "log"), errors="replace") as log:
                lines = [line.strip() for line in log if line.strip()]
            errors = [line for line in lines if "rror" in line] or lines
            raise Failure(f"siw: the build for {release} fails ({(errors or ['no message'])[0][:200]})")
        if find_tool("strip"):
            subprocess.run([find_tool("strip"), "--strip-debug", module], capture_output=True)
        r = subprocess.run([find_tool("modinfo"), "-F", "vermagic", module], capture_output=True, text=True)
        if r.stdout.split(" ")[0] != release:
            raise Failure(f"siw: the module is for {r.stdout.strip() or 'no kernel'}, not for {release}")
        for old in os.listdir(cache):  # of older packages of the same kernel
            if old.startswith(f"siw-{release}-"):
                os.unlink(os.path.join(cache, old))
        write_atomically(final, open(module, "rb").read())
    return final


def siw_files(cache, kernel, modprobe):
    """Paths of siw.ko and of what it depends on, in order."""
    module = siw_module(cache, kernel)
    r = subprocess.run([tool("modinfo", "reads modules"), "-F", "depends", module], capture_output=True, text=True)
    return boot_files(kernel.root, kernel.version, modprobe, [m for m in r.stdout.strip().split(",") if m]) + [module]
