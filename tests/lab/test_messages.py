#!/usr/bin/env python3
# Tests of dat-lab: the message of each reason to refuse a run: missing tools, kernels, wrong arguments, bad files.
# SPDX-License-Identifier: BSL-1.0

import io
import os
import re
import shutil
import sys
import tarfile
import tempfile

import lab_main
from lab_testing import Case, module, run


class Messages(Case):
    """Each reason to refuse a run is one line with its remedy, and nothing is booted."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.bin = os.path.join(self.dir, "bin")
        os.mkdir(self.bin)

    def tools(self, *without, **fakes):
        """A search path with all tools but some, and with fakes: name=shell script."""
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        for name in "qemu-system-x86_64 busybox depmod modprobe ip rdma tc apt-get apt-cache dpkg dpkg-deb tar".split():  # no apt-config: no backports
            target = shutil.which(name, path=path)
            if target and name not in without and name.replace("-", "_") not in fakes:
                os.symlink(target, os.path.join(self.bin, name))
        for name, text in fakes.items():
            fake = os.path.join(self.bin, name.replace("_", "-"))
            with open(fake, "w") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(fake, 0o755)
        return {"DAT_LAB_TOOLS": self.bin}

    def expect(self, pattern, *args, rc=125, env=None):
        r = run(*(args or ("--machine", "--", "true")), env=env)
        text = r.err.decode()
        self.assertEqual(r.rc, rc, text)
        self.assertRegex(text, pattern)
        self.assertNotIn("Traceback", text)
        if rc == 125:
            self.assertTrue(all(l.startswith("dat-lab: ") for l in text.splitlines()), text)
        self.assertEqual(r.out, b"")
        return text

    def test_missing_qemu(self):
        self.expect(r"^dat-lab: qemu-system-x86_64 is missing .*: sudo apt-get install qemu-system-x86\n$", env=self.tools("qemu-system-x86_64"))

    def test_missing_busybox(self):
        self.expect(r"^dat-lab: a static busybox is missing .*: sudo apt-get install busybox-static\n$", env=self.tools("busybox"))

    def test_busybox_that_is_not_static(self):
        self.expect(r"static busybox is missing", env=self.tools(busybox="exit 0\n"))

    def test_missing_kmod(self):
        self.expect(r"^dat-lab: modprobe is missing .*: sudo apt-get install kmod\n$", env=self.tools("modprobe"))

    def test_missing_iproute2(self):
        self.expect(r"^dat-lab: rdma is missing .*: sudo apt-get install iproute2\n$", env=self.tools("rdma"))

    def no_kernel(self, **fakes):
        """Hides the cached kernels, and from this process the installed ones."""
        if any(os.path.exists(f"/boot/vmlinuz-{v}") for v in (os.listdir("/lib/modules") if os.path.isdir("/lib/modules") else [])):
            self.skipTest("this host has a kernel installed, no package is needed")
        return {**self.tools(**fakes), "XDG_CACHE_HOME": os.path.join(self.dir, "cache")}

    def test_kernel_package_unknown_to_apt(self):
        env = self.no_kernel(apt_cache="exit 100\n")
        self.expect(r"^dat-lab: apt knows no kernel package .*: sudo apt-get update\n$", env=env)

    def test_kernel_package_not_downloadable(self):
        env = self.no_kernel(
            apt_cache="echo 'Depends: linux-image-6.1.0-1-amd64 (= 6.1)'\n", apt_get="echo 'E: Failed to fetch it' >&2; exit 100\n"
        )
        self.expect(r"cannot download linux-image-6\.1\.0-1-amd64 \(E: Failed to fetch it\): check the network, then sudo apt-get update\n$", env=env)
        self.assertEqual(os.listdir(os.path.join(self.dir, "cache", "dat-lab")), ["lock"])

    def test_kernel_package_that_cannot_be_unpacked(self):
        env = self.no_kernel(
            apt_cache="echo 'Depends: linux-image-6.1.0-1-amd64 (= 6.1)'\n", apt_get="echo no deb > linux-image-6.1.0-1-amd64_1_amd64.deb\n"
        )
        self.expect(r"cannot unpack linux-image-6\.1\.0-1-amd64_1_amd64\.deb", env=env)
        self.assertEqual(os.listdir(os.path.join(self.dir, "cache", "dat-lab")), ["lock"])

    KERNELS = """case "$1 $2" in
