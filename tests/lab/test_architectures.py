#!/usr/bin/env python3
# Tests of dat-lab: machines and hosts of other architectures, and kernels of Ubuntu and Fedora. DAT_LAB_BOOT_ARCH boots them.
# SPDX-License-Identifier: BSL-1.0
"""No test boots a machine unless DAT_LAB_BOOT_ARCH names architectures (`s390x aarch64`): an emulated one takes half a minute to boot."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest.mock

import lab_main
from lab_testing import RPING, Case, module, run

FOREIGN = "s390x" if platform.machine() != "s390x" else "aarch64"
DEBIAN = {"s390x": "s390x", "aarch64": "arm64", "x86_64": "amd64"}
BOOTED = os.environ.get("DAT_LAB_BOOT_ARCH", "").split()


class CommandLines(Case):
    """The command line of qemu on each host, for each machine."""

    def command(self, name, host="x86_64", accel="tcg"):
        qemu, architecture, kernel = module("qemu"), module("architecture"), module("kernel")
        with unittest.mock.patch.object(platform, "machine", return_value=host), unittest.mock.patch.object(qemu, "tool", side_effect=lambda name, _: name):
            return qemu.qemu_command(architecture.architecture(name), kernel.Kernel("6.1", "/image", "/"), "/initrd", accel, 2, 768, ["more"], "a=b")

    def values(self, words, option):
        return [words[n + 1] for n, w in enumerate(words) if w == option]

    def test_each_architecture_has_its_program_machine_processor_and_console(self):
        for name, machine, cpu, console in (
            ("x86_64", "pc", "Nehalem", "ttyS0"),
            ("aarch64", "virt,gic-version=max", "max,pauth-impdef=on", "ttyAMA0"),
            ("s390x", "s390-ccw-virtio", "max", "ttysclp0"),
        ):
            with self.subTest(name=name):
                words = self.command(name)
                self.assertEqual(words[0], "qemu-system-" + name)
                self.assertEqual(self.values(words, "-machine"), [machine])
                self.assertEqual(self.values(words, "-cpu"), [cpu])
                self.assertEqual(self.values(words, "-kernel"), ["/image"])
                self.assertRegex(self.values(words, "-append")[0], f"^console={console} .* a=b$")
                self.assertEqual("tsc=" in self.values(words, "-append")[0], name == "x86_64")
                self.assertEqual(words[-1], "more")

    def test_a_host_without_arch_gets_its_own_architecture(self):
        for host in ("x86_64", "aarch64", "s390x"):
            self.assertEqual(self.command(None, host)[0], "qemu-system-" + host)

    def test_kvm_has_the_processor_of_the_host(self):
        for host in ("x86_64", "aarch64", "s390x"):
            words = self.command(None, host, "kvm")
            self.assertEqual((self.values(words, "-accel"), self.values(words, "-cpu")), (["kvm"], ["host"]))

    def test_kvm_is_not_tried_for_another_architecture(self):
        with unittest.mock.patch.object(platform, "machine", return_value="x86_64"), unittest.mock.patch.object(os, "access", return_value=True):
            self.assertFalse(module("qemu").kvm_works(module("architecture").architecture("s390x"), None, None))

    def test_devices_are_attached_by_the_bus_of_the_machine(self):
        architecture, qemu = module("architecture"), module("qemu")
        for name, bus in (("x86_64", "pci"), ("aarch64", "pci"), ("s390x", "ccw")):
            arch = architecture.architecture(name)
            self.assertEqual(arch.device("serial"), ["-device", f"virtio-serial-{bus}"])
            self.assertEqual(arch.device("net", "netdev=n"), ["-device", f"virtio-net-{bus},netdev=n"])
            folder = qemu.shared_folder(arch, "host", "/a,b", ",readonly=on")
            self.assertEqual(folder[:2], ["-fsdev", "local,id=host,path=/a,,b,security_model=none,multidevs=remap,readonly=on"])
            self.assertEqual(folder[2:], ["-device", f"virtio-9p-{bus},fsdev=host,mount_tag=host"])

    def test_a_program_of_the_host_is_foreign_only_elsewhere(self):
        architecture = module("architecture")
        for host, foreign in (("x86_64", ["aarch64", "s390x"]), ("aarch64", ["s390x", "x86_64"]), ("s390x", ["aarch64", "x86_64"])):
            with unittest.mock.patch.object(platform, "machine", return_value=host):
                self.assertEqual(sorted(a.name for a in architecture.ARCHITECTURES.values() if a.foreign), foreign)
                cache = module("cache").cache_dir
                self.assertEqual([os.path.basename(cache(a)) for a in map(architecture.architecture, (host,))], ["dat-lab"])

    def test_another_host_gets_the_choice_of_what_it_can_do(self):
        with unittest.mock.patch.object(platform, "machine", return_value="riscv64"):
            with self.assertRaisesRegex(module("outcome").Failure, r"this host \(riscv64\): use --arch x86_64, --arch aarch64, --arch s390x, or --native"):
                module("architecture").architecture()


class Fakes(Case):
    """Packages and tools that the test makes."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dat-lab-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.bin, self.debs = os.path.join(self.dir, "bin"), os.path.join(self.dir, "debs")
        os.mkdir(self.bin)
        os.mkdir(self.debs)
        self.cache = os.path.join(self.dir, "cache", "dat-lab")

    def tools(self, *without, **fakes):
        for name in "busybox tar dpkg-deb ip rdma tc".split():
            target = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
            if target and name not in without and name.replace("-", "_") not in fakes:
                os.symlink(target, os.path.join(self.bin, name))
        # modprobe names no module: the initial file system has none.
        for key, text in {"depmod": "exit 0\n", "modprobe": "exit 0\n", **fakes}.items():
            name = key if "-" in key else key.replace("_", "-")
            if name not in without:
                path = os.path.join(self.bin, name)
                with open(path, "w") as f:
                    f.write("#!/bin/sh\n" + text)
                os.chmod(path, 0o755)
        return {"DAT_LAB_TOOLS": self.bin, "XDG_CACHE_HOME": os.path.join(self.dir, "cache"), "DAT_LAB_KVM": "0", "FAKES": self.dir}

    def tree(self, name, files):
        top = os.path.join(self.dir, "tree-" + name)
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
            with open(os.path.join(top, path), "w") as f:
                f.write(text)
        return top

    def deb(self, name, architecture, files):
        control = f"Package: {name}\nVersion: 1\nArchitecture: {architecture}\nMaintainer: a <a@b.c>\nDescription: a test\n"
        top = self.tree(name, {"DEBIAN/control": control, **files})
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", top, os.path.join(self.debs, f"{name}_1_{architecture}.deb")], check=True, capture_output=True)

    def read(self, *path):
        with open(os.path.join(self.cache, *path)) as f:
            return f.read()


@unittest.skipUnless(shutil.which("dpkg-deb"), "dpkg-deb makes the packages")
class OtherArchitecture(Fakes):
    """A machine of an architecture that the host does not have; apt is a fake."""

    SHOW = """case "$APT_CONFIG $1" in
" "*) exit 100 ;; # the host's own lists are not asked
*" show") [ "$3" = linux-image-DEBIAN ] && echo "Depends: linux-image-9.9.9-DEBIAN (= 1)" ;;
*" search") case $3 in *image*) echo "linux-image-9.9.9-DEBIAN - x"; echo "linux-image-9.9.10-DEBIAN - x" ;; esac ;;
esac
"""
    GET = """case "$1" in
indextargets) echo "Debian|http://mirror.invalid/debian/|bookworm|/nonexistent/debian.sources:1" ;;
update) case $(cat "${APT_CONFIG%/*}"/sources.d/*) in *backports*) [ ! -e "$FAKES/no-backports" ] || exit 100 ;; esac ;;
download) cp "$FAKES/debs/$2"_* . ;;
install) for a; do case $a in Dir::Cache::archives=*) d=${a#*=} ;; esac; done; cp "$FAKES"/debs/[!l]*.deb "$d" ;;
esac
"""

    def fakes(self, *without, **more):
        debian = DEBIAN[FOREIGN]
        self.deb(f"linux-image-9.9.9-{debian}", debian, {f"boot/vmlinuz-9.9.9-{debian}": "image", f"lib/modules/9.9.9-{debian}/modules.order": ""})
        self.deb("busybox-static", debian, {"bin/busybox": "box of another architecture"})
        self.deb("tool", debian, {"usr/bin/tool": "tool", "usr/share/doc/tool/copyright": "text", "lib/libtool.so": "library"})
        usual = {"apt_cache": self.SHOW.replace("DEBIAN", debian), "apt_get": self.GET, "apt_config": "exit 0\n", f"qemu-system-{FOREIGN}": "exit 1\n"}
        return self.tools(*without, **{**usual, **more})

    def test_its_kernel_and_its_root_come_from_packages_and_stay_apart(self):
        env = self.fakes()
        r = run("--prepare", "--arch", FOREIGN, env=env)
        self.assertEqual(r.rc, 0, r.err)
        debian = DEBIAN[FOREIGN]
        self.assertEqual(self.read(FOREIGN, f"kernel-9.9.9-{debian}", "vmlinux"), "image")
        root = next(f for f in os.listdir(os.path.join(self.cache, FOREIGN)) if f.startswith("root-"))
        self.assertEqual(self.read(FOREIGN, root, "usr/lib/libtool.so"), "library")  # through the links of merged directories
        self.assertEqual(self.read(FOREIGN, root, "etc/passwd").split(":")[0], "root")
        self.assertFalse(os.path.exists(os.path.join(self.cache, FOREIGN, root, "usr/share/doc")))
        self.assertTrue(all(os.path.isdir(os.path.join(self.cache, FOREIGN, root, d)) for d in ("proc", "sys", "dev", "run", "tmp")))
        initrd = next(f for f in os.listdir(os.path.join(self.cache, FOREIGN)) if f.startswith("initrd-"))
        with open(os.path.join(self.cache, FOREIGN, initrd), "rb") as f:
            self.assertIn(b"box of another architecture", f.read())
        self.assertEqual(os.listdir(self.cache), [FOREIGN])
        main = self.read(FOREIGN, "apt", "main")
        self.assertIn(f'APT::Architecture "{debian}";', main)
        self.assertIn(f'Dir::State::status "{self.cache}/{FOREIGN}/apt/status";', main)
        self.assertIn(f"Suites: bookworm bookworm-backports\nComponents: main\nArchitectures: {debian}\n", self.read(FOREIGN, "apt", "sources.d", "debian.sources"))
        os.unlink(os.path.join(self.bin, "apt-get"))
        again = run("--prepare", "--arch", FOREIGN, env=env)
        self.assertEqual((again.rc, again.err), (0, b""))

    def test_a_mirror_without_backports_serves(self):
        env = self.fakes()
        open(os.path.join(self.dir, "no-backports"), "w").close()
        r = run("--list-kernels", "--arch", FOREIGN, env=env)
        self.assertEqual(r.rc, 0, r.err)
        self.assertEqual(r.out.decode().split(), [f"9.9.10-{DEBIAN[FOREIGN]}", f"9.9.9-{DEBIAN[FOREIGN]}"])
        self.assertIn("Suites: bookworm\n", self.read(FOREIGN, "apt", "sources.d", "debian.sources"))

    def test_a_host_without_a_debian_mirror_says_so(self):
        r = run("--prepare", "--arch", FOREIGN, env=self.fakes(apt_get="exit 0\n"))
        self.assertEqual(r.rc, 125)
        self.assertRegex(r.err.decode(), rf"^dat-lab: packages of {DEBIAN[FOREIGN]} come from a Debian mirror, and apt has no source of Debian's")

    def test_programs_that_cannot_be_downloaded_leave_nothing(self):
        r = run("--prepare", "--arch", FOREIGN, env=self.fakes(apt_get=self.GET.replace("install) ", "install) echo 'E: no such package' >&2; exit 100; ")))
        self.assertEqual(r.rc, 125)
        self.assertIn(b"dat-lab: cannot download the programs of the machine (E: no such package): check the network\n", r.err)
        self.assertEqual([f for f in os.listdir(os.path.join(self.cache, FOREIGN)) if f.startswith(("root-", "tmp-"))], [])

    def test_check_has_a_line_for_each_thing_that_is_missing(self):
        package = module("architecture").ARCHITECTURES[FOREIGN].package
        r = run("--check", "--arch", FOREIGN, env=self.fakes(f"qemu-system-{FOREIGN}", "dpkg-deb", "modprobe"))
        text = r.out.decode()
        self.assertEqual((r.rc, text.count("MISSING")), (1, 3), text)
        self.assertIn(f"MISSING qemu-system-{FOREIGN} (runs the machine, of {FOREIGN}): package {package}\n", text)
        self.assertIn("MISSING dpkg-deb (gets the kernel and the programs of the machine): package dpkg\n", text)
        self.assertIn("sudo apt-get install " + " ".join(sorted(["dpkg", "kmod", package])) + "\n", text)
        self.assertNotIn("busybox", text)  # the machine has its own

    def test_a_missing_emulator_has_its_package(self):
        r = run("--arch", FOREIGN, "--", "true", env=self.fakes(f"qemu-system-{FOREIGN}"))
        package = module("architecture").ARCHITECTURES[FOREIGN].package
        self.assertEqual((r.rc, r.err.decode()), (125, f"dat-lab: qemu-system-{FOREIGN} is missing (runs the machine): sudo apt-get install {package}\n"))

    def test_a_working_directory_that_the_machine_lacks_is_refused_and_shared_it_is_not(self):
        env = self.fakes()
        r = run("--arch", FOREIGN, "--", "true", env=env, cwd="/usr")
        self.assertEqual(r.rc, 125)
        self.assertRegex(r.err.decode(), r"^dat-lab: the working directory /usr is not in a machine of another architecture, .*: use --share /usr\n$")
        root, failure = module("guest_root"), module("outcome").Failure
        root.check_directory("/usr/a/b", ["/usr/a"])
        self.assertRaises(failure, root.check_directory, "/usr/ab", ["/usr/a"])

    def test_wrong_use_ends_with_2(self):
        for args, why in (
            (["--arch", "sparc", "--", "true"], "argument --arch: invalid choice: 'sparc'"),
            (["--arch", FOREIGN, "--native", "--", "true"], "--arch needs the machine: leave --native out"),
            (["--arch", FOREIGN, "--device", "siw", "--", "true"], "--device siw needs a machine of the host's architecture"),
            (["--arch", FOREIGN, "--rdma-core", "trixie", "--", "true"], "--rdma-core needs a machine of the host's architecture"),
        ):
            r = run(*args)
            self.assertEqual(r.rc, 2)
            self.assertIn("dat-lab: error: " + why, r.err.decode())