"search --names-only")
  case $APT_CONFIG in
  "") echo linux-image-6.1.0-9-amd64 - x; echo linux-image-6.1.0-10-amd64 - x; echo linux-image-6.1.0-10-cloud-amd64 - x; echo linux-image-6.1-amd64 - x ;;
  *) echo linux-image-6.12.3+deb12-amd64 - x ;;
  esac ;;
esac
"""
    # The private configuration must be below the cache; a list can be read (update) only with it.
    GET = """case "$1" in
indextargets) [ -z "$APT_CONFIG" ] && echo "Debian|http://mirror.invalid/debian/|bookworm|/nonexistent/debian.sources:1" ;;
update) case $APT_CONFIG in "$XDG_CACHE_HOME"/dat-lab/apt/apt.conf) exit %d ;; *) echo "wrong: $APT_CONFIG" >&2; exit 100 ;; esac ;;
*) echo "E: not today" >&2; exit 100 ;;
esac
"""

    def listed(self, env, rc=0):
        r = run("--list-kernels", env=env)
        self.assertEqual(r.rc, rc, r.err)
        return [re.sub(" +", " ", line) for line in r.out.decode().splitlines()], r.err.decode()

    def test_kernels_of_the_mirror_and_of_its_backports_are_listed_newest_first(self):
        env = self.no_kernel(apt_cache=self.KERNELS, apt_get=self.GET % 0, apt_config="exit 0\n")
        kernels, _ = self.listed(env)
        self.assertEqual(kernels, ["6.12.3+deb12-amd64", "6.1.0-10-amd64", "6.1.0-10-cloud-amd64 no rxe: cloud kernel", "6.1.0-9-amd64"])
        folder = os.path.join(self.dir, "cache", "dat-lab", "apt")
        with open(os.path.join(folder, "sources.d", "backports.sources")) as f:
            self.assertEqual(f.read(), "Types: deb\nURIs: http://mirror.invalid/debian/\nSuites: bookworm-backports\nComponents: main\n")
        with open(os.path.join(folder, "main")) as f:
            text = f.read()
        self.assertIn(f'Dir::Etc::sourceparts "{folder}/sources.d";', text)
        self.assertIn(f'Dir::State "{folder}/state";', text)
        self.assertIn(f'Dir::Cache "{folder}/cache";', text)
        self.assertEqual(self.listed(env)[1], "")  # the list is read once a day

    def test_backports_that_cannot_be_read_are_told(self):
        env = self.no_kernel(apt_cache=self.KERNELS, apt_get=self.GET % 100, apt_config="exit 0\n")
        self.assertRegex(self.listed(env)[1], r"dat-lab: bookworm-backports is not readable \(no reason given\)")

    def test_kernel_that_is_not_known(self):
        env = self.no_kernel(apt_cache=self.KERNELS)
        self.expect(r"^dat-lab: no kernel 5\.10 is installed, cached or known to apt: see dat-lab --list-kernels", "--kernel", "5.10", "--", "true", env=env)

    def test_cloud_kernel(self):
        env = self.no_kernel(apt_cache=self.KERNELS)
        self.expect(r"6\.1\.0-10-cloud-amd64 is a cloud kernel, which has no rdma_rxe", "--kernel", "6.1.0-10-cloud-amd64", "--", "true", env=env)

    def test_kernel_version_names_a_package(self):
        env = self.no_kernel(apt_cache=self.KERNELS, apt_get=self.GET % 0, apt_config="exit 0\n")
        for wish, package in (("newest", "6.12.3+deb12"), ("6.12", "6.12.3+deb12"), ("6.1", "6.1.0-10"), ("linux-image-6.1.0-9-amd64", "6.1.0-9")):
            with self.subTest(wish=wish):
                self.expect(rf"cannot download linux-image-{re.escape(package)}-amd64 \(E: not today\)", "--kernel", wish, "--", "true", env=env)

    def test_kernel_of_the_cache_is_taken_without_apt_and_never_by_default(self):
        cache = os.path.join(self.dir, "cache", "dat-lab")
        for version, chosen in (("6.1.0-9-amd64", False), ("6.12.3+deb12-amd64", True)):
            modules = os.path.join(cache, "kernel-" + version, "lib", "modules", version)
            os.makedirs(modules)
            for f in [os.path.join(modules, "modules.dep"), os.path.join(cache, "kernel-" + version, "vmlinux")] + [os.path.join(cache, "kernel-" + version, "chosen")] * chosen:
                open(f, "w").close()
        env = {**self.no_kernel(), "XDG_CACHE_HOME": os.path.join(self.dir, "cache")}
        for tool in ("apt-cache", "apt-get"):
            os.unlink(os.path.join(self.bin, tool))
        self.expect(r"kernel 6\.12\.3\+deb12-amd64 has no module", "--kernel", "6.12", "--", "true", env=env)
        self.expect(r"kernel 6\.1\.0-9-amd64 has no module", env=env)
        self.assertEqual(self.listed(env)[0], ["6.12.3+deb12-amd64 cached", "6.1.0-9-amd64 cached, default"])

    def debian_kernel(self, *without, **fakes):
        """A cached kernel 9.9.9 of the package 9.9.9-1, which needs no module, and programs that pretend to build siw for it."""
        cache = os.path.join(self.dir, "cache", "dat-lab")
        modules = os.path.join(cache, "kernel-9.9.9-amd64", "lib", "modules", "9.9.9-amd64")
        os.makedirs(modules)
        open(os.path.join(modules, "modules.dep"), "w").close()
        with open(os.path.join(cache, "kernel-9.9.9-amd64", "vmlinux"), "w") as f:
            f.write("x\0Linux version 9.9.9-amd64 (d@x) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld) #1 SMP Debian 9.9.9-1 (2026-01-01)\n\0")
        source = os.path.join(self.dir, "source.tar")
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w:xz") as t:
            for name in ("drivers/infiniband/core/x.c", "drivers/infiniband/sw/siw/siw.c", "drivers/infiniband/sw/siw/Makefile", "drivers/z.c"):
                t.addfile(tarfile.TarInfo("linux-source-9.9/" + name))
        with tarfile.open(source, "w") as t:
            member = tarfile.TarInfo("./usr/src/linux-source-9.9.tar.xz")
            member.size = len(inner.getvalue())
            t.addfile(member, io.BytesIO(inner.getvalue()))
        headers = "linux-headers-9.9.9-amd64"
        depends = "linux-headers-9.9.9-common (= 9.9.9-1), linux-kbuild-9.9 (>= 9.9.9-1), gcc-12"
        tools = {
            "modprobe": "exit 0\n",
            "apt_cache": f'[ "$1" = show ] && printf "Package: $2\\nVersion: 9.9.9-1\\nDepends: {depends}\\n"\n',
            "apt_get": '[ "$1" = download ] && touch "${2%=*}_1_amd64.deb"\n',
            "dpkg_deb": f'case $1 in -x) mkdir -p "$3/usr/src/{headers}" && echo include /usr/src/linux-headers-x >"$3/usr/src/{headers}/Makefile" ;; *) cat {source} ;; esac\n',
            "make": 'm=${3#M=}; [ -f "$m/siw.c" ] && [ -f "$m/Makefile" ] && [ ! -f "$m/x.c" ] && [ ! -f "$m/z.c" ] && grep -q "^include /.*/top/usr/src/linux-headers-x" "$2/Makefile" && echo module >"$m/siw.ko"\n',
            "gcc_12": "exit 0\n",
            "ld": "exit 0\n",
            "modinfo": '[ "$2" = depends ] || echo "9.9.9-amd64 SMP"\n',
        }
        for name in without:
            del tools[name]
        return {**self.no_kernel(**{**tools, **fakes}), "DAT_LAB_KVM": "0"}

    def test_each_program_that_the_build_of_siw_lacks_has_its_line(self):
        env = self.debian_kernel("make", "gcc_12", "ld")
        text = self.expect(r"^dat-lab: siw: make is missing .*: sudo apt-get install make\n", "--device", "siw", "--", "true", env=env)
        self.assertIn("dat-lab: siw: gcc-12 is missing (builds the module): sudo apt-get install gcc-12\n", text)
        self.assertIn("dat-lab: siw: ld is missing (builds the module): sudo apt-get install binutils\n", text)
        self.assertEqual(len(text.splitlines()), 3)

    def test_siw_needs_sources_of_exactly_the_kernels_version(self):
        env = self.debian_kernel(apt_cache='printf "Package: $2\\nVersion: 9.9.9-2\\n"\n')
        self.expect(r"^dat-lab: siw: apt has no linux-headers-9\.9\.9-amd64 of version 9\.9\.9-1, that of the kernel: ", "--device", "siw", "--", "true", env=env)

    def other_version(self, package, version):
        """A fake apt-cache that has a package in another version than that of the kernel, which is 9.9.9-1."""
        depends = "linux-headers-9.9.9-common (= 9.9.9-1), linux-kbuild-9.9 (>= 9.9.9-1)"
        return f'v=9.9.9-1; [ "$2" != {package} ] || v={version}; printf "Package: $2\\nVersion: $v\\nDepends: {depends}\\n"\n'

    def test_siw_is_built_by_later_tools_where_apt_has_no_other(self):
        log = os.path.join(self.dir, "downloads")
        download = f'[ "$1" = download ] && echo "$2" >>{log} && touch "${{2%=*}}_1_amd64.deb"\n'
        env = self.debian_kernel(apt_cache=self.other_version("linux-kbuild-9.9", "9.9.9-3"), apt_get=download)
        r = run("--prepare", "--device", "siw", env=env)
        self.assertEqual(r.rc, 0, r.err)
        with open(log) as f:
            downloads = f.read().split()
        self.assertIn("linux-kbuild-9.9=9.9.9-3", downloads)
        self.assertIn("linux-headers-9.9.9-common=9.9.9-1", downloads)

    def test_siw_is_not_built_by_earlier_tools(self):
        env = self.debian_kernel(apt_cache=self.other_version("linux-kbuild-9.9", "9.9.9-0"))
        self.expect(r"^dat-lab: siw: apt has no linux-kbuild-9\.9 of version 9\.9\.9-1, ", "--device", "siw", "--", "true", env=env)

    def test_siw_is_not_built_with_other_headers(self):
        env = self.debian_kernel(apt_cache=self.other_version("linux-headers-9.9.9-common", "9.9.9-2"))
        self.expect(r"^dat-lab: siw: apt has no linux-headers-9\.9\.9-common of version 9\.9\.9-1, ", "--device", "siw", "--", "true", env=env)

    def test_siw_is_built_from_its_folder_of_the_sources_and_kept(self):
        env = self.debian_kernel()
        r = run("--prepare", "--device", "siw", env=env)
        self.assertEqual(r.rc, 0, r.err)
        self.assertIn(b"building siw for 9.9.9-amd64", r.err)
        cache = os.path.join(self.dir, "cache", "dat-lab")
        self.assertIn("siw-9.9.9-amd64-9.9.9-1.ko", os.listdir(cache))
        self.assertEqual([f for f in os.listdir(cache) if f.startswith("tmp-")], [])
        os.unlink(os.path.join(self.bin, "make"))
        r = run("--prepare", "--device", "siw", env=env)
        self.assertEqual((r.rc, r.err), (0, b""))

    def test_build_of_siw_that_fails_says_why_and_leaves_nothing(self):
        env = self.debian_kernel(make="echo siw.c:1: error: no such thing >&2; exit 2\n")
        self.expect(r"siw: the build for 9\.9\.9-amd64 fails \(siw\.c:1: error: no such thing\)\n", "--device", "siw", "--", "true", env=env)
        cache = os.path.join(self.dir, "cache", "dat-lab")
        self.assertEqual([f for f in os.listdir(cache) if f.startswith(("tmp-", "siw"))], [])

    def test_siw_module_of_another_version_is_refused(self):
        env = self.debian_kernel(modinfo='echo "9.9.8-amd64 SMP"\n')
        self.expect(r"siw: the module is for 9\.9\.8-amd64 SMP, not for 9\.9\.9-amd64\n", "--device", "siw", "--", "true", env=env)

    def rdma_core(self, **fakes):
        """Programs that pretend to get the sources of rdma-core 99.1 and to build them."""
        file = os.path.join(self.dir, "rdma-core_99.1.orig.tar.gz")
        with tarfile.open(file, "w:gz") as t:
            text = b'set(IBVERBS_PABI_VERSION "77")\n'
            member = tarfile.TarInfo("rdma-core-99.1/CMakeLists.txt")
            member.size = len(text)
            t.addfile(member, io.BytesIO(text))
        sources = "$XDG_CACHE_HOME/dat-lab/apt-trixie-sources"
        return self.debian_kernel(**{
            "apt_config": "exit 0\n",
            "apt_get": f"""case "$1" in