@unittest.skipUnless(shutil.which("dpkg-deb"), "dpkg-deb makes the packages")
class Distributions(Fakes):
    """Kernels of hosts with Ubuntu and Fedora: the modules of one are in several packages."""

    def no_kernel(self):
        if module("kernel").installed_kernels():
            self.skipTest("this host has a kernel installed, no package is needed")

    def test_kernel_of_ubuntu_is_unpacked_from_all_its_packages(self):
        self.no_kernel()
        version, debian = "6.8.0-31-generic", DEBIAN[platform.machine()]
        self.deb("linux-image-" + version, debian, {f"boot/vmlinuz-{version}": "image"})
        self.deb("linux-modules-" + version, debian, {f"lib/modules/{version}/kernel/net/9p/9p.ko.zst": "9p", f"lib/modules/{version}/kernel/sound/x.ko.zst": "x"})
        self.deb("linux-modules-extra-" + version, debian, {f"usr/lib/modules/{version}/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.zst": "rxe"})
        show = f"""case "$1 $3" in
"show linux-image-generic") echo "Depends: linux-image-{version}, linux-modules-extra-{version}, linux-firmware" ;;
"search "*modules*) for p in linux-modules-{version} linux-modules-extra-{version} linux-modules-extra-{version}-x; do echo "$p - x"; done ;;
"search "*) echo "linux-image-{version} - x"; echo "linux-image-6.5.0-9-generic - x" ;;
esac
"""
        env = self.tools(apt_cache=show, apt_get='[ "$1" = download ] && cp "$FAKES/debs/$2"_* .\n', **{module("architecture").architecture().qemu: "exit 1\n"})
        r = run("--prepare", env=env)
        self.assertEqual(r.rc, 0, r.err)
        modules = os.path.join("kernel-" + version, "lib/modules", version, "kernel")
        self.assertEqual(self.read(modules, "net/9p/9p.ko.zst"), "9p")
        self.assertEqual(self.read(modules, "drivers/infiniband/sw/rxe/rdma_rxe.ko.zst"), "rxe")
        self.assertFalse(os.path.exists(os.path.join(self.cache, modules, "sound")))
        self.assertEqual(self.read("kernel-" + version, "vmlinux"), "image")
        listed = run("--list-kernels", env=env).out.decode().splitlines()
        self.assertEqual([re.sub(" +", " ", line) for line in listed], [f"{version} cached, default", "6.5.0-9-generic"])

    FEDORA = "6.8.5-301.fc40"

    def fedora(self, dnf=None):
        version = f"{self.FEDORA}.{platform.machine()}"
        self.tree("kernel-core", {f"lib/modules/{version}/vmlinuz": "image"})
        self.tree("kernel-modules-core", {f"lib/modules/{version}/kernel/net/9p/9p.ko.xz": "9p"})
        self.tree("kernel-modules", {f"lib/modules/{version}/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz": "rxe", f"lib/modules/{version}/kernel/sound/x.ko.xz": "x"})
        dnf = dnf or f"""case "$*" in
*" kernel-core") echo 6.5.6-300.fc40.{platform.machine()}; echo {version} ;;
repoquery*) for p in kernel-core kernel-modules-core kernel-modules; do echo $p-{version}; done ;; # no kernel-modules-extra
download*) echo "$5" >"$4/$5.rpm" ;;
esac
"""
        tar = 'n=$(cat "$1"); tar -C "$FAKES/tree-${n%%-6.*}" -c .\n'
        rpm = f'cd "$FAKES/tree-$(sed s/-6[.].*// "$1")" && find . | {shutil.which("cpio")} -o --quiet\n' if shutil.which("cpio") else tar
        cpio = f'exec {shutil.which("cpio")} "$@"\n' if shutil.which("cpio") else "exec tar -x --exclude=./lib/modules/*/kernel/sound\n"
        return version, self.tools("dpkg-deb", dnf=dnf, rpm2cpio=rpm, cpio=cpio, **{module("architecture").architecture().qemu: "exit 1\n"})

    def test_kernel_of_fedora_is_unpacked_from_all_its_packages(self):
        self.no_kernel()
        version, env = self.fedora()
        r = run("--prepare", env=env)
        self.assertEqual(r.rc, 0, r.err)
        self.assertIn(f"getting kernel-core-{version} ", r.err.decode())
        modules = os.path.join("kernel-" + version, "lib/modules", version, "kernel")
        self.assertEqual(self.read(modules, "net/9p/9p.ko.xz"), "9p")
        self.assertEqual(self.read(modules, "drivers/infiniband/sw/rxe/rdma_rxe.ko.xz"), "rxe")
        self.assertFalse(os.path.exists(os.path.join(self.cache, modules, "sound", "x.ko.xz")))
        self.assertEqual(self.read("kernel-" + version, "vmlinux"), "image")
        listed = run("--list-kernels", env=env).out.decode().splitlines()
        self.assertEqual([re.sub(" +", " ", line) for line in listed], [f"{version} cached, default", f"6.5.6-300.fc40.{platform.machine()}"])

    def test_fedora_that_knows_no_kernel_says_what_helps(self):
        self.no_kernel()
        _, env = self.fedora(dnf="exit 1\n")
        r = run("--prepare", env=env)
        self.assertEqual((r.rc, r.err.decode()), (125, "dat-lab: dnf knows no kernel package kernel-core: sudo dnf makecache\n"))

    def test_hints_name_the_packages_of_fedora(self):
        _, env = self.fedora()
        os.unlink(os.path.join(self.bin, "rdma"))
        os.unlink(os.path.join(self.bin, "busybox"))
        r = run("--check", env=env)
        self.assertIn(b"sudo dnf install busybox iproute", r.out)

    def test_an_installed_kernel_of_fedora_has_its_image_beside_its_modules(self):
        kernel, readable = module("kernel"), set()
        with unittest.mock.patch.object(os, "access", side_effect=lambda path, _: path in readable):
            self.assertIsNone(kernel.installed_image("6.8"))
            readable.add("/lib/modules/6.8/vmlinuz")
            self.assertEqual(kernel.installed_image("6.8"), "/lib/modules/6.8/vmlinuz")
            readable.add("/boot/vmlinuz-6.8")
            self.assertEqual(kernel.installed_image("6.8"), "/boot/vmlinuz-6.8")