indextargets) echo "Debian|http://mirror.invalid/debian/|bookworm|/nonexistent/debian.sources:1" ;;
update) [ "$APT_CONFIG" = "{sources}/apt.conf" ] && [ "$(head -1 "{sources}/sources.d/trixie.sources")" = "Types: deb-src" ] ;;
source) [ "$APT_CONFIG" = "{sources}/apt.conf" ] && cp {file} . ;;
esac
""",
            "cc": "exit 0\n",
            "make": "exit 0\n",
            "pkg_config": "exit 0\n",
            "cmake": """case "$1" in
-S) mkdir -p "$4/lib" "$4/include/infiniband" "$4/include/rdma" && touch "$4/include/infiniband/verbs.h" ;;
--build) cd "$2/lib" && shift 5 && [ "$*" = "ibverbs rdmacm rxe-rdmav77 siw-rdmav77" ] && touch libibverbs.so.1 librdmacm.so.1 librxe-rdmav77.so libsiw-rdmav77.so ;;
esac
""",
            **fakes,
        })  # fmt: skip

    def test_rdma_core_is_built_from_the_sources_of_a_release_and_kept(self):
        env = self.rdma_core()
        for said in (b"building rdma-core of trixie", b""):
            r = run("--prepare", "--rdma-core", "trixie", env=env)
            self.assertEqual(r.rc, 0, r.err)
            folder = r.out.decode().strip()
            self.assertEqual(folder, os.path.join(self.dir, "cache", "dat-lab", "rdma-core-trixie"))
            self.assertIn(said, r.err) if said else self.assertEqual(r.err, b"")
            for name in ("include/infiniband/verbs.h", "lib/libibverbs.so.1", "lib/librdmacm.so.1", "lib/libibverbs/librxe-rdmav77.so"):
                self.assertTrue(os.path.exists(os.path.join(folder, name)), name)
            with open(os.path.join(folder, "etc/libibverbs.d/rxe.driver")) as f:
                self.assertEqual(f.read(), "driver rxe\n")
            if said:
                os.unlink(os.path.join(self.bin, "cmake"))

    def test_each_program_that_the_build_of_rdma_core_lacks_has_its_line(self):
        env = self.rdma_core(pkg_config='[ "$2" != libnl-route-3.0 ]\n')
        self.expect(r"^dat-lab: rdma-core: libnl-route-3\.0 is missing .*: sudo apt-get install libnl-route-3-dev\n$", "--rdma-core", "trixie", "--", "true", env=env)
        for name in ("cmake", "cc"):
            os.unlink(os.path.join(self.bin, name))
        text = self.expect(r"^dat-lab: rdma-core: cmake is missing .*: sudo apt-get install cmake\n", "--rdma-core", "trixie", "--", "true", env=env)
        self.assertIn("dat-lab: rdma-core: cc is missing (builds the libraries): sudo apt-get install gcc\n", text)

    def test_rdma_core_that_cannot_be_had_says_why_and_leaves_nothing(self):
        env = self.rdma_core(cmake="echo verbs.c:1: error: no such thing >&2; exit 1\n")
        self.expect(r"rdma-core: the build of 99\.1 fails \(verbs\.c:1: error: no such thing\)\n", "--rdma-core", "trixie", "--", "true", env=env)
        cache = os.path.join(self.dir, "cache", "dat-lab")
        self.assertEqual([f for f in os.listdir(cache) if f.startswith(("tmp-", "rdma-core"))], [])
        self.expect(r"rdma-core: cannot get the sources of sid \(", "--rdma-core", "sid", "--", "true", env=env)
        self.expect(r"argument --rdma-core: '56\.1' is no name of a release of Debian", "--rdma-core", "56.1", "--", "true", rc=2)

    def test_missing_module(self):
        kernel = os.path.join(self.dir, "cache", "dat-lab", "kernel-9.9.9")
        modules = os.path.join(kernel, "lib", "modules", "9.9.9")
        os.makedirs(modules)
        for f in (os.path.join(kernel, "vmlinux"), os.path.join(modules, "modules.dep")):
            open(f, "w").close()
        env = {**self.no_kernel(), **{}}
        os.unlink(os.path.join(self.bin, "apt-cache"))
        self.expect(r"^dat-lab: kernel 9\.9\.9 has no module \w+: .*linux-image-amd64", env=env)

    def test_not_enough_memory(self):
        self.expect(r"^dat-lab: not enough memory: .*use --memory \d+ or less", "--machine", "--memory", "1000000", "--", "true")

    def test_cache_folder_that_is_not_usable(self):
        blocked = os.path.join(self.dir, "file")
        open(blocked, "w").close()
        self.expect(r"^dat-lab: cannot use the cache folder .*: set XDG_CACHE_HOME", env={"XDG_CACHE_HOME": blocked})

    def test_native_without_a_device(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this host has an RDMA device")
        self.expect(r"^dat-lab: --native: the host has no RDMA device", "--native", "--", "true")

    def test_out_that_is_no_directory(self):
        self.expect(r"^dat-lab: --out /dev/null: ", "--machine", "--out", "/dev/null", "--", "true")

    def test_pcap_file_that_cannot_be_written(self):
        self.expect(r"^dat-lab: --pcap /nonexistent/x: No such file", "--pcap", "v2=/nonexistent/x", "--", "true")

    def test_each_bad_line_of_a_time_line_is_named(self):
        path = os.path.join(self.dir, "faults")
        bad = {
            "loss 5%": "it has not the form SECONDS: ACTION",
            "x: loss 5%": "'x' is no time in seconds",
            "1: explode v1": "unknown action 'explode'",
            "1:": "unknown action ''",
            "1: loss": "'' is no percentage: loss P",
            "1: loss 101": "101 is no percentage",
            "1: loss 9-5%": "the first number is larger",
            "2-1: up v1": "the first number is larger",
            "1: delay 5 parsecs": "'parsecs' is no link",
            "1: delay fast": "'fast' is no time",
            "1: down": "down needs a link",
            "1: up v3": "'v3' is no link (v1 to v2)",
            "1: add 10.78.1.300 v1": "'10.78.1.300' is no IP address",
            "1: remove 10.78.1.1": "remove needs a link",
            "1: reorder 5% v1": "reorder needs a delay on v1",
            "1e9: loss 1": "'1e9' is no time",
            "100001: loss 1": "more than 100000 seconds",
        }
        with open(path, "w") as f:
            f.write("# good lines\n0: loss 5% v2\n" + "".join(line + "\n" for line in bad))
        text = self.expect(r"^dat-lab: ", "--faults", path, "--", "true")
        self.assertEqual(len(text.splitlines()), len(bad), text)
        for number, reason in enumerate(bad.values(), 3):
            self.assertIn(f"dat-lab: {path}:{number}: ", text)
            self.assertIn(reason, text)

    def test_the_same_seed_makes_the_same_time_line(self):
        path = os.path.join(self.dir, "faults")
        with open(path, "w") as f:
            f.write("1-2: loss 1-99%\n3-4: delay 5-9ms v1\n")
        faults = module("faults")
        lines = [faults.TimeLine(open(path).read(), 2, None, None, seed).later for seed in (1, 1, 2)]
        self.assertEqual(lines[0], lines[1])
        self.assertNotEqual(lines[0], lines[2])

    def test_time_line_that_is_empty_or_not_there(self):
        self.expect(r"^dat-lab: /dev/null:1: the file holds no fault\n$", "--faults", "/dev/null", "--", "true")
        self.expect(r"^dat-lab: cannot read the faults /nonexistent: No such file", "--faults", "/nonexistent", "--", "true")

    def test_script_that_is_not_there(self):
        self.expect(r"^dat-lab: cannot read the script /nonexistent: No such file", "--machine", "--script", "/nonexistent")

    def test_values_out_of_range_are_refused_with_the_range(self):
        for option, values, said in (
            ("--timeout", ("0", "-1", "1000001", "x"), "no time in seconds, above 0 and at most 1000000"),
            ("--each", ("0", "x"), "no time in seconds, above 0 and at most 1000000"),
            ("--links", ("0", "17", "x"), "no number from 1 to 16"),
            ("--cpus", ("0", "65"), "no number from 1 to 64"),
            ("--memory", ("191", "1048577", "x"), "no number from 192 to 1048576"),
            ("--mtu", ("100", "65536"), "no number from 1280 to 65535"),
            ("--seed", ("-1", "4294967296", "x"), "no number from 0 to 4294967295"),
            ("--hosts", ("1", "17", "x"), "no number from 2 to 16"),
            ("--loss", ("101", "-1", "x"), r"no percentage \(0 to 100\)"),
            ("--delay", ("5 parsecs", "x"), r"no time \(as 500us, 5ms, 1s\)"),
        ):
            for value in values:
                self.expect(f"argument {option}: '{value}' is {said}", f"{option}={value}", "--", "true", rc=2)

    def test_wrong_use_ends_with_2(self):
        for args in (
            [],
            ["--links", "0", "--", "true"],
            ["--links", "1", "--loss", "1", "--", "true"],
            ["--timeout", "-1", "--", "true"],
            ["--unknown", "--", "true"],
            ["--native", "--machine", "--", "true"],
            ["--script", "x", "--", "true"],
            ["--device", "mlx5", "--", "true"],
            ["--device", "v3=siw", "--", "true"],
            ["--device", "siw", "--native", "--", "true"],
            ["--rdma-core", "trixie", "--native", "--", "true"],
            ["--faults", "x", "--native", "--", "true"],
            ["--pcap", "v3=x", "--", "true"],
            ["--pcap", "x", "--pcap", "v2=x", "--", "true"],
            ["--pcap", "x", "--native", "--", "true"],
        ):
            with self.subTest(args=args):
                self.expect(r"usage: dat-lab", *(args or ["--cpus", "1"]), rc=2)

    def test_a_counted_machine_has_one_processor(self):
        self.expect("--counted has one processor: leave --cpus out", "--counted", "--cpus", "2", "--", "true", rc=2)

    def test_wrong_use_of_hosts_says_what_is_right(self):
        one = ["--on", "1", "--", "true"]
        for args, why in (
            (["--hosts", "2", "--", "true"], "--hosts needs the host of each command: --on 1 -- COMMAND"),
            (["--hosts", "2"], "--hosts needs the host of each command"),
            (["--hosts", "2", "--on", "1"], "--on 1 needs -- COMMAND directly behind it"),
            (["--hosts", "2", "--on", "1", "true"], "--on 1 needs -- COMMAND directly behind it"),
            (one, "--on 1 needs --hosts N"),
            (["--hosts", "2", "--on", "3", "--", "true"], "--on 3: the hosts are 1 to 2"),
            (["--hosts", "2", "--on", "0", "--", "true"], "--on 0: the hosts are 1 to 2"),
            (["--hosts", "2", "--on", "x", "--", "true"], "--on x: the hosts are 1 to 2"),
            (["--hosts", "2", *one, *one], "--on 1: a host has one command: use sh -c"),
            (["--hosts", "2", "--on", "1", "--", *one], "--on 1 --: the command is missing"),
            (["--hosts", "2", "--script", "x", *one], "--script does not work with --hosts: use --on 1 -- sh FILE"),
            (["--hosts", "2", "--faults", "x", *one], "--faults does not work with --hosts: use `dat-lab cut`"),
            (["--hosts", "2", "--counted", *one], "--counted does not work with --hosts"),
            (["--hosts", "2", "--native", *one], "--native does not work with --hosts"),
            (["--hosts", "2", "--pcap", "v2=x", *one], r"--pcap v2=\.\.\.: the links are v1 to v1"),
            (["kill", "2"], "`dat-lab kill` is for the commands of --hosts"),
        ):
            with self.subTest(args=args):
                self.expect("dat-lab: error: " + why, *args, rc=2)

    def test_each_host_needs_its_memory(self):
        self.expect(r"each of 2 hosts needs \d+ \+ 128 MiB, \d+ MiB are available: use --memory \d+ or less", "--memory", "999999", "--hosts", "2", "--on", "1", "--", "true")

    def test_check_names_what_is_missing(self):
        r = run("--check", env=self.tools("qemu-system-x86_64", "rdma"))
        self.assertEqual(r.rc, 1, r.err)
        self.assertIn(b"sudo apt-get install iproute2 qemu-system-x86\n", r.out)
        self.assertEqual(r.out.count(b"MISSING"), 2, r.out)

    def test_check_is_content_here(self):
        r = run("--check")
        self.assertEqual((r.rc, r.out.count(b"MISSING")), (0, 0), r.out)
        self.assertIn(b"cloud kernels have no rxe", r.out)
        self.assertRegex(r.out, rb"siw: (not )?built")


if __name__ == "__main__":
    sys.exit(lab_main.main())