@unittest.skipUnless(BOOTED, "DAT_LAB_BOOT_ARCH names no architecture")
class Boots(Case):
    """Boots each machine that DAT_LAB_BOOT_ARCH names."""

    def test_traffic_crosses_the_wire_and_files_of_the_host_are_there(self):
        for name in BOOTED:
            with self.subTest(name=name), tempfile.TemporaryDirectory() as d:
                job, wire = os.path.join(d, "job"), os.path.join(d, "wire")
                with open(job, "w") as f:
                    f.write('uname -m; ibv_devinfo; pwd; echo written >"$DAT_LAB_OUT/file"; echo discarded >lost\n' + RPING.format(client="10.78.1.1", server="10.78.2.1"))
                r = run("--arch", name, "--timeout", "400", "--out", os.path.join(d, "out"), "--pcap", wire, "--", "sh", "job", cwd=d)
                self.assertEqual(r.rc, 0, (r.out, r.err))
                self.assertEqual(r.out.decode().split("\n")[0], name)
                for word in (b"rx1", b"rx2", b"PORT_ACTIVE", b"rdma-ping-2", os.fsencode(os.path.realpath(d))):
                    self.assertIn(word, r.out)
                with open(os.path.join(d, "out", "file")) as f:
                    self.assertEqual(f.read(), "written\n")
                self.assertFalse(os.path.exists(os.path.join(d, "lost")))
                self.assertGreater(os.path.getsize(wire), 1000)
                self.assert_clean(r)


if __name__ == "__main__":
    sys.exit(lab_main.main())
